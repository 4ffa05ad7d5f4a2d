"""Training in a process of its own, watched by pages."""
