"""Costs of variants (parameters, KV cache, multiply-adds), and widths that make them equal.

Costs are counted on the wiring, without torch.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Literal

from attnkit.foundation.language import mark
from attnkit.variants.options import WidthOption
from attnkit.variants.position_rules import POSITIONS
from attnkit.variants.sharing import ROLES, Role
from attnkit.variants.text import LONGEST, wire_parts
from attnkit.variants.width import WIDEST, Width

if TYPE_CHECKING:
    from attnkit.tasks import Task
    from attnkit.variants import Variant, Wiring
    from attnkit.variants.options import Parts
    from attnkit.variants.size import Size

Equal = Literal["nothing", "parameters", "multiply_adds", "kv_cache"]
"""Name of the cost that all variants of an experiment have in common."""

TOLERANCE = 0.02
"""Costs that differ by at most this share count as equal."""

_ADJUSTABLE_WIDTHS = (("d_head", 128), ("d_mlp", 512))
"""Widths that are changed to make costs equal, in this order: name, largest value."""


@dataclass(frozen=True)
class Costs:
    """Costs of one run of a variant.

    Attributes:
        attention: Parameters of the attention layers.
        parameters: Parameters of the whole model.
        kv_cache: Floats that a decoder keeps per token, summed over layers: the vectors from
            which keys and values are computed. None if a PyTorch module does not say it.
        ready_cache: Floats that a decoder keeps per token, summed over layers, if it caches keys
            and values as they enter the scores and the output, after norms and rotations. A vector
            that is key and value counts once. None as `kv_cache`.
        multiply_adds: Multiply-adds of the matrix products in the forward pass of one token among
            n_ctx tokens. In an encoder and a decoder it is the mean over all tokens.
    """

    attention: int
    parameters: int
    kv_cache: int | None
    ready_cache: int | None
    multiply_adds: int


def count_costs(wiring: Wiring, task: Task) -> Costs:
    """Return the costs of one run with this wiring on a task."""
    sizes = wiring.sizes
    # Layers that reuse keys and values have fewer weights; all layers of a kind have the same.
    leads = [wiring.leader(layer) == layer for layer in range(sizes.n_layers)]
    names = {kind: wiring.names(leads.index(kind)).keys() for kind in set(leads)}
    owners = [True] if wiring.shared_layers else leads
    attention = sum(owners.count(kind) * _n_numbers(wiring, names[kind]) for kind in names)
    positions = task.n_ctx * sizes.d_model if POSITIONS[sizes.positions].embedded else 0
    mlp = 2 * sizes.d_model * sizes.d_mlp
    read_out = sizes.d_model * task.n_classes
    # An encoder, and a decoder with two attention layers for each MLP.
    n_mlps = sizes.n_layers * 2 // 3 if task.n_source else sizes.n_layers
    other_parameters = task.d_vocab * sizes.d_model + positions + read_out + n_mlps * mlp
    if sizes.standard:
        biases = (sizes.d_mlp + sizes.d_model) * n_mlps if sizes.d_mlp else 0
        n_norms = sizes.final_norm + (n_mlps if sizes.d_mlp else 0)
        n_norms += 0 if wiring.module else sizes.n_layers
        other_parameters += sizes.d_model + biases + task.n_classes + 2 * sizes.d_model * n_norms
    if (module := wiring.module) is not None:
        n_answering = task.n_ctx - task.n_source
        return Costs(
            attention=module.n_parameters,
            parameters=module.n_parameters + other_parameters,
            kv_cache=module.kv_cache,
            ready_cache=module.kv_cache,
            multiply_adds=module.multiply_adds + read_out * n_answering // task.n_ctx,
        )
    cached_per_layer = sum(wiring.vectors[name].n_numbers for name in wiring.stored)
    n_caches = sum(leads[sizes.n_layers // 3 if task.n_source else 0 :])
    if task.n_source:
        n_decoder = task.n_ctx - task.n_source
        mlps = n_mlps // 2 * mlp * task.n_ctx
        n_triples = sizes.n_layers // 3
        attending = n_triples * _encoder_decoder_multiply_adds(wiring, task.n_source, n_decoder)
        multiply_adds = (read_out * n_decoder + mlps + attending) // task.n_ctx
    else:
        multiply_adds = read_out + n_mlps * mlp
        multiply_adds += sizes.n_layers * task.n_ctx * _score_multiply_adds(wiring)
        matrices = set.union(*_matrices(wiring).values())
        for kind in names:
            multiply_adds += leads.count(kind) * _n_numbers(wiring, matrices & names[kind])
    return Costs(
        attention=attention,
        parameters=attention + other_parameters,
        kv_cache=n_caches * cached_per_layer,
        ready_cache=n_caches * wiring.n_ready,
        multiply_adds=multiply_adds,
    )


def _encoder_decoder_multiply_adds(wiring: Wiring, n_source: int, n_decoder: int) -> int:
    """Multiply-adds of one encoder, one decoder and one cross-attention layer, over all tokens."""
    names = _matrices(wiring)
    products = (n_source + n_decoder) * _n_numbers(wiring, names["Q"] | names["K"] | names["V"])
    products += n_decoder * _n_numbers(wiring, names["Q"])
    products += n_source * _n_numbers(wiring, names["K"] | names["V"])
    n_scores = n_source**2 + n_decoder**2 + n_decoder * n_source
    return products + n_scores * _score_multiply_adds(wiring)


def _matrices(wiring: Wiring) -> dict[Role, set[str]]:
    """Return the names of the matrices that make each role, with W_O for queries."""
    matrices: dict[Role, set[str]] = {}
    for role in ROLES:
        weights = (wiring.vectors[name].weight for name in wiring.chain(wiring.roles[role]))
        matrices[role] = {weight for weight in weights if weight is not None}
    matrices["Q"] |= {"W_O"} & wiring.weights.keys()
    return matrices


def _n_numbers(wiring: Wiring, names: Iterable[str]) -> int:
    """Return the number of elements of the weights of these names."""
    return sum(wiring.weights[name].n_numbers for name in names)


def _score_multiply_adds(wiring: Wiring) -> int:
    """Multiply-adds of all heads for one pair of a query position and a key position."""
    sizes = wiring.sizes
    return sizes.n_heads * (wiring.n_maps * sizes.d_k + sizes.d_v)


@dataclass(frozen=True)
class Adjusted:
    """Sizes at which a variant costs as much as the most expensive one of the experiment.

    Attributes:
        size: The experiment's size, with other widths.
        rank: Option with another width, which replaces the variant's option of that name. None
            if the variant keeps its options.
        changes: Description of the changes, such as "head width 8 → 16", as a text from `mark`;
            empty if there are none.
        difference: Relative difference to the cost of the most expensive variant.
    """

    size: Size
    rank: WidthOption | None
    changes: str
    difference: float

    def wire(self, variant: Variant, task: Task) -> Wiring:
        """Return the wiring of the variant, or of one of its stages, at these sizes."""
        if self.rank is not None:
            variant = variant.replacing(self.rank)
        return variant.wire(self.size, task.n_ctx, two_sided=task.n_source > 0)


@lru_cache(64)
def equalise(
    variants: tuple[Variant, ...], size: Size, task: Task, equal: Equal
) -> dict[Variant, Adjusted]:
    """Return sizes at which all variants cost as much as the most expensive one at `size`.

    The head width is changed first, then, if that is not enough, the MLP width, then a rank that
    is given as a fraction of another width. A variant whose text form sets a width keeps it. Where
    no width gives the cost, the nearest is taken, and `difference` says how far it is off.

    Raises:
        ValueError: If a variant is not possible at `size`.
    """

    def wire(parts: Parts, size: Size) -> Wiring:
        return wire_parts(parts, size, task.n_ctx, two_sided=task.n_source > 0)

    def cost(wiring: Wiring) -> int:
        number = getattr(count_costs(wiring, task), equal)
        if number is None:
            raise ValueError(
                mark("these costs cannot be made equal: a module does not say its own")
            )
        return int(number)

    costs = {variant: cost(wire(variant.parts, size)) for variant in variants}
    highest = max(costs.values())
    return {v: _fit(v, size, costs[v], highest, wire, cost) for v in variants}


def _fit(
    variant: Variant,
    size: Size,
    cost_before: int,
    target: int,
    wire: Callable[[Parts, Size], Wiring],
    cost: Callable[[Wiring], int],
) -> Adjusted:
    """Return the sizes at which a variant's cost, `cost_before` at `size`, is nearest `target`."""
    best, reached = size, cost_before
    changes: list[str] = []
    for name, widest in _ADJUSTABLE_WIDTHS:
        width = getattr(size, name)
        if abs(reached - target) <= TOLERANCE * target or name in variant.given or not width:
            continue

        def at_width(n: int, name: str = name, size: Size = best) -> int:
            return cost(wire(variant.parts, size.model_copy(update={name: n})))

        found = _nearest_costs(target, at_width, width, reached, widest)
        nearest = min(found, key=lambda n: (abs(found[n] - target), abs(n - width), n))
        if nearest != width:
            changes.append(_change(name, width, nearest))
            best, reached = best.model_copy(update={name: nearest}), found[nearest]
    rank = None
    options = [o for o in variant.options if isinstance(o, WidthOption) and o.adjustable]
    if options and options[0].value.letter and abs(reached - target) > TOLERANCE * target:
        option = options[0]

        def at_rank(n: int) -> int:
            parts = variant.parts.replacing(type(option)(Width(n))).checked()
            if len(parts.text) > LONGEST:
                raise ValueError(mark("at most {n} characters", n=LONGEST))
            return cost(wire(parts, best))

        start = option.value.resolve(option.name, wire(variant.parts, best).sizes)
        found = _nearest_costs(target, at_rank, start, reached, WIDEST)
        nearest = min(found, key=lambda n: (abs(found[n] - target), n))
        if abs(found[nearest] - target) < abs(reached - target):
            rank, reached = type(option)(Width(nearest)), found[nearest]
            changes.append(mark("rank {before} → {after}", before=option.value, after=rank.value))
    difference = reached / target - 1 if target else 0.0
    return Adjusted(best, rank, _joined(changes), difference)


