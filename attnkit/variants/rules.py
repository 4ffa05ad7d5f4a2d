"""Rules: the effect of one word of a variant on sizes, wiring and tensors, and as plain PyTorch.

A rule defines its effect on tensors twice: batched over seeds for the engine, and as source lines
of an exported PyTorch module. Tests compare the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

    from attnkit.variants.sharing import Role
    from attnkit.variants.wiring import Sizes, Wiring

HOOKS = ("adjust", "bias", "merge", "combine", "finish")
"""Names of the methods of a rule that act on tensors; `Code` has a field for each."""


@dataclass(frozen=True)
class Code:
    """Effect of a rule as source text for the exported module of one variant.

    In this text, `q`, `k` and `v` are (b, h, i, d), without the axis of heads if there is only one
    head. `scores` is (b, h, i, j), and has an axis of maps after b until `merge` or `combine`. `x`
    is the residual stream, and `self` is the layer, whose weights have their names in the wiring.

    Attributes:
        functions: Functions that are defined once, before the classes.
        setup: Lines of the layer's `__init__`; `layer` is its index, from 0.
        adjust: Expression of the adjusted rows of each role.
        merge: Lines that replace the `scores` of several maps by one.
        bias: Lines that add a bias to `scores`.
        combine: Lines that change `pattern` or replace several maps by one; `masked` are the
            scores after masks.
        finish: Lines that change `z`, the output of the heads; `v` holds the values of all tokens.
    """

    functions: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    adjust: Mapping[Role, str] = field(default_factory=dict)
    merge: tuple[str, ...] = ()
    bias: tuple[str, ...] = ()
    combine: tuple[str, ...] = ()
    finish: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layer:
    """An attention layer, as rules see it.

    Attributes:
        wiring: Wiring of the variant.
        index: Index of the layer, from 0.
        weights: Weights of the layer by their names in the wiring, with a leading axis of seeds.
    """

    wiring: Wiring
    index: int
    weights: dict[str, Tensor]


class Rule:
    """Effect of one word of a variant, or of its position scheme, as hooks of the engine.

    Rows are (s, b, h, i, d): seeds, examples, heads, positions, width. Weights have a leading axis
    of seeds. Methods that are not overridden change nothing. They import torch inside only, so
    that pages can read the catalogue without it. A rule that overrides a method of `HOOKS` returns
    its equivalent in plain PyTorch from `code`.

    Class attributes:
        plain: Whether attention is computed as without this rule.
        linear: Whether `adjust` multiplies vectors by a fixed matrix, which can then be applied
            to weights.
    """

    plain: bool = False
    linear: bool = False

    def resize(self, sizes: Sizes) -> None:
        """Change the sizes before the wiring is built. Raises ValueError if they disagree."""

    def rewire(self, wiring: Wiring) -> None:
        """Change vectors, roles and weights. Raises ValueError if the sizes do not allow it."""

    def adjust(self, role: Role, rows: Tensor, positions: Tensor, layer: Layer) -> Tensor:
        """Return the rows of a role as the scores or the output use them; `positions` is (i,)."""
        return rows

    def norm(self, of: Role | Literal["Z"], rows: Tensor) -> Tensor | None:
        """Return the factor by which a norm multiplies each row, (s, b, h, i, 1); None without one.

        Apart from this factor, `adjust` is linear in the rows of a role, and so is `finish` in the
        outputs of the heads, Z, except for what it adds. An attribution splits rows into parts and
        keeps the factor of the whole row.
        """
        return None

    def bias(self, query_positions: Tensor, key_positions: Tensor, layer: Layer) -> Tensor | None:
        """Return the bias of the scores, (s or 1, 1, h or 1, i, j); None if there is none."""
        return None

    def merge(self, scores: Tensor, layer: Layer) -> Tensor:
        """Return the changed scores before mask and softmax, (s, b, h, maps, i, j)."""
        return scores

    def combine(self, pattern: Tensor, masked: Tensor, layer: Layer) -> Tensor:
        """Return the changed pattern, with one map for several, (s, b, h, maps, i, j).

        Args:
            pattern: Softmax of the masked scores.
            masked: Masked scores.
        """
        return pattern

    def finish(
        self, z: Tensor, own_values: Tensor | None, positions: Tensor, layer: Layer
    ) -> Tensor:
        """Return the changed output of the heads before W_O, (s, b, h, i, d).

        Args:
            z: Output of the heads.
            own_values: Values at the query positions, after all rules, shaped as `z`; None if
                queries and keys are different sequences, as in cross-attention.
            positions: Query positions, (i,).
        """
        return z

    def code(self, wiring: Wiring) -> Code:
        """Return the equivalent of the hooks in plain PyTorch."""
        return Code()
