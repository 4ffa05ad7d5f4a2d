"""Loads a model and its tokenizer with transformers (extra `models`), to run it on text.

No code from a model's files is run, no pickle is opened, and nothing is downloaded here.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attnkit.foundation.extras import install_hint
from attnkit.foundation.machine import free_and_total_memory
from attnkit.realmodels.checkpoint import INDEX, read_index
from attnkit.realmodels.errors import Unreadable
from attnkit.realmodels.sources import find_files

_TIMES_LARGER = {".gguf": 8}
"""Most times that a network in memory is larger than its files; 2 for half precision."""


@contextlib.contextmanager
def running(source: str) -> Iterator[tuple[Any, Any]]:
    """Load the tokenizer and the network of a model, without transformers' bars and advice.

    Raises:
        Unreadable: If transformers is missing or cannot load the model; the message says why.
    """
    try:
        import transformers
    except ImportError as error:
        raise Unreadable(
            f"running a model needs the extra `models`: {install_hint('models')}"
        ) from error
    with silenced(transformers):
        yield load(transformers, source)


def load(transformers: Any, source: str) -> tuple[Any, Any]:
    """Load the tokenizer and the network, without running code from files or opening pickles."""
    folder, gguf = _folder_and_gguf(source)
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    if gguf:
        options["gguf_file"] = gguf
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options)
        if not gguf:
            options["use_safetensors"] = True
        options |= {"dtype": "float32", "attn_implementation": "eager"}  # the one that shows scores
        network = transformers.AutoModel.from_pretrained(folder, **options)
    except Exception as error:  # files from elsewhere may raise any error
        raise failure(source, "transformers cannot load it", error) from error
    return tokenizer, network.eval()


def failure(source: str, problem: str, error: Exception) -> Unreadable:
    """Return the error to raise for whatever transformers has raised."""
    message = " ".join(str(error).split())[:150]
    return Unreadable(f"{source}: {problem} ({type(error).__name__}: {message})")


def check_memory(source: str) -> None:
    """Raise Unreadable if the model may not fit in memory, so that the system does not end it."""
    path = find_files(source)
    files = [path]
    if path.name.endswith(INDEX):
        files = [path.with_name(name) for name in sorted(set(read_index(path).values()))]
    most = sum(file.stat().st_size for file in files) * _TIMES_LARGER.get(path.suffix, 2) / 2**20
    free, _ = free_and_total_memory()
    if most > free:
        raise Unreadable(
            f"{source}: running it takes up to {most / 1024:.1f} GiB of memory, and "
            f"{free / 1024:.1f} GiB are free; take a smaller model"
        )


def _folder_and_gguf(source: str) -> tuple[Path, str | None]:
    """Return the folder of the model's files, and the name of the GGUF file in it, if any."""
    path = find_files(source)
    if path.suffix == ".gguf":
        return path.parent, path.name
    if path.suffix in (".bin", ".npz"):
        raise Unreadable(f"{source}: models of CTranslate2 and Marian cannot be run here")
    return path.parent, None


@contextlib.contextmanager
def silenced(transformers: Any) -> Iterator[None]:
    """Keep transformers' progress bars and advice from standard error."""
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # some bars cannot be disabled
            yield
    finally:
        transformers.logging.set_verbosity(level)
        transformers.logging.enable_progress_bar()
