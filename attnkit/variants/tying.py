"""Tied at the start only, and tied after training."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from attnkit.variants.catalogue import register
from attnkit.variants.options import ChoiceOption, NumberOption, Option, register_option
from attnkit.variants.sharing import Role, Sharing
from attnkit.variants.wiring import Wiring

if TYPE_CHECKING:
    from attnkit.variants.text import Variant

FAMILY = "Tied for a time"


class _SharingOption(Option):
    """An option whose value is a coarser sharing than the variant's own."""

    value: Sharing
    allowed: ClassVar[str] = "a sharing that ties more than the variant: Q=K, K=V, Q=V, Q=K=V"
    samples: ClassVar[tuple[str | None, ...]] = ("Q=K", "K=V", "Q=V", "Q=K=V")

    @classmethod
    def read(cls, text: str | None) -> _SharingOption:
        """Read the roles that are tied, in any order."""
        roles = sorted((text or "").upper().split("="))
        for sharing in Sharing:
            if roles == sorted(role for own in sharing.classes if len(own) > 1 for role in own):
                return cls(sharing)
        raise ValueError("one of Q=K, K=V, Q=V, Q=K=V")

    def check(self, variant: Variant) -> None:
        """It must tie what is not tied, and untie nothing."""
        finer, coarser = variant.sharing, self.value
        kept = all(len({coarser.owner(role) for role in own}) == 1 for own in finer.classes)
        if finer is coarser or not kept:
            raise ValueError(
                f"{self.name}={coarser} does not go with {finer}: it must tie more than the "
                "variant does, and untie nothing"
            )
        tied = {role for own in coarser.classes if len(own) > 1 for role in own}
        if tied & set(variant.identity):
            raise ValueError(f"{self.name}={coarser}: a role that is the token has no matrix")


@register_option
class StartOption(_SharingOption):
    """Roles that start from the same numbers and are free afterwards."""

    name = "start"
    help = "Some of its matrices start as equal copies and are free afterwards."
    place = 70
    plain = True

    def rewire(self, wiring: Wiring) -> None:
        """Let matrices take the initial numbers of the first of their class.

        Raises:
            ValueError: if those have another shape.
        """
        for members in self.value.classes:
            names = [f"W_{name}" for name in dict.fromkeys(wiring.roles[r] for r in members)]
            for name in names[1:]:
                own, first = (wiring.weights.get(each) for each in (name, names[0]))
                if own is None or first is None or own.shape != first.shape:
                    raise ValueError(
                        f"start={self.value} needs matrices of one shape for {', '.join(members)}"
                    )
                wiring.weights[name] = replace(own, like=names[0])


@register_option
class TieOption(_SharingOption):
    """Train untied, tie, go on training."""

    name = "tie"
    help = "It is trained untied first, then tied, then trained on."
    place = 71
    plain = True

    def check(self, variant: Variant) -> None:
        """What it becomes must be a variant, too."""
        super().check(variant)
        _ = variant.stages


@register_option
class TieByOption(ChoiceOption):
    """Which numbers tied roles go on with."""

    name = "tie_by"
    help = "When it is tied, it keeps one of the matrices, or their average."
    choices = ("average", "keep_Q", "keep_K", "keep_V")
    allowed = "average (without it), keep_Q, keep_K or keep_V"
    samples = choices
    implied = "average"
    place = 72
    plain = True

    def check(self, variant: Variant) -> None:
        """Only what is tied can be kept."""
        coarser = _needs_tie(variant, self.name)
        tied = {role for own in coarser.classes if len(own) > 1 for role in own}
        if self.value != "average" and self.value[-1] not in tied:
            raise ValueError(f"tie_by={self.value} does not go with tie={coarser}: not tied there")


@register_option
class TieAtOption(NumberOption):
    """When it is tied, as a share of the steps."""

    name = "tie_at"
    help = "It is tied after its own share of the steps."
    low, high = 0.0, 1.0
    allowed = "a share of the steps from 0 to 1; 0.5 without it"
    samples = ("0.25", "0.8")
    implied = 0.5
    place = 73
    plain = True

    def check(self, variant: Variant) -> None:
        """It says when, so there must be what."""
        _needs_tie(variant, self.name)


def _needs_tie(variant: Variant, name: str) -> Sharing:
    if "tie" not in variant.given:
        raise ValueError(f"{name} needs tie as well: tie=K=V, say")
    sharing: Sharing = variant.given["tie"].value
    return sharing


@register_option
class LearningRateOption(NumberOption):
    """The variant's own step size."""

    name = "learning_rate"
    help = "It is trained with its own learning rate."
    low, high = 1e-5, 1.0
    allowed = "a number from 1e-05 to 1"
    samples = ("0.001", "0.003", "0.01")
    place = 80
    plain = True


def tie_share(variant: Variant) -> float:
    """After which share of the steps a variant is tied."""
    given = variant.given.get("tie_at")
    share: float = TieAtOption.implied if given is None else given.value
    return share


def kept_role(variant: Variant, members: tuple[Role, ...]) -> Role | None:
    """The role whose matrix a class of tied roles goes on with; None: the average of all."""
    given = variant.given.get("tie_by")
    if given is None or given.value == "average" or given.value[-1] not in members:
        return None
    role: Role = given.value[-1]
    return role


register(
    "Symmetric start",
    "QKV start=Q=K",
    "W_Q and W_K start as equal copies and are free afterwards: symmetric at first, not for ever.",
    "reported: Saponati et al. 2025, arXiv 2502.10927",
    FAMILY,
    aliases=("symmetric initialisation", "symmetric initialization"),
)
for _how, _what in (
    ("average", "the average of both"),
    ("keep_K", "the key matrix"),
    ("keep_V", "the value matrix"),
):
    register(
        f"Tied later: {_how.replace('_', ' ')}",
        "QKV tie=K=V" + (f" tie_by={_how}" if _how != "average" else ""),
        f"Trained with three matrices for half of the steps; then K=V with {_what}, and trained "
        "on. Does a trained model survive it?",
        "notes in the repository of Kayyam et al. 2026, arXiv 2606.04032",
        FAMILY,
    )
