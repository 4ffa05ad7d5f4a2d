"""The owner's page: training jobs, memory, versions and settings of this copy."""

from attnkit.ui.pages import owner

owner.draw()
