"""Runs: every finished experiment that this copy keeps, and comparisons between them."""

from attnkit.ui.pages import runs

runs.draw()
