"""A whole training as a film of the Lab's board, for pages that have no server.

`ui/assets/training.js` shows it with the player of all films. A frame is the board at one
evaluation. Most of a board stays the same, so a frame has only what differs from the last board.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnkit.analysis.attention_map import telling_layer
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.analysis.reasons import headline
from attnkit.figures.board import board
from attnkit.training.snapshot import Snapshot
from attnkit.training.summary import finding, measures_finding


def board_film(snapshots: Sequence[Snapshot]) -> bytes:
    """Return the boards of one training at several moments, as a blob that browsers read.

    Args:
        snapshots: Snapshots of the training, in the order of their steps.
    """
    last = snapshots[-1]
    experiment = last.experiment
    boards = [_drawing(snapshot) for snapshot in snapshots]
    accuracy = np.stack(
        [one.per_sharing(one.history["accuracy"][-1]).mean(-1) for one in snapshots]
    )
    header = {
        "film": experiment.hash,
        "view": "training",
        "task": experiment.task.name,
        "request": {},
        "title": experiment.task.title,
        "steps": [snapshot.step for snapshot in snapshots],
        "total_steps": experiment.training.steps,
        "sentences": {"conclusion": [_conclusion(snapshot) for snapshot in snapshots]},
        "variants": [
            {"name": one["name"], "text": one["text"], "color": one["color"]}
            for one in boards[-1]["columns"]
        ],
        "board": boards[-1],
        "changes": [changes(one, boards[-1]) for one in boards],
    }
    return InspectionResult(header, {"accuracy": accuracy.astype(np.float32)}, {}).to_bytes()


def changes(value: Any, base: Any) -> Any:
    """Return what differs in a value of JSON from another one.

    Returns:
        For two dictionaries with the same keys, or two lists of the same length, a dictionary with
        the changes of those entries that differ; otherwise the value in a list of its own.
    """
    if isinstance(value, dict) and isinstance(base, dict) and value.keys() == base.keys():
        entries = {key: (one, base[key]) for key, one in value.items()}
    elif isinstance(value, list) and isinstance(base, list) and len(value) == len(base):
        entries = {str(k): pair for k, pair in enumerate(zip(value, base, strict=True))}
    else:
        return [value]
    return {key: changes(one, other) for key, (one, other) in entries.items() if one != other}


def _drawing(snapshot: Snapshot) -> dict[str, Any]:
    """Return the board of a snapshot as the Lab shows it first, with its text alternative."""
    experiment = snapshot.experiment
    layer = telling_layer(experiment.layer_specs)
    head = None if experiment.n_heads > 1 else 0
    drawing = board(snapshot, experiment, experiment.first_seed, layer, head)
    alt = f"{finding(snapshot)} {measures_finding(snapshot)}"
    return {**drawing, "alt": alt, "file": f"attnkit-{experiment.task.name}-board"}


def _conclusion(snapshot: Snapshot) -> str:
    """Return what the accuracies show, and the reason in the first seed if it is known."""
    seed = snapshot.experiment.first_seed
    reason = headline(snapshot, seed) if snapshot.step else None
    told = "" if reason is None else reason.in_words(snapshot.experiment, seed)
    return f"{told} {finding(snapshot)}".lstrip()
