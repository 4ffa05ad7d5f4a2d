"""Capacity: how large a model must be for each sharing, and what sharing saves."""

from attnkit.ui.pages import capacity

capacity.draw()
