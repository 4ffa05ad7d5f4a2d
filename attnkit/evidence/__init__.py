"""Evidence for claims: how it is gathered, judged and kept, and how it answers the questions."""
