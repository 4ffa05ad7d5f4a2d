"""Similarity of a head's queries, keys and values: measures of weights and activations, and a map.

The vectors of a head with several maps are concatenated. Index letters are those of
`attnkit.analysis.inspection.replay`, with `t` for a token of any example, `l` layer, `c` pair of
roles and `z` mean, lower and upper limit of a measure for random matrices. The sentences compare
measures with those limits: a side is −1 where a measure is below them, 0 within, and 1 above; NaN
where there is nothing to compare.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64
from torch import Tensor

from attnkit.analysis.inspection.inspected_example import (
    N_EXAMPLES,
    InspectedExample,
    examples_of,
    indices_of,
    size_refusal,
)
from attnkit.analysis.inspection.replay import Replay, batched_replays, replays
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult, Sentences, header_of, with_measures
from attnkit.analysis.similarity import (
    column_space,
    cosine,
    cosines_between,
    linear_cka,
    mean_cosine,
    mean_square,
    overlap,
    projected_bands,
    random_band,
    weights_cka,
)
from attnkit.experiment.layer_specs import LayerSpec
from attnkit.foundation.words import capitalised, first_true, listed
from attnkit.model.reference import Stages
from attnkit.tasks import NOTHING
from attnkit.training.film import Film, filmed_steps
from attnkit.training.summary import two_decimals
from attnkit.variants import Variant, Wiring
from attnkit.variants.sharing import ROLES, Role

PAIRS: tuple[tuple[Role, Role], ...] = (("Q", "K"), ("Q", "V"), ("K", "V"))

MEASURES = ("cos_weights", "overlap", "cka_weights", "cos_activations", "cka_activations")
"""Measures in the order of the arrays; see `attnkit.analysis.similarity`."""

MOST_TOKENS = 64
"""Most tokens of the joint map of queries, keys and values."""

MOST_BYTES = 2**20
"""Most bytes of the vectors of the joint map; larger models are shown with fewer tokens."""

LEVELS = 127
"""Levels on each side of 0 to which the vectors are rounded: they are drawn only."""

_FRAMED = ("alike", "random", "vectors", "scale")

Array = np.ndarray
Arrays = dict[str, Array]


def inspect_similarity(film: Film, inspection: Inspection) -> InspectionResult:
    """Return the similarity of queries, keys and values of one layer and head, for all `PAIRS`.

    Weights are those of `Model.role_weights`. Activations are the vectors of all tokens of the
    held-out examples, as used for scores and read-out. The variant with index p has these arrays;
    undefined numbers are NaN:

    | array | shape | content |
    |---|---|---|
    | `p.alike` | f c 5 | the `MEASURES` |
    | `p.random` | f c 5 z | the same for random matrices; activations are of the same inputs |
    | `p.vectors` | f 3 n d | queries, keys, values of the header's `tokens`, over `p.scale` |
    | `p.scale` | f | factors for the vectors |
    | `p.centre`, `p.plane` | d, d 2 | plane of the largest variance in the last frame |
    | `p.table` | l h c 5 | the measures of all heads in the last frame |
    | `p.table_random` | l c 5 z | the same for random matrices |

    Vectors are sent instead of their coordinates in the plane, so that the plane can be that of the
    newest frame while frames are still being added. Values are absent if keys have another width.

    Raises:
        ValueError, InvalidExperiment: If there is no such layer, head or example.
    """
    experiment = film.experiment
    inspected = InspectedExample.at(experiment, inspection)
    spec = inspected.spec
    tokens = _mapped_tokens(inspected)
    framed: Arrays = with_measures(film)
    fixed: Arrays = {}
    notes: list[dict[str, Any]] = [
        {
            "has_head": inspection.head < wiring.sizes.n_heads,
            "widths": [width_of(wiring, role) for role in ROLES],
            "n_maps": wiring.n_maps,
            "tied": [wiring.roles[a] == wiring.roles[b] for a, b in PAIRS],
            "refusal": "",
        }
        for wiring in map(experiment.wiring, experiment.sharing)
    ]
    for p, variant in enumerate(experiment.sharing):
        found = _measured(film, variant, inspected)
        try:
            found |= _mapped(film, variant, inspected, tokens)
        except ValueError:  # the weights do not fit a book of this size
            if not inspected.is_custom_book:
                raise
            notes[p]["refusal"] = size_refusal(experiment, inspected.experiment, variant)
        for name, array in found.items():
            (framed if name in _FRAMED else fixed)[f"{p}.{name}"] = (
                array if name == "vectors" else array.astype(np.float32)
            )
    header: dict[str, Any] = {
        **header_of(film, inspection),
        "pairs": ["".join(pair) for pair in PAIRS],
        "measures": list(MEASURES),
        "square": spec.square,
        "tokens": tokens,
        "labels": [inspected.labels[i].short for i in tokens],
        "full_labels": [inspected.labels[i].full for i in tokens],
        "is_query": [i in range(*spec.query_positions) for i in tokens],
        "is_key": [i in range(*spec.key_positions) for i in tokens],
        "target": indices_of(inspected.map_example.target, tokens, inspected.experiment.task),
        "n_tokens": len(_all_positions(spec)),
        "n_examples": N_EXAMPLES,
        "d_model": experiment.size.d_model,
        "notes": notes,
    }
    header["sentences"] = alikeness_sentences(header, framed)
    heads, in_words = head_table(header, fixed)
    header["newest"] = {"heads": heads, "heads_in_words": in_words}
    return InspectionResult(header, framed, fixed)


def _mapped_tokens(inspected: InspectedExample) -> list[int]:
    """Return the positions of the joint map; if not all fit, queries with their entries first."""
    positions = _all_positions(inspected.spec)
    trained, example = inspected.trained, inspected.map_example
    widths = [width_of(trained.wiring(variant), "K") for variant in trained.sharing]
    per_token = len(ROLES) * len(filmed_steps(trained)) * sum(widths)
    most = min(MOST_TOKENS, max(1, MOST_BYTES // per_token))
    if len(positions) <= most:
        return list(positions)
    answers = zip(example.labels.tolist(), example.target.tolist(), strict=True)
    preferred = [
        position
        for i, (label, target) in enumerate(answers, inspected.experiment.task.answers_from)
        for position in (target, i)
        if label != NOTHING
    ]
    ordered = [i for i in (*preferred, *positions) if i in positions]
    return sorted(list(dict.fromkeys(ordered))[:most])


def _all_positions(spec: LayerSpec) -> range:
    return range(
        min(spec.query_positions[0], spec.key_positions[0]),
        max(spec.query_positions[1], spec.key_positions[1]),
    )


def width_of(wiring: Wiring, role: Role) -> int:
    """Return the width of a head's vectors in a role, of all maps together."""
    width = wiring.vectors[wiring.roles[role]].width
    return width if role == "V" else width * wiring.n_maps


