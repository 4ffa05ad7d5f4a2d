"""Export of a variant, at the sizes of an experiment, as one short file of plain PyTorch.

The file is generated from the definition that is trained, the `Wiring` and the rules of the
variant. It contains only what the variant has: no options and no branches for others.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from attnkit.analysis.export.layer import LayerSource, linear_weights
from attnkit.analysis.export.source import (
    WIDTH,
    assignments,
    docstring_safe,
    indented,
    method,
    module_class,
)
from attnkit.experiment import Experiment
from attnkit.variants import Variant
from attnkit.variants.position_rules import POSITIONS

MOST_LINES = 59
"""Most lines of a file, if possible: a longer one is written more briefly."""

_PACKED, _NO_DOCSTRINGS, _BARE = 1, 2, 3
"""Levels of brevity, each including the ones before: several weights per line; no docstrings in
classes; no docstrings in functions, and a docstring of one line for the file."""


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
    for brevity in range(_BARE + 1):
        text = _Module(experiment, Variant(variant), brevity).text()
        if text.count("\n") <= MOST_LINES:
            break
    return text


class _Module:
    """Writer of the file of one variant."""

    def __init__(self, experiment: Experiment, variant: Variant, brevity: int) -> None:
        self._task, self._variant, self._brevity = experiment.task, variant, brevity
        self._wiring = experiment.wiring(variant)
        self._sizes = self._wiring.sizes
        self._packed, self._docstrings = brevity >= _PACKED, brevity < _NO_DOCSTRINGS
        self._layer = LayerSource(
            variant, self._wiring, packed=self._packed, docstrings=self._docstrings
        )

    def text(self) -> str:
        """Return the source code of the file."""
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
        """Return the docstring of the file."""
        text = docstring_safe(f"{self._task.title}, {self._variant.value}: written by attnkit.")
        if self._brevity >= _BARE and len(text) + 6 <= WIDTH:
            return f'"""{text}"""'
        lines = (
            ">>> from safetensors.torch import load_file; model = Transformer()",
            '>>> model.load_state_dict(load_file("weights.safetensors"))',
        )
        text = textwrap.fill(text, WIDTH - 3)
        return "\n".join([f'"""{text}', "", *lines, '"""'])

    def _model(self) -> str:
        """Return the source code of the class `Transformer`."""
        axes, forward_docstring = "", ""
        if self._docstrings:
            first = self._task.answers_from
            answers = f" of the positions from {first} on" if first else ""
            axes = "b: example, i: query position, j: key position, h: head, m: d_model, d: d_head."
            forward_docstring = f"Map token ids (b, i, fields) to logits (b, a, classes){answers}."
        init = method("__init__(self) -> None", "", ["super().__init__()", *self._weights()])
        head = "forward(self, tokens: Tensor) -> Tensor"
        forward = method(head, forward_docstring, self._forward())
        return module_class("Transformer", axes, [init, forward])

    def _weights(self) -> Iterator[str]:
        task, sizes, width = self._task, self._sizes, self._sizes.d_model
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
        yield from assignments(weights, packed=self._packed)
        arguments = [
            value if kind == "int" else f"{name}={value}"
            for name, (kind, value) in self._layer.arguments.items()
        ]
        if arguments or sizes.n_layers > 1:
            index = "n" if arguments else "_"
            layers = f"Layer({', '.join(arguments)}) for {index} in range({sizes.n_layers})"
            yield f"self.layers = nn.ModuleList({layers})"
        else:
            yield "self.layers = nn.ModuleList([Layer()])"
        if self._wiring.shared_layers and sizes.n_layers > 1:
            yield from self._share_weights()

    def _share_weights(self) -> Iterator[str]:
        """Yield lines that give all layers the attention weights of the first."""
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
        elif self._layer.lends and self._wiring.bottom_middle:
            yield "x, k, bottom = self.layers[0](x, x, x)  # its values are also those of the top"
            yield "for layer in self.layers[1:]:"
            yield "    x, k, _ = layer(x, k, bottom)"
        elif self._layer.lends:
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
        """Yield lines of an encoder, and of a decoder with self-attention and cross-attention."""
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
        yield f"for decoder, cross in zip({both}, strict=True):"
        yield from indented(["target = cross(decoder(target, target, later), source)"])
