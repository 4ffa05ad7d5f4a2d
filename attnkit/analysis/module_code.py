"""Export of a variant, at the sizes of an experiment, as one short file of plain PyTorch.

The file is generated from the definition that is trained, the `Wiring` and the rules of the
variant. It contains only what the variant has: no options and no branches for others. In the lines
of rules (`Rule.code`), `x` is the residual stream, (b, i, m), and `q`, `k`, `v` have an axis of
heads if there are several heads.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from attnkit.experiment import Experiment
from attnkit.foundation.language import ENGLISH, reading
from attnkit.variants import Variant, Wiring
from attnkit.variants.position_rules import POSITIONS
from attnkit.variants.sharing import ROLES, Role
from attnkit.variants.wiring import HOOKS, TOKEN, Code, Rule, Weight

MOST_LINES = 59
"""Most lines of a file, if possible: a longer one is written more briefly."""


def module_code(experiment: Experiment, variant: str) -> str:
    """Return the source code of a variant as a file that needs only torch.

    Its `Transformer()` maps token ids (b, i, fields) to logits (b, a, classes) of the answering
    positions; `module_weights` returns its weights, which the package safetensors reads. A variant
    that is tied during training is exported in its tied form.

    All variants of the catalogue have under 60 lines on every task; of a thousand random variants,
    two had 60 and 62.

    Args:
        experiment: Experiment with the task and the sizes.
        variant: Variant of the experiment.

    Raises:
        ValueError: If an option of the variant acts on tensors but has no lines in `Rule.code`, or
            if a PyTorch module computes it, whose code is in its own file.
    """
    if (module := experiment.wiring(variant).module) is not None:
        raise ValueError(f"{variant}: its code is already a file, {module.origin}")
    text = ""
    for packed, docstrings in ((False, True), (True, True), (True, False)):
        text = _Module(experiment, Variant(variant), packed, docstrings).text()
        if text.count("\n") <= MOST_LINES:
            break
    return text


def linear_weights(wiring: Wiring) -> list[str]:
    """Return the matrices of an attention layer that are an `nn.Linear` each; W_O is the last."""
    read = {vector.weight for vector in wiring.vectors.values() if not vector.per_head}
    named = [name for name in wiring.weights if name in read]
    return [*named, "W_O"] if wiring.has_output else named


class _Module:
    """Writer of the file of one variant.

    Attributes:
        packed: Whether a line creates as many weights as fit.
        docstrings: Whether classes and functions have docstrings, and the file more than a line.
        codes: Lines of the variant's rules.
        arguments: Arguments of `Layer` that differ between layers: name → type, expression in the
            index n.
    """

    def __init__(
        self, experiment: Experiment, variant: Variant, packed: bool, docstrings: bool
    ) -> None:
        self.task, self.variant = experiment.task, variant
        self.packed, self.docstrings = packed, docstrings
        self.wiring = wiring = experiment.wiring(variant)
        self.sizes = sizes = wiring.sizes
        self.ln = ("self.ln1", "self.ln2") if sizes.standard else ("norm", "norm")
        self.some_mlps = sizes.two_sided and sizes.d_mlp > 0
        self.heads = "h, " if sizes.n_heads > 1 else ""  # in comments on shapes
        self.codes = [_code_of(rule, wiring) for rule in wiring.rules]
        self.arguments: dict[str, tuple[str, str]] = {}
        if any(code.setup for code in self.codes):
            self.arguments["layer"] = ("int", "n")
        if wiring.layers_share:
            leads = (
                f"n < {wiring.n_leading}" if wiring.bottom_middle else f"n % {wiring.reuse} == 0"
            )
            self.arguments["leads"] = ("bool", leads)
        if self.some_mlps:  # every encoder layer and every cross-attention
            n_encoders = sizes.n_layers // 3
            condition = f"n < {n_encoders} or n % 2 == {(n_encoders + 1) % 2}"
            self.arguments["has_mlp"] = ("bool", condition)

    def text(self) -> str:
        functions = [text.strip() for code in self.codes for text in code.functions]
        if not self.docstrings:
            functions = [re.sub(r'\n *""".*"""', "", text) for text in functions]
        body = "\n\n\n".join([*dict.fromkeys(functions), self._layer(), self._model()])
        imports = ["from torch import Tensor, nn"]
        if re.search(r"\btorch\.", body):
            imports.insert(0, "import torch")
        if re.search(r"\bmath\.", body):
            imports = ["import math", "", *imports]
        if not self.sizes.standard:
            norm = f"nn.RMSNorm({self.sizes.d_model}, eps=1e-6, elementwise_affine=False)"
            imports += ["", f"norm = {norm}"]
        return "\n".join([self._title(), "", *imports, "", "", body, ""])

    def _title(self) -> str:
        text = docstring_safe(f"{self.task.title}, {self.variant.value}: written by attnkit.")
        if not self.docstrings and len(text) + 6 <= WIDTH:
            return f'"""{text}"""'
        lines = (
            ">>> from safetensors.torch import load_file; model = Transformer()",
            '>>> model.load_state_dict(load_file("weights.safetensors"))',
        )
        text = textwrap.fill(text, WIDTH - 3)
        return "\n".join([f'"""{text}', "", *lines, '"""'])

    def _model(self) -> str:
        axes, forward_docstring = "", ""
        if self.docstrings:
            first = self.task.answers_from
            answers = f" of the positions from {first} on" if first else ""
            axes = "b: example, i: query position, j: key position, h: head, m: d_model, d: d_head."
            forward_docstring = f"Map token ids (b, i, fields) to logits (b, a, classes){answers}."
        init = method("__init__(self) -> None", "", ["super().__init__()", *self._model_weights()])
        head = "forward(self, tokens: Tensor) -> Tensor"
        forward = method(head, forward_docstring, self._model_forward())
        return module_class("Transformer", axes, [init, forward])

    def _model_weights(self) -> Iterator[str]:
        task, sizes, width = self.task, self.sizes, self.sizes.d_model
        bias = "" if sizes.standard else ", bias=False"
        weights = {
            "self.W_E": f"nn.Embedding({task.d_vocab}, {width})",
            "self.W_U": f"nn.Linear({width}, {task.n_classes}{bias})",
        }
        if sizes.standard:
            weights["self.b_E"] = f"nn.Parameter(torch.zeros({width}))"
            if sizes.final_norm:
                weights["self.ln_final"] = f"nn.LayerNorm({width})"
        if POSITIONS[sizes.positions].embedded:
            weights["self.W_pos"] = f"nn.Parameter(torch.randn({task.n_ctx}, {width}))"
        yield from assignments(weights, packed=self.packed)
        arguments = [
            value if kind == "int" else f"{name}={value}"
            for name, (kind, value) in self.arguments.items()
        ]
        if arguments or sizes.n_layers > 1:
            index = "n" if arguments else "_"
            layers = f"Layer({', '.join(arguments)}) for {index} in range({sizes.n_layers})"
            yield f"self.layers = nn.ModuleList({layers})"
        else:
            yield "self.layers = nn.ModuleList([Layer()])"
        if self.wiring.shared_layers and sizes.n_layers > 1:
            yield from self._share_weights()

    def _share_weights(self) -> Iterator[str]:
        linear = linear_weights(self.wiring)
        biases = {f"b_{name[2:]}" for name in linear}
        names = [f'"{name}"' for name in self.wiring.weights if name not in biases]
        if not names:
            return
        yield f"names = ({', '.join(names)}{',' if len(names) == 1 else ''})"
        yield "for layer in self.layers[1:]:  # all share the matrices of the first"
        yield "    for name in names:"
        if self.wiring.layers_share:
            yield "        if hasattr(layer, name):"
            yield "            setattr(layer, name, getattr(self.layers[0], name))"
        else:
            yield "        setattr(layer, name, getattr(self.layers[0], name))"

    def _model_forward(self) -> Iterator[str]:
        task, sizes = self.task, self.sizes
        x = "self.W_E(tokens).sum(2)" if task.n_fields > 1 else "self.W_E(tokens[..., 0])"
        x += " + self.b_E" if sizes.standard else ""
        x += " + self.W_pos" if POSITIONS[sizes.positions].embedded else ""
        yield f"x = {x}  # (b, i, m)"
        last, first = "x", task.answers_from
        if sizes.two_sided:
            yield from self._two_sides()
            last, first = "target", first - task.n_source
        elif self.wiring.layers_share and self.wiring.bottom_middle:
            yield "x, k, bottom = self.layers[0](x, x, x)  # its values are also those of the top"
            yield "for layer in self.layers[1:]:"
            yield "    x, k, _ = layer(x, k, bottom)"
        elif self.wiring.layers_share:
            yield "k = v = x  # the first layer replaces them"
            yield "for layer in self.layers:"
            yield "    x, k, v = layer(x, k, v)"
        else:
            yield "for layer in self.layers:"
            yield "    x = layer(x)"
        last += f"[:, {first}:]" if first else ""
        norm = "self.ln_final" if sizes.standard else "norm"
        yield f"return self.W_U({f'{norm}({last})' if sizes.final_norm else last})"

    def _two_sides(self) -> Iterator[str]:
        n_source, n_target = self.task.n_source, self.task.n_ctx - self.task.n_source
        n_encoders = self.sizes.n_layers // 3
        mask, later = "", f"torch.full(({n_target}, {n_target}), -torch.inf).triu(1)"
        if self.sizes.self_mask:
            mask = f", -1e5 * torch.eye({n_source}).to(x)"
            later = f"({later} - 1e5 * torch.eye({n_target}))"
        both = f"self.layers[{n_encoders}::2], self.layers[{n_encoders + 1}::2]"
        yield f"source, target = x[:, :{n_source}], x[:, {n_source}:]"
        yield f"later = {later}.to(x)"
        yield f"for layer in self.layers[:{n_encoders}]:"
        yield from indented([f"source = layer(source, source{mask})"])
        yield f"for decoder, cross in zip({both}, strict=True):"
        yield from indented(["target = cross(decoder(target, target, later), source)"])

    def _layer(self) -> str:
        parameters, returns = "x: Tensor", "Tensor"
        docstring = "Return the residual stream x, (b, i, m), after this layer."
        if self.sizes.two_sided:
            parameters = "x: Tensor, y: Tensor, mask: Tensor | float = 0.0"
            docstring = "Return x, (b, i, m), after attending to y, (b, j, m)."
        elif self.wiring.layers_share:
            parameters, returns = "x: Tensor, k: Tensor, v: Tensor", "tuple[Tensor, Tensor, Tensor]"
        docstring = docstring if self.docstrings else ""
        head = f"forward(self, {parameters}) -> {returns}"
        methods = [method(head, docstring, self._forward())]
        weights = list(self._weights())
        if weights:
            more = "".join(f", {name}: {kind}" for name, (kind, _) in self.arguments.items())
            lines = ["super().__init__()", *weights]
            methods.insert(0, method(f"__init__(self{more}) -> None", "", lines))
        return module_class("Layer", self._meaning() if self.docstrings else "", methods)

    def _meaning(self) -> str:
        """Return as many sentences on the meaning of the variant as one line holds."""
        text = ""
        with reading(ENGLISH):  # as all code
            meaning = docstring_safe(self.variant.stages[-1].meaning)
        for sentence in re.split(r"(?<=\.) ", meaning):
            if fits(f"{text} {sentence}"):
                text = f"{text} {sentence}".strip()
        return text or "Attention."

    def _weights(self) -> Iterator[str]:
        wiring, linear = self.wiring, linear_weights(self.wiring)
        biases = [f"b_{name[2:]}" for name in linear]
        others = [name for name in wiring.weights if name not in (*linear, *biases)]
        created = {f"self.{name}": self._linear(name) for name in linear}
        for name in others:
            created[f"self.{name}"] = f"nn.Parameter({_initial(wiring.weights[name])})"
        lent = set[str]()
        if self.wiring.layers_share:
            n_layers = self.sizes.n_layers
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
        for name, weight in self.wiring.weights.items():
            if weight.fixed and f"self.{name}" in weights:
                yield f"self.{name}.weight.requires_grad_(False)  # keeps its initial numbers"
            if weight.like and f"self.{name}" in weights:
                yield f"self.{name}.load_state_dict(self.{weight.like}.state_dict())  # at start"

    def _norms_and_mlp(self) -> Iterator[str]:
        sizes, bias = self.sizes, "" if self.sizes.standard else ", bias=False"
        norm = f"nn.LayerNorm({sizes.d_model})"
        first = {"self.ln1": norm} if sizes.standard else {}
        mlp = {"self.ln2": norm} if sizes.standard else {}
        mlp["self.W_in"] = f"nn.Linear({sizes.d_model}, {sizes.d_mlp}{bias})"
        mlp["self.W_out"] = f"nn.Linear({sizes.d_mlp}, {sizes.d_model}{bias})"
        if not self.some_mlps:
            yield from self._assignments(first | mlp if sizes.d_mlp else first)
            return
        yield from self._assignments({**first, "self.has_mlp": "has_mlp"})
        yield "if has_mlp:"
        yield from indented(self._assignments(mlp))

    def _linear(self, name: str) -> str:
        weights = self.wiring.weights
        n_in, n_out = weights[name].shape
        bias = "" if f"b_{name[2:]}" in weights else ", bias=False"
        return f"nn.Linear({n_in}, {n_out}{bias})"

    def _assignments(self, values: dict[str, str]) -> Iterator[str]:
        return assignments(values, packed=self.packed)

    def _forward(self) -> Iterator[str]:
        first, sizes = self.ln[0], self.sizes
        if sizes.two_sided:
            yield f"rows, others = {first}(x), {first}(y)"
            yield from self._rows(("Q",), "rows")
            yield from self._rows(("K", "V"), "others")
        else:
            yield f"rows = {first}(x)"
            yield from self._rows(("Q",) if self.wiring.layers_share else ROLES, "rows")
        if self.wiring.layers_share:
            yield "if self.leads:"
            yield from indented(self._rows(("K", "V"), "rows"))
        yield from self._scores()
        yield from self._read_out()

    def _rows(self, roles: Sequence[Role], source: str) -> Iterator[str]:
        variables: dict[str, str] = {}
        for role in sorted(roles, key=lambda role: self._depth(self.wiring.roles[role])):
            yield from self._vector(self.wiring.roles[role], roles, source, variables)
        for code in self.codes:
            adjusted = {role.lower(): code.adjust[role] for role in roles if role in code.adjust}
            yield from assignments(adjusted, packed=True)
        if self.wiring.value_is_key and "V" in roles:
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
        vector = self.wiring.vectors[name]
        for other in vector.sources:
            if other != TOKEN:
                yield from self._vector(other, roles, source, variables)
        operand = variables.get(vector.reads, source)
        of_roles = [role.lower() for role in roles if self.wiring.roles[role] == name]
        targets = of_roles or [name.lower()]
        variables[name] = targets[-1]
        if vector.per_head:
            rows = f"{operand} @ self.{vector.weight}"
            rows = f"{variables[vector.shared_offset]} + {rows}" if vector.shared_offset else rows
        elif vector.shared_prefix:
            first, width = (
                variables[vector.shared_prefix],
                self.wiring.vectors[vector.shared_prefix].width,
            )
            first += f".expand(-1, {vector.n_heads}, -1, -1)" if vector.n_heads > 1 else ""
            rows = f"torch.cat([{first}, {operand}[..., :{vector.width - width}]], -1)"
        else:
            if vector.reads != TOKEN and self._has_heads(vector.reads):
                operand = f"{operand}.transpose(1, 2).flatten(2)"
            rows = operand if vector.weight is None else f"self.{vector.weight}({operand})"
            if vector.gain is not None:
                mlp = f"self.{vector.weight}(nn.functional.gelu({operand}))"
                gains = f"({self.sizes.d_model},), self.{vector.gain}"
                yield f"{operand} = nn.functional.layer_norm({mlp}, {gains})"
                rows = f"({source} + {operand}) / 2"
                rows = f"({rows})" if vector.n_heads > 1 else rows
            if vector.n_heads > 1:
                rows += f".unflatten(-1, ({vector.n_heads}, {vector.width})).transpose(1, 2)"
            elif self._has_heads(name):
                rows += ".unsqueeze(1)"
        line = f"{' = '.join(targets)} = {rows}"
        commented = f"{line}  # (b, {self.heads}i, d)"
        with_comment = "q" in of_roles and self.sizes.n_heads > 1 and fits(commented)
        yield commented if with_comment else line

    def _has_heads(self, name: str) -> bool:
        """Return whether the variable of a vector has an axis of heads."""
        named = {*self.wiring.roles.values(), *self._read_by_heads()}
        n_heads = self.wiring.vectors[name].n_heads
        return n_heads > 1 or (self.sizes.n_heads > 1 and name in named)

    def _read_by_heads(self) -> set[str]:
        """Return the names of vectors that every head reads, and not their concatenated heads."""
        vectors = self.wiring.vectors.values()
        by_heads = [vector for vector in vectors if vector.per_head or vector.shared_prefix]
        return {name for vector in by_heads for name in vector.sources}

    def _scores(self) -> Iterator[str]:
        sizes, wiring = self.sizes, self.wiring
        product = f"q @ k.mT{_scaled(wiring.scale, sizes.d_k)}"
        if wiring.n_maps > 1:
            maps_first = f".unflatten(1, ({sizes.n_heads}, {wiring.n_maps})).transpose(1, 2)"
            yield f"scores = ({product}){maps_first}" if self.heads else f"scores = {product}"
        else:
            yield f"scores = {product}  # (b, {self.heads}i, j)"
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
        sizes = self.sizes
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
        merged = "z.transpose(1, 2).flatten(2)" if self.heads else "z"
        added = f"self.W_O({merged})" if self.wiring.has_output else merged
        if self.sizes.d_mlp:
            yield f"x = x + {added}"
            added = f"self.W_out(nn.functional.gelu(self.W_in({self.ln[1]}(x))))"
        after = f"x + {added} if self.has_mlp else x" if self.some_mlps else f"x + {added}"
        yield f"return {after}{', k, v' if self.wiring.layers_share else ''}"

    def _depth(self, name: str) -> int:
        """Return the number of vectors between a vector and the residual stream."""
        reads = self.wiring.vectors[name].reads
        return 0 if reads == TOKEN else 1 + self._depth(reads)

    def _n_sharing(self, role: Role) -> int:
        """Return the number of query heads that share a vector of a role; 1 if it is broadcast."""
        n_heads = self.wiring.vectors[self.wiring.roles[role]].n_heads
        return self.sizes.n_heads // n_heads if 1 < n_heads < self.sizes.n_heads else 1


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
    if scale == 1:
        return ""
    if scale == d_k**-0.5:
        return f" / {d_k}**0.5"
    divisor = f"{1 / scale:g}"
    return f" / {divisor}" if 1 / float(divisor) == scale else f" * {scale!r}"


WIDTH = 100
"""Most characters of a line."""

_DEEPEST = 12
"""Indentation of a line in a branch of a method."""


def fits(line: str) -> bool:
    """Return whether a line is short enough for every place in a method."""
    return len(line) <= WIDTH - _DEEPEST


def assignments(values: Mapping[str, str], *, packed: bool) -> Iterator[str]:
    """Yield assignments in order, one per line or, if packed, as many per line as fit."""
    names: list[str] = []
    for name in values:
        if names and not (packed and fits(_assignment([*names, name], values))):
            yield _assignment(names, values)
            names = []
        names.append(name)
    if names:
        yield _assignment(names, values)


def indented(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines, each indented by four spaces."""
    return ("    " + line for line in lines)


def method(head: str, docstring: str, lines: Iterable[str]) -> list[str]:
    """Return the lines of a method, without a docstring if its text is empty."""
    first = [f'"""{docstring}"""'] if docstring else []
    return [f"def {head}:", *indented([*first, *lines])]


def module_class(name: str, docstring: str, methods: Sequence[list[str]]) -> str:
    """Return a subclass of `nn.Module`, without a docstring if its text is empty."""
    body = [f'"""{docstring}"""', ""] if docstring else []
    for lines in methods:
        body += [*lines, ""]
    rows = [f"class {name}(nn.Module):", *indented(body[:-1])]
    return "\n".join(row.rstrip() for row in rows)


def docstring_safe(text: str) -> str:
    """Replace the characters of a text that would break a docstring."""
    return text.replace("\\", "/").replace('"', "'")


def _assignment(names: Sequence[str], values: Mapping[str, str]) -> str:
    targets, expressions = ", ".join(names), [values[name] for name in names]
    line = f"{targets} = {', '.join(expressions)}"
    if len(set(expressions)) == 1 < len(expressions) and not fits(line):
        return f"{targets} = ({expressions[0]} for _ in range({len(expressions)}))"
    return line
