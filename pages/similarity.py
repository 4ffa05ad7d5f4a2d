"""Similarity: how alike queries, keys and values are."""

from attnkit.ui.inspected_run import film_page

film_page("similarity", "How alike are queries, keys and values?", "similarity")
