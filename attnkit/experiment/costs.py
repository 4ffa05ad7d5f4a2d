"""Costs of variants (parameters, KV cache, multiply-adds), and widths that make them equal.

Costs are counted on the wiring, without torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from attnkit.variants.options import WidthOption
from attnkit.variants.position_rules import POSITIONS
from attnkit.variants.sharing import ROLES, Role
from attnkit.variants.width import WIDEST, Width

if TYPE_CHECKING:
    from attnkit.tasks import Task
    from attnkit.variants import Variant, Wiring
    from attnkit.variants.size import Size

Equal = Literal["nothing", "parameters", "multiply_adds", "kv_cache"]
"""Name of the cost that all variants of an experiment have in common."""

TOLERANCE = 0.02
"""Costs that differ by at most this share count as equal."""

_ADJUSTABLE_WIDTHS = (("d_head", "head width", 128), ("d_mlp", "MLP width", 512))
"""Widths that are changed to make costs equal, in this order: name, label, largest value."""


@dataclass(frozen=True)
class Costs:
    """Costs of one run of a variant.

    Attributes:
        attention: Parameters of the attention layers.
        parameters: Parameters of the whole model.
        kv_cache: Floats that a decoder keeps per token, summed over layers: the vectors from
            which keys and values are computed.
        ready_cache: Floats that a decoder keeps per token, summed over layers, if it caches keys
            and values as they enter the scores and the output, after norms and rotations. A vector
            that is key and value counts once.
        multiply_adds: Multiply-adds of the matrix products in the forward pass of one token among
            n_ctx tokens. In an encoder and a decoder it is the mean over all tokens.
    """

    attention: int
    parameters: int
    kv_cache: int
    ready_cache: int
    multiply_adds: int


def count_costs(wiring: Wiring, task: Task) -> Costs:
    """Return the costs of one run with this wiring on a task."""
    sizes = wiring.sizes
    attention = sum(weight.n_numbers for weight in wiring.parameters().values())
    positions = task.n_ctx * sizes.d_model if POSITIONS[sizes.positions].embedded else 0
    mlp = 2 * sizes.d_model * sizes.d_mlp
    read_out = sizes.d_model * task.n_classes
    # An encoder, and a decoder with two attention layers for each MLP.
    n_mlps = sizes.n_layers * 2 // 3 if task.n_source else sizes.n_layers
    other_parameters = task.d_vocab * sizes.d_model + positions + read_out + n_mlps * mlp
    if sizes.standard:
        biases = (sizes.d_mlp + sizes.d_model) * n_mlps if sizes.d_mlp else 0
        n_norms = sizes.n_layers + (n_mlps if sizes.d_mlp else 0) + sizes.final_norm
        other_parameters += sizes.d_model + biases + task.n_classes + 2 * sizes.d_model * n_norms
    cached_per_layer = sum(wiring.vectors[name].n_numbers for name in wiring.stored)
    decoder_layers = range(sizes.n_layers // 3 if task.n_source else 0, sizes.n_layers)
    n_caches = sum(wiring.leader(layer) == layer for layer in decoder_layers)
    if task.n_source:
        n_decoder = task.n_ctx - task.n_source
        mlps = n_mlps // 2 * mlp * task.n_ctx
        n_triples = sizes.n_layers // 3
        attending = n_triples * _encoder_decoder_multiply_adds(wiring, task.n_source, n_decoder)
        multiply_adds = (read_out * n_decoder + mlps + attending) // task.n_ctx
    else:
        multiply_adds = read_out + n_mlps * mlp
        for layer in range(sizes.n_layers):
            names = wiring.names(layer).keys()
            multiply_adds += _matrix_multiply_adds(wiring, ROLES, names)
            multiply_adds += task.n_ctx * _score_multiply_adds(wiring)
    return Costs(
        attention=attention,
        parameters=attention + other_parameters,
        kv_cache=n_caches * cached_per_layer,
        ready_cache=n_caches * wiring.n_ready,
        multiply_adds=multiply_adds,
    )


def _encoder_decoder_multiply_adds(wiring: Wiring, n_source: int, n_decoder: int) -> int:
    """Multiply-adds of one encoder, one decoder and one cross-attention layer, over all tokens."""
    names = wiring.names(0).keys()
    matrices = (n_source + n_decoder) * _matrix_multiply_adds(wiring, ROLES, names)
    matrices += n_decoder * _matrix_multiply_adds(wiring, ("Q",), names)
    matrices += n_source * _matrix_multiply_adds(wiring, ("K", "V"), names)
    n_scores = n_source**2 + n_decoder**2 + n_decoder * n_source
    return matrices + n_scores * _score_multiply_adds(wiring)


def _matrix_multiply_adds(wiring: Wiring, roles: Iterable[Role], names: Collection[str]) -> int:
    """Multiply-adds per token of the matrices that make these roles, with W_O for queries.

    Args:
        names: Names of the weights that the layer has.
    """
    used = {"W_O"} if "Q" in roles else set()
    for role in roles:
        used |= {wiring.vectors[name].weight or "" for name in wiring.chain(wiring.roles[role])}
    return sum(wiring.weights[name].n_numbers for name in used & set(names))


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
        changes: Description of the changes, such as "head width 8 → 16"; empty if there are none.
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

    def cost(variant: Variant, size: Size, rank: WidthOption | None = None) -> int:
        wiring = Adjusted(size, rank, "", 0.0).wire(variant, task)
        return int(getattr(count_costs(wiring, task), equal))

    highest = max(cost(variant, size) for variant in variants)
    return {variant: _fit(variant, size, highest, cost) for variant in variants}


def _fit(
    variant: Variant,
    size: Size,
    target: int,
    cost: Callable[[Variant, Size, WidthOption | None], int],
) -> Adjusted:
    """Return the sizes at which a variant's cost is nearest to the target."""

    def distance(size: Size, rank: WidthOption | None = None) -> float:
        try:
            return abs(cost(variant, size, rank) - target)
        except ValueError:  # not possible at this width, for example an odd one for RoPE
            return math.inf

    best, changes = size, []
    for name, label, widest in _ADJUSTABLE_WIDTHS:
        width = getattr(size, name)
        if distance(best) <= TOLERANCE * target or name in variant.given or not width:
            continue
        sizes = [best, *(best.model_copy(update={name: n}) for n in range(1, widest + 1))]
        nearest = min(sizes, key=lambda size: (distance(size), abs(getattr(size, name) - width)))
        if nearest != best:
            changes.append(f"{label} {width} → {getattr(nearest, name)}")
        best = nearest
    rank = None
    options = [o for o in variant.options if isinstance(o, WidthOption) and o.adjustable]
    if options and options[0].value.letter and distance(best) > TOLERANCE * target:
        ranks = [type(options[0])(Width(n)) for n in range(1, WIDEST + 1)]
        nearest_rank = min(ranks, key=lambda rank: distance(best, rank))
        if distance(best, nearest_rank) < distance(best):
            rank = nearest_rank
            changes.append(f"rank {options[0].value} → {rank.value}")
    difference = cost(variant, best, rank) / target - 1 if target else 0.0
    return Adjusted(best, rank, ", ".join(changes), difference)
