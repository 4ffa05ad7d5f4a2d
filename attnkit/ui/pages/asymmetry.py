"""Asymmetry: whether a score distinguishes i → j from j → i."""

from __future__ import annotations

from attnkit.ui.inside.film_page import film_page
from attnkit.ui.inside.rescue import what_rescues_it


def draw() -> None:
    """Draw the page."""
    film_page("asymmetry", "Does a score have a direction?", "symmetry", what_rescues_it)
