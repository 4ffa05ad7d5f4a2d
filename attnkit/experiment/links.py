"""Links to experiments: reading them safely, repairing wrong ones, and writing them.

A link holds an experiment's settings, or the hash of a stored result (`run`), and may hide
controls (`hide`). Anybody can write one, so the number and lengths of its fields are checked
first. What can be read is used, the rest is reported, and no link takes long to read.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from attnkit.experiment.experiment import (
    DEFAULT_TASK,
    SCHEMA,
    Experiment,
    default_settings,
    from_params,
    settings,
    text_of,
)
from attnkit.foundation.language import mark, tr_n
from attnkit.foundation.settings import InvalidExperiment, Problem, but
from attnkit.foundation.spelling import nearest_name
from attnkit.tasks import OWN_TASKS, TASKS, OwnData, hash_in_link
from attnkit.tasks.own_data import LONGEST_IN_LINK, is_hash
from attnkit.variants import InvalidVariant, Variant
from attnkit.variants.text import LONGEST

MOST_FIELDS = 60
"""Largest number of fields that are read; an experiment has about thirty."""

LONGEST_NAME = 60
LONGEST_VALUE = 200

MOST_VARIANTS = 12
"""Largest number of variants that are read; a page has space for half of them."""

_LONGEST_FIELDS = {
    "sharing": MOST_VARIANTS * (LONGEST + 2),
    "hide": 4000,
    "data": LONGEST_IN_LINK,
}
"""Largest lengths of the fields that hold a list or data of one's own."""

_SIMILARITY = 0.7
"""Similarity to a known name, 0 … 1, from which an unknown name counts as misspelt."""

_MOST_SENTENCES = 4
"""Largest number of problems that are described."""

GROUPS = {
    "task": mark("The choice of task"),
    "sharing": mark("The choice of variants"),
    "add_variant": mark("“Add a variant”"),
    "settings": mark("All settings"),
    "more": mark("The settings under “More”"),
    "buttons": mark("Pause, Step, Reset, New seeds and the switches"),
}
"""Groups of controls that a class link can hide, with their labels in English."""


@dataclass(frozen=True)
class Link:
    """Content of a link.

    Attributes:
        experiment: The experiment, repaired where settings were wrong.
        hidden: Names of the controls that are not shown, in the order of `hideable`.
        problems: Fields that could not be used, with the reasons.
        awaited: Fields of a link on data of one's own that it does not have; empty otherwise.
            `with_data` makes an experiment of them when the data have come.
    """

    experiment: Experiment
    hidden: tuple[str, ...]
    problems: list[Problem]
    awaited: Mapping[str, Any] = field(default_factory=dict)


def read_link(
    params: Mapping[str, Any],
    experiment_of: Callable[[str], Experiment | str | None],
    own_data: Mapping[str, str] | None = None,
) -> Link:
    """Read a link with any content.

    Args:
        params: Fields of the link by name.
        experiment_of: Function that returns the experiment of a stored result by its hash, None
            if there is no such result, or a reason why the store cannot be read.
        own_data: Known data of one's own, by the hash that stands for them in a link.
    """
    fields, problems = _readable_fields(params)
    hidden, unknown = _read_hidden(fields.pop("hide", ""))
    problems += unknown
    run = fields.pop("run", None)
    if run is not None:
        stored = _stored(run, experiment_of)
        if isinstance(stored, Experiment):
            allowed = mark("nothing beside run, which has its own settings")
            ignored = sorted(fields.keys() - {"v"})
            problems += [Problem(name, fields[name], allowed) for name in ignored]
            return Link(stored, hidden, problems)
        problems.append(stored)
    if fields.get("task") in OWN_TASKS:
        data = fields.pop("data", "")
        try:
            experiment, wrong = with_data(fields, (own_data or {}).get(data, data))
            return Link(experiment, hidden, problems + wrong)
        except InvalidExperiment as error:
            awaits = is_hash(data) or not data
            problems += [] if awaits else error.problems
            return Link(Experiment(), hidden, problems, {**fields, "data": data})
    experiment, wrong = _repair(fields)
    return Link(experiment, hidden, problems + wrong)


def with_data(fields: Mapping[str, Any], data: str) -> tuple[Experiment, list[Problem]]:
    """Read an experiment on data of one's own, as `from_broken_params` reads any other.

    Args:
        fields: Settings, with the name of the task; those that the task lacks are problems.
        data: The data, of any length.

    Raises:
        InvalidExperiment: If the data cannot be used.
    """
    task = OWN_TASKS[fields["task"]]
    data = task.text_form(data)
    kept = {"task": task.name, "data": data}
    readable, problems = _readable_fields({n: v for n, v in fields.items() if n not in kept})
    experiment, wrong = _repair(readable, kept, task.fitting(data))
    return experiment, problems + wrong


