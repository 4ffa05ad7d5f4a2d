"""Lines of generated Python code, in the style of `ruff format`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

WIDTH = 100
"""Most characters of a line."""

_DEEPEST = 12
"""Indentation of a line in a branch of a method."""


def fits(line: str) -> bool:
    """Return whether a line is short enough for every place in a method."""
    return len(line) <= WIDTH - _DEEPEST


def assignments(values: Mapping[str, str], *, packed: bool) -> Iterator[str]:
    """Yield assignments in order, one per line or, if packed, as many per line as fit."""
    names: list[str] = []
    for name in values:
        if names and not (packed and fits(_assignment([*names, name], values))):
            yield _assignment(names, values)
            names = []
        names.append(name)
    if names:
        yield _assignment(names, values)


def indented(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines, each indented by four spaces."""
    return ("    " + line for line in lines)


def method(head: str, docstring: str, lines: Iterable[str]) -> list[str]:
    """Return the lines of a method, without a docstring if its text is empty."""
    first = [f'"""{docstring}"""'] if docstring else []
    return [f"def {head}:", *indented([*first, *lines])]


def module_class(name: str, docstring: str, methods: Sequence[list[str]]) -> str:
    """Return a subclass of `nn.Module`, without a docstring if its text is empty."""
    body = [f'"""{docstring}"""', ""] if docstring else []
    for lines in methods:
        body += [*lines, ""]
    rows = [f"class {name}(nn.Module):", *indented(body[:-1])]
    return "\n".join(row.rstrip() for row in rows)


def docstring_safe(text: str) -> str:
    """Replace the characters of a text that would break a docstring."""
    return text.replace("\\", "/").replace('"', "'")


def _assignment(names: Sequence[str], values: Mapping[str, str]) -> str:
    targets, expressions = ", ".join(names), [values[name] for name in names]
    line = f"{targets} = {', '.join(expressions)}"
    if len(set(expressions)) == 1 < len(expressions) and not fits(line):
        return f"{targets} = ({expressions[0]} for _ in range({len(expressions)}))"
    return line
