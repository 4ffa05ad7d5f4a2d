"""Train populations of runs and simulate with them how often tuning and test err.

Run `python tests/tuning_error.py FOLDER`, which takes ten minutes on two cores; populations that
the folder holds already are not trained again. The result is `attnkit/evidence/simulated.json`.
"""

import json
import pickle
import sys
from pathlib import Path

import numpy as np

from attnkit.claims import CLAIMS
from attnkit.claims.base import SCHEDULES
from attnkit.evidence.simulation import SIMULATED, simulate
from attnkit.evidence.trials import tuning_trials
from attnkit.evidence.tuning import ALL_DOUBLINGS, Point, Recipe, Request, Runs
from attnkit.training import train

ARMS = {"parameters": "K=V, 4 wide", "self_mask_needed": "Q=K"}
"""Claim → arm of which some seeds learn and others do not."""

FIRST, N_SEEDS, N_SIMULATIONS, N_COMPARED = 10_000, 80, 2000, 60
"""First seed after that of tuning, seeds of a population, simulations, seeds that compare."""


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
        n = len(trial.cells)
        accuracy, loss = (
            np.split(snapshot.history[name].astype(float), n, -1) for name in ("accuracy", "loss")
        )
        for index, (_, recipe) in enumerate(trial.cells):
            point = recipe.schedule, round(np.log2(recipe.rate / default))
            runs = Runs(snapshot.eval_steps.astype(float), accuracy[index], loss[index])
            parts.setdefault(point, []).append(runs)
    return {
        point: Runs(
            runs[0].steps,
            np.concatenate([one.accuracy for one in runs], -1),
            np.concatenate([one.loss for one in runs], -1),
        )
        for point, runs in parts.items()
    }


def main(folder):
    """Train what is missing, simulate, and write the errors."""
    errors = []
    for claim, name in ARMS.items():
        arm, path = CLAIMS[claim].arm_of(name), folder / f"{claim}.pickle"
        if not path.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pickle.dumps(population_of(arm)))
        population = pickle.loads(path.read_bytes())
        errors.append(simulate(population, arm, N_COMPARED, len(CLAIMS), N_SIMULATIONS, 0))
    text = json.dumps([one._asdict() for one in errors], ensure_ascii=False, indent=1)
    SIMULATED.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
