"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

_BLOCK = bytes(4096)
"""One block of a file system: less may fit on a disk that is full."""


def replace_file(target: Path, write: Callable[[Path], object]) -> None:
    """Write beside `target`, then replace it: the old file stays whole until the new one is.

    Devices and pipes are written directly, and symbolic links are followed.

    Args:
        write: function that writes the whole content to the path it is given.

    Raises:
        OSError: if the file cannot be written; it names `target`.
    """
    try:
        real = _real(target)
        if real.exists() and not real.is_file():
            write(real)
            return
        beside = _beside(real)
        try:
            beside.touch()
            mode = (real if real.exists() else beside).stat().st_mode
            write(beside)
            beside.chmod(mode)  # some libraries write files for the owner's eyes only
            beside.replace(real)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(target)) from error


def write_file(target: Path, content: str | bytes) -> None:
    """Write a file by `replace_file`; texts are written as UTF-8."""
    data = content.encode() if isinstance(content, str) else content
    replace_file(target, lambda path: path.write_bytes(data))


def check_writable(target: Path) -> None:
    """Raise OSError unless `replace_file` could write a small file now; nothing is changed.

    A device or pipe is only asked for its permissions: opening it may wait or have an effect.
    """
    real = _real(target)
    if real.is_symlink():
        real.stat()  # fails, as the links form a circle
    if real.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    if real.exists():  # fails for a name that is too long
        if not os.access(real, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
        if not real.is_file():
            return
    beside = _beside(real)
    try:
        beside.write_bytes(_BLOCK)
    finally:
        beside.unlink(missing_ok=True)


def _real(target: Path) -> Path:
    """Path behind symbolic links; unlike `Path.resolve`, it takes links that form a circle."""
    return Path(os.path.realpath(target))


def _beside(target: Path) -> Path:
    """Path of a temporary file in the same folder; it is short where the name is long."""
    return target.with_name(f".{target.name[:50]}.{os.getpid()}.new")
