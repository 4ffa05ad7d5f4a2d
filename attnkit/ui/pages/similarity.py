"""Similarity: how alike queries, keys and values are."""

from __future__ import annotations

from attnkit.ui.inspected_run import film_page


def draw() -> None:
    """Draw the page."""
    film_page("similarity", "How alike are queries, keys and values?", "similarity")
