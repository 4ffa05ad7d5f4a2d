"""Attention layers of a model that the library transformers knows, from its configuration.

The library builds the model without weights; `attnkit.realmodels.tracing` finds which rows of which
linear layers make each head; the library's own rules name the tensors of the file in which they
are; and only those are read.
"""

from __future__ import annotations

import inspect
import math
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
import transformers
from accelerate import init_empty_weights  # type: ignore[import-untyped]
from jaxtyping import Float
from torch import nn
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from attnkit.foundation.process import give_memory_back
from attnkit.realmodels import notes
from attnkit.realmodels.base import Array, AttentionLayer, Kind, Projections
from attnkit.realmodels.checkpoint import Checkpoint
from attnkit.realmodels.errors import Unreadable, choices, damaged, first_line, quote
from attnkit.realmodels.tracing import (
    N_TOKENS,
    Hollow,
    Rows,
    Trace,
    TracedLayer,
    TracedModule,
    is_cross,
    latent_inputs,
    root_of,
    trace,
    without_rotary_part,
)

library: Any = transformers

MAX_SIZE = 2**20
"""Largest number of a configuration that counts layers, heads or widths."""

_SIZES = ("hidden_size", "head_dim", "_heads", "_layers", "_dim", "d_model", "n_embd", "n_layer")
_BASES = ("rope_theta", "base_freq", "rotary_emb_base")
_OTHER_MODALITIES = ("vision", "visual", "image", "audio", "speech", "talker", "code2wav")

_ERROR = re.compile(r"\S*(?:Error|Exception)\S*\s*|Class validation error for validator \S*\s*")
"""What the library's messages say about its own classes."""

_FIELD_NOTES: Mapping[str, str] = {
    "alibi": notes.SLOPED,
    "relative_attention_num_buckets": notes.BIASED,
    "relative_attention": notes.SLOPED,
    "attn_logit_softcapping": notes.CAPPED,
    "clip_qkv": notes.CLIPPED,
    "sliding_window": notes.WINDOWED,
    "local_attention": notes.WINDOWED,
}
"""Notes on a model by the field of its configuration that calls for it, unless it is false."""


def attention_of(
    checkpoint: Checkpoint, config: Mapping[str, Any]
) -> tuple[str, tuple[AttentionLayer, ...], tuple[str, ...]]:
    """Return the family, the attention layers and the notes of a model.

    Args:
        checkpoint: The model's tensors.
        config: Its configuration, as in config.json.

    Raises:
        Unreadable: If the library does not know the model or cannot build it, or if its file does
            not hold what its configuration says; the message says what you can do.
    """
    known = _configuration(config, checkpoint.configured_by)
    text = known.get_text_config()
    model = build(text)
    inputs_of(model)
    found = _Model(checkpoint, model, str(text.model_type), quantisation_of(config))
    found.check_shapes()
    layers = found.layers(traced(model))
    every = [*found.notes, *_notes_of(text, layers)]
    if types := checkpoint.quantised_types(found.read_names):
        every.insert(0, notes.quantised(types))
    if any(word in name for word in _OTHER_MODALITIES for name in checkpoint.names):
        every.append(notes.TEXT_ONLY)
    return str(text.model_type), layers, tuple(dict.fromkeys(every))


def quantisation_of(config: Mapping[str, Any]) -> str:
    """Return the name of the format in which a configuration says weights are quantised, or ""."""
    for name in ("quantization_config", "quantization"):
        fields = config.get(name)
        if isinstance(fields, dict):
            method = fields.get("quant_method") or fields.get("quant_algo") or "quantised"
            return str(method)[:40]
    return ""


def _configuration(config: Mapping[str, Any], file: str) -> Any:
    family = config.get("model_type")
    if family not in CONFIG_MAPPING:
        if config.get("auto_map"):
            raise Unreadable(
                f"{file}: model_type is {quote(family)}, whose code is in the model's own "
                "files (auto_map); code of models is never run here, so it cannot be read"
            )
        raise Unreadable(
            f"{file}: model_type is {quote(family)}; it must be one that transformers "
            f"{library.__version__} knows: {choices(family, list(CONFIG_MAPPING))}"
        )
    _check_fields(config, file)
    with _quiet(f"{file} of a {family}"):
        cls = CONFIG_MAPPING[str(family)]
        return cls.from_dict(cls._decode_special_floats(dict(config)))


