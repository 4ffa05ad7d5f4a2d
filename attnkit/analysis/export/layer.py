"""Source code of the class `Layer` of a variant's module: its weights and its forward pass.

The code follows the `Wiring`, with the lines of every rule (`Rule.code`). In these lines, `x` is
the residual stream, (b, i, m), and `q`, `k`, `v` have an axis of heads if there are several heads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from attnkit.analysis.export.source import (
    assignments,
    docstring_safe,
    fits,
    indented,
    method,
    module_class,
)
from attnkit.foundation.language import ENGLISH, reading
from attnkit.variants import Variant, Wiring
from attnkit.variants.rules import HOOKS, Code, Rule
from attnkit.variants.sharing import ROLES, Role
from attnkit.variants.wiring import TOKEN, Weight


def linear_weights(wiring: Wiring) -> list[str]:
    """Return the matrices of an attention layer that are an `nn.Linear` each; W_O is the last."""
    read = {vector.weight for vector in wiring.vectors.values() if not vector.per_head}
    named = [name for name in wiring.weights if name in read]
    return [*named, "W_O"] if wiring.has_output else named


class LayerSource:
    """Writer of the class `Layer` of one variant.

    Args:
        variant: The variant.
        wiring: Its wiring at the sizes of the experiment.
        packed: Whether each line creates as many weights as fit.
        docstrings: Whether to write docstrings.

    Attributes:
        codes: Lines of the variant's rules.
        lends: Whether some layers use the keys and values of others.
        arguments: Arguments that differ between layers: name → type, expression in the index n.

    Raises:
        ValueError: If a rule acts on tensors but has no lines of code.
    """

    def __init__(self, variant: Variant, wiring: Wiring, *, packed: bool, docstrings: bool) -> None:
        self._variant, self._wiring = variant, wiring
        self._packed, self._docstrings = packed, docstrings
        self._sizes = wiring.sizes
        self._ln = ("self.ln1", "self.ln2") if self._sizes.standard else ("norm", "norm")
        self._some_mlps = self._sizes.two_sided and self._sizes.d_mlp > 0
        self.lends = wiring.layers_share
        self.codes = [_code_of(rule, wiring) for rule in wiring.rules]
        self.arguments: dict[str, tuple[str, str]] = {}
        if any(code.setup for code in self.codes):
            self.arguments["layer"] = ("int", "n")
        if self.lends:
            leads = (
                f"n < {wiring.n_leading}" if wiring.bottom_middle else f"n % {wiring.reuse} == 0"
            )
            self.arguments["leads"] = ("bool", leads)
        if self._some_mlps:  # every encoder layer and every cross-attention
            n_encoders = self._sizes.n_layers // 3
            condition = f"n < {n_encoders} or n % 2 == {(n_encoders + 1) % 2}"
            self.arguments["has_mlp"] = ("bool", condition)

    def text(self) -> str:
        """Return the source code of the class."""
        parameters, returns = "x: Tensor", "Tensor"
        docstring = "Return the residual stream x, (b, i, m), after this layer."
        if self._sizes.two_sided:
            parameters = "x: Tensor, y: Tensor, mask: Tensor | float = 0.0"
            docstring = "Return x, (b, i, m), after attending to y, (b, j, m)."
        elif self.lends:
            parameters, returns = "x: Tensor, k: Tensor, v: Tensor", "tuple[Tensor, Tensor, Tensor]"
        docstring = docstring if self._docstrings else ""
        head = f"forward(self, {parameters}) -> {returns}"
        methods = [method(head, docstring, self._forward())]
        weights = list(self._weights())
        if weights:
            more = "".join(f", {name}: {kind}" for name, (kind, _) in self.arguments.items())
            lines = ["super().__init__()", *weights]
            methods.insert(0, method(f"__init__(self{more}) -> None", "", lines))
        return module_class("Layer", self._meaning() if self._docstrings else "", methods)

    def _meaning(self) -> str:
        """Return as many sentences on the meaning of the variant as one line holds."""
        text = ""
        with reading(ENGLISH):  # as all code
            meaning = docstring_safe(self._variant.stages[-1].meaning)
        for sentence in re.split(r"(?<=\.) ", meaning):
            if fits(f"{text} {sentence}"):
                text = f"{text} {sentence}".strip()
        return text or "Attention."

    # Weights

    def _weights(self) -> Iterator[str]:
        wiring, linear = self._wiring, linear_weights(self._wiring)
        biases = [f"b_{name[2:]}" for name in linear]
        others = [name for name in wiring.weights if name not in (*linear, *biases)]
        created = {f"self.{name}": self._linear(name) for name in linear}
        for name in others:
            created[f"self.{name}"] = f"nn.Parameter({_initial(wiring.weights[name])})"
        lent = set[str]()
        if self.lends:
            n_layers = self._sizes.n_layers
            reusing = next(n for n in range(n_layers) if wiring.leader(n) != n)
            lent = {
                f"self.{name}" for name in wiring.names(0).keys() - wiring.names(reusing).keys()
            }
        yield from self._created({name: created[name] for name in created if name not in lent})
        if lent:
            yield "self.leads = leads"
            yield "if leads:  # the next layers use its keys and values"
            of_leader = {name: created[name] for name in created if name in lent}
            yield from indented(self._created(of_leader))
        for code in self.codes:
            yield from code.setup
        yield from self._norms_and_mlp()

    def _created(self, weights: dict[str, str]) -> Iterator[str]:
        """Yield lines that create weights, then those that make some start as copies of others."""
        yield from self._assignments(weights)
        for name, weight in self._wiring.weights.items():
            if weight.fixed and f"self.{name}" in weights:
                yield f"self.{name}.weight.requires_grad_(False)  # keeps its initial numbers"
            if weight.like and f"self.{name}" in weights:
                yield f"self.{name}.load_state_dict(self.{weight.like}.state_dict())  # at start"

    def _norms_and_mlp(self) -> Iterator[str]:
        sizes, bias = self._sizes, "" if self._sizes.standard else ", bias=False"
        norm = f"nn.LayerNorm({sizes.d_model})"
        first = {"self.ln1": norm} if sizes.standard else {}
        mlp = {"self.ln2": norm} if sizes.standard else {}
        mlp["self.W_in"] = f"nn.Linear({sizes.d_model}, {sizes.d_mlp}{bias})"
        mlp["self.W_out"] = f"nn.Linear({sizes.d_mlp}, {sizes.d_model}{bias})"
        if not self._some_mlps:
            yield from self._assignments(first | mlp if sizes.d_mlp else first)
            return
        yield from self._assignments({**first, "self.has_mlp": "has_mlp"})
        yield "if has_mlp:"
        yield from indented(self._assignments(mlp))

    def _linear(self, name: str) -> str:
        weights = self._wiring.weights
        n_in, n_out = weights[name].shape
        bias = "" if f"b_{name[2:]}" in weights else ", bias=False"
        return f"nn.Linear({n_in}, {n_out}{bias})"

    def _assignments(self, values: dict[str, str]) -> Iterator[str]:
        return assignments(values, packed=self._packed)

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
        """Yield lines from the normalised residual stream to the vectors of some roles."""
        variables: dict[str, str] = {}
        for role in sorted(roles, key=lambda role: self._depth(self._wiring.roles[role])):
            yield from self._vector(self._wiring.roles[role], roles, source, variables)
        for code in self.codes:
            adjusted = {role.lower(): code.adjust[role] for role in roles if role in code.adjust}
            yield from assignments(adjusted, packed=True)
        if self._wiring.value_is_key and "V" in roles:
            yield "v = k  # the key, as the scores use it, is the value"
        shared = {role.lower(): self._n_sharing(role) for role in roles}
        repeated = {
            name: f"{name}.repeat_interleave({n}, 1)" for name, n in shared.items() if n > 1
        }
        yield from assignments(repeated, packed=True)

    def _vector(
        self, name: str, roles: Sequence[Role], source: str, variables: dict[str, str]
    ) -> Iterator[str]:
        """Yield the line of a vector, after those of vectors that it is computed from.

        Args:
            source: Variable of the normalised residual stream.
            variables: Vector → variable, of vectors with a line; new ones are added.
        """
        if name in variables:
            return
        vector = self._wiring.vectors[name]
        for other in vector.sources:
            if other != TOKEN:
                yield from self._vector(other, roles, source, variables)
        operand = variables.get(vector.reads, source)
        of_roles = [role.lower() for role in roles if self._wiring.roles[role] == name]
        targets = of_roles or [name.lower()]
        variables[name] = targets[-1]
        if vector.per_head:
            rows = f"{operand} @ self.{vector.weight}"
            rows = f"{variables[vector.shared_offset]} + {rows}" if vector.shared_offset else rows
        elif vector.shared_prefix:
            first, width = (
                variables[vector.shared_prefix],
                self._wiring.vectors[vector.shared_prefix].width,
            )
            first += f".expand(-1, {vector.n_heads}, -1, -1)" if vector.n_heads > 1 else ""
            rows = f"torch.cat([{first}, {operand}[..., :{vector.width - width}]], -1)"
        else:
            if vector.reads != TOKEN and self._has_heads(vector.reads):
                operand = f"{operand}.transpose(1, 2).flatten(2)"
            rows = operand if vector.weight is None else f"self.{vector.weight}({operand})"
            if vector.gain is not None:
                mlp = f"self.{vector.weight}(nn.functional.gelu({operand}))"
                gains = f"({self._sizes.d_model},), self.{vector.gain}"
                yield f"{operand} = nn.functional.layer_norm({mlp}, {gains})"
                rows = f"({source} + {operand}) / 2"
                rows = f"({rows})" if vector.n_heads > 1 else rows
            if vector.n_heads > 1:
                rows += f".unflatten(-1, ({vector.n_heads}, {vector.width})).transpose(1, 2)"
            elif self._has_heads(name):
                rows += ".unsqueeze(1)"
        line = f"{' = '.join(targets)} = {rows}"
        commented = f"{line}  # (b, {self._heads}i, d)"
        with_comment = "q" in of_roles and self._sizes.n_heads > 1 and fits(commented)
        yield commented if with_comment else line

    def _has_heads(self, name: str) -> bool:
        """Return whether the variable of a vector has an axis of heads."""
        named = {*self._wiring.roles.values(), *self._read_by_heads()}
        n_heads = self._wiring.vectors[name].n_heads
        return n_heads > 1 or (self._sizes.n_heads > 1 and name in named)

    def _read_by_heads(self) -> set[str]:
        """Return the names of vectors that every head reads, and not their concatenated heads."""
        vectors = self._wiring.vectors.values()
        by_heads = [vector for vector in vectors if vector.per_head or vector.shared_prefix]
        return {name for vector in by_heads for name in vector.sources}

    def _scores(self) -> Iterator[str]:
        """Yield lines from queries and keys to the scores before the softmax."""
        sizes, wiring = self._sizes, self._wiring
        product = f"q @ k.mT{_scaled(wiring.scale, sizes.d_k)}"
        if wiring.n_maps > 1:
            maps_first = f".unflatten(1, ({sizes.n_heads}, {wiring.n_maps})).transpose(1, 2)"
            yield f"scores = ({product}){maps_first}" if self._heads else f"scores = {product}"
        else:
            yield f"scores = {product}  # (b, {self._heads}i, j)"
        for hook in ("merge", "bias"):
            for code in self.codes:
                yield from getattr(code, hook)
        if sizes.causal and not sizes.two_sided:
            later = "torch.ones_like(scores).triu(1) > 0"
            yield f"masked = scores.masked_fill({later}, -torch.inf)  # causal"
        if sizes.self_mask and not sizes.two_sided:
            itself = "torch.eye(scores.shape[-1]).to(scores)"
            before = "masked" if sizes.causal else "scores"
            yield f"masked = {before} - 1e5 * {itself}  # self-mask"

    def _read_out(self) -> Iterator[str]:
        """Yield lines from scores and values to the residual stream after the layer."""
        sizes = self._sizes
        masked = "masked" if sizes.causal or sizes.self_mask else "scores"
        masked = "(scores + mask)" if sizes.two_sided else masked
        combined = [line for code in self.codes for line in code.combine]
        if masked != "masked" and any("masked" in line for line in combined):
            yield f"masked = {masked.strip('()')}"
            masked = "masked"
        pattern = f"{masked}.softmax(-1)"
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
        """Axis of heads in a shape comment, if there is one."""
        return "h, " if self._sizes.n_heads > 1 else ""

    def _depth(self, name: str) -> int:
        """Return the number of vectors between a vector and the residual stream."""
        reads = self._wiring.vectors[name].reads
        return 0 if reads == TOKEN else 1 + self._depth(reads)

    def _n_sharing(self, role: Role) -> int:
        """Return the number of query heads that share a vector of a role; 1 if it is broadcast."""
        n_heads = self._wiring.vectors[self._wiring.roles[role]].n_heads
        return self._sizes.n_heads // n_heads if 1 < n_heads < self._sizes.n_heads else 1


def _code_of(rule: Rule, wiring: Wiring) -> Code:
    """Return the lines of a rule, after checking that each of its hooks has some."""
    code = rule.code(wiring)
    for hook in HOOKS:
        if getattr(type(rule), hook) is not getattr(Rule, hook) and not getattr(code, hook):
            name = getattr(rule, "name", type(rule).__name__)
            raise ValueError(
                f"{name}: its method `{hook}` has no lines in `code`, which are needed to write it "
                f"as plain PyTorch; let `code` return Code({hook}=…)"
            )
    return code


def _initial(weight: Weight) -> str:
    """Return the expression of the initial numbers of a weight that is no `nn.Linear`."""
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
    """Return the code that multiplies by a scale, in its usual form."""
    if scale == 1:
        return ""
    if scale == d_k**-0.5:
        return f" / {d_k}**0.5"
    divisor = f"{1 / scale:g}"
    return f" / {divisor}" if 1 / float(divisor) == scale else f" * {scale!r}"