def from_broken_params(params: Mapping[str, Any]) -> tuple[Experiment, list[Problem]]:
    """Read an experiment from settings; wrong ones take their defaults and are reported."""
    fields, problems = _readable_fields(params)
    experiment, wrong = _repair(fields)
    return experiment, problems + wrong


def link_params(
    experiment: Experiment, hidden: Collection[str] = (), *, private: bool = False
) -> dict[str, str]:
    """Return the fields of a link: settings that differ from the defaults, and hidden controls.

    Args:
        experiment: The experiment.
        hidden: Names of hidden controls.
        private: Whether only the hash of data of one's own stands in the link.
    """
    params = experiment.to_params()
    if private and isinstance(experiment.task, OwnData):
        params["data"] = hash_in_link(experiment.task.data)
    if hidden:
        params = {"v": str(SCHEMA), **params, "hide": ",".join(hidden)}
    return params


def link_text(experiment: Experiment, hidden: Collection[str] = ()) -> str:
    """Return a link as a query string with its "?"; it is empty for the default experiment."""
    query = urlencode(link_params(experiment, hidden), safe=",")
    return f"?{query}" if query else ""


def hideable(tasks: Iterable[str] | None = None) -> dict[str, str]:
    """Return the controls that a class link can hide, with English labels: groups, then settings.

    Args:
        tasks: Tasks with these settings; None for all.
    """
    tasks = (*TASKS, *OWN_TASKS) if tasks is None else tasks
    labels = {s.name: s.label for task in tasks for s in settings(task).values()}
    left_out = GROUPS.keys() | {"data"}
    return GROUPS | {name: label for name, label in labels.items() if name not in left_out}


def is_link_field(name: str) -> bool:
    """Return whether a field of a link is meant for attnkit: a known name, or one like it.

    Other programs add fields such as `utm_source` and `fbclid` to links that are passed on.
    """
    known = _known_names((*TASKS, *OWN_TASKS))
    return name in known or nearest_name(name, known, _SIMILARITY) is not None


def problems_in_words(problems: list[Problem]) -> str:
    """Return sentences about the first few problems, and the number of the others."""
    sentences = [problem.sentence for problem in problems[:_MOST_SENTENCES]]
    n_more = len(problems) - _MOST_SENTENCES
    if n_more > 0:
        sentences.append(tr_n("And {n} more.", "And {n} more.", n_more))
    return " ".join(sentences)


