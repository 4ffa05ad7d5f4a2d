"""Surgery: tie the matrices of trained models, or switch heads off, and measure the loss."""

from attnkit.ui.pages import surgery

surgery.draw()
