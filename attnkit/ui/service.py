"""The training service, of which a server has one."""

from __future__ import annotations

from attnkit.service.service import TrainingService
from attnkit.service.store import ResultStore
from attnkit.ui.singletons import Singleton
from attnkit.ui.storage import result_store


def _start_service() -> TrainingService:
    store = result_store()
    return TrainingService(store=store if isinstance(store, ResultStore) else None)


FIRST_FRAME_SECONDS = 0.3
"""Seconds that a click waits for the first snapshot, so that it shows without another tick."""

training_service = Singleton(_start_service, release=TrainingService.close)
"""Return the service; it is started with the server, or else with the first page."""
