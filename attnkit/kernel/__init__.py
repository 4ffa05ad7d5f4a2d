"""Training and evaluation of one run per call on a CPU, compiled by numba."""
