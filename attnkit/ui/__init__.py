"""The only part of attnkit that imports Streamlit."""
