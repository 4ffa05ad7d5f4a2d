"""Evidence for claims: what is measured, how it is judged, how it is gathered and kept."""
