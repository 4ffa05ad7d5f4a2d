"""The frozen, validated Experiment, with one text form and one content hash.

An experiment is variants × seeds on one task; its field `sharing` lists the variants.
Its settings are written flat everywhere (Python, command line, link, JSON) and stored in three
groups: the task's dials, `Size`, `TrainingSettings`; their fields hold labels, help and bounds.
This module does not import torch, because pages build experiments.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from attnkit.experiment.costs import TOLERANCE, Adjusted, Costs, Equal, count_costs, equalise
from attnkit.experiment.layer_specs import LayerSpec, layer_specs_of
from attnkit.experiment.training_settings import MEASURED_TOGETHER, TrainingSettings
from attnkit.foundation.display import Displayed
from attnkit.foundation.documents import BadDocument, parse_json
from attnkit.foundation.language import mark, tr
from attnkit.foundation.settings import (
    InvalidExperiment,
    Problem,
    Setting,
    allowed_names,
    but,
    dial,
    disagreement,
    has_separator,
    setting_of,
)
from attnkit.foundation.spelling import nearest_name
from attnkit.tasks import TASKS, Task, data_in_link, is_task, task_named
from attnkit.variants import InvalidVariant, Variant, Wiring, read_variants
from attnkit.variants.catalogue import title_of
from attnkit.variants.position_rules import POSITIONS
from attnkit.variants.sharing import Sharing
from attnkit.variants.size import ALIGNED, Size
from attnkit.variants.tying import tie_share

SCHEMA = 1
"""Version of the text form, written in every link and every JSON."""

_VALUES_BEFORE = {
    "equal": "nothing",
    "blocks": "lean",
    "schedule": "constant",
    "warm_up": 0.0,
    "clip": 0.0,
    "n_train": 0,
    "earlier_steps": 0,
    "longer_test": 1,
    "fixed_names": False,
}
"""Settings that were added later, with the values that all experiments had before."""

DEFAULT_TASK = "directed"


class _Runs(BaseModel):
    """Settings that decide which runs an experiment has."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    sharing: tuple[Variant, ...]
    n_seeds: int = dial(
        5, mark("Seeds"), mark("Runs per variant; each has its own data."), ge=1, le=40
    )
    first_seed: int = dial(
        0, mark("First seed"), mark("Seeds count up from here."), ge=0, le=999_999
    )
    equal: Equal = dial(
        "nothing",
        mark("Make costs equal"),
        mark(
            "Off: every variant has the widths set here. Otherwise head and MLP widths are changed "
            "until all variants cost as much as the most expensive one."
        ),
        choice_labels=(
            mark("off"),
            mark("equal parameters"),
            mark("equal multiply-adds"),
            mark("equal KV cache"),
        ),
    )

    @field_validator("sharing", mode="before")
    @classmethod
    def _read_sharing(cls, value: Any) -> tuple[Variant, ...]:
        try:
            return read_variants(value)
        except InvalidVariant as error:
            raise disagreement("sharing", error.text, but(error)) from None


