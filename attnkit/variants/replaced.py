"""Replacements of learnt matrices: an MLP for W_Q, random numbers for W_V, and shaped attention in
blocks without W_V and W_O.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from attnkit.foundation.language import mark
from attnkit.variants.catalogue import register
from attnkit.variants.options import Option, WidthOption, register_option
from attnkit.variants.partitions import IDENTITIES
from attnkit.variants.wiring import TOKEN, Code, Layer, Weight, Wiring

if TYPE_CHECKING:
    from torch import Tensor


@register_option
class QueryMlpOption(WidthOption):
    """Queries (x + f(x)) / 2 with an MLP f; the value of the option is its hidden width.

    f(x) is the LayerNorm, with gains and without a shift, of gelu(x W_F) W_Q.

    Source:
        Karbevski 2026, arXiv 2603.13381, and its code, which normalises x once more.
    """

    name = "query_mlp"
    adjustable = True
    help = mark("Half of each query is the token, and the other half is an MLP of the token.")
    samples = ("3", "m/2", "d")
    place = 19
    refuses = {
        "Q=K Q=V Q=K=V Q=I": mark("queries must have a matrix of their own, which it replaces"),
        # Translators: "they" are the options `sum` and `diff`.
        "sum diff": mark("they make two queries per head"),
    }

    def rewire(self, wiring: Wiring) -> None:
        """Replace W_Q by the two matrices of the MLP and its gains.

        Raises:
            ValueError: If the queries of all heads together are not as wide as the token.
        """
        hidden, sizes = self.value.resolve(self.name, wiring.sizes), wiring.sizes
        query = wiring.vectors["Q"]
        if query.n_numbers != sizes.d_model:
            raise ValueError(
                mark(
                    "query_mlp needs n_heads · d_k = d_model, but {n_heads} · {d_k} is not "
                    "{d_model}; try d_head=m/h",
                    n_heads=query.n_heads,
                    d_k=query.width,
                    d_model=sizes.d_model,
                )
            )
        wiring.drop("Q")
        wiring.project("F", TOKEN, 1, hidden)
        wiring.project("Q", "F", query.n_heads, query.width)
        wiring.vectors["Q"].gain = "g_F"
        wiring.weights["g_F"] = Weight((sizes.d_model,), fill=(1.0,))


register(
    "Nonlinear queries",
    "QKV query_mlp=m/2 d_head=m/h",
    mark(
        "Each query is the mean of the token and of a small MLP of the token, which has as many "
        "numbers as W_Q, and a gain for each number of the token. A linear W_Q can move into other "
        "matrices, so it may be the identity; an MLP cannot."
    ),
    "Karbevski 2026, arXiv 2603.13381, and its code",
    IDENTITIES,
    aliases=("nonlinear residual queries", "MLP queries"),
)


@register_option
class FixedValuesOption(Option):
    """A value matrix that keeps its random initial numbers."""

    name = "fixed_values"
    help = mark("The value matrix is random and is not trained.")
    place = 65
    plain = True
    refuses = {
        "K=V Q=V Q=K=V V=I": mark("values must have a matrix of their own"),
        # Translators: the value matrix, which is random and must stay as it is.
        "tie": mark("the matrix would change"),
    }

    def rewire(self, wiring: Wiring) -> None:
        """Mark the value matrix as fixed."""
        wiring.weights["W_V"] = replace(wiring.weights["W_V"], fixed=True)


register(
    "Fixed random values",
    "QKV fixed_values",
    mark(
        "The value matrix keeps its random initial numbers: only the embedding and W_O learn what "
        "a token hands over. It asks what a learnt W_V is good for where heads are narrower than "
        "the token, so that values cannot be the token itself."
    ),
    "the project's own",
    IDENTITIES,
    aliases=("random value matrix", "frozen values", "untrained value matrix"),
)


@register_option
class ShapedOption(Option):
    """Patterns αI + βA − γC: identity, softmax and mean of what a token sees, weighted per head.

    The weights α, β and γ start at 1. In the source W_Q starts at 0, so that A equals C at first;
    here it starts as every matrix does.

    Source:
        He and Hofmann 2023, arXiv 2311.01906; shaped attention: Noci et al. 2023, arXiv 2306.17759.
    """

    name = "shaped"
    help = mark(
        "The own value is added to what a head reads, and the mean of all values is subtracted."
    )
    place = 40
    refuses = {
        # Translators: "one" and "the other" are two options; the value is that of the token itself.
        "exclusive": mark("one adds the own value, the other removes it"),
        "diff": mark("both subtract a second pattern"),
    }

    def rewire(self, wiring: Wiring) -> None:
        """Add α, β and γ for every head; refuse cross-attention, where no token sees itself."""
        if wiring.sizes.two_sided:
            raise ValueError(
                mark(
                    "shaped does not go with an encoder and a decoder: in cross-attention a token "
                    "has no value of its own among those that it sees"
                )
            )
        for name in ("alpha", "beta", "gamma"):
            wiring.weights[name] = Weight((wiring.sizes.n_heads,), fill=(1.0,))

    def combine(self, pattern: Tensor, masked: Tensor, layer: Layer) -> Tensor:
        """Return βA − γC."""
        even = masked.masked_fill(masked > _MASKED, 0.0).softmax(-1)
        beta, gamma = (layer.weights[name][:, None, :, None, None, None] for name in _FACTORS)
        return beta * pattern - gamma * even

    def finish(
        self, z: Tensor, own_values: Tensor | None, positions: Tensor, layer: Layer
    ) -> Tensor:
        """Add α times the own value."""
        assert own_values is not None
        return z + layer.weights["alpha"][:, None, :, None, None] * own_values

    def code(self, wiring: Wiring) -> Code:
        heads = "[:, None, None]" if wiring.sizes.n_heads > 1 else ""
        return Code(
            combine=(
                f"even = masked.masked_fill(masked > {_MASKED:g}, 0.0).softmax(-1)",
                f"pattern = self.beta{heads} * pattern - self.gamma{heads} * even",
            ),
            finish=(f"z = z + self.alpha{heads} * v",),
        )


_FACTORS = ("beta", "gamma")

_MASKED = -5e4
"""Half of the self-mask: lower scores are those of tokens that are not seen."""

_SIMPLIFIED = "He and Hofmann 2023, arXiv 2311.01906"
register(
    "No values and no output",
    "QKV V=I O=I d_head=m/h",
    mark(
        "There is neither a value matrix nor an output matrix: each head adds up its part of the "
        "tokens that it attends to."
    ),
    f"reported: after {_SIMPLIFIED}, without its shaped attention",
    IDENTITIES,
    aliases=("simplified block", "no value and projection parameters"),
)
register(
    "Shaped attention",
    "QKV V=I O=I d_head=m/h shaped",
    mark(
        "There is neither a value matrix nor an output matrix, and each head adds the token itself "
        "and subtracts the mean of what it sees, with learnt weights. The source also removes skip "
        "connections and norms, which stay here."
    ),
    f"reported: {_SIMPLIFIED} (abstract)",
    IDENTITIES,
    aliases=("simplified attention sub-block", "SAS"),
)
