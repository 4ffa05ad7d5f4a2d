"""Files of claims: a text in TOML becomes a `Claim`, or an error names the field that is wrong.

Texts are at the top, then the arms, and at last the statements. `[common]` holds what all arms have
in common. What is no field of an arm is a setting of its experiment. Blank lines in a text separate
texts that are translated one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import TypeAdapter, ValidationError, validate_call

from attnkit.claims.base import FAMILIES, Claim, Seen, arm
from attnkit.claims.names import joined
from attnkit.claims.statements import KINDS, Statement, compared
from attnkit.foundation.documents import parse_toml, read_file
from attnkit.foundation.language import Message
from attnkit.foundation.settings import allowed_names, shown

MOST_BYTES = 100_000
"""Largest size of a file."""

TEXTS = ("title", "question", "source", "says", "prediction", "reason", "seen_note")
"""Fields of a claim that are translated."""

SENTENCES = ("text", "opposite", "more_often")
"""Fields of a statement that are translated."""

T = TypeVar("T")


def read_claim(path: str | Path, *, check_arms: bool = True) -> Claim:
    """Read a claim of a file in TOML; its id is the name of the file.

    Args:
        path: The file.
        check_arms: Whether to check the settings of the arms, which takes some milliseconds each.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is not TOML, or a field is missing, unknown or not allowed.
    """
    path = Path(path)
    try:
        values = parse_toml(read_file(path, MOST_BYTES))
        common = _table("common", values.pop("common", {}))
        arms = [_checked(at, arm, common | row) for at, row in _rows(values, "arms")]
        values["statements"] = [_statement(at, row) for at, row in _rows(values, "statements")]
        claim = _checked("", Claim, values | {"id": path.stem, "arms": arms})
        for name, allowed in (("family", FAMILIES), ("seen", get_args(Seen))):
            if getattr(claim, name) not in allowed:
                got = shown(getattr(claim, name), quoted=True)
                raise ValueError(f"{name}: got {got}, allowed {', '.join(map(repr, allowed))}")
        for one in claim.arms if check_arms else ():
            _ = one.experiment
        return _marked(claim, TEXTS)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None


def paragraphs(text: str) -> list[str]:
    """Return the texts between blank lines."""
    return text.strip().split("\n\n")


def _table(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name}: got {shown(value, quoted=True)}, allowed a table")
    return value


def _rows(values: dict[str, Any], name: str) -> Iterable[tuple[str, dict[str, Any]]]:
    rows = values.get(name)
    if not isinstance(rows, list):
        raise ValueError(f"{name}: got {shown(rows, quoted=True)}, allowed a list of tables")
    return [(f"{name} {n}: ", dict(_table(f"{name} {n}", row))) for n, row in enumerate(rows, 1)]


def _statement(at: str, row: dict[str, Any]) -> Statement:
    kinds = [name for name in (*KINDS, "difference") if name in row]
    if len(kinds) != 1:
        allowed = ", ".join((*KINDS, "difference"))
        raise ValueError(f"{at}got {', '.join(kinds) or 'no comparison'}, allowed one of {allowed}")
    names = row.pop(kinds[0])
    if not isinstance(names, list) or len(names) > 4:
        got = shown(names, quoted=True)
        raise ValueError(f"{at}{kinds[0]}: got {got}, allowed a list of up to four names of arms")
    given = dict(zip(("left", "right", "second_left", "second_right"), names, strict=False))
    if kinds[0] == "difference":
        statement = _checked(at, _difference, given | row)
    else:
        statement = _checked(at, compared, {"kind": kinds[0]} | given | row)
    return _marked(statement, SENTENCES)


def _difference(
    left: str,
    right: str | None = None,
    second_left: str | None = None,
    second_right: str | None = None,
    *,
    text: str,
    opposite: str,
    measure: str = "accuracy",
    low: float = -math.inf,
    high: float = math.inf,
    at: int = 1,
) -> Statement:
    names = (left, right, measure, low, high, second_left, second_right, at)
    return Statement(text, opposite, *names)


def _checked(at: str, build: Callable[..., T], given: dict[str, Any]) -> T:
    """Return what `build` makes of the fields of a table; `at` names the table in messages."""
    validate, allowed = _validator(build)
    if unknown := [name for name in given if name not in allowed and build is not arm]:
        raise ValueError(
            f"{at}got the field {unknown[0]!r}, allowed {allowed_names(allowed, unknown[0])}"
        )
    try:
        built: T = validate(given)
    except ValidationError as error:
        problem = error.errors()[0]
        if problem["type"] == "value_error":  # what the class itself has checked
            raise ValueError(f"{at}{problem['ctx']['error']}") from None
        field = ".".join(map(str, problem["loc"]))
        if problem["type"].startswith("missing"):
            raise ValueError(f"{at}the field {field!r} is missing") from None
        got = shown(problem["input"], quoted=True)
        wanted = problem["msg"].replace("Input should be", "allowed")
        raise ValueError(f"{at}{field}: got {got}, {wanted}") from None
    return built


@cache
def _validator(build: Callable[..., T]) -> tuple[Callable[[dict[str, Any]], T], list[str]]:
    """Return a function that checks types and calls `build`, and the names of all fields."""
    if isinstance(build, type):
        return TypeAdapter(build).validate_python, list(signature(build).parameters)
    checked = validate_call(build)
    return lambda given: checked(**given), list(signature(build).parameters)


def _marked(described: T, names: Iterable[str]) -> T:
    """Return a claim or a statement whose texts `tr` translates where they are shown."""
    texts = {name: getattr(described, name) for name in names}
    return replace(
        described,  # type: ignore[type-var]
        **{
            name: joined(*(Message(one, {}) for one in paragraphs(text)))
            for name, text in texts.items()
            if text and not isinstance(text, Message)
        },
    )
