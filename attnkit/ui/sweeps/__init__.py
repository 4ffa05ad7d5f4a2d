"""The page Capacity: choices, sections, and sweeps that visitors run."""
