"""The folder in which numba keeps the compiled kernel, and the child process that fills it.

numba looks up a cached function by its own source file and the processor alone. A change in a
module that the function imports would go unnoticed, so every version of the kernel has a folder of
its own, named by a hash of all that the machine code depends on. numba refuses folders that it
cannot write to, also for reading: a cache that ships with an image is copied before it is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import llvmlite
import numba
import numpy as np
from filelock import FileLock
from numba.core.registry import cpu_target
from platformdirs import user_cache_path

from attnkit.foundation.files import write_file
from attnkit.foundation.process import environment_with_package

SHIPPED = "ATTNKIT_KERNEL_CACHE"
"""Environment variable: a folder with kernels that were compiled before, as an image has them."""

MOST_SECONDS = 600
"""After this time a compilation counts as failed."""

_PACKAGE = Path(__file__).parent

_COMMAND = ("-m", "attnkit.model.kernel")
"""Arguments of the Python that compiles."""

_COMPLETE = "complete"
"""File that marks a folder to which all functions have been written."""

_PREFIX = "attnkit-kernel-"
"""Beginning of the name of a temporary cache folder."""


def use_cache_folder() -> None:
    """Let numba keep functions that are defined from now on in this kernel's folder."""
    numba.config.CACHE_DIR = str(cache_folder())  # type: ignore[attr-defined]


@cache
def cache_folder() -> Path:
    """Return the folder of this version of the kernel, which exists and can be written.

    It lies below the folder that `NUMBA_CACHE_DIR` names, else below the user's cache folder, or,
    where that cannot be written, below a temporary folder that nobody else can open.
    """
    named = os.environ.get("NUMBA_CACHE_DIR")
    base = Path(named).absolute() if named else user_cache_path("attnkit") / "kernel"
    folder = base / cache_key()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        private = _is_private(folder)
    except OSError:
        private = False
    if not private:
        folder = _temporary_folder() / cache_key()
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@cache
def cache_key() -> str:
    """Return sixteen hexadecimal digits that stand for all that the machine code depends on."""
    versions = (numba.__version__, llvmlite.__version__, np.__version__, sys.version)
    processor = cpu_target.target_context.codegen().magic_tuple()
    digest = hashlib.blake2b(digest_size=8)
    digest.update(repr((str(_PACKAGE), versions, processor)).encode())
    for source in sorted(_PACKAGE.glob("*.py")):
        digest.update(repr((source.name, source.read_bytes())).encode())
    return digest.hexdigest()


def is_compiled() -> bool:
    """Return whether the cache folder holds all functions, if need be copied from an image."""
    complete, shipped = cache_folder() / _COMPLETE, os.environ.get(SHIPPED)
    if not complete.exists() and shipped:
        source = Path(shipped) / cache_key()
        with contextlib.suppress(OSError):  # what cannot be copied is compiled
            if (source / _COMPLETE).exists():
                with _lock():
                    _copy(source, cache_folder())
    return complete.exists()


def mark_compiled() -> None:
    """Record that the cache folder holds all functions."""
    write_file(cache_folder() / _COMPLETE, "")


def ensure_compiled(say: Callable[[str], None]) -> None:
    """Compile all functions in a child process, unless the cache folder holds them already.

    Args:
        say: function that is called with one line of text before a compilation begins.

    Raises:
        RuntimeError: if the child process fails; with the last line that it wrote.
        OSError: if a file cannot be written, or another process has been compiling for too long.
    """
    if is_compiled():
        return
    say("Compiling the training kernel once, about half a minute ...")
    with _lock():
        if not is_compiled():  # another process may have compiled them in the meantime
            _compile_in_child()


def load() -> None:
    """Load all functions from the cache folder.

    A folder from which they cannot be loaded, for example one that was being written when the
    machine lost its power, is deleted, so that the next process compiles them again.
    """
    try:
        from attnkit.model.kernel.compiling import compile_all

        compile_all()
    except Exception:
        shutil.rmtree(cache_folder(), ignore_errors=True)
        raise


def _compile_in_child() -> None:
    """Run `python -m attnkit.model.kernel`: this process may be training and keeps its memory."""
    environment = environment_with_package() | {"NUMBA_CACHE_DIR": str(cache_folder().parent)}
    try:
        child = subprocess.run(
            [sys.executable, *_COMMAND],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=MOST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"not finished after {MOST_SECONDS} s") from None
    if not is_compiled():
        lines = child.stderr.strip().split("\n")
        raise RuntimeError(lines[-1] or f"exit code {child.returncode}")


def _lock() -> FileLock:
    """Return the lock of the cache folder, which its holder gives back even if it is killed."""
    return FileLock(cache_folder() / "lock", timeout=MOST_SECONDS)


def _copy(source: Path, target: Path) -> None:
    """Copy all files of a cache folder, the mark that it is complete last."""
    files = [path for path in source.rglob("*") if path.is_file() and path.name != "lock"]
    for path in sorted(files, key=lambda path: path.name == _COMPLETE):
        copied = target / path.relative_to(source)
        copied.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, copied)  # not its mode: an image may hold files for reading only


def _temporary_folder() -> Path:
    """Return a temporary folder of this user, one of an earlier process if there is any."""
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")):
        if _is_private(path):
            return path
    return Path(tempfile.mkdtemp(prefix=_PREFIX))


def _is_private(folder: Path) -> bool:
    """Return whether a folder is this user's and closed to others: numba runs what lies in it."""
    if not hasattr(os, "getuid"):  # Windows has these folders in the user's profile
        return True
    found = folder.lstat()
    mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return mine and not stat.S_IMODE(found.st_mode) & 0o077
