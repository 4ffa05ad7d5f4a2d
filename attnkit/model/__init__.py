"""The toy transformer: its plain reference, its compiled kernel, parameters, and decoding.

Start reading at `attnkit.model.reference`.
"""