class _Layer:
    """Inputs, weights and vectors of one layer on a batch, for the models of some frames."""

    def __init__(
        self, replay: Replay, stages: list[Stages], layer: int, frames: slice = slice(None)
    ) -> None:
        (self.wiring,) = replay.model.wirings.values()
        self.spec, current = stages[layer].spec, stages[layer]
        leaders = {role: stages[self.wiring.leader(layer, role)] for role in ("K", "V")}
        positions = {"Q": self.spec.query_positions}

        @cache
        def rows(stages: Stages, positions: tuple[int, int]) -> Float32[Array, "f t m"]:
            array: Array = stages.rows[frames][:, :, slice(*positions)].flatten(1, 2).numpy()
            return array

        self.inputs = {
            role: rows(leaders.get(role, current), positions.get(role, self.spec.key_positions))
            for role in ROLES
        }
        self._vectors = {"Q": current.q[frames], "K": current.k[frames], "V": current.v[frames]}
        self._weights = {role: replay.model.role_weights(layer, role)[0][frames] for role in ROLES}
        self._subspaces: dict[tuple[Role, int], Array] = {}

    def weights(self, role: Role, head: int) -> Float32[Array, "f m d"]:
        """Return the weight matrix of a role in a head, without rules that are not linear."""
        return self._of_head(self._weights[role], 1, head)

    def vectors(self, role: Role, head: int) -> Float32[Array, "f b n d"]:
        """Return the queries, keys or values of a head, as used for scores and read-out."""
        return self._of_head(self._vectors[role], 2, head)

    def _of_head(self, of_maps: Tensor, axis: int, head: int) -> Array:
        """Return the vectors of one head; `axis` is that of heads and maps, before tokens."""
        of_head = of_maps.unflatten(axis, (self.wiring.sizes.n_heads, -1)).select(axis, head)
        array: Array = of_head.transpose(axis, axis + 1).flatten(axis + 1).numpy()  # (…, n, p·d)
        return array

    def cosines(self, a: Role, b: Role, head: int) -> Float64[Array, "f k"]:
        """Return the cosines of the principal angles of a pair of roles."""
        for role in (a, b):
            if (role, head) not in self._subspaces:
                self._subspaces[role, head] = column_space(self.weights(role, head))
        return cosines_between(self._subspaces[a, head], self._subspaces[b, head])

    def same_tokens(self, first: Role) -> bool:
        """Return whether both roles of a pair belong to the same tokens, given the first role."""
        return first != "Q" or self.spec.square

    def measures(self, head: int) -> Float64[Array, "f c 5"]:
        """Return the `MEASURES` of one head."""
        weights = {role: self.weights(role, head) for role in ROLES}
        rows = {role: self.vectors(role, head) for role in ROLES}
        rows = {role: v.reshape(len(v), -1, v.shape[-1]) for role, v in rows.items()}  # (f, t, d)
        measures = np.full((len(weights["Q"]), len(PAIRS), len(MEASURES)), np.nan)
        for c, (a, b) in enumerate(PAIRS):
            same_width = weights[a].shape == weights[b].shape
            if same_width:
                measures[:, c, 0] = cosine(weights[a], weights[b])
            measures[:, c, 1] = mean_square(self.cosines(a, b, head))
            measures[:, c, 2] = weights_cka(weights[a], weights[b])
            if self.same_tokens(a):
                if same_width:
                    measures[:, c, 3] = mean_cosine(rows[a], rows[b])
                measures[:, c, 4] = linear_cka(rows[a], rows[b])
        return measures

    def random_measures(self) -> Float64[Array, "f c 5 z"]:
        """Return the bands of the `MEASURES` for random matrices of the shapes of a head's."""
        n_frames, _, d_model = self.inputs["Q"].shape
        limits = np.full((n_frames, len(PAIRS), len(MEASURES), 3), np.nan)
        known: dict[tuple[int, int, int, int], Array] = {}
        for c, (a, b) in enumerate(PAIRS):
            widths = width_of(self.wiring, a), width_of(self.wiring, b)
            for m, measure in enumerate((cosine, overlap, weights_cka)):
                if m or widths[0] == widths[1]:
                    limits[:, c, m] = random_band(measure, d_model, *widths).stacked
            if self.same_tokens(a):
                key = (id(self.inputs[a]), id(self.inputs[b]), *widths)
                if key not in known:
                    bands = projected_bands(self.inputs[a], self.inputs[b], *widths)
                    known[key] = np.stack([band.stacked for band in bands], 1)
                limits[:, c, 3:] = known[key]
        return limits