class Experiment(_Runs, Displayed):
    """Settings of an experiment: variants × seeds on one task.

    Settings are given flat: `Experiment(task="directed", sharing=["QKV", "Q=K"], d_head=8)`.
    Every other setting takes the task's default.

    Raises:
        InvalidExperiment: If settings are wrong. This `ValueError` names every wrong field, its
            value and what is allowed.
    """

    task: Task
    size: Size
    training: TrainingSettings

    def __init__(self, /, **settings: Any) -> None:
        try:
            super().__init__(**_grouped(settings))
        except ValidationError as error:
            raise InvalidExperiment(problems_of(error)) from None

    @model_validator(mode="after")
    def _check_variants(self) -> Self:
        for variant in self.sharing:
            try:
                Adjusted(self._stacked, None, "", 0.0).wire(variant, self.task)
            except ValueError as error:
                raise disagreement("sharing", variant.value, but(error), *_SHAPING) from None
            share = tie_share(variant.parts)
            if "tie" in variant.given and share > 0 and self.tie_step(variant) == 0:
                most = max(1, round(share * self.training.steps))
                allowed = mark(
                    "at most {most}, so that {variant} is trained untied first",
                    most=most,
                    variant=variant.value,
                )
                given = self.training.evaluate_every
                raise disagreement("evaluate_every", given, allowed, "steps", "sharing")
        return self

    @model_validator(mode="after")
    def _check_task(self) -> Self:
        training = self.training
        if self.task.ordered and not self.size.causal:
            allowed = mark("true: otherwise positions would see their answers")
            raise disagreement("causal", False, allowed, "task")
        if training.n_train and training.n_train < training.batch_size:
            allowed = mark("0 or at least batch_size ({least})", least=training.batch_size)
            raise disagreement("n_train", training.n_train, allowed, "batch_size")
        earlier = training.earlier_steps
        if earlier and self.task.earlier is None:
            allowed = mark("0: this task has no earlier one")
            raise disagreement("earlier_steps", earlier, allowed, "task")
        if self.task.earlier is not None and not 0 < earlier < training.steps:
            allowed = mark("1 to {most}, below steps", most=training.steps - 1)
            raise disagreement("earlier_steps", earlier, allowed, "steps")
        return self

    @model_validator(mode="after")
    def _check_cost(self) -> Self:
        check_longer_test(self)
        check_memory(self)
        return self

    @property
    def n_runs(self) -> int:
        """Number of runs: variants × seeds."""
        return len(self.sharing) * self.n_seeds

    @property
    def seeds(self) -> range:
        """Seeds of the runs of each variant."""
        return range(self.first_seed, self.first_seed + self.n_seeds)

    @property
    def runs(self) -> list[tuple[Variant, int]]:
        """Variant and seed of every run, in the order of the runs in all arrays."""
        return [(variant, seed) for variant in self.sharing for seed in self.seeds]

    @property
    def n_heads(self) -> int:
        """Largest number of heads of a variant: the length of the head axis in all arrays."""
        return max(self.wiring(variant).sizes.n_heads for variant in self.sharing)

    @property
    def layer_specs(self) -> tuple[LayerSpec, ...]:
        """Specifications of the attention layers, in the order of the layers in all arrays."""
        return layer_specs_of(self.size, self.task)

    @property
    def _stacked(self) -> Size:
        """The size with `n_layers` counting the attention layers of both encoder and decoder."""
        return self.size.model_copy(update={"n_layers": len(self.layer_specs)})

    @property
    def plateau(self) -> float | None:
        """Accuracy of a guess between an entry and its mirrored entry; None if it does not apply.

        Plain Q=K and Q=K=V come near it with one head, one layer and no MLP, at the task's default
        sizes. It is not an upper limit: with 16 entries Q=K had 0.53 to 0.65 after more steps.
        """
        size = self.size
        bare = size.n_heads == size.n_layers == 1 and size.d_mlp == 0 and size.self_mask
        return self.task.plateau if bare and size.positions == "none" and not size.causal else None

    def wiring(
        self, variant: str, stage: Variant | None = None, task: Task | None = None
    ) -> Wiring:
        """Return the wiring of a variant's attention at its sizes in this experiment.

        Args:
            variant: A variant of this experiment; any variant if costs are not made equal.
            stage: The stage of the variant to wire. None: the last one.
            task: Task of another length. None: the experiment's.
        """
        return self.adjusted(variant).wire(stage or Variant(variant), task or self.task)

    def adjusted(self, variant: str) -> Adjusted:
        """Return the sizes of a variant, changed where costs are made equal.

        Raises:
            ValueError: If costs are made equal and the experiment does not have this variant.
        """
        if self.equal == "nothing":
            return Adjusted(self._stacked, None, "", 0.0)
        by_variant = equalise(self.sharing, self._stacked, self.task, self.equal)
        adjusted = by_variant.get(Variant(variant))
        if adjusted is None:
            allowed = "the variants of this experiment"
            raise ValueError(f"variant: got {str(variant)!r}, allowed {allowed}")
        return adjusted

    @property
    def unequal_costs(self) -> str:
        """Sentences on the variants whose costs no width makes equal; empty if all are equal."""
        differences = {v: self.adjusted(v).difference for v in self.sharing}
        unequal = {v: one for v, one in differences.items() if abs(one) > TOLERANCE}
        if not unequal:
            return ""
        shares = {v: f"{one:+.0%}".replace("-", "−") for v, one in unequal.items()}
        names = ", ".join(f"{title_of(v)} ({share})" for v, share in shares.items())
        sentence = tr(
            "No width makes the costs of these variants equal to the highest: {names}.",
            names=names,
        )
        if any("module" in variant.given for variant in unequal):
            advice = tr("The class of a module needs an argument d_head, whose value can change.")
            sentence = f"{sentence} {advice}"
        return sentence

    def tie_step(self, variant: str) -> int:
        """Return the step at which a variant is tied; 0 if it is not tied during training.

        It is a step that is evaluated, so that the cost of tying is seen.
        """
        variant = Variant(variant)
        if "tie" not in variant.given:
            return 0
        cadence, steps = self.training.evaluate_every, self.training.steps
        return min(round(tie_share(variant.parts) * steps / cadence) * cadence, steps)

    def task_at(self, step: int) -> Task:
        """Return the task that is trained after a number of steps: this one or the earlier one."""
        earlier = self.task.earlier
        return earlier if earlier and step < self.training.earlier_steps else self.task

    def costs(self, variant: str) -> Costs:
        """Return the parameters, cache and multiply-adds of one run of a variant."""
        return count_costs(self.wiring(variant), self.task)

    def settings(self) -> dict[str, Any]:
        """Return every setting, flat, as plain values: `Experiment(**e.settings()) == e`."""
        return {
            "task": self.task.name,
            "sharing": [variant.value for variant in self.sharing],
            "n_seeds": self.n_seeds,
            "first_seed": self.first_seed,
            "equal": self.equal,
            **self.task.model_dump(),
            **self.size.model_dump(),
            **self.training.model_dump(),
        }

    def replace(self, **settings: Any) -> Experiment:
        """Return this experiment with some settings changed."""
        return Experiment(**{**self.settings(), **settings})

    def to_json(self) -> str:
        """Return the canonical form: every setting, flat, with sorted keys.

        Settings that were added later are left out at the values that held before: hashes stay.
        """
        defaults = default_settings(self.task.name)
        data = {
            name: value
            for name, value in self.settings().items()
            if not (_VALUES_BEFORE.get(name) == value == defaults[name])
        }
        return json.dumps({"v": SCHEMA, **data}, sort_keys=True, ensure_ascii=False)

    def to_params(self) -> dict[str, str]:
        """Return the link form: settings that differ from the task's defaults; no long data."""
        defaults = default_settings(self.task.name)
        params = {
            name: data_in_link(value) if name == "data" else text_of(value)
            for name, value in self.settings().items()
            if value != defaults[name] or (name == "task" and value != DEFAULT_TASK)
        }
        return {"v": str(SCHEMA), **params} if params else {}

    def to_text(self) -> str:
        """Return the link form as a query string; it is empty for the default experiment."""
        return urlencode(self.to_params(), safe=",")

    @property
    def hash(self) -> str:
        """Hash of the canonical form, in sixteen hexadecimal digits."""
        return hash_of(self.to_json())


