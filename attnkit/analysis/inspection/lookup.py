"""One lookup told in stages: what a token asks, whom it finds, what it takes, what is answered."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attnkit.analysis.attention_map import MapLayout, lacking_note, levels_of, shown_columns
from attnkit.analysis.inspection.inspected_example import InspectedExample, one_by_one
from attnkit.analysis.inspection.mass import mass_of
from attnkit.analysis.inspection.probes import N_EXAMPLES, examples_of, why_not
from attnkit.analysis.inspection.replay import Replay, Replayed, in_parts
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult, header_of, with_accuracy
from attnkit.analysis.responses import Example
from attnkit.model.reference import Stages
from attnkit.tasks import NOTHING, Task
from attnkit.training.film import Film

MOST_BYTES = 3 * 2**20
"""Arrays of one answer; of larger models there are fewer frames."""

UNKNOWN = 255
"""In place of right or wrong, where nothing is asked or known."""


def inspect_attention(film: Film, inspection: Inspection) -> InspectionResult:
    """One example's attention, and every stage of one token's lookup in one head.

    Args:
        inspection: of a token beyond the last that asks, the last one is followed.

    Raises:
        ValueError, InvalidExperiment: if there is no such example, layer or head.
    """
    looked = InspectedExample.at(film.experiment, inspection)
    one_frame, _ = _arrays(film.at(film.steps[-1]), looked)
    n_bytes = sum(array.nbytes for array in one_frame.values())
    shown = film.thinned(MOST_BYTES // n_bytes)
    framed, of_variants = _arrays(shown, looked)
    header = header_of(shown, inspection)
    header["variants"] = [
        {**known, **own} for known, own in zip(header["variants"], of_variants, strict=True)
    ]
    answered = [array for name, array in framed.items() if name.endswith(".answers")]
    header |= looked.header(answered)
    return InspectionResult({**header, "thinned": len(shown.frames) < len(film.frames)}, framed, {})


def inspect_examples(film: Film, inspection: Inspection) -> InspectionResult:
    """Which answers to each of the examples are right at the last frame."""
    last, task = film.at(film.steps[-1]), film.experiment.task
    examples = examples_of(task)
    asked = (examples.labels != NOTHING).numpy()
    fixed: dict[str, np.ndarray] = {}
    n_wrong = np.zeros(len(asked), int)
    for place, variant in enumerate(film.experiment.sharing):
        ((replay, n),) = in_parts(last, variant, film.experiment, N_EXAMPLES)
        answers = [replay.forward(some).logits[0].argmax(-1) for some in examples.tokens.split(n)]
        right = (torch.cat(answers) == examples.labels).numpy()
        n_wrong += (asked & ~right).sum(1)
        fixed[f"{place}.right"] = np.where(asked, right, UNKNOWN).astype(np.uint8)
    told = [
        {"text": _told(task, example), "n_asked": int(n), "n_wrong": int(wrong)}
        for example, n, wrong in zip(one_by_one(examples), asked.sum(1), n_wrong, strict=True)
    ]
    order = [int(place) for place in np.argsort(-n_wrong, kind="stable")]
    header = {**header_of(last, inspection), "examples": told, "order": order}
    return InspectionResult(header, with_accuracy(last), fixed)


def _arrays(
    film: Film, looked: InspectedExample
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """The framed arrays, and what is said of every variant."""
    framed, told = with_accuracy(film), []
    for place, variant in enumerate(film.experiment.sharing):
        wiring = looked.experiment.wiring(variant)
        lacks = looked.head >= wiring.sizes.n_heads
        refusal, found = "", dict[str, np.ndarray]()
        try:
            parts = in_parts(film, variant, looked.experiment, 1)
            made = [_arrays_of(replay, looked) for replay, _ in parts]
            found = {name: np.concatenate([own[name] for own in made]) for name in made[0]}
        except ValueError:
            if not looked.own:
                raise
            refusal = why_not(looked.trained, looked.experiment, variant)
        found["mass"] = mass_of(film, variant)
        framed |= {f"{place}.{name}": array for name, array in found.items()}
        told.append(
            {
                "lacking": lacking_note(wiring.sizes.n_heads) if lacks else "",
                "refusal": refusal,
                "n_maps": wiring.n_maps,
                "n_score_maps": 1 if wiring.adds_maps else wiring.n_maps,
                "scale": wiring.scale,
                "d_k": wiring.sizes.d_k,
                "d_v": wiring.sizes.d_v,
                "has_output": wiring.has_output,
            }
        )
    return framed, told


def _arrays_of(replay: Replay, looked: InspectedExample) -> dict[str, np.ndarray]:
    """Everything of one variant at some frames."""
    found = replay.forward(looked.tokens)
    arrays: dict[str, np.ndarray] = {}
    for layer, frame in enumerate(looked.frames):
        stages = found.stages[layer]
        arrays[f"grid.{layer}"] = levels_of(_map(stages, frame))
    stages, frame = found.stages[looked.layer], looked.frame
    answers = found.logits[:, 0].argmax(-1).numpy()
    rows = np.array(frame.answers)
    answered = np.where(rows >= 0, answers[:, rows], NOTHING)
    labels = np.where(rows >= 0, looked.example.labels[rows], NOTHING)
    arrays["answers"] = answered.astype(np.int32)
    arrays["right"] = np.where(labels >= 0, answered == labels, UNKNOWN).astype(np.uint8)
    if looked.head < stages.heads.wiring.sizes.n_heads:
        arrays["map"] = _map(stages, frame)[:, looked.head]
        arrays["weights"] = arrays["map"][:, looked.row]
        arrays |= _of_head(stages, looked)
    asking = looked.position - stages.spec.query_positions[0]
    arrays["token"] = stages.x[:, 0, looked.position].numpy()
    arrays["normed"] = stages.rows[:, 0, looked.position].numpy()
    arrays["added"] = stages.added[:, 0, asking].numpy()
    if looked.answer != NOTHING:
        arrays |= _of_answer(found, looked)
    return arrays


def _map(stages: Stages, frame: MapLayout) -> Float[np.ndarray, "f h rows columns"]:
    """The pattern of every head in the rows and columns that are shown."""
    (first_row, _), (first_column, _) = stages.spec.query_positions, stages.spec.key_positions
    rows = stages.pattern[:, 0, :, [row - first_row for row in frame.rows]]
    return shown_columns(rows.numpy(), frame, first_column)


def _of_head(stages: Stages, looked: InspectedExample) -> dict[str, np.ndarray]:
    """The stages of the token's lookup in the head."""
    head, wiring = looked.head, stages.heads.wiring
    i = looked.position - stages.spec.query_positions[0]
    j = [column - stages.spec.key_positions[0] for column in looked.frame.columns]
    maps = slice(head * wiring.n_maps, (head + 1) * wiring.n_maps)
    q, k = stages.q[:, 0, maps, i], stages.k[:, 0, maps][:, :, j]
    z = stages.z[:, 0, head, i]
    found = {
        "q": q,
        "k": k,
        "v": stages.v[:, 0, head, j],
        "products": (k @ q.unsqueeze(-1)).squeeze(-1),
        "scores": stages.scores[:, 0, head, :, i, j],
        "masked": stages.masked[:, 0, head, :, i, j],
        "z": z,
        "head_out": _head_out(stages, head, z),
    }
    return {name: array.numpy() for name, array in found.items()}


