"""Small claims: tiny arms and made-up numbers, for tests of gathering and of what is shown."""

import contextlib
from pathlib import Path
from zlib import crc32

import numpy as np

from attnkit.claims.base import Claim, arm
from attnkit.claims.measures import MEASURES, multiples
from attnkit.claims.statements import worse
from attnkit.evidence.gathering import Bench, Measurements, gather
from attnkit.evidence.record import FirstRun
from attnkit.evidence.verdict import RULE_HASH

TINY = {
    "task": "directed",
    "n_entries": 5,
    "n_names": 11,
    "n_values": 7,
    "d_model": 16,
    "d_head": 3,
    "steps": 6,
    "evaluate_every": 3,
    "batch_size": 16,
    "n_eval": 16,
}


def small_claim(name="small", **given):
    """Return Q=K against QKV, with K=V beside them, in another order than an experiment has."""
    own = {
        "id": name,
        "title": "A small claim",
        "question": "Is Q=K worse?",
        "source": "a test",
        "says": "Q=K is worse.",
        "prediction": "It holds.",
        "expected": "held",
        "arms": (arm("Q=K", **TINY), arm("K=V", **TINY), arm("QKV", **TINY)),
        "statements": (worse("Q=K", "QKV", unable=True),),
        "n_seeds": 17,
    }
    return Claim(**{**own, **given})


@contextlib.contextmanager
def about(claim):
    """Name a claim in the failure of what is asserted of it."""
    try:
        yield
    except AssertionError as error:
        error.add_note(f"claim: {claim.id}")
        raise


class MadeUp(Bench):
    """A bench that trains nothing.

    Every run of a sharing has the given accuracy, at all steps or one at 1, 2, 4, ... times the
    base steps; other sharings have numbers of their own. NaN: all runs diverge.
    """

    def __init__(self, say=lambda _: None, **accuracy):
        super().__init__(Path("nowhere"), say=say)
        self.measured = []
        self._accuracy = {name.replace("_", "="): value for name, value in accuracy.items()}

    def begin(self, claim):
        """Return a day on which runs began."""
        return FirstRun("2026-11-23", claim.prediction_hash, RULE_HASH)

    def measure(self, trial):
        """Return numbers that depend on variant, seed and measure alone."""
        experiment, times = trial.experiment, multiples(trial.up_to)
        self.measured.append(experiment)
        self.model_steps += experiment.n_runs * experiment.training.steps
        found = {
            name: np.array(
                [[crc32(f"{v} {s} {name}".encode()) >> 16 for v, s in experiment.runs]] * len(times)
            )
            / 2**16  # as single precision holds
            for name in MEASURES
        }
        for run, (variant, _) in enumerate(experiment.runs):
            known = self._accuracy.get(variant.sharing.value)
            if known is not None:
                found["accuracy"][:, run] = np.resize(known, 6)[: len(times)]
                found["loss"][:, run] = 1 - found["accuracy"][:, run]
        steps, n = np.array(times) * (experiment.training.steps / trial.up_to), len(trial.cells)
        parts = {name: np.split(values, n, -1) for name, values in found.items()}
        measured = {}
        for index, cell in enumerate(trial.cells):
            own = {name: part[index] for name, part in parts.items()}
            measured[cell] = Measurements(own, steps, own["accuracy"], own["loss"], 1 / n)
        return measured


def made_up(claim, bench=None, **options):
    """Return evidence for a claim from made-up numbers."""
    (evidence,) = gather([claim], bench or MadeUp(), **options)
    return evidence
