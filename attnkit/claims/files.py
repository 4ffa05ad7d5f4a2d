"""Files of claims: a text in TOML becomes a `Claim`, or an error names the field that is wrong.

Texts are at the top, then the arms, and at last the statements. `[common]` holds what all arms have
in common. What is no field of an arm is a setting of its experiment. Blank lines in a text separate
texts that are translated one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import TypeAdapter, ValidationError, validate_call

from attnkit.claims.base import FAMILIES, Arm, Claim, Seen, arm
from attnkit.claims.statements import KINDS, Statement, compared, joined
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
        check_arms: Whether to check the settings of the arms, which takes some milliseconds each.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is not TOML, or a field is missing, unknown or not allowed.
    """
    path = Path(path)
    try:
        values = parse_toml(read_file(path, MOST_BYTES))
        common = _table("common", values.pop("common", {}))
        arms = [_arm(at, common | row) for at, row in _rows(values, "arms")]
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
    return dict(value)


def _rows(values: dict[str, Any], name: str) -> Iterable[tuple[str, dict[str, Any]]]:
    rows = values.get(name)
    if not isinstance(rows, list):
        raise ValueError(f"{name}: got {shown(rows, quoted=True)}, allowed a list of tables")
    return [(f"{name} {n}: ", _table(f"{name} {n}", row)) for n, row in enumerate(rows, 1)]


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
        _refuse(at, row, "unable", "more_often")
        return _marked(_checked(at, Statement, given | row), SENTENCES)
    return _marked(_checked(at, compared, {"kind": kinds[0]} | given | row), SENTENCES)


def _refuse(at: str, row: dict[str, Any], *names: str) -> None:
    if given := [name for name in names if name in row]:
        raise ValueError(f"{at}got the field {given[0]!r}, which has no meaning here: leave it out")


def _arm(at: str, row: dict[str, Any]) -> Arm:
    """Return an arm; what is no field of it is a setting of its experiment."""
    if "variant" not in row:
        raise ValueError(f"{at}the field 'variant' is missing")
    _refuse(at, row, "settings", "sharing", "n_seeds", "first_seed")
    return _checked(at, Arm, vars(arm(**row)))


def _checked(at: str, build: Callable[..., T], given: dict[str, Any]) -> T:
    """Return what `build` makes of the fields of a table; `at` names the table in messages."""
    allowed = list(signature(build).parameters)
    if unknown := [name for name in given if name not in allowed]:
        raise ValueError(
            f"{at}got the field {unknown[0]!r}, allowed {allowed_names(allowed, unknown[0])}"
        )
    try:
        built: T = _validator(build)(given)
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
def _validator(build: Callable[..., T]) -> Callable[[dict[str, Any]], T]:
    """Return a function that checks the types of arguments and calls `build`."""
    if isinstance(build, type):
        return TypeAdapter(build).validate_python
    checked = validate_call(build)
    return lambda given: checked(**given)


def _marked(described: T, names: Iterable[str]) -> T:
    """Return a claim or a statement whose texts `tr` translates where they are shown."""
    texts = {
        name: joined(*(Message(one, {}) for one in paragraphs(text)))
        for name in names
        if (text := getattr(described, name)) and not isinstance(text, Message)
    }
    return replace(described, **texts)  # type: ignore[type-var]
