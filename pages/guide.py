"""The Guide: the question, the five answers on paper, what to try, what the words mean."""

from attnkit.ui.pages import guide

guide.draw()
