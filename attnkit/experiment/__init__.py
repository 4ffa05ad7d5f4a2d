"""Experiments: frozen settings with one text form and one hash, their costs and their links."""

from attnkit.experiment.experiment import Experiment, from_text
from attnkit.foundation.settings import InvalidExperiment

__all__ = ["Experiment", "InvalidExperiment", "from_text"]
