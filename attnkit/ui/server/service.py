"""The training service, of which a server has one, and the time that training takes, in words."""

from __future__ import annotations

from attnkit.experiment import Experiment
from attnkit.foundation.language import tr
from attnkit.service.service import TrainingService
from attnkit.service.store import ResultStore
from attnkit.training.pace import duration_in_words
from attnkit.ui.server.singletons import Singleton
from attnkit.ui.server.storage import result_store
from attnkit.ui.server.turns import waiting


def _start_service() -> TrainingService:
    store = result_store()
    kept = store if isinstance(store, ResultStore) else None
    return TrainingService(store=kept, waiting=waiting)


FIRST_FRAME_SECONDS = 0.3
"""Seconds that a click waits for the first snapshot, so that it shows without another tick."""

training_service = Singleton(_start_service, release=TrainingService.close)
"""Return the service; it is started with the server, or else with the first page."""


def training_time(*experiments: Experiment, reuse: bool = True) -> str:
    """Return about how long experiments will train, one after the other, in words.

    Args:
        *experiments: The experiments.
        reuse: Whether finished runs are taken over, and not trained again.
    """
    service = training_service()
    seconds = sum(service.estimate(experiment, reuse=reuse) for experiment in experiments)
    time = duration_in_words(seconds)
    if service.n_active:
        # Translators: After "It takes" or a similar beginning of a sentence.
        return tr("about {time} on this server, longer while others train", time=time)
    # Translators: After "It takes" or a similar beginning of a sentence.
    return tr("about {time} on this server", time=time)
