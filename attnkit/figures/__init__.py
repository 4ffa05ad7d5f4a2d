"""Figures, tables and diagrams computed from values, without Streamlit."""