def _check_fields(config: Mapping[str, Any], file: str) -> None:
    for name, value in config.items():
        if isinstance(value, dict):
            _check_fields(value, file)
        elif name.endswith(_BASES) and isinstance(value, (int, float)):
            if not 1 <= value < math.inf:
                raise Unreadable(
                    f"{file}: {name}, the base of its positions, is {value}; allowed are "
                    "finite numbers from 1 up"
                )
        elif name.endswith(_SIZES) and value is not None:
            numbers = value if isinstance(value, list) else [value]
            limit = 2**11 if name.endswith(("_layers", "n_layer")) else MAX_SIZE
            if any(isinstance(n, (int, float)) and not 0 <= n <= limit for n in numbers):
                raise Unreadable(
                    f"{file}: {name} is {quote(value)}; allowed are numbers up to {limit:,}"
                )


@contextmanager
def _quiet(place: str) -> Iterator[None]:
    """Silence the library's warnings, and raise Unreadable for its errors."""
    level = library.logging.get_verbosity()
    library.logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Unreadable:
        raise
    except Exception as error:  # which one depends on the family
        raise Unreadable(
            f"{place}: transformers {library.__version__} refuses it "
            f"({_ERROR.sub('', first_line(error))})"
        ) from error
    finally:
        library.logging.set_verbosity(level)


def class_of(config: Any) -> Any:
    """Return the library's class of a configuration: that which the configuration names, if any."""
    stem = type(config).__name__.removesuffix("Config")
    names = [*(config.architectures or ()), f"{stem}Model"]
    classes = (getattr(library, str(name), None) for name in names)
    fitting = (c for c in classes if getattr(c, "config_class", None) is type(config))
    return next(fitting, None)


def build(config: Any, cls: Any = None) -> Any:
    """Return the library's model of a configuration, without weights, of a class if it is given."""
    cls = cls or class_of(config)
    with _quiet(f"a model of type {config.model_type}"), Hollow():
        with init_empty_weights(include_buffers=False):
            options = {"attn_implementation": "eager", "experts_implementation": "eager"}
            if cls is None:
                model = library.AutoModel.from_config(config, **options)
            else:
                model = cls._from_config(config, **options)
        return model.float().eval()


def inputs_of(model: Any) -> dict[str, Any]:
    """Return inputs of two tokens for a model.

    Raises:
        Unreadable: If the model reads neither text nor, as Whisper does, sound beside it.
    """
    known = inspect.signature(model.forward).parameters
    ids = torch.full((1, N_TOKENS), 1)
    inputs: dict[str, Any] = {
        name: ids for name in ("input_ids", "decoder_input_ids") if name in known
    }
    if not inputs:
        raise Unreadable(f"a model of type {model.config.model_type} reads no text")
    sized = all(hasattr(model.config, n) for n in ("max_source_positions", "num_mel_bins"))
    if "input_features" in known and sized:
        length = 2 * model.config.max_source_positions
        inputs["input_features"] = torch.zeros(1, model.config.num_mel_bins, length)
    return inputs | ({"use_cache": False} if "use_cache" in known else {})


