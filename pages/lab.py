"""The Lab: choose variants, press Train, watch them learn side by side."""

from attnkit.ui.pages import lab

lab.draw()
