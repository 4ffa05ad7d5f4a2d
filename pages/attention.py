"""Attention: one lookup of a trained model, in stages, at any moment of training."""

from attnkit.ui.inspected_run import ATTENTION_TITLE, film_page

film_page("attention", ATTENTION_TITLE, "attention")
