"""Lines of Python: what fits is put in one, and all come out as `ruff format` leaves them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

WIDTH = 100
"""Characters of a line."""

_DEEPEST = 12
"""Spaces before a line inside of a method's branch."""


def fits(line: str) -> bool:
    """Whether a line can stand wherever in a method."""
    return len(line) <= WIDTH - _DEEPEST


def assigned(values: Mapping[str, str], *, packed: bool) -> Iterator[str]:
    """Assignments in order, a line for each; or, packed, for as many as fit."""
    names: list[str] = []
    for name in values:
        if names and not (packed and fits(_assignment([*names, name], values))):
            yield _assignment(names, values)
            names = []
        names.append(name)
    if names:
        yield _assignment(names, values)


def indented(lines: Iterable[str], by: int = 4) -> Iterator[str]:
    """The same, further to the right."""
    return (" " * by + line for line in lines)


def method(head: str, told: str, lines: Iterable[str]) -> list[str]:
    """A method; without a docstring if it is told nothing of."""
    docstring = [f'"""{told}"""'] if told else []
    return [f"def {head}:", *indented([*docstring, *lines])]


def module_class(name: str, told: str, methods: Sequence[list[str]]) -> str:
    """A subclass of nn.Module; without a docstring if it is told nothing of."""
    body = [f'"""{told}"""', ""] if told else []
    for lines in methods:
        body += [*lines, ""]
    rows = [f"class {name}(nn.Module):", *indented(body[:-1])]
    return "\n".join(row.rstrip() for row in rows)


def plain(text: str) -> str:
    """A text that can stand in a docstring."""
    return text.replace("\\", "/").replace('"', "'")


def _assignment(names: Sequence[str], values: Mapping[str, str]) -> str:
    targets, each = ", ".join(names), [values[name] for name in names]
    line = f"{targets} = {', '.join(each)}"
    if len(set(each)) == 1 < len(each) and not fits(line):
        return f"{targets} = ({each[0]} for _ in range({len(each)}))"
    return line
