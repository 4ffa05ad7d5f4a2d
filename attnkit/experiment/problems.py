"""Problems of wrong settings, read from the errors of pydantic and of variants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic_core import ErrorDetails

from attnkit.foundation.language import mark
from attnkit.foundation.settings import InvalidExperiment, Problem, Setting
from attnkit.foundation.spelling import nearest_name


def problem_of(details: ErrorDetails, known: Mapping[str, Setting]) -> Problem:
    """Return an error of pydantic as a problem: the field, the value, what is allowed."""
    if details["type"] == "disagreement":
        return Problem(**details["ctx"])
    cause = details.get("ctx", {}).get("error")
    if isinstance(cause, InvalidExperiment):
        return cause.problems[0]
    name = str(details["loc"][0]) if details["loc"] else "experiment"
    message = str(details["msg"]).removeprefix("Value error, ")
    return Problem(name, details["input"], known[name].allowed if name in known else message)


def unknown(name: str, value: Any, known: Iterable[str]) -> Problem:
    """Return the problem of a setting that is not known, with a suggestion if one is similar."""
    meant = nearest_name(name, known)
    if meant:
        return Problem(name, value, mark("a known setting (did you mean {name}?)", name=meant))
    return Problem(name, value, mark("one of {names}", names=", ".join(known)))
