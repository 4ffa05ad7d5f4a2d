"""Keys and values that all heads share, with a low-rank residual for each head."""

from __future__ import annotations

from attnkit.variants.catalogue import register
from attnkit.variants.options import WidthOption, register_option
from attnkit.variants.wiring import TOKEN, Vector, Weight, Wiring


@register_option
class ResidualOption(WidthOption):
    """Keys k_h = x (W_S + W_A,h W_B,h), and values likewise; the value of the option is the rank.

    All heads share x W_S, as in MQA. The residual of a head is computed from the narrow vector
    x W_A,h. A decoder caches the shared vector and the narrow vectors.

    Source:
        O'Neill et al. 2026, arXiv 2601.11471. Initial values are those of other matrices here.
    """

    name = "kv_residual"
    adjustable = True
    help = "All heads share keys and values, and each head adds a low-rank residual of its own."
    samples = ("2", "3", "m/4")
    place = 23
    refuses = {
        "Q=K Q=V Q=K=V": "queries must not be tied, because all heads share one key and one value",
        "K=I V=I": "keys and values must have matrices",
        "kv_rank k_rank keyless sum diff": "both define how keys are computed",
        "tie": "keys and values have several matrices each",
    }

    def rewire(self, wiring: Wiring) -> None:
        """Replace keys and values by the sum of a shared vector and of residuals."""
        rank = self.value.resolve(self.name, wiring.sizes)
        for name in dict.fromkeys((wiring.roles["K"], wiring.roles["V"])):
            vector = wiring.vectors[name]
            wiring.drop(name)
            wiring.project(f"S_{name}", TOKEN, 1, vector.width)
            wiring.project(f"A_{name}", TOKEN, vector.n_heads, rank)
            wiring.vectors[name] = Vector(
                f"A_{name}",
                f"W_B_{name}",
                vector.n_heads,
                vector.width,
                per_head=True,
                adds=f"S_{name}",
            )
            shape = (vector.n_heads, rank, vector.width)
            wiring.weights[f"W_B_{name}"] = Weight(shape, rank**-0.5)


register(
    "LRKV",
    "QKV n_heads=4 kv_residual=4",
    "Low-rank key-value attention: all heads share one key and one value, and each head adds a "
    "residual of rank 4 to both. It stands between MQA and full heads, and a decoder keeps the "
    "shared vectors and the narrow ones.",
    "O'Neill et al. 2026, arXiv 2601.11471",
    "Low rank",
    aliases=("low-rank key-value attention", "low-rank residuals"),
)
