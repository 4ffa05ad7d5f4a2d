"""Train populations of runs and simulate with them how often tuning and test err.

Run `python tests/tuning_error.py`, which takes ten minutes on two cores. The result is
`attnkit/evidence/simulated.json`.
"""

import json

import numpy as np

from attnkit.claims import CLAIMS
from attnkit.claims.base import SCHEDULES
from attnkit.evidence.simulation import SIMULATED, simulate
from attnkit.evidence.trials import tuning_trials
from attnkit.evidence.tuning import ALL_DOUBLINGS, Point, Recipe, Request, Runs
from attnkit.training import train

ARMS = {"parameters": "K=V, 4 wide", "self_mask_needed": "Q=K"}  # some seeds learn, others do not
FIRST, N_SEEDS, N_SIMULATIONS, N_COMPARED = 10_000, 80, 2000, 60


def population_of(arm):
    """Return (schedule, doublings of the learning rate) → runs."""
    default = arm.experiment.training.learning_rate
    wanted = [
        Request(Point(schedule, d), Recipe(default * 2.0**d, schedule), 1, first, N_SEEDS // 2)
        for schedule in SCHEDULES
        for d in ALL_DOUBLINGS
        for first in (FIRST, FIRST + N_SEEDS // 2)
    ]
    parts = {}
    for trial in tuning_trials([(arm, request) for request in wanted]):
        snapshot = train(trial.experiment, progress=False).snapshot
        both = np.stack([snapshot.history[name].astype(float) for name in ("accuracy", "loss")])
        cells = zip(trial.cells, np.split(both, len(trial.cells), -1), strict=True)
        for (_, recipe), values in cells:
            point = recipe.schedule, round(np.log2(recipe.rate / default))
            parts.setdefault(point, []).append(values)
    steps = snapshot.eval_steps.astype(float)
    return {point: Runs(steps, *np.concatenate(runs, -1)) for point, runs in parts.items()}


if __name__ == "__main__":
    errors = []
    for claim, name in ARMS.items():
        arm = CLAIMS[claim].arm_of(name)
        found = simulate(population_of(arm), arm, N_COMPARED, len(CLAIMS), N_SIMULATIONS, 0)
        errors.append(found._asdict())
    SIMULATED.write_text(json.dumps(errors, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