def _change(name: str, before: int, after: int) -> str:
    """Return the description of another head width or MLP width, as a text from `mark`."""
    if name == "d_head":
        return mark("head width {before} → {after}", before=before, after=after)
    return mark("MLP width {before} → {after}", before=before, after=after)


def _joined(changes: list[str]) -> str:
    """Return several texts from `mark` as one, which is empty if there are none."""
    if not changes:
        return ""
    # Translators: two changes of widths, such as "head width 8 → 16" and "MLP width 64 → 68".
    return reduce(lambda some, more: mark("{some}, {more}", some=some, more=more), changes)


def _nearest_costs(
    target: int, cost: Callable[[int], int], start: int, start_cost: int, widest: int
) -> dict[int, int]:
    """Return the widths whose costs are nearest to the target from below and above, with the costs.

    Few widths are tried. This is right because a cost never falls as a width grows, and because the
    possible widths are at equal distances: options need fractions of a width that are whole, even
    or a multiple of four, so that the distance divides four times a possible width.

    Args:
        cost: Function that returns the cost at a width, or raises ValueError if it is not possible.
        start: Width from which the search begins, and which is possible.
        start_cost: Cost at this width.
        widest: Largest width that is tried.
    """
    direction = 1 if start_cost < target else -1
    known: dict[int, float] = {start: start_cost}

    def cost_at(width: int) -> float:
        if width not in known:
            try:
                known[width] = cost(width)
            except ValueError:
                known[width] = direction * math.inf
        return known[width]

    n_further = widest - start if direction > 0 else start - 1
    distances = (n for n in range(1, n_further + 1) if 4 * start % n == 0)
    step = next((n for n in distances if math.isfinite(cost_at(start + direction * n))), 0)
    if not step:
        return {start: start_cost}
    first = start if direction > 0 else (start - 1) % step + 1
    widths = range(first, (widest if direction > 0 else min(start, widest)) + 1, step)
    if not widths or cost_at(widths[0]) == cost_at(widths[-1]) == start_cost:
        return {start: start_cost}
    above = _first_at_least(target, widths, cost_at)
    indices = {index for index in (above - 1, above) if 0 <= index < len(widths)}
    for index in tuple(indices):  # the ends of ranges of equal costs
        equal = cost_at(widths[index])
        if index and cost_at(widths[index - 1]) == equal:
            indices.add(bisect_left(widths, equal, 0, index, key=cost_at))
        if index + 1 < len(widths) and cost_at(widths[index + 1]) == equal:
            indices.add(bisect_right(widths, equal, index, key=cost_at) - 1)
    found = {width: cost_at(width) for width in (start, *(widths[index] for index in indices))}
    return {width: int(found[width]) for width in found if math.isfinite(found[width])}


def _first_at_least(target: int, widths: Sequence[int], cost_at: Callable[[int], float]) -> int:
    """Return the index of the first width that costs at least the target; their number if none.

    Most costs grow in proportion, so every other guess is where a straight line would be.
    """
    low, high = -1, len(widths)  # the first such width is after `low` and not after `high`
    is_straight = True
    while high - low > 1:
        middle = (low + high) // 2
        if low < 0 or high == len(widths):  # the ends come first
            middle = 0 if low < 0 else high - 1
        elif is_straight:
            least, most = cost_at(widths[low]), cost_at(widths[high])
            share = (target - least) / (most - least)
            if math.isfinite(share):
                middle = min(max(low + math.ceil(share * (high - low)), low + 1), high - 1)
        is_straight = not is_straight
        if cost_at(widths[middle]) < target:
            low = middle
        else:
            high = middle
    return high
