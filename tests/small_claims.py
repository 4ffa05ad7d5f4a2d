"""Small claims: tiny arms and made-up numbers, for tests of what is gathered and told."""

from pathlib import Path
from zlib import crc32

import numpy as np

from attnkit.claims.base import Claim, arm, worse
from attnkit.evidence.gathering import Bench, gather
from attnkit.evidence.measures import MEASURES

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
    """Q=K against QKV, with K=V beside them; its arms do not stand in an experiment's order."""
    own = {
        "id": name,
        "title": "A small claim",
        "question": "Is Q=K worse?",
        "source": "a test",
        "says": "Q=K is worse.",
        "prediction": "Supported.",
        "expected": "supported",
        "arms": (arm("Q=K", **TINY), arm("K=V", **TINY), arm("QKV", **TINY)),
        "statements": (worse("Q=K", "QKV", unable=True),),
        "n_seeds": 7,
    }
    return Claim(**{**own, **given})


class MadeUp(Bench):
    """Trains nothing.

    Args:
        say: told what is done.
        accuracy: of every run of a sharing; others have numbers of their own. NaN: it diverges.
    """

    def __init__(self, say=print, **accuracy):
        super().__init__(Path("nowhere"), say=say)
        self.measured = []
        self._accuracy = {name.replace("_", "="): value for name, value in accuracy.items()}

    def measure(self, experiment):
        """Numbers that hang on variant, seed and measure alone."""
        self.measured.append(experiment)
        self.model_steps += experiment.n_runs * experiment.training.steps
        found = {
            name: np.array(
                [crc32(f"{v} {seed} {name}".encode()) >> 16 for v, seed in experiment.runs]
            )
            / 2**16  # as single precision holds
            for name in MEASURES
        }
        for run, (variant, _) in enumerate(experiment.runs):
            known = self._accuracy.get(variant.sharing.value)
            if known is not None:
                found["accuracy"][run] = known
                found["loss"][run] = 1 - known
        return found


def made_up(claim, bench=None, **options):
    """Evidence for a claim from numbers that are made up."""
    (evidence,) = gather([claim], bench or MadeUp(), **options)
    return evidence