def _readable_fields(params: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Return the fields that are short and simple enough to read, and problems of the others.

    Fields that other programs have added are ignored. Variants are read already.
    """
    fields: dict[str, Any] = {}
    problems = []
    if len(params) > MOST_FIELDS:
        allowed = mark("at most {most} fields: the others are left out", most=MOST_FIELDS)
        problems.append(Problem("link", len(params), allowed))
    for name, value in islice(params.items(), MOST_FIELDS):
        text, longest = _text(value), _LONGEST_FIELDS.get(name, LONGEST_VALUE)
        if len(name) > LONGEST_NAME or not name.isprintable():
            allowed = mark("names of at most {most} readable characters", most=LONGEST_NAME)
            problems.append(Problem("link", name, allowed))
        elif not is_link_field(name):
            continue
        elif text is None:
            problems.append(Problem(name, type(value).__name__, mark("a text or a number")))
        elif len(text) > longest:
            allowed = mark("at most {most} characters", most=longest)
            problems.append(Problem(name, text[:LONGEST_VALUE], allowed))
        else:
            fields[name] = text
    if "sharing" in fields:
        variants, wrong = _read_variants(fields.pop("sharing"))
        problems += wrong
        if variants:
            fields["sharing"] = variants
    return fields, problems


@lru_cache(1)
def _known_names(tasks: tuple[str, ...]) -> frozenset[str]:
    """Return every name of a field that links to these tasks can have."""
    return frozenset({"v", "run", "hide"}.union(*map(default_settings, tasks)))


def _text(value: Any) -> str | None:
    """Return a value as the text that a link has for it; None if it has none."""
    if isinstance(value, int) and value.bit_length() >= 64:  # writing a huge number takes long
        return f"2**{value.bit_length()}"
    is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return text_of(value) if is_list or isinstance(value, str | int | float) else None


def _read_variants(text: str) -> tuple[list[Variant], list[Problem]]:
    """Return the valid variants of a link, and problems of the others."""
    texts = text.split(",")
    variants, problems = [], []
    if len(texts) > MOST_VARIANTS:
        most = MOST_VARIANTS
        allowed = mark("at most {most} variants in a link: the others are left out", most=most)
        problems.append(Problem("sharing", len(texts), allowed))
    for variant in texts[:MOST_VARIANTS]:
        try:
            variants.append(Variant(variant))
        except InvalidVariant as error:
            problems.append(Problem("sharing", variant, but(error)))
    return variants, problems


def _read_hidden(text: str) -> tuple[tuple[str, ...], list[Problem]]:
    """Return the hidden controls of a link in the order of `hideable`, and unknown names."""
    requested = {name.strip() for name in text.split(",")} - {""}
    if not requested:
        return (), []
    known = hideable()
    unknown = ", ".join(sorted(requested - known.keys()))
    allowed = mark("{groups} or names of settings such as steps", groups=", ".join(GROUPS))
    problems = [Problem("hide", unknown, allowed)] if unknown else []
    return tuple(name for name in known if name in requested), problems


def _stored(
    run: str, experiment_of: Callable[[str], Experiment | str | None]
) -> Experiment | Problem:
    """Return the experiment of a stored result, or the problem with its hash."""
    if re.fullmatch("[0-9a-f]{16}", run) is None:
        return Problem("run", run, mark("sixteen digits from 0 to 9 and a to f"))
    stored = experiment_of(run)
    if isinstance(stored, Experiment):
        return stored
    reason = stored or mark("no result of that name is kept here, or no longer")
    return Problem("run", run, but(reason))


def _repair(
    fields: Mapping[str, Any],
    kept: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> tuple[Experiment, list[Problem]]:
    """Return an experiment of the fields that can be used, and problems of the others.

    Costs are made equal last, when all widths are known, because that takes longest.

    Args:
        fields: The fields.
        kept: Further fields, which are right.
        defaults: Settings that take the place of the task's own defaults.

    Raises:
        InvalidExperiment: If `kept` and `defaults` alone make no experiment.
    """
    remaining, problems = dict(fields), list[Problem]()
    kept, defaults = kept or {}, defaults or {}

    def read(some: Mapping[str, Any]) -> Experiment:
        return from_params({**defaults, **some, **kept})

    equal = remaining.pop("equal", None)
    experiment = _without_wrong(remaining, problems, read)
    if equal is not None:
        remaining["equal"] = equal
        experiment = _without_wrong(remaining, problems, read)
    return experiment, problems


_Read = Callable[[Mapping[str, Any]], Experiment]


def _without_wrong(remaining: dict[str, Any], problems: list[Problem], read: _Read) -> Experiment:
    """Remove wrong fields until the others make an experiment; add the problems to the list."""
    while True:
        try:
            return read(remaining)
        except InvalidExperiment as error:
            if not remaining:
                raise
            problems += _remove_wrong(remaining, error, read)


def _remove_wrong(
    remaining: dict[str, Any], error: InvalidExperiment, read: _Read
) -> list[Problem]:
    """Remove wrong fields, or few that disagree with a default; return the problems to report."""
    wrong = {problem.field for problem in error.problems} & remaining.keys()
    if not wrong:
        reason = but(error.problems[0].message)
        disagreeing = _disagreeing(remaining, error, read)
        return [Problem(name, remaining.pop(name), reason) for name in disagreeing]
    for name in wrong:
        named = [p.value for p in error.problems if p.field == name == "sharing"]
        valid = [variant for variant in remaining[name] if variant not in named] if named else []
        if valid and len(valid) < len(remaining[name]):
            remaining[name] = valid
        else:
            del remaining[name]
    return error.problems


def _disagreeing(fields: Mapping[str, Any], error: InvalidExperiment, read: _Read) -> list[str]:
    """Return a few fields without which the others agree with the defaults.

    Fields are sorted by their value divided by their default, the largest first. Leaving out
    enough of the first fields solves the problem. Bisection finds the smallest such number; the
    last of these fields must go, and the search continues among the fields before it.
    """
    if "equal" in fields:  # without it, the others make an experiment
        return ["equal"]
    defaults = default_settings(fields.get("task", DEFAULT_TASK))

    def excess(name: str) -> float:
        try:
            return float(fields[name]) / (float(defaults.get(name, 1)) or 1)
        except (TypeError, ValueError):  # not a number
            return 0.0

    others = [name for p in error.problems for name in p.others if name in fields]
    others.sort(key=excess, reverse=True)
    wrong: list[str] = []

    def is_solved(n_others: int) -> bool:
        without = {*wrong, *others[:n_others]}
        try:
            read({name: fields[name] for name in fields if name not in without})
        except InvalidExperiment as other:
            return not {p.field for p in other.problems} & {p.field for p in error.problems}
        return True

    n_others = len(others)
    if n_others < 2 or not is_solved(n_others):
        return others or list(fields)
    while n_others := bisect_left(range(n_others), True, key=is_solved):
        n_others -= 1
        wrong.append(others[n_others])
    return wrong
