"""The class `Layer` of a variant's module: its weights, and its forward pass line by line.

Written along the `Wiring`, with the lines that every rule gives (`Rule.code`). In the lines, `x` is
the residual stream, (b, i, m), and `q`, `k`, `v` have an axis of heads if there are several.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from attnkit.analysis.export.source import assigned, fits, indented, method, module_class, plain
from attnkit.variants import Variant, Wiring
from attnkit.variants.rules import HOOKS, Code, Rule
from attnkit.variants.sharing import ROLES, Role
from attnkit.variants.wiring import TOKEN, Weight


def linear_weights(wiring: Wiring) -> list[str]:
    """The matrices of an attention layer that are a `nn.Linear` each; W_O is the last."""
    read = {vector.weight for vector in wiring.vectors.values() if not vector.per_head}
    named = [name for name in wiring.weights if name in read]
    return [*named, "W_O"] if wiring.has_output else named


class LayerSource:
    """Writes the class.

    Args:
        variant: what it is. wiring: the same at its sizes.
        packed: whether a line makes as many weights as fit. told: whether there are docstrings.

    Attributes:
        codes: the lines of its rules.
        lends: whether some layers use the keys and values of others.
        arguments: what tells one layer from another: name → type, expression of its number n.

    Raises:
        ValueError: if a rule acts on tensors and has no lines for it.
    """

    def __init__(self, variant: Variant, wiring: Wiring, *, packed: bool, told: bool) -> None:
        self._variant, self._wiring = variant, wiring
        self._packed, self._told = packed, told
        self._sizes = wiring.sizes
        self._ln = ("self.ln1", "self.ln2") if self._sizes.standard else ("norm", "norm")
        self._some_mlps = self._sizes.two_sided and self._sizes.d_mlp > 0
        self.lends = self._sizes.n_layers > 1 and wiring.reuse > 1
        self.codes = [_code_of(rule, wiring) for rule in wiring.rules]
        self.arguments: dict[str, tuple[str, str]] = {}
        if any(code.setup for code in self.codes):
            self.arguments["layer"] = ("int", "n")
        if self.lends:
            self.arguments["leads"] = ("bool", f"n % {wiring.reuse} == 0")
        if self._some_mlps:  # all encoder layers, and of the decoder every second
            n_encoders = self._sizes.n_layers // 3
            either = f"n < {n_encoders} or n % 2 == {(n_encoders + 1) % 2}"
            self.arguments["has_mlp"] = ("bool", either)

    def text(self) -> str:
        """The class."""
        takes, gives, told = (
            "x: Tensor",
            "Tensor",
            "The residual stream x, (b, i, m), one layer on.",
        )
        if self._sizes.two_sided:
            takes = "x: Tensor, y: Tensor, mask: Tensor | float = 0.0"
            told = "The residual stream x, (b, i, m), after looking at y, (b, j, m)."
        elif self.lends:
            takes, gives = "x: Tensor, k: Tensor, v: Tensor", "tuple[Tensor, Tensor, Tensor]"
        given = "".join(f", {name}: {kind}" for name, (kind, _) in self.arguments.items())
        told = told if self._told else ""
        methods = [method(f"forward(self, {takes}) -> {gives}", told, self._forward())]
        weights = list(self._weights())
        if weights:
            start = method(f"__init__(self{given}) -> None", "", ["super().__init__()", *weights])
            methods.insert(0, start)
        return module_class("Layer", self._meaning() if self._told else "", methods)

    def _meaning(self) -> str:
        """As many of the sentences that tell what the variant is as one line holds."""
        told = ""
        for sentence in re.split(r"(?<=\.) ", plain(self._variant.stages[-1].meaning)):
            if fits(f"{told} {sentence}"):
                told = f"{told} {sentence}".strip()
        return told or "Attention."

    # Weights

    def _weights(self) -> Iterator[str]:
        wiring, linear = self._wiring, linear_weights(self._wiring)
        biases = [f"b_{name[2:]}" for name in linear]
        others = [name for name in wiring.weights if name not in (*linear, *biases)]
        made = {f"self.{name}": self._matrix(name, f"b_{name[2:]}") for name in linear}
        made |= {
            f"self.{name}": f"nn.Parameter({_numbers(wiring.weights[name])})" for name in others
        }
        lent = set[str]()
        if self.lends:
            lent = {f"self.{name}" for name in wiring.names(0).keys() - wiring.names(1).keys()}
        yield from self._begun({name: made[name] for name in made if name not in lent})
        if lent:
            yield "self.leads = leads"
            yield "if leads:  # the layers after it use its keys and values"
            yield from indented(self._begun({name: made[name] for name in made if name in lent}))
        for code in self.codes:
            yield from code.setup
        yield from self._weights_beside()

    def _begun(self, made: dict[str, str]) -> Iterator[str]:
        """Weights are made; then those that start as copies of others."""
        yield from self._assigned(made)
        for name, weight in self._wiring.weights.items():
            if weight.like and f"self.{name}" in made:
                yield f"self.{name}.load_state_dict(self.{weight.like}.state_dict())  # at first"

    def _weights_beside(self) -> Iterator[str]:
        """Those of norms and MLP."""
        sizes, bias = self._sizes, "" if self._sizes.standard else ", bias=False"
        norm = f"nn.LayerNorm({sizes.d_model})"
        first = {"self.ln1": norm} if sizes.standard else {}
        mlp = {"self.ln2": norm} if sizes.standard else {}
        mlp["self.W_in"] = f"nn.Linear({sizes.d_model}, {sizes.d_mlp}{bias})"
        mlp["self.W_out"] = f"nn.Linear({sizes.d_mlp}, {sizes.d_model}{bias})"
        if not self._some_mlps:
            yield from self._assigned(first | mlp if sizes.d_mlp else first)
            return
        yield from self._assigned({**first, "self.has_mlp": "has_mlp"})
        yield "if has_mlp:"
        yield from indented(self._assigned(mlp))

    def _matrix(self, name: str, bias: str) -> str:
        n_read, n_made = self._wiring.weights[name].shape
        return (
            f"nn.Linear({n_read}, {n_made}{'' if bias in self._wiring.weights else ', bias=False'})"
        )

    def _assigned(self, made: dict[str, str]) -> Iterator[str]:
        return assigned(made, packed=self._packed)

    # The forward pass

    def _forward(self) -> Iterator[str]:
        first, sizes = self._ln[0], self._sizes
        if sizes.two_sided:
            yield f"rows, others = {first}(x), {first}(y)"
            yield from self._rows(("Q",), "rows")
            yield from self._rows(("K", "V"), "others")
        else:
            yield f"rows = {first}(x)"
            yield from self._rows(("Q",) if self.lends else ROLES, "rows")
        if self.lends:
            yield "if self.leads:"
            yield from indented(self._rows(("K", "V"), "rows"))
        yield from self._scores()
        yield from self._read_out()

    def _rows(self, roles: Sequence[Role], source: str) -> Iterator[str]:
        """From normalised tokens to the rows of some roles."""
        made: dict[str, str] = {}
        for role in sorted(roles, key=lambda role: self._depth(self._wiring.roles[role])):
            yield from self._make(self._wiring.roles[role], roles, source, made)
        for code in self.codes:
            changed = {role.lower(): code.adjust[role] for role in roles if role in code.adjust}
            yield from assigned(changed, packed=True)
        shared = {role.lower(): self._n_each(role) for role in roles if self._n_each(role) > 1}
        repeated = {rows: f"{rows}.repeat_interleave({n}, 1)" for rows, n in shared.items()}
        yield from assigned(repeated, packed=True)

    def _make(
        self, name: str, roles: Sequence[Role], source: str, made: dict[str, str]
    ) -> Iterator[str]:
        """A vector, after what it reads; `made` knows their variables."""
        if name in made:
            return
        vector = self._wiring.vectors[name]
        read = source
        if vector.reads != TOKEN:
            yield from self._make(vector.reads, roles, source, made)
            read = made[vector.reads]
        own = [role.lower() for role in roles if self._wiring.roles[role] == name]
        variables = own or [name.lower()]
        made[name] = variables[-1]
        if vector.per_head:
            rows = f"{read} @ self.{vector.weight}"
        else:
            if vector.reads != TOKEN and self._wiring.vectors[vector.reads].n_heads > 1:
                read = f"{read}.transpose(1, 2).flatten(2)"
            rows = read if vector.weight is None else f"self.{vector.weight}({read})"
            if vector.n_heads > 1:
                rows += f".unflatten(-1, ({vector.n_heads}, {vector.width})).transpose(1, 2)"
            elif own and self._sizes.n_heads > 1:
                rows += ".unsqueeze(1)"
        line = f"{' = '.join(variables)} = {rows}"
        told = (
            f"{line}  # (b, {self._heads}i, d)" if "q" in own and self._sizes.n_heads > 1 else line
        )
        yield told if fits(told) else line

    def _scores(self) -> Iterator[str]:
        """From queries and keys to the scores before the softmax."""
        sizes, wiring = self._sizes, self._wiring
        product = f"q @ k.mT{_scaled(wiring.scale, sizes.d_k)}"
        if wiring.n_maps > 1:
            apart = f".unflatten(1, ({sizes.n_heads}, {wiring.n_maps})).transpose(1, 2)"
            yield f"scores = ({product}){apart}" if self._heads else f"scores = {product}"
        else:
            yield f"scores = {product}  # (b, {self._heads}i, j)"
        for hook in ("merge", "bias"):
            for code in self.codes:
                yield from getattr(code, hook)
        if sizes.causal and not sizes.two_sided:
            later = "torch.ones_like(scores).triu(1) > 0"
            yield f"scores = scores.masked_fill({later}, -torch.inf)  # look back"
        if sizes.self_mask and not sizes.two_sided:
            itself = "torch.eye(scores.shape[-1]).to(scores)"
            yield f"scores = scores - 1e5 * {itself}  # oneself last"

    def _read_out(self) -> Iterator[str]:
        """From scores and values to the residual stream after the layer."""
        masked = "(scores + mask)" if self._sizes.two_sided else "scores"
        pattern = f"{masked}.softmax(-1)"
        combined = [line for code in self.codes for line in code.combine]
        if combined:
            yield f"pattern = {pattern}"
            yield from combined
            pattern = "pattern"
        yield f"z = {pattern} @ v"
        for code in self.codes:
            yield from code.finish
        merged = "z.transpose(1, 2).flatten(2)" if self._heads else "z"
        added = f"self.W_O({merged})" if self._wiring.has_output else merged
        if self._sizes.d_mlp:
            yield f"x = x + {added}"
            added = f"self.W_out(nn.functional.gelu(self.W_in({self._ln[1]}(x))))"
        after = f"x + {added} if self.has_mlp else x" if self._some_mlps else f"x + {added}"
        yield f"return {after}{', k, v' if self.lends else ''}"

    @property
    def _heads(self) -> str:
        """The axis of heads in a shape, if there is one."""
        return "h, " if self._sizes.n_heads > 1 else ""

    def _depth(self, name: str) -> int:
        """How many vectors stand between a vector and the token."""
        reads = self._wiring.vectors[name].reads
        return 0 if reads == TOKEN else 1 + self._depth(reads)

    def _n_each(self, role: Role) -> int:
        """How many query heads share one of a role's; 1 where it is broadcast."""
        n_heads = self._wiring.vectors[self._wiring.roles[role]].n_heads
        return self._sizes.n_heads // n_heads if 1 < n_heads < self._sizes.n_heads else 1


