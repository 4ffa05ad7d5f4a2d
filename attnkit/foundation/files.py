"""Atomic file writes: a file is written completely or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

_BLOCK = bytes(4096)
"""Content of one file-system block: on a full disk a smaller file may still fit."""


def replace_file(target: Path, write: Callable[[Path], object]) -> None:
    """Replace a file atomically: write a temporary file beside it, then rename that.

    Devices and pipes are written directly, and symbolic links are followed.

    Args:
        target: File to create or replace.
        write: Function that writes the whole content to the path that it is called with.

    Raises:
        OSError: If the file cannot be written; the error names `target`.
    """
    try:
        real = _real(target)
        if real.exists() and not real.is_file():
            write(real)
            return
        temporary = _temporary_path(real)
        try:
            temporary.touch()
            mode = (real if real.exists() else temporary).stat().st_mode
            write(temporary)
            temporary.chmod(mode)  # some libraries write files that only their owner can read
            temporary.replace(real)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(target)) from error


def write_file(target: Path, content: str | bytes) -> None:
    """Write a file with `replace_file`; text is encoded as UTF-8."""
    data = content.encode() if isinstance(content, str) else content
    replace_file(target, lambda path: path.write_bytes(data))


def check_writable(target: Path) -> None:
    """Check that `replace_file` could write a small file now, without changing the target.

    Of a device or a pipe only the permissions are checked, because opening it may block.

    Raises:
        OSError: If the file could not be written.
    """
    real = _real(target)
    if real.is_symlink():
        real.stat()  # raises an error, because the links form a loop
    if real.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    if real.exists():  # raises an error for a name that is too long
        if not os.access(real, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
        if not real.is_file():
            return
    temporary = _temporary_path(real)
    try:
        temporary.write_bytes(_BLOCK)
    finally:
        temporary.unlink(missing_ok=True)


def _real(target: Path) -> Path:
    """Return the path behind symbolic links; unlike `Path.resolve`, accept links in a loop."""
    return Path(os.path.realpath(target))


def _temporary_path(target: Path) -> Path:
    """Return the path of a temporary file in the same folder; a long name is cut."""
    return target.with_name(f".{target.name[:50]}.{os.getpid()}.new")
