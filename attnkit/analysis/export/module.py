"""A variant at an experiment's sizes as one file of plain PyTorch, short enough to be read.

It is written from the definition that is trained: the `Wiring` and the rules of the variant. What
the variant does not have is not in it: no options, no branches.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from attnkit.analysis.export.layer import LayerSource, linear_weights
from attnkit.analysis.export.source import WIDTH, assigned, indented, method, module_class, plain
from attnkit.experiment import Experiment
from attnkit.variants import Variant
from attnkit.variants.position_rules import POSITIONS

MOST_LINES = 59
"""What a file keeps to, as far as it can: a long one is written more briefly."""

_PACKED, _UNTOLD, _BARE = 1, 2, 3
"""How briefly: several weights in a line; no docstrings in classes; but one, of one line."""


def module_code(experiment: Experiment, variant: str) -> str:
    """The source of a file that needs nothing but torch.

    Its `Transformer()` takes token ids (b, i, fields) and returns logits (b, a, classes) of the
    positions that may answer; `module_weights` makes its state dict. A variant that is tied during
    training is written as what it becomes.

    The catalogue comes to under 60 lines on every task; of a thousand random compositions, two had
    60 and 62.

    Args:
        variant: one of the experiment's.

    Raises:
        ValueError: if a word of the variant acts on tensors and has no lines in `Rule.code`.
    """
    text = ""
    for brevity in range(_BARE + 1):
        text = _Module(experiment, Variant(variant), brevity).text()
        if text.count("\n") <= MOST_LINES:
            break
    return text


class _Module:
    """Writes one variant's file."""

    def __init__(self, experiment: Experiment, variant: Variant, brevity: int) -> None:
        self._task, self._variant, self._brevity = experiment.task, variant, brevity
        self._wiring = experiment.wiring(variant)
        self._sizes = self._wiring.sizes
        self._packed, self._told = brevity >= _PACKED, brevity < _UNTOLD
        self._layer = LayerSource(variant, self._wiring, packed=self._packed, told=self._told)

    def text(self) -> str:
        """The whole file."""
        functions = [text.strip() for code in self._layer.codes for text in code.functions]
        if self._brevity >= _BARE:
            functions = [re.sub(r'\n *""".*"""', "", text) for text in functions]
        body = "\n\n\n".join([*dict.fromkeys(functions), self._layer.text(), self._model()])
        imports = ["from torch import Tensor, nn"]
        if re.search(r"\btorch\.", body):
            imports.insert(0, "import torch")
        if re.search(r"\bmath\.", body):
            imports = ["import math", "", *imports]
        if not self._sizes.standard:
            norm = f"nn.RMSNorm({self._sizes.d_model}, eps=1e-6, elementwise_affine=False)"
            imports += ["", f"norm = {norm}"]
        return "\n".join([self._title(), "", *imports, "", "", body, ""])

    def _title(self) -> str:
        told = plain(f"{self._task.title}, {self._variant.value}: written by attnkit.")
        if self._brevity >= _BARE and len(told) + 6 <= WIDTH:
            return f'"""{told}"""'
        load = 'model.load_state_dict(torch.load("weights.pt", weights_only=True))'
        told = textwrap.fill(told, WIDTH - 3)
        return f'"""{told}\n\n>>> model = Transformer()\n>>> {load}\n"""'

    def _model(self) -> str:
        """The class of the whole model."""
        answers = f", a from {self._task.answers_from} on" if self._task.answers_from else ""
        told = f"Token ids (b, i, fields) to logits (b, a, classes){answers}." if self._told else ""
        about = "b: example, i and j: positions, h: head, m and d: widths of the model and a head."
        start = method("__init__(self) -> None", "", ["super().__init__()", *self._weights()])
        answer = method("forward(self, tokens: Tensor) -> Tensor", told, self._forward())
        return module_class("Transformer", about if self._told else "", [start, answer])

    def _weights(self) -> Iterator[str]:
        task, sizes, width = self._task, self._sizes, self._sizes.d_model
        bias = "" if sizes.standard else ", bias=False"
        made = {
            "self.W_E": f"nn.Embedding({task.d_vocab}, {width})",
            "self.W_U": f"nn.Linear({width}, {task.n_classes}{bias})",
        }
        if sizes.standard:
            made["self.b_E"] = f"nn.Parameter(torch.zeros({width}))"
            if sizes.final_norm:
                made["self.ln_final"] = f"nn.LayerNorm({width})"
        if POSITIONS[sizes.positions].embedded:
            made["self.W_pos"] = f"nn.Parameter(torch.randn({task.n_ctx}, {width}))"
        yield from assigned(made, packed=self._packed)
        given = [
            value if kind == "int" else f"{name}={value}"
            for name, (kind, value) in self._layer.arguments.items()
        ]
        if given or sizes.n_layers > 1:
            number = "n" if given else "_"
            each = f"Layer({', '.join(given)}) for {number} in range({sizes.n_layers})"
            yield f"self.layers = nn.ModuleList({each})"
        else:
            yield "self.layers = nn.ModuleList([Layer()])"
        if self._wiring.shared_layers and sizes.n_layers > 1:
            yield from self._shared()

    def _shared(self) -> Iterator[str]:
        """All layers get the attention weights of the first."""
        linear = linear_weights(self._wiring)
        biases = {f"b_{name[2:]}" for name in linear}
        names = [f'"{name}"' for name in self._wiring.weights if name not in biases]
        if not names:
            return
        yield f"names = ({', '.join(names)}{',' if len(names) == 1 else ''})"
        yield "for layer in self.layers[1:]:  # all share the matrices of the first"
        yield "    for name in names:"
        if self._layer.lends:
            yield "        if hasattr(layer, name):"
            yield "            setattr(layer, name, getattr(self.layers[0], name))"
        else:
            yield "        setattr(layer, name, getattr(self.layers[0], name))"

    def _forward(self) -> Iterator[str]:
        task, sizes = self._task, self._sizes
        x = "self.W_E(tokens).sum(2)" if task.n_fields > 1 else "self.W_E(tokens[..., 0])"
        x += " + self.b_E" if sizes.standard else ""
        x += " + self.W_pos" if POSITIONS[sizes.positions].embedded else ""
        yield f"x = {x}  # (b, i, m)"
        last, first = "x", task.answers_from
        if sizes.two_sided:
            yield from self._two_sides()
            last, first = "target", first - task.n_source
        elif self._layer.lends:
            yield "k = v = x  # until the first layer has made them"
            yield "for layer in self.layers:"
            yield "    x, k, v = layer(x, k, v)"
        else:
            yield "for layer in self.layers:"
            yield "    x = layer(x)"
        last += f"[:, {first}:]" if first else ""
        norm = "self.ln_final" if sizes.standard else "norm"
        yield f"return self.W_U({f'{norm}({last})' if sizes.final_norm else last})"

    def _two_sides(self) -> Iterator[str]:
        """An encoder, then a decoder that asks its earlier positions and the encoder's by turns."""
        n_source, n_target = self._task.n_source, self._task.n_ctx - self._task.n_source
        n_encoders = self._sizes.n_layers // 3
        mask, later = "", f"torch.full(({n_target}, {n_target}), -torch.inf).triu(1)"
        if self._sizes.self_mask:
            mask = f", -1e5 * torch.eye({n_source}).to(x)"
            later = f"({later} - 1e5 * torch.eye({n_target}))"
        both = f"self.layers[{n_encoders}::2], self.layers[{n_encoders + 1}::2]"
        yield f"source, target = x[:, :{n_source}], x[:, {n_source}:]"
        yield f"later = {later}.to(x)"
        yield f"for layer in self.layers[:{n_encoders}]:"
        yield from indented([f"source = layer(source, source{mask})"])
        yield f"for own, cross in zip({both}, strict=True):"
        yield from indented(["target = cross(own(target, target, later), source)"])
