"""The pages of the dashboard, one module each; `draw` draws the page."""
