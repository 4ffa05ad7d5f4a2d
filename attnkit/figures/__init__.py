"""Figures made of values: Plotly figures, drawing data and small diagrams, without Streamlit."""
