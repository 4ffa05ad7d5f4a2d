"""Pages of the dashboard, their shared parts and assets: the only room that imports Streamlit."""
