"""Options for ties of limited duration: at the start only, or after some training."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from attnkit.foundation.language import mark
from attnkit.variants.catalogue import register
from attnkit.variants.options import ChoiceOption, NumberOption, Option, Parts, register_option
from attnkit.variants.sharing import Role, Sharing
from attnkit.variants.wiring import Wiring

FAMILY = "Tied for a time"


class _SharingOption(Option):
    """An option whose value is a sharing that ties more roles than that of the variant."""

    value: Sharing
    allowed: ClassVar[str] = "a sharing that ties more than the variant: Q=K, K=V, Q=V, Q=K=V"
    samples: ClassVar[tuple[str | None, ...]] = ("Q=K", "K=V", "Q=V", "Q=K=V")

    @classmethod
    def read(cls, text: str | None) -> _SharingOption:
        """Read the roles that are tied, in any order."""
        roles = sorted((text or "").upper().split("="))
        for sharing in Sharing:
            if roles == sorted(_tied_roles(sharing)):
                return cls(sharing)
        raise ValueError(mark("one of {choices}", choices="Q=K, K=V, Q=V, Q=K=V"))

    def check(self, parts: Parts) -> None:
        """Refuse a sharing that ties nothing new, unties roles, or ties roles without a matrix."""
        finer, coarser = parts.sharing, self.value
        stay_tied = all(
            len({coarser.owner(role) for role in members}) == 1 for members in finer.classes
        )
        if finer is coarser or not stay_tied:
            raise ValueError(
                mark(
                    "{name}={sharing} does not go with {other}: it must tie more than the variant "
                    "does, and untie nothing",
                    name=self.name,
                    sharing=coarser.value,
                    other=finer.value,
                )
            )
        if _tied_roles(coarser) & set(parts.identity):
            raise ValueError(
                mark(
                    "{name}={sharing}: a role that is the token has no matrix",
                    name=self.name,
                    sharing=coarser.value,
                )
            )


def _tied_roles(sharing: Sharing) -> set[Role]:
    """Return the roles that are tied to another role."""
    return {role for members in sharing.classes if len(members) > 1 for role in members}


@register_option
class StartOption(_SharingOption):
    """Roles whose matrices start equal and are trained separately."""

    name = "start"
    help = mark("Some matrices start as equal copies and are trained separately.")
    place = 70
    plain = True

    def rewire(self, wiring: Wiring) -> None:
        """Initialise every matrix of a class as a copy of the first one.

        Raises:
            ValueError: If they have different shapes.
        """
        for members in self.value.classes:
            names = [f"W_{name}" for name in dict.fromkeys(wiring.roles[r] for r in members)]
            first = wiring.weights.get(names[0])
            for name in names[1:]:
                weight = wiring.weights.get(name)
                if weight is None or first is None or weight.shape != first.shape:
                    raise ValueError(
                        mark(
                            "start={sharing} needs matrices of one shape for {roles}",
                            sharing=self.value.value,
                            roles=", ".join(members),
                        )
                    )
                wiring.weights[name] = replace(weight, like=names[0])


@register_option
class TieOption(_SharingOption):
    """Sharing to which a variant is tied in the course of its training."""

    name = "tie"
    help = mark("The variant is trained untied first, then tied and trained further.")
    place = 71
    plain = True

    def check(self, parts: Parts) -> None:
        """Refuse a variant whose tied stage is no variant."""
        super().check(parts)
        _ = parts.stages


@register_option
class TieByOption(ChoiceOption):
    """Matrix with which tied roles continue: one of theirs or the average."""

    name = "tie_by"
    help = mark(
        "When roles are tied, they continue with one of their matrices or with the average."
    )
    choices = ("average", "keep_Q", "keep_K", "keep_V")
    allowed = "average (without it), keep_Q, keep_K or keep_V"
    samples = choices
    implied = "average"
    place = 72
    plain = True

    def check(self, parts: Parts) -> None:
        """Refuse to keep the matrix of a role that is not tied."""
        sharing = _require_tie(parts, self.name)
        role = self.value[-1]
        if self.value != "average" and role not in _tied_roles(sharing):
            raise ValueError(
                mark(
                    "tie_by={value} does not go with tie={sharing}: {role} is not tied there",
                    value=self.value,
                    sharing=sharing.value,
                    role=role,
                )
            )


@register_option
class TieAtOption(NumberOption):
    """Time at which the variant is tied, as a share of the steps."""

    name = "tie_at"
    help = mark("The variant is tied after this share of the steps.")
    low, high = 0.0, 1.0
    allowed = "a share of the steps from 0 to 1; 0.5 without it"
    samples = ("0.25", "0.8")
    implied = 0.5
    place = 73
    plain = True

    def check(self, parts: Parts) -> None:
        """Refuse a variant without the option `tie`."""
        _require_tie(parts, self.name)


def _require_tie(parts: Parts, name: str) -> Sharing:
    """Return the value of the option `tie`, which the option `name` needs."""
    if "tie" not in parts.given:
        raise ValueError(mark("{name} needs tie as well, for example tie=K=V", name=name))
    sharing: Sharing = parts.given["tie"].value
    return sharing


@register_option
class LearningRateOption(NumberOption):
    """Learning rate of the variant."""

    name = "learning_rate"
    help = mark("The variant has its own learning rate.")
    low, high = 1e-5, 1.0
    allowed = "a number from 1e-05 to 1"
    samples = ("0.001", "0.003", "0.01")
    place = 80
    plain = True


def tie_share(parts: Parts) -> float:
    """Return the share of the steps after which a variant is tied."""
    option = parts.given.get("tie_at")
    share: float = TieAtOption.implied if option is None else option.value
    return share


def kept_role(parts: Parts, members: tuple[Role, ...]) -> Role | None:
    """Return the role whose matrix a class of tied roles keeps; None if it keeps the average."""
    option = parts.given.get("tie_by")
    if option is None or option.value == "average" or option.value[-1] not in members:
        return None
    role: Role = option.value[-1]
    return role


register(
    "Symmetric start",
    "QKV start=Q=K",
    mark(
        "W_Q and W_K start as equal copies and are trained separately, so scores are symmetric "
        "only at first."
    ),
    "reported: Saponati et al. 2025, arXiv 2502.10927",
    FAMILY,
    aliases=("symmetric initialisation", "symmetric initialization"),
)
_TIED_LATER = {
    "average": mark(
        "After half of the steps, keys and values are tied to the average of both. Until then the "
        "model is trained with three matrices, and afterwards it is trained further. Does a "
        "trained model survive this?"
    ),
    "keep_K": mark(
        "After half of the steps, keys and values are tied to the key matrix. Until then the model "
        "is trained with three matrices, and afterwards it is trained further. Does a trained "
        "model survive this?"
    ),
    "keep_V": mark(
        "After half of the steps, keys and values are tied to the value matrix. Until then the "
        "model is trained with three matrices, and afterwards it is trained further. Does a "
        "trained model survive this?"
    ),
}
"""Explanation of each way to continue after a tie of keys and values."""

for _value, _explanation in _TIED_LATER.items():
    register(
        f"Tied later: {_value.replace('_', ' ')}",
        "QKV tie=K=V" + (f" tie_by={_value}" if _value != "average" else ""),
        _explanation,
        "notes in the repository of Kayyam et al. 2026, arXiv 2606.04032",
        FAMILY,
    )
