"""Cache folder of the compiled kernel, and the child process that compiles into it.

numba looks up a cached function only by its source file and the processor, and misses a change in a
module that the function imports. Every version of the kernel therefore has its own folder, named by
a hash of everything that the machine code depends on. numba does not read from folders that it
cannot write to, so a cache that is shipped in an image is copied before it is used.
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
from attnkit.foundation.process import WITH_PARENT, environment_with_package

SHIPPED = "ATTNKIT_KERNEL_CACHE"
"""Environment variable that names a folder of compiled kernels, shipped in an image."""

MOST_SECONDS = 600
"""Time limit of a compilation."""

_PACKAGE = Path(__file__).parent

_COMMAND = ("-m", "attnkit.model.kernel", WITH_PARENT)
"""Arguments of the Python process that compiles."""

_COMPLETE = "complete"
"""Name of the file that marks a folder with all compiled functions."""

_PREFIX = "attnkit-kernel-"
"""Prefix of the name of a temporary cache folder."""


def use_cache_folder() -> None:
    """Set this kernel's folder as numba's cache for functions that are defined from now on."""
    numba.config.CACHE_DIR = str(cache_folder())  # type: ignore[attr-defined]


@cache
def cache_folder() -> Path:
    """Return the cache folder of this version of the kernel; it exists and is writable.

    Its parent is the folder named by `NUMBA_CACHE_DIR`, else the user's cache folder, or, if that
    is not writable, a temporary folder that only this user can open.
    """
    configured = os.environ.get("NUMBA_CACHE_DIR")
    base = Path(configured).absolute() if configured else user_cache_path("attnkit") / "kernel"
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
    """Return a hash, 16 hexadecimal digits, of everything that the machine code depends on."""
    versions = (numba.__version__, llvmlite.__version__, np.__version__, sys.version)
    processor = cpu_target.target_context.codegen().magic_tuple()
    digest = hashlib.blake2b(digest_size=8)
    digest.update(repr((str(_PACKAGE), versions, processor)).encode())
    for source in sorted(_PACKAGE.glob("*.py")):
        digest.update(repr((source.name, source.read_bytes())).encode())
    return digest.hexdigest()


def is_compiled() -> bool:
    """Return whether the cache folder holds all functions; copy a shipped cache if it does not."""
    complete, shipped = cache_folder() / _COMPLETE, os.environ.get(SHIPPED)
    if not complete.exists() and shipped:
        source = Path(shipped) / cache_key()
        with contextlib.suppress(OSError):  # if copying fails, the kernel is compiled
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
        say: Function that is called with one line of text before a compilation begins.

    Raises:
        RuntimeError: If the child process fails; the message is the last line of its errors.
        OSError: If a file cannot be written, or another process compiles for too long.
    """
    if is_compiled():
        return
    say("Compiling the training kernel once, about ten seconds ...")
    with _lock():
        if not is_compiled():  # another process may have compiled them in the meantime
            _compile_in_child()


def load() -> None:
    """Load all functions from the cache folder.

    If loading fails, for example because the machine lost power while the folder was written, the
    folder is deleted, so that the next process compiles the functions again.
    """
    try:
        from attnkit.model.kernel.compiling import compile_all

        compile_all()
    except Exception:
        shutil.rmtree(cache_folder(), ignore_errors=True)
        raise


def _compile_in_child() -> None:
    """Run `python -m attnkit.model.kernel`: compiling in this process would take its memory."""
    environment = environment_with_package() | {"NUMBA_CACHE_DIR": str(cache_folder().parent)}
    input_of_child, held_open = os.pipe()  # the child ends with this process
    try:
        child = subprocess.run(
            [sys.executable, *_COMMAND],
            env=environment,
            stdin=input_of_child,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=MOST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"not finished after {MOST_SECONDS} s") from None
    finally:
        os.close(input_of_child)
        os.close(held_open)
    if not is_compiled():
        lines = child.stderr.strip().split("\n")
        raise RuntimeError(lines[-1] or f"exit code {child.returncode}")


def _lock() -> FileLock:
    """Return the lock of the cache folder, which is released even if its holder is killed."""
    return FileLock(cache_folder() / "lock", timeout=MOST_SECONDS)


def _copy(source: Path, target: Path) -> None:
    """Copy all files of a cache folder; the file that marks it as complete comes last."""
    files = [path for path in source.rglob("*") if path.is_file() and path.name != "lock"]
    for path in sorted(files, key=lambda path: path.name == _COMPLETE):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, copy)  # without its mode: files of an image may be read-only


def _temporary_folder() -> Path:
    """Return a temporary folder of this user: an existing one, else a new one."""
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")):
        if _is_private(path):
            return path
    return Path(tempfile.mkdtemp(prefix=_PREFIX))


def _is_private(folder: Path) -> bool:
    """Return whether only this user can open a folder; numba runs the code that it contains."""
    if not hasattr(os, "getuid"):  # Windows has these folders in the user's profile
        return True
    status = folder.lstat()
    is_owned = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return is_owned and not stat.S_IMODE(status.st_mode) & 0o077