def _code_of(rule: Rule, wiring: Wiring) -> Code:
    """The lines of a rule; of what it does to tensors, none is missing."""
    code = rule.code(wiring)
    for hook in HOOKS:
        if getattr(type(rule), hook) is not getattr(Rule, hook) and not getattr(code, hook):
            name = getattr(rule, "name", type(rule).__name__)
            raise ValueError(
                f"{name}: its method `{hook}` has no lines in `code`, which are needed to write it "
                f"as plain PyTorch; let `code` return Code({hook}=…)"
            )
    return code


def _numbers(weight: Weight) -> str:
    """What a weight that is no `nn.Linear` begins with."""
    shape = ", ".join(map(str, weight.shape))
    if not weight.fill:
        return f"{weight.std or weight.bound:.3g} * torch.randn({shape})"
    if set(weight.fill) <= {0.0, 1.0} and len(weight.fill) == 1:
        return f"torch.{'ones' if weight.fill[0] else 'zeros'}({shape})"
    n_times = -(-weight.shape[-1] // len(weight.fill))
    times = ", ".join(map(str, (*weight.shape[:-1], n_times)))
    cut = f"[..., :{weight.shape[-1]}]" if weight.shape[-1] % len(weight.fill) else ""
    return f"torch.tensor({list(weight.fill)}).repeat({times}){cut}"


def _scaled(scale: float, d_k: int) -> str:
    """A factor as it is usually written."""
    if scale == 1:
        return ""
    if scale == d_k**-0.5:
        return f" / {d_k}**0.5"
    divisor = f"{1 / scale:g}"
    return f" / {divisor}" if 1 / float(divisor) == scale else f" * {scale!r}"
