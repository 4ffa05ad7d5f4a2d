"""Results of sweeps that were never trained: outcomes are drawn from known probabilities."""

import math

import numpy as np
import pandas as pd

from attnkit.sweeps import Sweep, SweepResult

WIDTHS, ENTRIES = (1, 2, 3, 4, 6, 8, 12, 16), (2, 4, 8, 16)


def made_sweep(solves, *, sharing=("QKV", "K=V"), axes=None, n_seeds=5, seed=0, base=None):
    """Return a result whose runs solve the task with the probability `solves(variant, point)`."""
    axes = axes or {"d_head": WIDTHS, "n_entries": ENTRIES}
    sweep = Sweep(
        base=base or {"task": "phonebook"}, axes=axes, sharing=list(sharing), n_seeds=n_seeds
    )
    generator, rows = np.random.default_rng(seed), []
    for point in sweep.points():
        for variant in sweep.sharing:
            chance = solves(variant.value, point)
            for each in sweep.seeds:
                solved = generator.random() < chance
                width = float(point.get("d_head", 8))
                rows.append(
                    {
                        **point,
                        "sharing": variant.value,
                        "seed": each,
                        "accuracy": 1.0 if solved else 0.9 * chance,
                        "steps_to_threshold": 200.0 + each if solved else math.nan,
                        "learning_rate": point.get("learning_rate", 0.005),
                        "attention_parameters": int(40 * width),
                        "parameters": int(1000 + 40 * width),
                        "kv_cache_floats_per_token": int(2 * width),
                        "multiply_adds_per_token": int(100 * width),
                        "error": None,
                    }
                )
    runs = pd.DataFrame(rows)
    return SweepResult(sweep, runs.astype({"error": object}))


def from_width(**widths):
    """Return probabilities of 0 below a head width of each variant, and of 1 from it on."""

    def solves(sharing, point):
        return float(point["d_head"] >= widths[sharing.replace("=", "")])

    return solves


def logistic(half, slope=4.0):
    """Return probabilities that are one half at a width of each variant."""

    def solves(sharing, point):
        return 1 / (1 + math.exp(-slope * math.log2(point["d_head"] / half[sharing])))

    return solves


def without(result, **where):
    """Return a result without the runs of some cells."""
    runs = result.runs
    gone = np.logical_and.reduce([runs[name] == value for name, value in where.items()])
    return SweepResult(result.sweep, runs[~gone].reset_index(drop=True))


def failed(result, **where):
    """Return a result in which some cells could not be trained."""
    runs = result.runs.copy()
    bad = np.logical_and.reduce([runs[name] == value for name, value in where.items()])
    runs.loc[bad, ["accuracy", "steps_to_threshold"]] = math.nan
    runs.loc[bad, "error"] = "d_head: got 12, allowed less <than> that"
    return SweepResult(result.sweep, runs)