def traced(model: Any) -> Trace:
    """Return where attention is in a model without weights."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the arrays are small
    try:
        with _quiet(f"a model of type {model.config.model_type}"):
            return trace(model, inputs_of(model))
    finally:
        torch.set_num_threads(n_threads)
        give_memory_back()


@dataclass(eq=False)
class _Model:
    """Model of the library and the file that holds its weights."""

    checkpoint: Checkpoint
    model: Any
    family: str
    quantisation: str
    notes: list[str] = field(default_factory=list)
    read_names: set[str] = field(default_factory=set)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every parameter of the model."""
        return {name: tuple(p.shape) for name, p in self.model.state_dict().items()}

    @cached_property
    def converters(self) -> list[WeightConverter]:
        """The library's rules for weights that files of the family store in another form."""
        rules = get_model_conversion_mapping(self.model)
        return [rule for rule in rules if isinstance(rule, WeightConverter)]

    def _converter(self, rule: str) -> WeightConverter:
        return next(c for c in self.converters if rule in c.source_patterns)

    @cached_property
    def stored(self) -> dict[str, list[tuple[str, str | None]]]:
        """Tensors of the file by the parameter that they make, each with its converter's rule."""
        bound = self.checkpoint.bind(self.model)
        if bound is not None:
            return {name: [(tensor, None)] for name, tensor in bound.items()}
        rules = get_model_conversion_mapping(self.model)
        renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
        known = self.model.state_dict()
        prefix = self.model.base_model_prefix or None
        found: dict[str, list[tuple[str, str | None]]] = defaultdict(list)
        for name in self.checkpoint.names:
            if "expert" in name:
                continue
            target, rule = rename_source_key(name, renamings, self.converters, prefix, known)
            first, *others = ("",) if rule is None else self._converter(rule).target_patterns
            for other in (first, *others):
                found[target.replace(first, other)].append((name, rule))
        missing = next((n for n in self.shapes if n.endswith("weight") and ".0." in n), "")
        if missing and not any(name in found for name in self.shapes):
            return self._under_a_prefix(found)
        return found

    def _under_a_prefix(
        self, found: dict[str, list[tuple[str, str | None]]]
    ) -> dict[str, list[tuple[str, str | None]]]:
        """Return the tensors of the part of a larger model that reads text."""
        first = next((n for n in self.shapes if n.endswith("weight") and ".0." in n), "weight")
        ends = [name.removesuffix(first) for name in found if name.endswith(f".{first}")]
        ends = [end for end in ends if not any(word in end for word in _OTHER_MODALITIES)]
        prefix = ends[0] if len(ends) == 1 else "\0"
        return {n.removeprefix(prefix): x for n, x in found.items() if n.startswith(prefix)}

    def sources_of(self, name: str) -> list[tuple[str, str | None]]:
        """Return the tensors of the file that make a parameter.

        Raises:
            Unreadable: If there are none.
        """
        if name in self.stored:
            return self.stored[name]
        tied = getattr(self.model, "all_tied_weights_keys", None) or {}
        if tied.get(name) in self.stored:
            return self.stored[tied[name]]
        quantised = f", and its weights are quantised ({self.quantisation})" * bool(
            self.quantisation
        )
        raise Unreadable(
            f"{self.checkpoint.name} has no tensor for {quote(name)} of a {self.family}{quantised}"
            f"; {self.checkpoint.contents}"
            + ("; quantised weights are not read: take the unquantised model" * bool(quantised))
        )

    def check_shapes(self) -> None:
        """Raise Unreadable if a tensor of the file has another shape than the configuration says.

        This is done before the model runs, so that false sizes cost nothing.
        """
        if not any(name in self.stored for name in self.shapes):
            self.sources_of(next(iter(self.shapes)))
        for name, shape in self.shapes.items():
            stored = self.stored.get(name, ())
            if len(stored) != 1 or stored[0][1] is not None or not name.endswith("weight"):
                continue
            self.checkpoint.check(stored[0][0], shape, self.quantisation)

    def weight(self, name: str, start: int, stop: int) -> Float[Array, "rows ..."]:
        """Read rows of a parameter in single precision."""
        sources = self.sources_of(name)
        if len(sources) == 1 and sources[0][1] is None:
            return self.checkpoint.rows(sources[0][0], start, stop)
        rule = deepcopy(self._converter(str(sources[0][1])))
        first, own = rule.target_patterns[0], next(t for t in rule.target_patterns if t in name)
        target = name.replace(own, first)
        for source, pattern in sorted(sources):
            values: Future[Any] = Future()
            whole = self.checkpoint.rows(source, 0, self.checkpoint.shape(source)[0])
            values.set_result(torch.from_numpy(whole))
            rule.add_tensor(target, source, str(pattern), values)
        with _quiet(f"{self.checkpoint.name}: {name}"):
            made = rule.convert(target, model=self.model, config=self.model.config)[name]
            tensor = made[0] if isinstance(made, list) else made
            rows: Array = tensor.float().numpy()[start:stop]
        return rows

    def layers(self, trace: Trace) -> tuple[AttentionLayer, ...]:
        """Return the layers in the order encoder, causal, cross."""
        kinds: dict[Kind, list[TracedLayer]] = {kind: [] for kind in Kind}
        seen: set[tuple[int, int]] = set()
        for layer in trace.layers:
            place = int(layer.q[0, 0, 0]), int(layer.k[0, 0, 0])
            if place in seen:
                self.notes.append(notes.REPEATED)
                continue
            seen.add(place)
            kind = Kind.CROSS if is_cross(trace, layer) else layer.kind
            kinds[kind].append(without_rotary_part(trace, layer))
        if not trace.layers:
            raise Unreadable(
                f"no attention found: a model of type {self.family} has no products of queries and "
                "keys that are rows of linear layers, so it is not understood here"
            )
        made = []
        for kind, of_kind in kinds.items():
            own = {int(x.k[0, 0, 0]): i for i, x in reversed(list(enumerate(of_kind)))}
            for index, layer in enumerate(of_kind):
                kv = own[int(layer.k[0, 0, 0])]
                at = _Place(self, trace, layer, kind)
                self.notes += at.notes
                self.read_names |= set(at.names)
                made.append(
                    AttentionLayer(
                        kind, index, len(layer.q), len(layer.k), at.read,
                        None if kv == index else kv,
                    )
                )  # fmt: skip
        if any(layer.kv_index is not None for layer in made):
            self.notes.append(notes.KV_REUSED)
        return tuple(made)


