"""The Guide: the question, the five answers on paper, and what to try."""

import streamlit as st

st.title("Guide", anchor=False)
