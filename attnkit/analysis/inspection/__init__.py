"""Looking inside trained models: questions about a film, answered with arrays over its frames.

A page asks (`request`), the training process computes (`replay` runs the models of all frames as
one batch; each view makes its arrays of that), the browser draws (`inspected` is what travels).
`request` and `inspected` import no torch; the rest does.
"""
