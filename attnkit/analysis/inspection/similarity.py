"""How alike a head's queries, keys and values are: in weights, in activations, in a plane.

Index letters as in `attnkit.analysis.inspection.roles`, with `l` layer, `c` pair of roles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Float64

from attnkit.analysis.inspection.inspected_example import InspectedExample
from attnkit.analysis.inspection.probes import N_EXAMPLES, examples_of, why_not
from attnkit.analysis.inspection.replay import in_parts, replays
from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult, header_of, with_accuracy
from attnkit.analysis.inspection.roles import LayerRoles, width_of
from attnkit.analysis.similarity import (
    cosine,
    cosines_between,
    linear_cka,
    mean_cosine,
    mean_square,
    overlap,
    principal_angles,
    projected_bands,
    random_band,
    weights_cka,
)
from attnkit.experiment.layer_specs import LayerSpec
from attnkit.tasks import NOTHING
from attnkit.training.film import Film, filmed_steps
from attnkit.variants import Variant, Wiring
from attnkit.variants.sharing import ROLES, Role

PAIRS: tuple[tuple[Role, Role], ...] = (("Q", "K"), ("Q", "V"), ("K", "V"))

MEASURES = ("cos_weights", "overlap", "cka_weights", "cos_activations", "cka_activations")
"""In the order in which arrays hold them; see `attnkit.analysis.similarity`."""

MOST_TOKENS = 64
"""Tokens of the joint map."""

MOST_BYTES = 2**20
"""Of the vectors of all tokens, variants and frames; of more there are fewer tokens."""

LEVELS = 127
"""Of a number of a vector, on each side of 0: it is drawn, not computed with."""

Array = np.ndarray
Arrays = dict[str, Array]


def inspect_similarity(film: Film, inspection: Inspection) -> InspectionResult:
    """What one layer and head make of tokens, pair by pair, in the order of `PAIRS`.

    Weights are those of `Model.role_weights`; activations are as the scores and the read-out see
    them, of all tokens of the held-out examples. Arrays of the variant at place p, NaN where
    something is not; z is mean, low, high of what `random_band` or `projected_bands` give:

    | array | shape | what |
    |---|---|---|
    | `p.alike` | f c 5 | the `MEASURES` |
    | `p.random` | f c 5 z | the same of random matrices, for activations on the same inputs |
    | `p.angles` | f c k | principal angles in degrees |
    | `p.random_angles` | c k z | of random matrices |
    | `p.vectors` | f 3 n d | queries, keys, values of the header's `tokens`, over `p.scale` |
    | `p.scale` | f | what to multiply them with |
    | `p.centre`, `p.plane` | d, d 2 | the plane in which the last frame's vectors spread most |
    | `p.table` | l h c 5 | the measures of all heads in the last frame |
    | `p.table_random` | l c 5 z | of random matrices |

    The vectors travel rather than their places in a plane, so that the plane can be that of the
    newest frame while frames are still being added. Values are there if they are as wide as keys.

    Raises:
        ValueError, InvalidExperiment: if there is no such layer, head or example.
    """
    experiment = film.experiment
    looked = InspectedExample.at(experiment, inspection)
    place = looked.experiment.layer_specs[looked.layer]
    tokens = _mapped_tokens(looked)
    framed: Arrays = {}
    fixed: Arrays = {}
    notes = [_notes(experiment.wiring(variant), looked.head) for variant in experiment.sharing]
    if film.frames:
        framed |= with_accuracy(film)
        for p, variant in enumerate(experiment.sharing):
            moving, still = _compared(film, variant, looked)
            try:
                more_moving, more_still = _mapped(film, variant, looked, tokens)
            except ValueError:  # its weights do not fit a book of that size
                if not looked.own:
                    raise
                more_moving, more_still = {}, {}
                notes[p]["refusal"] = why_not(experiment, looked.experiment, variant)
            framed |= {f"{p}.{name}": array for name, array in (moving | more_moving).items()}
            fixed |= {f"{p}.{name}": array for name, array in (still | more_still).items()}
    header: dict[str, Any] = {
        **header_of(film, inspection),
        "pairs": ["".join(pair) for pair in PAIRS],
        "measures": list(MEASURES),
        "square": place.square,
        "tokens": tokens,
        "labels": [looked.labels[i].short for i in tokens],
        "full_labels": [looked.labels[i].full for i in tokens],
        "asks": [place.query_positions[0] <= i < place.query_positions[1] for i in tokens],
        "looked_at": [place.key_positions[0] <= i < place.key_positions[1] for i in tokens],
        "target": _targets(looked, tokens),
        "n_tokens": len(_reach(place)),
        "n_examples": N_EXAMPLES,
        "d_model": experiment.size.d_model,
        "notes": notes,
    }
    return InspectionResult(header, framed, fixed)


def _mapped_tokens(looked: InspectedExample) -> list[int]:
    """The positions of the joint map: all, or those that are asked, their answers, the first."""
    reach = _reach(looked.experiment.layer_specs[looked.layer])
    trained, example = looked.trained, looked.laid_out
    widths = [width_of(trained.wiring(variant), "K") for variant in trained.sharing]
    per_token = len(ROLES) * len(filmed_steps(trained)) * sum(widths)
    most = min(MOST_TOKENS, max(1, MOST_BYTES // per_token))
    if len(reach) <= most:
        return list(reach)
    asked = zip(example.labels.tolist(), example.target.tolist(), strict=True)
    wanted = [
        position
        for i, (label, target) in enumerate(asked, looked.experiment.task.answers_from)
        for position in (target, i)
        if label != NOTHING
    ]
    inside = [i for i in (*wanted, *reach) if i in reach]
    return sorted(list(dict.fromkeys(inside))[:most])


def _reach(place: LayerSpec) -> range:
    """The positions that ask or are looked at, and those between."""
    return range(
        min(place.query_positions[0], place.key_positions[0]),
        max(place.query_positions[1], place.key_positions[1]),
    )


def _targets(looked: InspectedExample, tokens: list[int]) -> list[int]:
    """For each token of the joint map, which of them holds its answer; −1 if none does."""
    held = dict(enumerate(looked.laid_out.target.tolist(), looked.experiment.task.answers_from))
    places = {token: i for i, token in enumerate(tokens)}
    return [places.get(held.get(token, NOTHING), NOTHING) for token in tokens]


def _notes(wiring: Wiring, head: int) -> dict[str, Any]:
    """What a page must know of a variant's heads."""
    return {
        "has_head": head < wiring.sizes.n_heads,
        "widths": [width_of(wiring, role) for role in ROLES],
        "n_maps": wiring.n_maps,
        "tied": [wiring.roles[a] == wiring.roles[b] for a, b in PAIRS],
        "refusal": "",
    }


