"""Questions that people asked, answered in three sentences that rest on trained models."""

from attnkit.ui.pages import questions

questions.draw()
