"""GGUF files, the format of llama.cpp: read by the library gguf, with transformers' names.

transformers knows which of its configurations and parameters the keys and tensors of an
architecture are, and undoes what llama.cpp's converter changes in some weights.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import gguf
import gguf.quants
import numpy as np
from gguf.constants import GGUFValueType
from jaxtyping import Float
from transformers import modeling_gguf_pytorch_utils
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from attnkit.realmodels import library
from attnkit.realmodels.base import Array, Projections, RealModel
from attnkit.realmodels.checkpoint import Checkpoint, Entry
from attnkit.realmodels.errors import Unreadable, choices, damaged, quote, reading
from attnkit.realmodels.hub import HubFile

rules: Any = modeling_gguf_pytorch_utils

_TYPE_SUFFIX = re.compile(r"[-._](?:I?Q\d\w*|TQ\d\w*|MXFP4|F16|F32|BF16|f16|f32)$", re.IGNORECASE)
_PART = re.compile(r"-(\d{5})-of-(\d{5})$")
_ADVICE = (
    "copy or download it again; if it is whole, upgrade the package gguf, or convert the model "
    "again with a current llama.cpp"
)
_FIRST_BYTES, _MAX_BYTES = 2**22, 2**28
"""Bytes of a file on the hub that are fetched first, and at most, until its header is whole."""

_MAX_ENTRIES, _MAX_LISTED = 2**14, 2**12
_FACTORS = "rope_freqs.weight"
_FLOATS = ("F64", "F32", "F16", "BF16")


class Reader(gguf.GGUFReader):
    """The library's reader, without long lists, such as the texts of a vocabulary.

    The library makes two arrays of every text: for 250,000 words and 550,000 merges 1.3 GB in 17
    seconds. Private methods are replaced, which is why pyproject.toml limits its version.
    """

    def _build_fields(self, offs: int, count: int) -> int:
        n_tensors = int(self.fields["GGUF.tensor_count"].parts[0][0])
        if self.byte_order == "S":
            raise ValueError("it is big-endian; convert it with gguf-convert-endian")
        if max(n_tensors, int(count)) > _MAX_ENTRIES:
            raise ValueError(f"it claims {n_tensors:,} tensors and {int(count):,} keys")
        return super()._build_fields(offs, count)

    def _build_tensors(self, start_offs: int, fields: list[gguf.gguf_reader.ReaderField]) -> None:
        """Open the tensors whose number type the library knows."""
        known = [f for f in fields if int(f.parts[4][0]) in list(gguf.GGMLQuantizationType)]
        self.unknown = {f.name: int(f.parts[4][0]) for f in fields if f not in known}
        super()._build_tensors(start_offs, known)

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
        """Return the size of a value, and its parts, their indices and their types."""
        if raw_type != GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        item = GGUFValueType(int(self._get(orig_offs, np.uint32)[0]))
        n, end = int(self._get(orig_offs + 4, np.uint64)[0]), orig_offs + 12
        if item != GGUFValueType.STRING and n <= _MAX_LISTED:
            return super()._get_field_parts(orig_offs, raw_type)
        if item != GGUFValueType.STRING:
            end += n * np.dtype(self.gguf_scalar_to_np[item]).itemsize
        else:
            try:
                for _ in range(n):
                    end += 8 + struct.unpack_from("<Q", self.data.data, end)[0]
            except struct.error as error:
                raise ValueError("it ends within a list of texts") from error
        return end - orig_offs, [], [], [GGUFValueType.ARRAY, item]


class GGUF(Checkpoint):
    """Tensors of a GGUF file, or of one in several parts, with transformers' names.

    Attributes:
        config: Configuration of the model in the fields of transformers.
    """

    accepts_quantised = True

    def __init__(self, path: Path | HubFile) -> None:
        """Read the header.

        Raises:
            Unreadable: If it is not a GGUF file, is damaged, or of an unknown architecture.
        """
        self.name = self.configured_by = path.name
        self._tensors: dict[str, tuple[Path | HubFile, gguf.ReaderTensor]] = {}
        self._of_parameter: dict[str, str] = {}
        self._unknown: dict[str, int] = {}
        for part in (parts := _parts(path)):
            local, reader = _opened(part)
            n_parts = _text(reader, "split.count") or str(len(parts))
            if n_parts != str(len(parts)):
                raise Unreadable(
                    f"{part.name} is one of {quote(n_parts)} parts, as it says; its name must say "
                    "so, too, and the others must stand beside it"
                )
            if not self._tensors:
                self.architecture, self.config = _configuration(local, reader)
                self.title = _text(reader, "general.name")
            elif (other := _text(reader, "general.architecture")) not in ("", self.architecture):
                raise Unreadable(
                    f"{part.name} is part of another model: its architecture is {quote(other)}, "
                    f"that of {parts[0].name} is {quote(self.architecture)}"
                )
            self._unknown |= reader.unknown
            for tensor in reader.tensors:
                if tensor.name in self._tensors:
                    before = self._tensors[tensor.name][0].name
                    raise damaged(
                        part.name, f"{quote(tensor.name)} is in {before} already", _ADVICE
                    )
                if not tensor.n_elements:
                    raise damaged(self.name, f"{quote(tensor.name)} has no numbers", _ADVICE)
                self._tensors[tensor.name] = part, tensor
        processor = rules.TENSOR_PROCESSORS.get(self.architecture, rules.TensorProcessor)
        self._processor = processor(config=self.config)

    @property
    def stored(self) -> Collection[str]:
        """Names of all tensors in the file."""
        return self._tensors

    @property
    def names(self) -> Collection[str]:
        """Names of all parameters that are there."""
        return self._of_parameter or self._tensors

    def bind(self, model: Any) -> dict[str, str]:
        """Take over the names of a model's parameters, and return each with itself."""
        with reading_of(self.name):
            names = rules.get_gguf_hf_weights_map(model, self._processor)
        for name in sorted(names.keys() & self._unknown.keys()):
            raise Unreadable(
                f"{self.name} has {quote(name)} in type {self._unknown[name]}, which the package "
                "gguf does not know; take the model in another type"
            )
        self._of_parameter = {ours: name for name, ours in names.items() if name in self._tensors}
        return {name: name for name in self._of_parameter}

    def label(self, name: str) -> str:
        """Return the name of a parameter in the file."""
        return self._of_parameter[name]

    def entry(self, name: str) -> Entry:
        """Return shape and type of a parameter."""
        tensor = self._tensors[self._of_parameter[name]][1]
        shape = tuple(int(side) for side in tensor.shape[::-1])
        return Entry(shape, tensor.tensor_type.name)

    def check(self, name: str, shape: tuple[int, ...], quantisation: str) -> None:
        """Raise Unreadable unless a parameter has a shape; some are stored transposed."""
        stored = self.entry(name).shape
        if stored not in (shape, shape[::-1]):
            raise damaged(
                self.name, f"{quote(self._of_parameter[name])} is of shape {stored}, not {shape}"
            )

    def rows(self, name: str, start: int, stop: int) -> Float[Array, "rows ..."]:
        """Read rows of a parameter in single precision."""
        return self.values(self._of_parameter[name])[start:stop]

    def values(self, stored: str) -> Float[Array, "..."]:
        """Read a tensor in single precision, by its name in the file."""
        part, tensor = self._tensors[stored]
        if isinstance(part, HubFile):
            part.with_bytes(tensor.data_offset, tensor.data_offset + tensor.n_bytes)
        with reading_of(self.name):
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            values = self._processor.process(weights=values, name=stored).weights
        found: Array = np.asarray(values, np.float32)
        return found


