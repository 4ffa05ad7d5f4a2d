"""Asymmetry: whether a score distinguishes i → j from j → i."""

from attnkit.ui.pages import asymmetry

asymmetry.draw()
