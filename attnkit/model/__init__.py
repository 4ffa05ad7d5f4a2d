"""The toy transformer: plain reference, compiled kernel, parameters, and decoding.

Start reading at `attnkit.model.reference`.
"""
