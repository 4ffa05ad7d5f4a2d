"""The code of the pages and their assets: the only room that imports Streamlit."""