def _head_out(stages: Stages, head: int, z: Float[Tensor, "f d"]) -> Float[Tensor, "f m"]:
    """What one head adds: its values through its own rows of W_O, or at its own place."""
    wiring = stages.heads.wiring
    width = wiring.sizes.d_v
    own = slice(head * width, (head + 1) * width)
    if wiring.has_output:
        w_o = stages.heads.weights["W_O"][:, own]
        return (z.unsqueeze(1) @ w_o).squeeze(1)
    out = z.new_zeros(len(z), wiring.n_inner)
    out[:, own] = z
    return out


def _of_answer(found: Replayed, looked: InspectedExample) -> dict[str, np.ndarray]:
    """The final logits of the token."""
    logits = found.logits[:, 0, looked.answer]
    return {
        "logits": logits[:, looked.classes].numpy(),
        "total": logits.logsumexp(-1).numpy(),
        "top": logits.amax(-1).numpy(),
    }


def _told(task: Task, example: Example) -> str:
    """An example in a few words: what is asked first."""
    labels = task.label(example.tokens)
    asked = np.flatnonzero(example.labels != NOTHING) + task.answers_from
    words = [labels[int(position)].asking for position in asked[:_WORDS]]
    return ", ".join(words) + " …" * (len(asked) > _WORDS)


_WORDS = 3
"""Questions of an example that its name is made of."""
