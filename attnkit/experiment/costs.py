"""What a variant costs: parameters, cache, multiply-adds; and variants of equal cost.

All is counted on the wiring. Nothing here knows torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from attnkit.variants.options import WidthOption
from attnkit.variants.position_rules import POSITIONS
from attnkit.variants.sharing import ROLES, Role
from attnkit.variants.wiring import TOKEN, WIDEST, Width

if TYPE_CHECKING:
    from attnkit.tasks import Task
    from attnkit.variants import Variant, Wiring
    from attnkit.variants.size import Size

Equal = Literal["nothing", "parameters", "multiply_adds", "kv_cache"]
"""What can be made equal across the variants of an experiment."""

TOLERANCE = 0.02
"""Costs that differ by so little count as equal."""

_KNOBS = (("d_head", "head width", 128), ("d_mlp", "MLP width", 512))
"""What is tried first, as shown, and how wide it may get."""


@dataclass(frozen=True)
class Costs:
    """Costs of one run of a variant.

    Attributes:
        attention: parameters of the attention layers.
        parameters: all of them.
        kv_cache: floats that a decoder keeps per token, summed over layers.
        multiply_adds: of the matrix products of one token's forward pass, among n_ctx tokens; the
            mean over the tokens of an encoder and a decoder.
    """

    attention: int
    parameters: int
    kv_cache: int
    multiply_adds: int


def count_costs(wiring: Wiring, task: Task) -> Costs:
    """Costs of a run."""
    sizes = wiring.sizes
    attention = sum(weight.n_numbers for weight in wiring.parameters().values())
    positions = task.n_ctx * sizes.d_model if POSITIONS[sizes.positions].embedded else 0
    mlp = 2 * sizes.d_model * sizes.d_mlp
    read_out = sizes.d_model * task.n_classes
    # An encoder, and a decoder with two attention layers for each MLP.
    n_mlps = sizes.n_layers * 2 // 3 if task.n_source else sizes.n_layers
    outside = task.d_vocab * sizes.d_model + positions + read_out + n_mlps * mlp
    if sizes.standard:
        biases = (sizes.d_mlp + sizes.d_model) * n_mlps if sizes.d_mlp else 0
        n_norms = sizes.n_layers + (n_mlps if sizes.d_mlp else 0) + sizes.final_norm
        outside += sizes.d_model + biases + task.n_classes + 2 * sizes.d_model * n_norms
    kept = sum(wiring.vectors[name].n_numbers for name in wiring.stored)
    decoding = range(sizes.n_layers // 3 if task.n_source else 0, sizes.n_layers)
    leaders = [layer for layer in decoding if wiring.leader(layer) == layer]
    multiply_adds = read_out + n_mlps * mlp
    if task.n_source:  # the mean over both sides
        n_asking = task.n_ctx - task.n_source
        read_out *= n_asking
        mlps = n_mlps // 2 * mlp * task.n_ctx
        attending = sizes.n_layers // 3 * _of_two_sides(wiring, task.n_source, n_asking)
        multiply_adds = (read_out + mlps + attending) // task.n_ctx
    else:
        for layer in range(sizes.n_layers):
            names = wiring.names(layer).keys()
            multiply_adds += _of_matrices(wiring, ROLES, names) + task.n_ctx * _of_a_score(wiring)
    return Costs(attention, attention + outside, len(leaders) * kept, multiply_adds)


def _of_two_sides(wiring: Wiring, n_source: int, n_asking: int) -> int:
    """Multiply-adds of an encoder's layer, a decoder's, and the one between, over all tokens."""
    names = wiring.names(0).keys()
    found = (n_source + n_asking) * _of_matrices(wiring, ROLES, names)
    found += n_asking * _of_matrices(wiring, ("Q",), names)
    found += n_source * _of_matrices(wiring, ("K", "V"), names)
    n_scores = n_source**2 + n_asking**2 + n_asking * n_source
    return found + n_scores * _of_a_score(wiring)


def _of_matrices(wiring: Wiring, roles: Iterable[Role], names: Collection[str]) -> int:
    """Multiply-adds of one token on its way to these roles, and out of the heads after asking.

    Args:
        names: of the weights that the layer has.
    """
    used = {"W_O"} if "Q" in roles else set()
    for role in roles:
        name = wiring.roles[role]
        while name != TOKEN:
            used.add(wiring.vectors[name].weight or "")
            name = wiring.vectors[name].reads
    return sum(wiring.weights[name].n_numbers for name in used & set(names))


def _of_a_score(wiring: Wiring) -> int:
    """Multiply-adds of all heads for one token that asks and one that is looked at."""
    sizes = wiring.sizes
    return sizes.n_heads * (wiring.n_maps * sizes.d_k + sizes.d_v)


@dataclass(frozen=True)
class Adjusted:
    """A variant at sizes that make its cost equal to that of the others.

    Attributes:
        size: the experiment's, with other widths.
        rank: an option that stands in place of the variant's of that name, with another width.
        changes: what was changed, in words; empty if nothing was.
        difference: its cost over that of the dearest variant, minus one.
    """

    size: Size
    rank: WidthOption | None
    changes: str
    difference: float

    def wire(self, variant: Variant, task: Task) -> Wiring:
        """What the variant, or one of its stages, computes at these sizes."""
        if self.rank is not None:
            variant = variant.replacing(self.rank)
        return variant.wire(self.size, task.n_ctx, two_sided=task.n_source > 0)


def equalise(
    variants: tuple[Variant, ...], size: Size, task: Task, equal: Equal
) -> dict[Variant, Adjusted]:
    """Widths at which variants cost as much as the dearest of them does at the given sizes.

    First the head's width is chosen, then, if that is not enough, the MLP's, then a rank that is
    given as a part of another width. A variant that names its own width keeps it; where no width
    fits, the nearest is taken and `difference` tells.

    Raises:
        ValueError: if a variant does not go with the given sizes.
    """

    def cost(variant: Variant, at: Size, rank: WidthOption | None = None) -> int:
        wiring = Adjusted(at, rank, "", 0.0).wire(variant, task)
        return int(getattr(count_costs(wiring, task), equal))

    at_first = {variant: cost(variant, size) for variant in variants}
    wanted = max(at_first.values())
    return {variant: _fit(variant, size, wanted, cost) for variant in variants}


def _fit(
    variant: Variant,
    size: Size,
    wanted: int,
    cost: Callable[[Variant, Size, WidthOption | None], int],
) -> Adjusted:
    """The sizes, as near to the wanted cost as its widths allow."""

    def miss(at: Size, rank: WidthOption | None = None) -> float:
        try:
            return abs(cost(variant, at, rank) - wanted)
        except ValueError:  # an odd width for RoPE, say
            return math.inf

    best, changes = size, []
    for name, label, widest in _KNOBS:
        first = getattr(size, name)
        if miss(best) <= TOLERANCE * wanted or name in variant.given or not first:
            continue
        found = [best.model_copy(update={name: width}) for width in range(1, widest + 1)]
        nearest = min([best, *found], key=lambda at: (miss(at), abs(getattr(at, name) - first)))
        if nearest != best:
            changes.append(f"{label} {first} → {getattr(nearest, name)}")
        best = nearest
    rank = None
    given = [o for o in variant.options if isinstance(o, WidthOption) and o.adjustable]
    if given and given[0].value.letter and miss(best) > TOLERANCE * wanted:
        ranks = [type(given[0])(Width(width)) for width in range(1, WIDEST + 1)]
        nearest_rank = min(ranks, key=lambda other: miss(best, other))
        if miss(best, nearest_rank) < miss(best):
            rank = nearest_rank
            changes.append(f"rank {given[0].value} → {rank.value}")
    difference = cost(variant, best, rank) / wanted - 1 if wanted else 0.0
    return Adjusted(best, rank, ", ".join(changes), difference)
