"""Attention: one lookup of a trained model, in stages, at any moment of training."""

from attnkit.ui.pages import attention

attention.draw()
