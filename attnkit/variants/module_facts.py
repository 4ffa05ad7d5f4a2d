"""Facts about the layers of a PyTorch module of one's own, for whoever does not compute with them.

Costs, pages and estimates read these facts. They travel as JSON from the process that has executed
the module's code to a server, which never executes it and imports no torch.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from attnkit.foundation.language import tr
from attnkit.foundation.words import listed
from attnkit.variants.wiring import Weight

CONSTRUCTOR_SIZES = (
    "d_model",
    "d_head",
    "n_heads",
    "n_layers",
    "n_ctx",
    "d_mlp",
    "causal",
    "self_mask",
)
"""Sizes that a constructor may ask for by name."""


@dataclass(eq=False)
class ModuleFacts:
    """Facts about all layers of a module at the sizes of a variant.

    Attributes:
        name: Name of the class.
        origin: File of the class, or "a notebook".
        shapes: For every layer, the shapes of the parameters and drawn buffers by name.
        fixed: Names of the parameters that training never changes.
        drawn: Names of the buffers that the constructor draws anew for every seed, and which
            therefore travel with the parameters; training never changes them.
        unused: Names of the parameters on which what it returns does not depend in any layer.
        returned: For every layer, whether it returns scores, and whether it returns a pattern.
        masked: Whether the scores that it returns have a mask in them, so that they are not used.
        batched: Whether all seeds are computed as one batch; otherwise one after the other.
        multiply_adds: Multiply-adds of all layers for one token, as torch counts them.
        kv_cache: Numbers that a decoder keeps per token, over all layers; None if unknown.
    """

    name: str
    origin: str
    shapes: list[dict[str, tuple[int, ...]]] = field(default_factory=list)
    fixed: list[str] = field(default_factory=list)
    drawn: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    returned: list[tuple[bool, bool]] = field(default_factory=list)
    masked: bool = False
    batched: bool = True
    multiply_adds: int = 0
    kv_cache: int | None = None

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ModuleFacts:
        """Read facts that `to_dict` has written."""
        shapes = [{name: tuple(shape) for name, shape in one.items()} for one in values["shapes"]]
        return cls(**{**values, "shapes": shapes})

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain values, for JSON."""
        return {name: asdict(self)[name] for name in ModuleFacts.__dataclass_fields__}

    @property
    def weights(self) -> dict[str, Weight]:
        """Parameters of all layers, and drawn buffers, by name."""
        of_all = {name: shape for shapes in self.shapes for name, shape in shapes.items()}
        fixed = {*self.fixed, *self.drawn}
        return {name: Weight(shape, fixed=name in fixed) for name, shape in of_all.items()}

    @property
    def n_parameters(self) -> int:
        """Number of parameters of all layers; buffers do not count."""
        of_all = [item for shapes in self.shapes for item in shapes.items()]
        return sum(math.prod(shape) for name, shape in of_all if name not in self.drawn)

    @property
    def has_scores(self) -> bool:
        """Whether all layers return scores without a mask, so that they have an asymmetry."""
        return all(scores for scores, _ in self.returned) and not self.masked

    @property
    def missing(self) -> str:
        """Sentences on what its layers do not use or return, and what is therefore empty."""
        unused = tr(
            "{name} does not use {parameters}, which count as parameters all the same.",
            name=self.name,
            parameters=listed(self.unused),
        )
        return f"{unused} {self._not_returned}".strip() if self.unused else self._not_returned

    @property
    def _not_returned(self) -> str:
        """Sentence on what its layers do not return, and what is therefore empty; "" if nothing."""
        has_scores = all(scores for scores, _ in self.returned)
        has_pattern = all(pattern for _, pattern in self.returned)
        if self.masked and has_pattern:
            return tr(
                "{name} returns scores with a mask in them, so that the asymmetry is empty: let "
                "forward return the scores from before the mask.",
                name=self.name,
            )
        if self.masked:
            return tr(
                "{name} returns scores with a mask in them, so that the asymmetry is empty: let "
                "forward return the scores from before the mask and return its pattern.",
                name=self.name,
            )
        if has_scores and has_pattern:
            return ""
        if has_pattern:
            return tr(
                "{name} does not return its scores, so that the asymmetry is empty: let forward "
                "return (x, scores, pattern).",
                name=self.name,
            )
        if has_scores:
            return tr(
                "{name} does not return its pattern, so that attention maps and attention masses "
                "are empty: let forward return (x, scores, pattern).",
                name=self.name,
            )
        return tr(
            "{name} does not return its scores and pattern, so that the asymmetry and attention "
            "maps and attention masses are empty: let forward return (x, scores, pattern).",
            name=self.name,
        )
