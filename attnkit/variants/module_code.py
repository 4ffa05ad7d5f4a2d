"""Files of code that may hold attention of one's own, read without executing them."""

from __future__ import annotations

import ast
from pathlib import Path

from attnkit.foundation.language import tr

_MOST_BYTES = 2**20
"""Largest size of a file of code."""


def read_code(name: str) -> bytes:
    """Return the bytes of a Python file.

    Raises:
        ValueError: If its name does not end in .py, if it is too large or if it cannot be read.
    """
    if not name.endswith(".py"):
        wrong = tr("got {file}, allowed a file whose name ends in .py", file=repr(name))
        raise ValueError(wrong)
    try:
        with Path(name).expanduser().open("rb") as file:
            code = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        wrong = tr("got {file}, but it cannot be read ({reason})", file=repr(name), reason=reason)
        raise ValueError(wrong) from None
    if len(code) > _MOST_BYTES:
        raise ValueError(
            tr(
                "got {file}, allowed at most {most:,} bytes of code",
                file=repr(name),
                most=_MOST_BYTES,
            )
        )
    return code


def classes_in(code: bytes, name: str) -> list[str]:
    """Return the names of the classes of a file that may be layers, without executing it.

    These are classes with a `forward`, or with a base class of the file that has one; those whose
    `forward` begins with x come first.

    Args:
        code: Content of the file.
        name: Name of the file, for errors.

    Raises:
        ValueError: If it is not Python; the message names the line.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        file, line = Path(name).name, getattr(error, "lineno", None)
        reason = getattr(error, "msg", None) or tr("it is not Python")
        if line:
            wrong = tr("{file}, line {line}: {reason}", file=file, line=line, reason=reason)
        else:
            wrong = tr("{file}: {reason}", file=file, reason=reason)
        raise ValueError(wrong) from None
    first: dict[str, str] = {}  # class → name of the first argument of its forward
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases = (base.id for base in node.bases if isinstance(base, ast.Name))
            for argument in (*map(_first_argument, node.body), *map(first.get, bases)):
                if argument is not None:
                    first.setdefault(node.name, argument)
    return sorted(first, key=lambda one: first[one] != "x")


def _first_argument(node: ast.stmt) -> str | None:
    """Return the first argument of a method `forward` after self; None for other statements."""
    if not isinstance(node, ast.FunctionDef) or node.name != "forward":
        return None
    return next((argument.arg for argument in node.args.args[1:]), "")
