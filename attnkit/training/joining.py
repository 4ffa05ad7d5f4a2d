"""Joining of runs that were trained separately: snapshots, results and films.

A run does not depend on the runs that train beside it, so finished runs need not be trained again
when an experiment gets another variant. The exception is `equal`: there the variants decide each
other's widths. This module does not import torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attnkit.experiment import Experiment
from attnkit.training.film import Film, Frame
from attnkit.training.metrics import METRICS
from attnkit.training.results import Result
from attnkit.training.snapshot import Probe, Snapshot
from attnkit.variants import Variant

_SHARED = ("tokens", "labels", "target", "reverse")
"""Arrays of a probe that are the same for all runs."""


def can_share_runs(first: Experiment, second: Experiment) -> bool:
    """Return whether two experiments give equal runs of the variants that they have in common."""
    names = Experiment.model_fields.keys() - {"sharing"}
    if any(getattr(first, name) != getattr(second, name) for name in names):
        return False
    return first.equal == "nothing" or first.sharing == second.sharing


def join_snapshots(experiment: Experiment, parts: Sequence[Snapshot]) -> Snapshot:
    """Return the snapshot of an experiment whose runs were trained in several parts.

    Histories of runs that have been evaluated less often than others end in NaN. The step is the
    smallest of the parts; the time is the share of the runs that are used.

    Args:
        experiment: The experiment of the joined snapshot.
        parts: Snapshots that together have all its variants. Each variant is taken from the first
            one that has it.
    """
    by_variant = [_holder(variant, parts) for variant in experiment.sharing]
    used = [part for part in parts if part in by_variant]  # snapshots compare by identity
    order = _order(experiment, [part.experiment for part in used])
    longest = max(used, key=lambda part: len(part.eval_steps))

    def joined(arrays: list[np.ndarray], axis: int = 0) -> np.ndarray:
        return np.concatenate(arrays, axis).take(order, axis)

    def by_head(arrays: list[np.ndarray]) -> np.ndarray:
        n_heads = max(array.shape[2] for array in arrays)
        padded = [_padded(array, n_heads, axis=2) for array in arrays]
        return joined(padded)[:, :, : experiment.n_heads]

    probes = [part.probe.to_arrays() for part in used]
    probe_arrays = {}
    for name in set.intersection(*map(set, probes)):
        arrays = [probe[name] for probe in probes]
        if name in _SHARED:
            probe_arrays[name] = arrays[0]
        else:
            probe_arrays[name] = by_head(arrays) if arrays[0].ndim > 2 else joined(arrays)
    n_evaluations = len(longest.eval_steps)
    return Snapshot(
        experiment=experiment,
        status=next((part.status for part in used if part.status != "finished"), "finished"),
        step=min(part.step for part in used),
        seconds=sum(
            part.seconds * by_variant.count(part) / len(part.experiment.sharing) for part in used
        ),
        eval_steps=longest.eval_steps,
        history={
            name: joined([_padded(part.history[name], n_evaluations, axis=0) for part in used], 1)
            for name in METRICS
        },
        head_symmetry=by_head([part.head_symmetry for part in used]),
        slice_accuracy=joined([part.slice_accuracy for part in used]),
        diverged_at=joined([part.diverged_at for part in used]),
        probe=Probe(**probe_arrays),
        **used[0].maker._asdict(),
    )


def join_results(experiment: Experiment, parts: Sequence[Result]) -> Result:
    """Return the result of an experiment whose runs were trained in several parts.

    Args:
        experiment: The experiment of the joined result.
        parts: Results that together have all its variants; see `join_snapshots`.
    """
    by_run = {
        run: parameters
        for part in reversed(parts)
        for run, parameters in zip(part.experiment.runs, part.parameters, strict=True)
    }
    snapshot = join_snapshots(experiment, [part.snapshot for part in parts])
    return Result(snapshot, [by_run[run] for run in experiment.runs])


def join_films(
    experiment: Experiment, films: Sequence[Film], recorded: Sequence[Variant] = ()
) -> Film:
    """Return the film of an experiment whose variants were filmed separately.

    Its frames are those of the steps that all these films have.

    Args:
        experiment: The experiment of the joined film, with the filmed seed only.
        films: One film for every variant of the experiment, in its order.
        recorded: The variants' names in the films; empty if they are those of the experiment.
    """
    by_step = [{frame.step: frame for frame in film.frames} for film in films]
    indices = [
        film.experiment.sharing.index(variant)
        for variant, film in zip(recorded or experiment.sharing, films, strict=True)
    ]
    joined = [
        _join_frames([frames[step] for frames in by_step], indices, experiment.n_heads)
        for step in sorted(set.intersection(*map(set, by_step)))
    ]
    return replace(films[0], experiment=experiment, frames=joined)


def _join_frames(frames: Sequence[Frame], indices: Sequence[int], n_heads: int) -> Frame:
    """Return a frame with one variant of each of these frames, whose indices are given."""
    chosen = list(zip(frames, indices, strict=True))
    widest = max(n_heads, *(frame.head_symmetry.shape[2] for frame in frames))
    symmetry = [_padded(frame.head_symmetry, widest, axis=2)[index] for frame, index in chosen]
    return Frame(
        frames[0].step,
        [frame.parameters[index] for frame, index in chosen],
        {name: np.array([f.metrics[name][index] for f, index in chosen]) for name in METRICS},
        np.stack(symmetry)[:, :, :n_heads],
    )


def _holder(variant: Variant, parts: Sequence[Snapshot]) -> Snapshot:
    """Return the first part that has a variant."""
    return next(part for part in parts if variant in part.experiment.sharing)


def _order(experiment: Experiment, parts: Sequence[Experiment]) -> list[int]:
    """Return the indices of an experiment's runs among the concatenated runs of all parts."""
    runs = [run for part in parts for run in part.runs]
    return [runs.index(run) for run in experiment.runs]


def _padded(array: np.ndarray, length: int, axis: int) -> np.ndarray:
    """Return an array, padded with NaN to at least this length along an axis."""
    missing = length - array.shape[axis]
    if missing <= 0:
        return array
    shape = list(array.shape)
    shape[axis] = missing
    return np.concatenate([array, np.full(shape, np.nan, array.dtype)], axis)
