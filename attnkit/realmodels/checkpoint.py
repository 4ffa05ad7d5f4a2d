"""Named tensors of a model's safetensors or GGUF files, of which only what is asked for is read.

The libraries safetensors and gguf read the files. A file on the hub is a file on this machine that
has its size and only those of its bytes that have been fetched; see `attnkit.realmodels.hub`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from safetensors import safe_open

from attnkit.foundation.documents import BadDocument, parse_json
from attnkit.realmodels.base import Array
from attnkit.realmodels.errors import Unreadable, damaged, listing, quote, reading
from attnkit.realmodels.hub import HubFile

FLOATS = ("F64", "F32", "F16", "BF16")
"""Types of numbers that are read as they are."""

INDEX = ".safetensors.index.json"
_MAX_INDEX_BYTES = 256 * 2**20
_MAX_HEADER_BYTES = 100_000_000
_FIRST_BYTES = 2**16
_ATTENTION_WORDS = ("attn", "attention", "q_proj", "query", "qkv")


class Entry(NamedTuple):
    """Shape and number type of a tensor."""

    shape: tuple[int, ...]
    type: str


class Checkpoint(ABC):
    """Tensors of one model.

    Attributes:
        name: Name of the file in messages.
        configured_by: Name of the file with the model's configuration.
        accepts_quantised: Whether quantised weights are read.
    """

    name: str
    configured_by = "config.json"
    accepts_quantised = False

    @property
    @abstractmethod
    def names(self) -> Collection[str]:
        """Names of all tensors."""

    @abstractmethod
    def entry(self, name: str) -> Entry:
        """Return shape and type of a tensor."""

    @abstractmethod
    def rows(self, name: str, start: int, stop: int) -> Float[Array, "rows ..."]:
        """Read rows of a tensor in single precision."""

    def label(self, name: str) -> str:
        """Return the name of a tensor in the file."""
        return name

    def bind(self, model: Any) -> dict[str, str] | None:
        """Return the tensor of each parameter of a model; None if the library's rules say it."""
        return None

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return self.entry(name).shape

    def check(self, name: str, shape: tuple[int, ...], quantisation: str) -> None:
        """Raise Unreadable unless a tensor has a shape and numbers that are read."""
        entry = self.entry(name)
        if entry.type not in FLOATS:
            what = f" ({quantisation})" if quantisation else ""
            raise Unreadable(
                f"{self.name}: tensor {quote(name)} is of type {entry.type}: its weights are "
                f"quantised{what}, and quantised safetensors are not read; take the unquantised "
                "model or a GGUF file"
            )
        if entry.shape != shape:
            raise Unreadable(
                f"{self.name}: tensor {quote(name)} is of shape {quote(entry.shape)}; by the "
                f"configuration it must be of shape {shape}"
            )

    def quantised_types(self, names: Iterable[str]) -> set[str]:
        """Return the types of these tensors that are quantised."""
        return {self.entry(name).type for name in names} - set(FLOATS)

    @property
    def contents(self) -> str:
        """Names of tensors that the file holds instead of the expected ones, for messages."""
        similar = [n for n in self.names if any(word in n.lower() for word in _ATTENTION_WORDS)]
        return f"the file holds {listing(similar or self.names)}"


class Safetensors(Checkpoint):
    """One safetensors file, or several with an index; headers are read when they are needed."""

    def __init__(self, path: Path | HubFile) -> None:
        """Read the names of the tensors.

        Raises:
            Unreadable: If a file is not there, or is damaged.
        """
        self.name, self._path = path.name, path
        self._headers: dict[str, Mapping[str, Entry]] = {}
        self._files: dict[str, Path | HubFile] = {}
        if path.name.endswith(INDEX):
            self._place = {name: self._file(name, file) for name, file in read_index(path).items()}
        else:
            self._files[path.name] = path
            self._place = dict.fromkeys(self._header(path.name), path.name)

    @property
    def names(self) -> Collection[str]:
        """Names of all tensors."""
        return self._place

    def _file(self, name: str, file: Any) -> str:
        """Return the name of the file that holds a tensor, which must be there."""
        if file in self._files:
            return str(file)
        is_name = isinstance(file, str) and file and file.isprintable() and "/" not in file
        path = self._path.with_name(file) if is_name and len(file.encode()) < 256 else None
        if path is None or (isinstance(path, Path) and not path.is_file()):
            raise Unreadable(
                f"{self.name}: the file of {quote(name)} is {quote(file)}, which is not there; "
                "download it too"
            )
        self._files[file] = path
        return str(file)

    def _header(self, file: str) -> Mapping[str, Entry]:
        """Return the entries of one file."""
        if file not in self._headers:
            path = self._files[file]
            local = path if isinstance(path, Path) else path.with_header(_header_size)
            with reading(local), safe_open(local, "np") as opened:
                slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
                self._headers[file] = {
                    name: Entry(tuple(s.get_shape()), s.get_dtype()) for name, s in slices.items()
                }
        return self._headers[file]

    def entry(self, name: str) -> Entry:
        """Return shape and type of a tensor."""
        header = self._header(self._place[name])
        if name not in header:
            raise Unreadable(
                f"{self._place[name]}: there is no tensor {quote(name)}, which the index says is "
                "there"
            )
        return header[name]

    def rows(self, name: str, start: int, stop: int) -> Float[Array, "rows ..."]:
        """Read rows of a tensor in single precision."""
        entry, path = self.entry(name), self._files[self._place[name]]
        local = path if isinstance(path, Path) else path.with_bytes(*_bytes_of(path, name))
        with reading(local), safe_open(local, "np") as opened:
            found = opened.get_slice(name)
            if tuple(found.get_shape()) != entry.shape or found.get_dtype() != entry.type:
                raise Unreadable(f"{local.name}: tensor {quote(name)} changed while it was read")
            with np.errstate(over="ignore"):
                values: Array = found[start:stop].astype(np.float32, copy=False)
        return values


def _header_size(first: bytes) -> int:
    """Return the number of bytes from the start of a safetensors file to its first tensor."""
    return 8 + min(int.from_bytes(first[:8], "little"), _MAX_HEADER_BYTES)


def _bytes_of(path: HubFile, name: str) -> tuple[int, int]:
    """Return where the bytes of a tensor begin and end in a file on the hub."""
    local = path.with_header(_header_size)
    with local.open("rb") as file:
        size = _header_size(file.read(8))
        begin, end = json.loads(file.read(size - 8))[name]["data_offsets"]
    return size + begin, size + end


def read_index(path: Path | HubFile) -> dict[str, Any]:
    """Return the file of every tensor that an index names."""
    data = read_json(path, _MAX_INDEX_BYTES)
    files = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(files, dict) or not files:
        raise Unreadable(f"{path.name}: weight_map is missing; it must name every tensor's file")
    return files


def read_json(path: Path | HubFile, most_bytes: int) -> Any:
    """Return the value in a file of JSON.

    Raises:
        Unreadable: If it cannot be read, is larger than `most_bytes`, or is not JSON.
    """
    local = path if isinstance(path, Path) else path.whole()
    with reading(local, most_bytes):
        try:
            return parse_json(local.read_bytes(), most_bytes)
        except BadDocument as error:
            raise damaged(path.name, str(error)) from error
