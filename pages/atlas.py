"""Atlas: how similar the three matrices are in real models, head by head."""

from attnkit.ui.pages import atlas

atlas.draw()