def hash_of(text: str) -> str:
    """Return the hash of an experiment, given its canonical form."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def from_text(text: str) -> Experiment:
    """Read an experiment from the text of `Experiment.to_text` or `Experiment.to_json`.

    Raises:
        InvalidExperiment: If the text cannot be read. It names the wrong fields.
    """
    if not text.lstrip().startswith("{"):
        return from_params(dict(parse_qsl(text.lstrip("?"), keep_blank_values=True)))
    try:
        settings = parse_json(text)
    except BadDocument as error:
        raise InvalidExperiment([Problem("text", text[:40], but(error))]) from None
    return from_params(settings)


def from_params(params: Mapping[str, Any]) -> Experiment:
    """Read an experiment from the settings of a link or of a JSON object.

    Raises:
        InvalidExperiment: If a field is unknown or its value is not allowed.
    """
    settings = {"v": SCHEMA, **params}
    if str(version := settings.pop("v")) != str(SCHEMA):
        allowed = mark("{version}, the version this copy reads", version=SCHEMA)
        raise InvalidExperiment([Problem("v", version, allowed)])
    return Experiment(**settings)


def settings(task: str) -> dict[str, Setting]:
    """Return the settings of a task's experiments by name, all but `task` and `sharing`."""
    return dict(_settings_of(task_named(task)))


