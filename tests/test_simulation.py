"""Simulated errors of tuning and test, with populations whose chances are known."""

import json

import numpy as np
import pytest
from small_claims import TINY

from attnkit.claims.base import SCHEDULES, arm
from attnkit.evidence.simulation import SIMULATED, errors_in_words, simulate
from attnkit.evidence.tuning import Runs
from attnkit.evidence.verdict import LEVEL
from attnkit.tasks import TASKS

N_CLAIMS = 40


def population(shares, n=200):
    """Return runs of which a share learns, by doublings of the learning rate and schedule."""
    steps = np.array([0.0, 50.0, 100.0])
    made = {}
    for schedule in SCHEDULES:
        for doublings, share in enumerate(shares, -len(shares) // 2):
            learns = np.arange(n) < n * share * (1 if schedule == "constant" else 0.6)
            last = np.where(learns, 0.99, 0.1)
            accuracy = np.stack([np.zeros(n), np.where(learns, 0.5, 0.1), last])
            made[schedule, doublings] = Runs(steps, accuracy, 1 - accuracy)
    return made


@pytest.mark.parametrize(
    "shares", [[0.1, 0.3, 0.7, 0.4, 0.1], [0.2, 0.5, 0.5, 0.4, 0.0], [0.9] * 5]
)
def test_equal_arms_differ_no_more_often_than_the_level_says(shares, seed):
    """Tuning, which may miss the best recipe, included."""
    n = 150
    found = simulate(population(shares), arm("QKV", **TINY), 40, N_CLAIMS, n, seed)
    allowed = 1 - LEVEL
    assert found.alone <= allowed + 3 * np.sqrt(allowed * (1 - allowed) / n)
    assert found.together <= found.alone
    assert (found.learns, found.n, found.n_seeds) == (max(shares), n, 40)


def test_shipped_errors_are_below_the_level():
    """They are told in a sentence."""
    errors = json.loads(SIMULATED.read_text(encoding="utf-8"))
    assert all(0 <= one["together"] <= one["alone"] <= 1 - LEVEL for one in errors)
    for one in errors:
        arm, task = one["arm"].rsplit(", ", 1)
        assert f"for {arm} on “{TASKS[task].title}”" in errors_in_words()
