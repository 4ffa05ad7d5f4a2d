"""Sharing across layers: of all projections, or of keys and values."""

from __future__ import annotations

from attnkit.foundation.language import mark
from attnkit.variants.catalogue import register
from attnkit.variants.options import (
    ChoiceOption,
    CountOption,
    Option,
    register_option,
)
from attnkit.variants.wiring import Wiring

FAMILY = "Across layers"

_OWN_QUERIES = mark("queries are computed in every layer, keys and values are not")


@register_option
class SharedLayersOption(Option):
    """One set of attention parameters for all layers."""

    name = "shared_layers"
    least_layers = 2
    help = mark("All layers use the same attention matrices.")
    place = 60

    def rewire(self, wiring: Wiring) -> None:
        wiring.shared_layers = True


@register_option
class ReuseOption(CountOption):
    """Keys and values computed in every n-th layer only, and reused by the layers after it."""

    name = "kv_every"
    least_layers = 2
    help = mark("Only some layers compute keys and values; the layers after them reuse these.")
    low, high = 2, 4
    allowed = "a whole number from 2 to 4"
    samples = ("2", "3")
    place = 61
    refuses = {
        "Q=K Q=V Q=K=V": _OWN_QUERIES,
    }

    def rewire(self, wiring: Wiring) -> None:
        wiring.reuse = self.value


@register_option
class SourceLayersOption(ChoiceOption):
    """Values of the bottom layer and keys of the middle layer, in the upper half of the layers.

    Of n layers, the first n/2 (rounded up) compute keys and values. The last of these is the
    middle layer.

    Source:
        Lin et al. 2025, arXiv 2512.03870 (FusedKV-Lite).
    """

    name = "kv_from"
    help = mark("Upper layers use the values of the bottom layer and the keys of the middle layer.")
    choices = ("bottom_middle",)
    allowed = "bottom_middle"
    samples = choices
    least_layers = 4
    place = 62
    refuses = {
        "Q=K Q=V Q=K=V": _OWN_QUERIES,
        "kv_every": mark("both choose layers for keys and values"),
    }

    def rewire(self, wiring: Wiring) -> None:
        wiring.bottom_middle = True


register(
    "ALBERT",
    "QKV shared_layers",
    mark("All layers use the attention matrices of the first. A model of one layer is plain QKV."),
    "reported: Lan et al. 2019, arXiv 1909.11942 (there with the MLP, too)",
    FAMILY,
    aliases=("shared layers", "cross-layer parameter sharing"),
)
register(
    "CLA",
    "QKV kv_every=2",
    mark(
        "Cross-layer attention: every second layer uses the keys and values of the one before it. "
        "A model of one layer is plain QKV."
    ),
    "Brandon et al. 2024, arXiv 2405.12981",
    FAMILY,
    aliases=("cross-layer attention",),
)
register(
    "FusedKV-Lite",
    "QKV kv_from=bottom_middle",
    mark(
        "The upper half of the layers uses the values of the bottom layer and the keys of the "
        "middle layer. With an even number of layers this halves the cache. With two layers it is "
        "CLA."
    ),
    "Lin et al. 2025, arXiv 2512.03870",
    FAMILY,
    aliases=("FusedKV", "cross-layer fusion of the KV cache"),
)
register(
    "CLA with K=V",
    "K=V kv_every=2",
    mark("Keys are also the values, and two layers use the same ones: a quarter of the cache."),
    "composition of arXiv 2405.12981 and 2606.04032",
    FAMILY,
    aliases=("cross-layer attention with shared key-value",),
)