def _stretched(file: GGUF, read: Callable[[], Projections]) -> Projections:
    """Read a layer whose positions turn slower by the file's own factors, as those of Llama 3."""
    found, factors = read(), file.values(_FACTORS).ravel()
    if found.rope is None:
        return found
    frequencies = found.rope.frequencies
    if len(factors) != len(frequencies) or not (factors > 0).all() or np.isinf(factors).any():
        raise damaged(
            file.name,
            f"{quote(_FACTORS)} must be {len(frequencies)} positive numbers",
            _ADVICE,
        )
    return replace(found, rope=replace(found.rope, frequencies=frequencies / factors))


@contextmanager
def reading_of(file: str) -> Iterator[None]:
    """Raise Unreadable for whatever the libraries raise."""
    try:
        yield
    except Unreadable:
        raise
    except Exception as error:  # which one depends on the library and on the damage
        raise damaged(file, str(error)[:160] or type(error).__name__, _ADVICE) from error


def _opened(path: Path | HubFile) -> tuple[Path, Reader]:
    """Open a file; of one on the hub, fetch its start until its header is whole."""
    if isinstance(path, Path):
        with reading(path, advice=_ADVICE), np.errstate(over="raise"):
            return path, Reader(path)
    n_bytes = _FIRST_BYTES
    while True:
        local = path.with_bytes(0, n_bytes)
        try:
            with reading(local, advice=_ADVICE), np.errstate(over="raise"):
                reader = Reader(local)
        except Unreadable:
            if n_bytes > min(_MAX_BYTES, local.stat().st_size):
                raise
        else:
            if reader.data_offset <= n_bytes:
                return local, reader
        n_bytes *= 4