def _measured(film: Film, variant: Variant, inspected: InspectedExample) -> Arrays:
    """Return the measures of one head at all frames, and those of all heads at the last frame."""
    tokens, request = examples_of(film.experiment.task).tokens, inspected.request
    wiring = film.experiment.wiring(variant)
    head = min(request.head, wiring.sizes.n_heads - 1)
    parts: list[Arrays] = []
    for replay, _ in batched_replays(film, variant, film.experiment, N_EXAMPLES):
        stages = replay.forward(tokens).stages
        layer = _Layer(replay, stages, request.layer)
        parts.append({"alike": layer.measures(head), "random": layer.random_measures()})
    found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if head != request.head:
        found["alike"][:] = np.nan
    last = [_Layer(replay, stages, i, slice(-1, None)) for i in range(len(stages))]
    table = np.full((len(last), film.experiment.n_heads, len(PAIRS), len(MEASURES)), np.nan)
    for i, h in np.ndindex(len(last), wiring.sizes.n_heads):
        table[i, h] = last[i].measures(h)[0]
    return {
        **found,
        "table": table,
        "table_random": np.stack([one.random_measures()[0] for one in last]),
    }


def _mapped(film: Film, variant: Variant, inspected: InspectedExample, tokens: list[int]) -> Arrays:
    """Return the vectors of an example's tokens at all frames, and the plane of the last frame."""
    wiring, head = inspected.experiment.wiring(variant), inspected.request.head
    width, spec = width_of(wiring, "K"), inspected.spec
    vectors = np.zeros((len(film.frames), len(ROLES), len(tokens), width))
    present = np.zeros((len(ROLES), len(tokens)), bool)
    frame = 0
    for replay in replays(film, variant, inspected.experiment):
        if head >= wiring.sizes.n_heads:
            break
        stages = replay.forward(inspected.tokens).stages
        layer = _Layer(replay, stages, inspected.request.layer)
        for r, role in enumerate(ROLES):
            if width_of(wiring, role) != width:
                continue
            positions = range(*(spec.query_positions if role == "Q" else spec.key_positions))
            present[r] = [i in positions for i in tokens]
            of_role = layer.vectors(role, head)[:, 0]  # (f, n, d)
            indices = [i - positions.start for i in tokens if i in positions]
            vectors[frame : frame + len(of_role), r, present[r]] = of_role[:, indices]
        frame += len(of_role)
    vectors = np.nan_to_num(vectors)
    centre, plane = _plane(vectors[-1][present])
    scale = np.abs(vectors).max((1, 2, 3)) / LEVELS
    levels = np.divide(vectors.T, scale, out=np.zeros_like(vectors.T), where=scale > 0).T
    drawn = levels.round().astype(np.int8)
    return {"vectors": drawn, "scale": scale, "centre": centre, "plane": plane}