@dataclass(frozen=True, eq=False)
class _Place:
    """Places of the weights of one layer in a file."""

    owner: _Model
    trace: Trace
    layer: TracedLayer
    kind: Kind

    @cached_property
    def modules(self) -> dict[int, TracedModule]:
        """All linear layers whose outputs the heads are, by number."""
        numbers = {int(n) for rows in (self.layer.q, self.layer.k, self.layer.v)
                   for n in np.unique(rows[..., 0])}  # fmt: skip
        every = set(numbers)
        for number in numbers:
            while (inputs := latent_inputs(self.trace, number)) is not None:
                number = int(inputs[0, 0])
                every.add(number)
        return {number: self.trace.modules[number] for number in sorted(every)}

    @property
    def names(self) -> Iterator[str]:
        """Names of the tensors in the file."""
        for module in self.modules.values():
            for name, _ in self.owner.sources_of(f"{module.name}.weight"):
                yield name

    @property
    def notes(self) -> Iterator[str]:
        """Notes on what limits the layer's numbers."""
        k_latent = self._latent(self.layer.k)
        if k_latent:
            yield notes.LATENT
        elif self._latent(self.layer.q):
            yield notes.LATENT_QUERIES
        for rows, note in ((self.layer.q, notes.NORMED), (self.layer.k, notes.NORMED),
                           (self.layer.v, notes.NORMED_VALUES)):  # fmt: skip
            if not k_latent and any(self.trace.modules[n].norm_of(i) for n, i in rows[0].tolist()):
                yield note
        if np.array_equal(self.layer.k, self.layer.v):
            yield notes.K_IS_V
        if self.layer.turned:
            yield notes.scaled()

    def _latent(self, rows: Rows) -> int:
        inputs = latent_inputs(self.trace, int(rows[0, 0, 0]))
        return 0 if inputs is None else len(inputs)

    def read(self) -> Projections:
        """Read the weights of the layer.

        Raises:
            Unreadable: If a tensor is missing, damaged or not finite.
        """
        q, k = self._matrices(self.layer.q), self._matrices(self.layer.k)
        same = np.array_equal(self.layer.k, self.layer.v)
        v = k if same else self._matrices(self.layer.v)
        gain_q, gain_kv = self._gain(self.layer.q), self._gain(self.layer.k)
        latent = self._latent(self.layer.q), self._latent(self.layer.k)
        return Projections(q, k, v, gain_q, gain_kv, self.layer.rope, *latent)

    def _matrices(self, rows: Rows) -> Float[Array, "h m d"]:
        """Read the matrices whose columns are these outputs."""
        numbers = np.unique(rows[..., 0])
        parts = [self._columns(int(number), rows) for number in numbers]
        if len(parts) == 1:
            return parts[0]
        matrices = np.zeros_like(parts[0])
        for number, part in zip(numbers, parts, strict=True):
            np.copyto(matrices, part, where=(rows[..., 0] == number)[:, None, :])
        return matrices

    def _columns(self, number: int, rows: Rows) -> Float[Array, "h m d"]:
        module, inputs = self.trace.modules[number], latent_inputs(self.trace, number)
        of_heads = self._own(number, rows)
        n_inputs = self.owner.shapes[f"{module.name}.weight"][not module.transposed]
        columns = np.empty((len(rows), n_inputs, rows.shape[1]), np.float32)
        for head, outputs in enumerate(of_heads):
            columns[head] = self._head(module, outputs)
        if inputs is None:
            return columns
        first = self._matrices(inputs[None])[0]  # (m, r)
        with np.errstate(over="ignore", invalid="ignore"):  # such heads are left out
            columns *= self._gains_between(inputs)[:, None]
            product: Array = np.matmul(first, columns)
            return product

    def _gains_between(self, inputs: Rows) -> Float[Array, " r"]:
        """Return the gain of the norm between a latent vector's two projections, or ones."""
        gains = np.ones(len(inputs), np.float32)
        for number in np.unique(inputs[:, 0]):
            module = self.trace.modules[int(number)]
            places = np.flatnonzero(inputs[:, 0] == number)
            norm = module.norm_of(int(inputs[places[0], 1]))
            gain = self._gain_of(self.trace.modules[norm]) if norm else None
            if gain is not None and len(gain) != len(places):
                raise Unreadable(
                    f"a model of type {self.owner.family} norms parts of {module.name}, which is "
                    "not understood here"
                )
            gains[places] = 1 if gain is None else gain
        return gains

    @staticmethod
    def _own(number: int, rows: Rows) -> np.ndarray:
        return np.where(rows[..., 0] == number, rows[..., 1], 0)

    def _head(self, module: TracedModule, outputs: np.ndarray) -> Float[Array, "m d"]:
        """Read some outputs of a linear layer as the columns of a matrix."""
        name, start, stop = f"{module.name}.weight", int(outputs.min()), int(outputs.max()) + 1
        if module.transposed:
            whole = self.owner.weight(name, 0, self.owner.shapes[name][0])
            return self._finite(name, whole[:, outputs])
        rows = self._finite(name, self.owner.weight(name, start, stop))
        columns: Array = rows[outputs - start].T
        return columns

    def _finite(self, name: str, values: Array) -> Array:
        with np.errstate(all="ignore"):
            if not np.isfinite(values.sum(dtype=np.float64)):
                file = self.owner.checkpoint.name
                stored = self.owner.checkpoint.label(self.owner.sources_of(name)[0][0])
                raise damaged(file, f"{quote(stored)} has values that are infinite or NaN")
        return values

    def _gain(self, rows: Rows) -> Any:
        """Return the gain of the norm right before queries or keys; None without one.

        The norm belongs to the same layer, or, before the keys of cross-attention, stands at the
        end of the encoder. After a norm at the end of a layer, all of the next layer reads it.
        """
        root = root_of(self.trace, int(rows[0, 0, 0]))
        if not root.before:
            return None
        norm = self.trace.modules[root.before]
        of_layer = norm.parent and root.name.startswith(f"{norm.parent}.")
        numbered = any(part.isdigit() for part in norm.name.split("."))
        at_end = self.kind is Kind.CROSS and not numbered and "embed" not in norm.name
        return self._gain_of(norm) if (of_layer and numbered) or at_end else None

    def _gain_of(self, norm: TracedModule) -> Any:
        """Return a norm's gain, which some families store with 1 subtracted; None without one."""
        weight = getattr(norm.module, "weight", None)
        if weight is None:
            return None
        name, n = f"{norm.name}.weight", weight.shape[0]
        stored = self._finite(name, self.owner.weight(name, 0, n))
        return stored + np.float32(_added(norm.module, n))


def _added(norm: nn.Module, n: int) -> float:
    """Return the number that a norm adds to its stored weight, from what it does to numbers."""
    x = torch.linspace(-1, 1, n, dtype=torch.float64) ** 3
    outs = []
    for value in (0.0, 1.0):
        weights = {name: torch.zeros(p.shape, dtype=x.dtype) for name, p in norm.named_parameters()}
        weights["weight"] = torch.full((n,), value, dtype=x.dtype)
        outs.append(torch.func.functional_call(norm, weights, (x[None],)).abs().max().item())
    zero, one = outs
    return 0.0 if zero == 0 else round(zero / (one - zero), 3)


def _notes_of(config: Any, layers: Iterable[AttentionLayer]) -> Iterator[str]:
    fields = config.to_dict()
    for name, note in _FIELD_NOTES.items():
        if fields.get(name) not in (None, False, 0):
            if name == "sliding_window" and fields.get("use_sliding_window", True) is False:
                continue
            yield note
