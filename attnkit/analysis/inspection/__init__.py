"""Inspections of trained models: requests about a film, and results as arrays over its frames.

A page sends a `request`; the training process computes the `result`, for which `replay` runs the
models of all frames as one batch and each view derives its arrays; the browser draws it. `request`
and `result` import no torch; the other modules do.
"""
