"""Sweeps: the same variants trained at every point of a grid of settings, on many processes."""