@cache
def _settings_of(task: type[Task]) -> dict[str, Setting]:
    return {
        name: setting_of(name, info, task.overrides.get(name, info.default))
        for model in (Experiment, task, Size, TrainingSettings)
        for name, info in model.model_fields.items()
        if info.title is not None
    }


def full_size(task: str, **settings: Any) -> Experiment:
    """Return a task's experiment as published or recorded, with further settings if given."""
    return Experiment(task=task, **task_named(task).full_size, **settings)


def default_settings(task: str) -> dict[str, Any]:
    """Return the flat settings of a task's default experiment."""
    defaults = {name: setting.default for name, setting in settings(task).items()}
    return {"task": task, "sharing": [s.value for s in Sharing], **defaults}


def problems_of(error: ValidationError, task: str = DEFAULT_TASK) -> list[Problem]:
    """Return the errors of pydantic as problems: the field, the value, what is allowed."""
    known = settings(task)
    return [problem_of(details, known) for details in error.errors(include_url=False)]


def _grouped(settings: dict[str, Any]) -> dict[str, Any]:
    """Sort flat settings into the task's dials, size and training, filling in defaults."""
    values = dict(settings)
    name = values.pop("task", DEFAULT_TASK)
    if isinstance(name, Task):
        values = {**name.model_dump(), **values}
        name = name.name
    if not is_task(name):
        raise InvalidExperiment([Problem("task", name, allowed_names(TASKS, str(name)))])
    defaults = default_settings(name)
    problems = [unknown(key, values[key], defaults) for key in values if key not in defaults]
    known = _settings_of(task_named(name))
    problems += [
        Problem(key, value, known[key].allowed)
        for key, value in values.items()
        if key in known and known[key].kind is int and has_separator(value)
    ]
    values = {**defaults, **values}
    groups: dict[str, BaseModel] = {}
    for model in (_Runs, task_named(name), Size, TrainingSettings):
        try:
            groups[model.__name__] = model(**{key: values[key] for key in model.model_fields})
        except InvalidExperiment as error:  # of data of one's own
            problems += error.problems
        except ValidationError as error:
            problems += problems_of(error, name)
    if problems:
        raise InvalidExperiment(problems)
    runs, task, size, training = groups.values()
    return {**dict(runs), "task": task, "size": size, "training": training}


def text_of(value: Any) -> str:
    """Return the value of a setting as links and the command line write it."""
    text = ",".join(value) if isinstance(value, list) else str(value)
    return text.lower() if isinstance(value, bool) else text


_SHAPING = ("n_heads", "d_head", "d_model", "positions", "n_layers")
"""Settings that can make a variant impossible."""


_MOST_AT_ONCE = 2**30
"""Largest number of intermediate values in one step of all runs.

Cohorts take turns, so that these values never exist all at the same time.
"""

_MOST_PERMANENT = 2**29
"""Largest number of values that all runs together keep during the whole training."""

MAX_EVALUATIONS = 4000
"""Largest number of evaluations; every snapshot carries all of them to the page."""

_COSTLY = (
    *("n_heads", "n_layers", "d_mlp", "d_model", "d_head"),
    *("batch_size", "n_eval", "n_train", "sharing"),
)
"""Settings, besides seeds and the task's dials, that decide how much memory is needed."""


