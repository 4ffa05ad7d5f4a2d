"""Variants: what each one is, who uses it, what it costs and what accuracy it reached."""

from attnkit.ui.pages import variants

variants.draw()