def _parts(path: Path | HubFile) -> list[Path | HubFile]:
    """Return all parts of a file that is the first of several, or the file alone."""
    match = _PART.search(path.stem)
    if match is None:
        return [path]
    stem, n = path.stem[: match.start()], int(match[2])
    if n > 1000:
        raise Unreadable(f"{path.name}: it is one of {n:,} parts; allowed are up to 1,000")
    parts = [path.with_name(f"{stem}-{i:05d}-of-{n:05d}.gguf") for i in range(1, n + 1)]
    for part in parts:
        if isinstance(part, Path) and not part.is_file():
            raise Unreadable(f"{path.name}: {part.name} is not there; download it too")
    return parts


def _text(reader: Reader, key: str) -> str:
    field = reader.get_field(key)
    return "" if field is None else str(field.contents())


def _configuration(path: Path, reader: Reader) -> tuple[str, dict[str, Any]]:
    """Return the architecture, and the configuration in the fields of transformers."""
    architecture = _text(reader, "general.architecture")
    make: Callable[[Any], Reader] = lambda _: reader  # noqa: E731
    try:
        with patch.object(gguf, "GGUFReader", make):  # which would read the vocabulary
            config: dict[str, Any] = rules.load_gguf_checkpoint(str(path))["config"]
    except ValueError as error:
        if "not supported" not in str(error):
            raise damaged(path.name, str(error)[:160], _ADVICE) from error
        known = sorted(set(rules.GGUF_SUPPORTED_ARCHITECTURES))
        raise Unreadable(
            f"{path.name}: its architecture is {quote(architecture)}; it must be one that "
            f"transformers reads from GGUF files: {choices(architecture, known)}; take the model's "
            "safetensors"
        ) from error
    except Exception as error:  # keys are missing or of another type
        raise damaged(path.name, f"{type(error).__name__}: {error}"[:160], _ADVICE) from error
    if config.get("model_type") not in CONFIG_MAPPING:
        raise Unreadable(f"{path.name}: transformers does not know {quote(config['model_type'])}")
    width = reader.get_field(f"{architecture}.attention.key_length")
    if width is not None and "kv_lora_rank" not in config:  # some of the library's tables lack it
        config["head_dim"] = int(width.contents())
    words = next((t for t in reader.tensors if t.name == "token_embd.weight"), None)
    config["vocab_size"] = 2**18 if words is None else int(words.shape[1])  # none were read
    config.pop("pad_token_id", None)
    if architecture not in ("t5", "t5encoder") and "architectures" not in config:
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

        name = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config["model_type"])
        config["architectures"] = [name] if isinstance(name, str) else []
    return architecture, config


def gguf_model(path: Path | HubFile) -> RealModel:
    """Find the attention layers of the model in a GGUF file; only the header is read.

    Raises:
        Unreadable: If it cannot be read; the message says what you can do.
    """
    file = GGUF(path)
    _, layers, notes = library.attention_of(file, file.config)
    if _FACTORS in file.stored:
        layers = tuple(replace(one, read=partial(_stretched, file, one.read)) for one in layers)
    stem = _TYPE_SUFFIX.sub("", _PART.sub("", path.stem))
    generic = stem.lower() in ("model", "ggml-model", "ggml", "gguf")
    name = file.title if generic and file.title else stem
    return RealModel(name, file.architecture, "GGUF", layers, notes)
