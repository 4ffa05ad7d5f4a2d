"""What is known of a PyTorch module of one's own at given sizes, which its trial has found out.

Costs, pages and estimates read it. It travels as JSON from the process that has executed the
module's code to a server, which never executes it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from attnkit.foundation.words import Sentence, listed
from attnkit.variants.wiring import Weight


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
        unused: Names of the parameters for which what it returns has no gradient in any layer.
        returned: For every layer, whether it returns scores, and whether it returns a pattern.
        masked: Whether the scores that it returns have a mask in them, so that they are not used.
        attends_to_itself: Whether a token of it may attend to itself although the self-mask is on.
        is_other_in_training: Whether it computes other numbers in training than in evaluation.
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
    attends_to_itself: bool = False
    is_other_in_training: bool = False
    batched: bool = True
    multiply_adds: int = 0
    kv_cache: int | None = None

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ModuleFacts:
        """Read facts that `asdict` has written."""
        shapes = [{name: tuple(shape) for name, shape in one.items()} for one in values["shapes"]]
        return cls(**{**values, "shapes": shapes})

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
        """Sentences on what of its layers has no effect, and on what is empty without maps."""
        numbers = SimpleNamespace(
            name=self.name,
            parameters=listed(self.unused),
            evaluates=self.is_other_in_training,
            masked=self.masked,
            attends_to_itself=self.attends_to_itself,
            scores=self.masked or all(scores for scores, _ in self.returned),
            pattern=all(pattern for _, pattern in self.returned),
        )
        return " ".join(row.fill(numbers) for row in _MISSING if row.holds(numbers))


_MISSING = (
    Sentence(
        "What {name} returns has no gradient for {parameters}: training changes nothing there, but "
        "all of it counts as parameters.",
        lambda n: n.parameters,
    ),
    Sentence(
        "{name} always computes as in evaluation: dropout does nothing, and running statistics do "
        "not change.",
        lambda n: n.evaluates,
    ),
    Sentence(
        "The setting “self-mask” is on, but tokens of {name} may attend to themselves: let its "
        "constructor ask for self_mask, and add -1e4 to the diagonal of its scores.",
        lambda n: n.attends_to_itself,
    ),
    Sentence(
        "{name} returns scores with a mask in them, so that the asymmetry is empty: let forward "
        "return the scores from before the mask.",
        lambda n: n.masked,
    ),
    Sentence(
        "{name} does not return its scores and pattern, so that the asymmetry and attention maps "
        "and attention masses are empty: let forward return (x, scores, pattern).",
        lambda n: not n.scores and not n.pattern,
    ),
    Sentence(
        "{name} does not return its scores, so that the asymmetry is empty: let forward return (x, "
        "scores, pattern).",
        lambda n: not n.scores and n.pattern,
    ),
    Sentence(
        "{name} does not return its pattern, so that attention maps and attention masses are "
        "empty: let forward return (x, scores, pattern).",
        lambda n: n.scores and not n.pattern,
    ),
)
"""What is said of a module, each sentence by itself."""