def _plane(points: Float64[Array, "n d"]) -> tuple[Float64[Array, " d"], Float64[Array, "d 2"]]:
    """Return the mean of points, and the two directions of their largest variance.

    The largest component of each direction is positive, so that directions do not flip.
    """
    width = points.shape[1]
    plane = np.zeros((width, 2))
    if not len(points):
        return np.zeros(width), plane
    centre = points.mean(0)
    axes = np.linalg.svd(points - centre, full_matrices=False)[2][:2]
    plane[:, : len(axes)] = (
        axes * np.sign(axes[range(len(axes)), np.abs(axes).argmax(1)])[:, None]
    ).T
    return centre, plane


TWIN = 0.999995
"""Value of a measure above which two matrices, or two vectors, are one and the same."""

_SIDES = {-1: "less alike", 0: "as alike", 1: "more alike"}
_MARKS = {-1: " ▼", 0: " =", 1: " ▲"}


def alikeness_sentences(header: Mapping[str, Any], framed: Mapping[str, np.ndarray]) -> Sentences:
    """Return for every frame the conclusion, and the cells of a table of variants and pairs."""
    cos, cka, vectors = map(
        header["measures"].index, ("cos_weights", "cka_weights", "cka_activations")
    )
    names = [str(p) for p in range(len(header["variants"]))]
    alike = np.stack([framed[f"{p}.alike"] for p in names], 1)  # (f, v, c, 5)
    random = np.stack([framed[f"{p}.random"] for p in names], 1)
    has_head = np.array([note["has_head"] for note in header["notes"]])
    values, sides = alike[..., vectors], sides_of(alike[..., vectors], random[..., vectors, :])
    one_matrix = (alike[..., cka] > TWIN) & ~(alike[..., cos] <= TWIN)
    compared = np.where(one_matrix, np.nan, sides)[:, has_head]
    first = compared[0] if header["steps"][0] == 0 else None
    cells = np.where(one_matrix & ~(values <= TWIN), "same matrix", marked(values, sides))
    cells = np.where(cells == "–", "no token has both", cells)
    return {
        "conclusion": [
            conclude(
                compared[frame],
                step,
                first,
                all_shared=bool(has_head.any() and one_matrix[frame, has_head].all()),
            )
            for frame, step in enumerate(header["steps"])
        ],
        "alike": np.where(has_head[:, None], cells, "no such head").tolist(),
    }