def check_memory(experiment: Experiment) -> None:
    """Raise the error of an experiment that is too large; it says how much is allowed."""
    at_once, permanent = _numbers_per_seed(experiment)
    for numbers, limit in ((at_once, _MOST_AT_ONCE), (permanent, _MOST_PERMANENT)):
        if experiment.n_seeds * numbers > limit:
            allowed = mark("at most {most} at these sizes", most=limit // numbers)
            if numbers > limit:
                allowed = mark("smaller sizes or batches: too large for a single seed")
            others = (*_COSTLY, *type(experiment.task).model_fields, "task")
            raise disagreement("n_seeds", experiment.n_seeds, allowed, *others)
    steps, cadence = experiment.training.steps, experiment.training.evaluate_every
    if cadence < (least := -(-steps // MAX_EVALUATIONS)):
        allowed = mark("at least {least} for {steps} steps", least=least, steps=steps)
        raise disagreement("evaluate_every", cadence, allowed, "steps")


def _numbers_per_seed(experiment: Experiment) -> tuple[int, int]:
    """Return the numbers in memory for one seed of all variants: during a step, and always."""
    task, training = experiment.task, experiment.training
    examples = max(training.batch_size, min(training.n_eval, MEASURED_TOGETHER))
    answers = 2 * (training.batch_size + training.n_eval) * (task.n_ctx - task.answers_from)
    at_once = permanent = 0
    for variant in experiment.sharing:
        wiring = experiment.wiring(variant)
        per_token = 4 * max(wiring.n_inner, wiring.vectors[wiring.roles["Q"]].n_numbers)
        per_token += 6 * wiring.sizes.d_model + 2 * wiring.sizes.d_mlp
        per_token += 3 * wiring.sizes.n_heads * wiring.n_maps * task.n_ctx
        at_once += examples * task.n_ctx * len(experiment.layer_specs) * per_token
        at_once += answers * task.n_classes
        # Parameter, gradient, two moments of Adam, and a temporary root.
        permanent += 5 * count_costs(wiring, task).parameters
        # Tokens, labels and positions have 64 bits, twice a float's.
        permanent += 2 * training.n_train * task.n_ctx * (task.n_fields + 3)
    return at_once, permanent


def longer_experiment(experiment: Experiment) -> Experiment | None:
    """Return an experiment with the examples of the longer test; None if there is no such test.

    There are fewer examples than held-out ones, with about as many tokens together.
    """
    task, times = experiment.task, experiment.training.longer_test
    if times == 1:
        return None
    n_longer = min(experiment.training.n_eval // times, MEASURED_TOGETHER) // ALIGNED * ALIGNED
    lengths = {name: times * getattr(task, name) for name in task.lengths}
    return experiment.replace(**lengths, longer_test=1, n_eval=max(n_longer, ALIGNED))


def check_longer_test(experiment: Experiment) -> None:
    """Raise the error of a longer test that is not possible; it says why."""
    task, times = experiment.task, experiment.training.longer_test
    if times > 1 and not task.lengths:
        allowed = mark("1: all examples have one length here")
        raise disagreement("longer_test", times, allowed, "task")
    try:
        longer = longer_experiment(experiment)
    except InvalidExperiment as error:
        problem = error.problems[0]
        if problem.has_reason:
            allowed = mark("1: for longer examples {reason}", reason=problem.reason)
        else:
            allowed = mark(
                "less: {setting} would be {value}, allowed {allowed}",
                setting=problem.field,
                value=problem.value,
                allowed=problem.allowed,
            )
        others = (*task.lengths, *problem.others)
        raise disagreement("longer_test", times, allowed, *others) from None
    if longer is None:
        return
    for variant in experiment.sharing:
        wiring, at_length = (experiment.wiring(variant, task=t) for t in (task, longer.task))
        positions = wiring.sizes.positions
        if wiring.module is not None and wiring.weights != at_length.weights:
            name = wiring.module.name
            allowed = mark("1: {name} has parameters for the trained length only", name=name)
            raise disagreement("longer_test", times, allowed, "sharing")
        if POSITIONS[positions].embedded or wiring.weights != at_length.weights:
            allowed = mark(
                "1 with positions={positions}, which are learned up to the trained length",
                positions=positions,
            )
            raise disagreement("longer_test", times, allowed, "positions", "sharing")


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