def _compared(film: Film, variant: Variant, looked: InspectedExample) -> tuple[Arrays, Arrays]:
    """What is measured over the frames, and in the last."""
    tokens = examples_of(film.experiment.task).tokens
    n_heads = film.experiment.wiring(variant).sizes.n_heads
    head = min(looked.head, n_heads - 1)
    parts: list[tuple[Array, Array, Array]] = []
    for replay, _ in in_parts(film, variant, film.experiment, N_EXAMPLES):
        stages = replay.forward(tokens).stages
        shown = LayerRoles(replay, stages, looked.layer)
        parts.append((_alike(shown, head), _random(shown), _angles(shown, head)))
    alike, random, angles = map(np.concatenate, zip(*parts, strict=True))
    if head != looked.head:
        alike, angles = np.full_like(alike, np.nan), np.full_like(angles, np.nan)
    last = [LayerRoles(replay, stages, i, slice(-1, None)) for i in range(len(stages))]
    table = np.full((len(last), film.experiment.n_heads, len(PAIRS), len(MEASURES)), np.nan)
    for i, layer in enumerate(last):
        for place in range(n_heads):
            table[i, place] = _alike(layer, place)[0]
    of_last = np.stack([_random(layer)[0] for layer in last])
    framed = {"alike": alike, "random": random, "angles": angles}
    fixed = {"random_angles": _random_angles(shown), "table": table, "table_random": of_last}
    return {n: _single(a) for n, a in framed.items()}, {n: _single(a) for n, a in fixed.items()}


def _alike(layer: LayerRoles, head: int) -> Float64[Array, "f c 5"]:
    """All measures of a head."""
    weights = {role: layer.weights(role, head) for role in ROLES}
    rows = {role: _of_all_examples(layer.vectors(role, head)) for role in ROLES}
    found = np.full((len(weights["Q"]), len(PAIRS), len(MEASURES)), np.nan)
    for c, (a, b) in enumerate(PAIRS):
        one, other = weights[a], weights[b]
        same_width = one.shape == other.shape
        if same_width:
            found[:, c, 0] = cosine(one, other)
        found[:, c, 1] = mean_square(_cosines(layer, a, b, head))
        found[:, c, 2] = weights_cka(one, other)
        if _same_tokens(layer, a):
            if same_width:
                found[:, c, 3] = mean_cosine(rows[a], rows[b])
            found[:, c, 4] = linear_cka(rows[a], rows[b])
    return found


def _of_all_examples(vectors: Float[Array, "f b n d"]) -> Float[Array, "f t d"]:
    return vectors.reshape(len(vectors), -1, vectors.shape[-1])


def _same_tokens(layer: LayerRoles, first: Role) -> bool:
    """Whether the tokens that have the first role of a pair are those that have the second."""
    return first != "Q" or layer.spec.square


