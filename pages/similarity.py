"""Similarity: how alike queries, keys and values are."""

from attnkit.ui.pages import similarity

similarity.draw()
