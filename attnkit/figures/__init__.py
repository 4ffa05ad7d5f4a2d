"""Values in, drawings out: Plotly figures and small SVG diagrams."""