def _random(layer: LayerRoles) -> Float64[Array, "f c 5 z"]:
    """What random matrices of the same shapes give in place of a head's."""
    inputs = layer.inputs
    n_frames, _, d_model = inputs["Q"].shape
    found = np.full((n_frames, len(PAIRS), len(MEASURES), 3), np.nan)
    for c, (a, b) in enumerate(PAIRS):
        d_a, d_b = (width_of(layer.wiring, role) for role in (a, b))
        if d_a == d_b:
            found[:, c, 0] = random_band(cosine, d_model, d_a, d_b).stacked
        found[:, c, 1] = random_band(overlap, d_model, d_a, d_b).stacked
        found[:, c, 2] = random_band(weights_cka, d_model, d_a, d_b).stacked
        if not _same_tokens(layer, a):
            continue
        earlier = [e for e in range(c) if _reads_alike(layer, PAIRS[e], (a, b))]
        if earlier:
            found[:, c, 3:] = found[:, earlier[0], 3:]
            continue
        bands = projected_bands(inputs[a], inputs[b], d_a, d_b)
        found[:, c, 3:] = np.stack([band.stacked for band in bands], 1)
    return found


def _reads_alike(layer: LayerRoles, one: tuple[Role, Role], other: tuple[Role, Role]) -> bool:
    """Whether random matrices in place of two pairs are as wide and read the same rows."""
    return all(
        layer.inputs[a] is layer.inputs[b]
        and width_of(layer.wiring, a) == width_of(layer.wiring, b)
        for a, b in zip(one, other, strict=True)
    )


def _cosines(layer: LayerRoles, a: Role, b: Role, head: int) -> Float64[Array, "f k"]:
    """Of the principal angles of a pair."""
    return cosines_between(layer.subspace(a, head), layer.subspace(b, head))


def _angles(layer: LayerRoles, head: int) -> Float64[Array, "f c k"]:
    """Principal angles of a head in degrees."""
    found = [np.arccos(_cosines(layer, a, b, head)).T for a, b in PAIRS]
    angles: Array = np.degrees(_padded(found)).transpose(2, 0, 1)
    return angles


def _random_angles(layer: LayerRoles) -> Float64[Array, "c k z"]:
    """Those of random matrices of the same shapes."""
    d_model = layer.inputs["Q"].shape[-1]
    widths = [[width_of(layer.wiring, role) for role in pair] for pair in PAIRS]
    bands = [random_band(principal_angles, d_model, d_a, d_b) for d_a, d_b in widths]
    angles: Array = np.degrees(_padded([band.stacked for band in bands]))
    return angles


def _padded(found: list[Float64[Array, "_k *n"]]) -> Float64[Array, "c k *n"]:
    """Stacked; where there are fewer than elsewhere, NaN."""
    shape = (len(found), max(map(len, found)), *found[0].shape[1:])
    stacked = np.full(shape, np.nan)
    for place, array in enumerate(found):
        stacked[place, : len(array)] = array
    return stacked


def _mapped(
    film: Film, variant: Variant, looked: InspectedExample, tokens: list[int]
) -> tuple[Arrays, Arrays]:
    """The vectors of an example's tokens over the frames, and the plane of the last."""
    wiring = looked.experiment.wiring(variant)
    width = width_of(wiring, "K")
    vectors = np.zeros((len(film.frames), len(ROLES), len(tokens), width))
    present = np.zeros((len(ROLES), len(tokens)), bool)
    if looked.head < wiring.sizes.n_heads:
        frame = 0
        for replay in replays(film, variant, looked.experiment):
            layer = LayerRoles(replay, replay.forward(looked.tokens).stages, looked.layer)
            for r, role in enumerate(ROLES):
                if width_of(wiring, role) != width:
                    continue
                start, stop = (
                    layer.spec.query_positions if role == "Q" else layer.spec.key_positions
                )
                present[r] = [start <= i < stop for i in tokens]
                own = layer.vectors(role, looked.head)[:, 0]  # (f, n, d)
                held = [i - start for i in tokens if start <= i < stop]
                vectors[frame : frame + len(own), r, present[r]] = own[:, held]
            frame += len(own)
    vectors = np.nan_to_num(vectors)
    centre, plane = _plane(vectors[-1][present])
    scale = np.abs(vectors).max((1, 2, 3)) / LEVELS
    levels = np.divide(vectors.T, scale, out=np.zeros_like(vectors.T), where=scale > 0).T
    framed = {"vectors": levels.round().astype(np.int8), "scale": _single(scale)}
    return framed, {"centre": _single(centre), "plane": _single(plane)}


def _plane(points: Float64[Array, "n d"]) -> tuple[Float64[Array, " d"], Float64[Array, "d 2"]]:
    """The middle of some points, and the two directions in which they spread most.

    Of each direction, the largest number is positive, so that it does not flip.
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


def _single(values: Array) -> Array:
    return values.astype(np.float32)