def conclude(
    sides: np.ndarray, step: int, untrained: np.ndarray | None, *, all_shared: bool
) -> str:
    """Return the conclusion on how alike the vectors of different matrices are.

    Args:
        sides: Side of every variant and pair; NaN for those of one matrix.
        step: Training step.
        untrained: Sides before training; None if they are not known.
        all_shared: Whether each pair is made by one matrix.
    """
    counts = {side: int((sides == side).sum()) for side in _SIDES if (sides == side).any()}
    n, most = sum(counts.values()), _most(sides)
    side = next(iter(counts), 0) if most is None else most
    n_side = counts.get(side, 0)
    numbers = SimpleNamespace(
        n=n,
        all_shared=all_shared,
        before="" if step else "before training, ",
        most=most,
        learnt=step and most and untrained is not None and _most(untrained) != most,
        are=f"{n_side} are" if n_side > 1 else f"{n_side} is",
        side=_SIDES[side],
        than="than" if side else "as",
        others=listed([f"{count} {_SIDES[k]}" for k, count in counts.items() if k != side]),
        mostly="" if n_side == n else "mostly ",
        of_all="" if n_side == n else f" ({n_side} of {n} pairs)",
    )
    return capitalised(first_true(_CONCLUSIONS, numbers))


_CONCLUSIONS = {
    "Each pair here shares one matrix, so there is nothing to compare.": lambda n: (
        not n.n and n.all_shared
    ),
    "Nothing can be compared here.": lambda n: not n.n,
    "{before}of {n} pairs with matrices of their own, {are} {side} {than} random matrices make "
    "them, {others}.": lambda n: n.most is None,
    "{before}where two of Q, K and V have matrices of their own, training makes their vectors "
    "{mostly}{side} {than} random matrices do{of_all}.": lambda n: n.learnt,
    "{before}where two of Q, K and V have matrices of their own, their vectors are {mostly}{side} "
    "{than} random matrices make them{of_all}.": lambda n: True,
}
"""Conclusions on how alike the vectors of different matrices are."""


def _most(sides: np.ndarray) -> int | None:
    """Return the side of at least two thirds of the pairs; None if there is none."""
    n = np.isfinite(sides).sum()
    return next((side for side in _SIDES if 3 * (sides == side).sum() >= 2 * n > 0), None)


def sides_of(values: np.ndarray, random: np.ndarray) -> np.ndarray:
    """Return the sides of values.

    Args:
        values: Values of any shape.
        random: Mean, lower and upper limit for random matrices, along one more axis.
    """
    low, high = random[..., 1], random[..., 2]
    sides = (values > high).astype(float) - (values < low)
    return np.where(np.isfinite(values) & np.isfinite(low), sides, np.nan)


def marked(values: np.ndarray, sides: np.ndarray) -> np.ndarray:
    """Return values as texts, each with the mark of its side."""
    texts = np.vectorize(lambda value, side: two_decimals(value) + _MARKS.get(side, ""), ["U20"])
    return texts(values, sides) if values.size else values.astype(str)


def head_table(header: Mapping[str, Any], fixed: Mapping[str, np.ndarray]) -> tuple[list[Any], str]:
    """Return a table's cells by variant, layer and head, and what all heads have in common.

    Args:
        header: Header of the view.
        fixed: Its arrays `p.table` and `p.table_random`.
    """
    tables, own = [], []
    for p, variant in enumerate(header["variants"]):
        values = fixed[f"{p}.table"][:, : variant["n_heads"]]  # (l, h, c, 5)
        sides = sides_of(values, fixed[f"{p}.table_random"][:, None])
        sides[values > TWIN] = np.nan
        tables.append(marked(values, sides).reshape(*values.shape[:2], -1).tolist())
        own.append(sides[..., header["measures"].index("cka_weights")].reshape(-1, values.shape[2]))
    counts = (
        f"{pair[0]} and {pair[1]}: of {np.isfinite(sides).sum()} heads with matrices of their own, "
        f"{(sides == 1).sum()} have weights more alike than random, {(sides == -1).sum()} less."
        for pair, sides in zip(header["pairs"], np.concatenate(own).T, strict=True)
    )
    return tables, " ".join(counts)
