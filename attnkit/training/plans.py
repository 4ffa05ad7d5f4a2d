"""Plans of cohorts, and how much a cohort draws and evaluates at once.

An experiment is divided into cohorts, groups of runs that train as one batched computation. This
module imports no torch, because the estimate of a training's memory follows from the plans.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnkit.experiment import Experiment
from attnkit.experiment.training_settings import MEASURED_TOGETHER
from attnkit.foundation.process import n_cores
from attnkit.training.engine import Engine, kernel_knows
from attnkit.variants import Variant, Wiring

RUNS_PER_COHORT = 10
"""Largest number of runs in a cohort on a CPU; more would not be faster."""

_CACHED_FLOATS = 2**20
"""Approximate limit for a cohort's largest intermediate tensor, so that it fits a core's cache."""

STEPS_PER_DRAW = 16
"""Number of batches that are drawn together, which takes less time than one by one."""

_RECORDED_FLOATS = 2**21
"""Approximate limit for the scores, patterns and logits that an evaluation records together."""

_PASSING_FLOATS = 2**22
"""Approximate limit for the numbers that are in memory while torch computes a layer of these."""

MORE_ON_A_GPU = 32
"""How many times as many runs are recorded together on a GPU, whose calls are small otherwise."""


@dataclass(frozen=True)
class CohortPlan:
    """Variants and seeds of one cohort; each variant has all these seeds."""

    sharing: tuple[Variant, ...]
    seeds: list[int]


def plan_cohorts(experiment: Experiment, device: str, engine: Engine = "torch") -> list[CohortPlan]:
    """Return the plan of every cohort; on a GPU all runs are one cohort.

    On a CPU, every core gets runs, and no cohort has more than `RUNS_PER_COHORT`. The kernel
    computes each run separately: its cohorts have few seeds, so that examples are drawn once for
    many variants. Torch computes the seeds of a variant together, as many as fit the cache.
    """
    variants, seeds = experiment.sharing, list(experiment.seeds)
    if device != "cpu":
        return [CohortPlan(variants, seeds)]
    on_kernel = [v for v in variants if engine == "kernel" and kernel_knows(experiment, v)]
    by_torch = [v for v in variants if v not in on_kernel]
    plans = []
    if on_kernel:
        together = min(RUNS_PER_COHORT, math.ceil(len(on_kernel) * len(seeds) / n_cores()))
        n_variants = min(len(on_kernel), together)
        plans += _divide(on_kernel, n_variants, seeds, together // n_variants)
    if by_torch:
        share = math.ceil(experiment.n_runs / n_cores())
        fitting = min(RUNS_PER_COHORT, _CACHED_FLOATS // _largest_intermediate(experiment))
        for together in range(max(1, min(fitting, share)), 0, -1):
            n_seeds = min(together, len(seeds))
            divided = _divide(by_torch, together // n_seeds, seeds, n_seeds)
            if plans or len(divided) >= min(n_cores(), experiment.n_runs):
                break
        plans += divided
    return plans


def _divide(
    variants: Sequence[Variant], n_variants: int, seeds: list[int], n_seeds: int
) -> list[CohortPlan]:
    """Divide runs into about equal cohorts of at most `n_variants` variants, `n_seeds` seeds."""
    variant_groups = np.array_split(np.arange(len(variants)), math.ceil(len(variants) / n_variants))
    seed_groups = np.array_split(np.array(seeds), math.ceil(len(seeds) / n_seeds))
    return [
        CohortPlan(tuple(variants[i] for i in indices), [int(seed) for seed in seed_group])
        for seed_group in seed_groups
        for indices in variant_groups
    ]


def _largest_intermediate(experiment: Experiment) -> int:
    """Return the size of the largest tensor in one run's step, in numbers."""
    n_ctx = experiment.task.n_ctx
    per_token = max(
        max(
            wiring.sizes.d_model,
            wiring.n_inner,
            wiring.vectors[wiring.roles["Q"]].n_numbers,
            wiring.sizes.d_mlp,
            wiring.sizes.n_heads * wiring.n_maps * n_ctx,
            experiment.task.n_classes,
        )
        for wiring in map(experiment.wiring, experiment.sharing)
    )
    return experiment.training.batch_size * n_ctx * per_token


def runs_recorded_together(experiment: Experiment, n_examples: int | None = None) -> int:
    """Return how many runs an evaluation computes together, at least one.

    Args:
        experiment: The experiment.
        n_examples: Number of examples. None: the held-out ones.
    """
    n_eval = experiment.training.n_eval if n_examples is None else n_examples
    n_first = min(n_eval, MEASURED_TOGETHER)
    wirings = list(map(experiment.wiring, experiment.sharing))
    recorded = max(n_recorded(experiment, wiring, n_first) for wiring in wirings)
    n_logits = n_eval * n_answers(experiment) * experiment.task.n_classes
    passing = n_first * max(n_passing(experiment, wiring) for wiring in wirings)
    return max(1, min(_RECORDED_FLOATS // (recorded + n_logits), _PASSING_FLOATS // passing))


def n_recorded(experiment: Experiment, wiring: Wiring, n_examples: int) -> int:
    """Return the number of scores and pattern entries of one run, over all layers."""
    maps = wiring.sizes.n_heads * (wiring.n_maps + 1)
    pairs = sum(spec.n_queries * spec.n_keys for spec in experiment.layer_specs)
    return n_examples * maps * pairs


def n_passing(experiment: Experiment, wiring: Wiring) -> int:
    """Return the numbers of one example while torch computes a layer, beside what is recorded."""
    sizes = wiring.sizes
    # Queries, keys, values and z; keys and values of lower layers are kept until the last one.
    n_widths = len({*wiring.roles.values()}) + 1 + n_adjusting(wiring)
    n_widths += 2 * (len(experiment.layer_specs) - 1)
    n_streams = 3 + 3 * (sizes.d_mlp > 0) + 4 * sizes.standard + 3 * (experiment.task.n_source > 0)
    per_row = n_widths * width_of(wiring) + max(2 * width_of(wiring), 3 * sizes.d_mlp)
    stream = experiment.task.n_ctx * n_streams * sizes.d_model
    return stream + n_rows(experiment) * per_row + max(n_scores(experiment, wiring))


def n_rows(experiment: Experiment) -> int:
    """Return the largest number of queries or keys of a layer; not all positions have them."""
    return max(max(spec.n_queries, spec.n_keys) for spec in experiment.layer_specs)


def n_scores(experiment: Experiment, wiring: Wiring) -> list[int]:
    """Return the number of scores of one example in every layer."""
    maps = wiring.sizes.n_heads * wiring.n_maps
    return [maps * spec.n_queries * spec.n_keys for spec in experiment.layer_specs]


def width_of(wiring: Wiring) -> int:
    """Return the width of the queries of all heads, or of their values if these are wider."""
    return max(wiring.sizes.n_heads * wiring.n_maps * wiring.sizes.d_k, wiring.n_inner)


def n_adjusting(wiring: Wiring) -> int:
    """Return the number of rules that change queries, keys or values."""
    return sum(bool(rule.code(wiring).adjust) for rule in wiring.rules)


def n_answers(experiment: Experiment) -> int:
    """Return the number of answering positions of an example."""
    return experiment.task.n_ctx - experiment.task.answers_from
