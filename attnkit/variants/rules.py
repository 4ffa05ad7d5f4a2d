"""What one word of a variant does: to sizes and wiring, to tensors, and as lines of plain PyTorch.

A rule says twice what it does to tensors: batched over seeds for the engine, and as the line that
stands in the module that people take away; tests hold one against the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from attnkit.variants.sharing import Role
    from attnkit.variants.wiring import Sizes, Wiring

HOOKS = ("adjust", "bias", "merge", "combine", "finish")
"""The methods of a rule that act on tensors; `Code` has a field for each."""


@dataclass(frozen=True)
class Code:
    """What a rule does, as source text of one variant's module.

    There `q`, `k`, `v` are (b, h, i, d), without the axis of heads if there is but one; `scores` is
    (b, h, i, j), before `merge` and `combine` with an axis of maps behind b. `x` is the residual
    stream, `self` the layer with all weights under their names in the wiring.

    Attributes:
        functions: what is defined once, before the classes.
        setup: lines of the layer's `__init__`; `layer` counts from 0.
        adjust: role → expression of its adjusted rows.
        merge, bias: lines that change `scores`. combine: `pattern`. finish: `z`, the read-out.
    """

    functions: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    adjust: Mapping[Role, str] = field(default_factory=dict)
    merge: tuple[str, ...] = ()
    bias: tuple[str, ...] = ()
    combine: tuple[str, ...] = ()
    finish: tuple[str, ...] = ()


class Rule:
    """What one word of a variant, or its positions, does to attention: the hooks of the engine.

    Rows are (s, b, h, i, d): seeds, examples, heads, positions, width. Weights carry a leading
    axis of seeds. Methods that are not overridden change nothing. torch is imported inside of
    them only, so that pages can read the catalogue without it. A rule that overrides one of
    `HOOKS` says in `code` what it comes to in plain PyTorch.

    Class attributes:
        plain: attention computes as it would without this rule.
        linear: `adjust` multiplies a vector by a fixed matrix, so it can be applied to weights.
    """

    plain: bool = False
    linear: bool = False

    def resize(self, sizes: Sizes) -> None:
        """Change the sizes, before any vector is laid out. Raises ValueError if they disagree."""

    def rewire(self, wiring: Wiring) -> None:
        """Change vectors, roles and weights. Raises ValueError if sizes do not allow it."""

    def adjust(
        self, role: Role, rows: Tensor, weights: dict[str, Tensor], at: Tensor, wiring: Wiring
    ) -> Tensor:
        """A role's rows on their way to the scores; `at` holds their positions, (i,)."""
        return rows

    def bias(
        self, weights: dict[str, Tensor], asking: Tensor, looked_at: Tensor, wiring: Wiring
    ) -> Tensor | None:
        """What is added to the scores, (s or 1, 1, h or 1, i, j), for these positions."""
        return None

    def merge(self, scores: Tensor, weights: dict[str, Tensor]) -> Tensor:
        """Scores (s, b, h, maps, i, j) of several maps on their way to the softmax."""
        return scores

    def combine(self, pattern: Tensor, weights: dict[str, Tensor], layer: int) -> Tensor:
        """One pattern (s, b, h, i, j) out of those of several maps, (s, b, h, maps, i, j)."""
        return pattern

    def finish(self, z: Tensor, weights: dict[str, Tensor], layer: int) -> Tensor:
        """What the heads read out, (s, b, h, i, d), on its way to W_O."""
        return z

    def code(self, wiring: Wiring) -> Code:
        """The lines that its hooks come to in a module of this variant alone."""
        return Code()
