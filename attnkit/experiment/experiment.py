"""What is run: one frozen, validated Experiment with one text form and one content hash.

An experiment is variants × seeds on one task; its field `sharing` lists them, plain or composed.
Its settings are written flat everywhere (Python, command line, link, JSON) and stored in three
groups: the task's dials, `Size`, `TrainingSettings`.
Labels, help and bounds stand on the fields; `settings` reads them for widgets and help texts.
No torch here: pages build experiments.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from attnkit.experiment.costs import Adjusted, Costs, Equal, count_costs, equalise
from attnkit.experiment.layer_specs import LayerSpec, layer_specs_of
from attnkit.experiment.training_settings import MEASURED_TOGETHER, TrainingSettings
from attnkit.foundation.settings import (
    InvalidExperiment,
    Problem,
    Setting,
    allowed_names,
    dial,
    disagreement,
    setting_of,
)
from attnkit.tasks import TASKS, Task
from attnkit.variants import InvalidVariant, Variant, Wiring, read_variants
from attnkit.variants.sharing import Sharing
from attnkit.variants.size import Size
from attnkit.variants.tying import tie_share

SCHEMA = 1
"""Version of the text form; stands in every link and every JSON."""

_UNTOLD = {
    "equal": "nothing",
    "blocks": "lean",
    "schedule": "constant",
    "warm_up": 0.0,
    "clip": 0.0,
    "n_train": 0,
    "earlier_steps": 0,
}
"""Settings that came later, and what held before them."""

DEFAULT_TASK = "directed"


class _Runs(BaseModel):
    """Which runs an experiment has."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    sharing: tuple[Variant, ...]
    n_seeds: int = dial(5, "Seeds", "Runs per variant; each has its own data.", ge=1, le=40)
    first_seed: int = dial(0, "First seed", "Seeds count up from here.", ge=0, le=999_999)
    equal: Equal = dial(
        "nothing",
        "Make costs equal",
        "Off: every variant has the widths set here. Otherwise head and MLP widths are changed "
        "until all variants cost as much as the most expensive one.",
        choice_labels=("off", "equal parameters", "equal multiply-adds", "equal KV cache"),
    )

    @field_validator("sharing", mode="before")
    @classmethod
    def _read_sharing(cls, value: Any) -> tuple[Variant, ...]:
        try:
            return read_variants(value)
        except InvalidVariant as error:
            raise disagreement("sharing", error.text, f"but {error}") from None


class Experiment(_Runs):
    """Variants × seeds on one task.

    Settings are given flat: `Experiment(task="directed", sharing=["QKV", "Q=K"], d_head=8)`.
    What is not given takes the task's default.

    Raises:
        InvalidExperiment: a `ValueError` that names every wrong field, its value and what is
            allowed.
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
                raise disagreement("sharing", variant.value, f"but {error}", *_SHAPING) from None
            share = tie_share(variant)
            if "tie" in variant.given and share > 0 and self.tie_step(variant) == 0:
                most = max(1, round(share * self.training.steps))
                allowed = f"at most {most}, so that {variant} is"
                allowed += " untied first"
                every = self.training.evaluate_every
                raise disagreement("evaluate_every", every, allowed, "steps", "sharing")
        return self

    @model_validator(mode="after")
    def _check_task(self) -> Self:
        training = self.training
        if self.task.ordered and not self.size.causal:
            raise disagreement("causal", False, "true: answers lie in what comes later", "task")
        if training.n_train and training.n_train < training.batch_size:
            allowed = f"0 or at least batch_size ({training.batch_size})"
            raise disagreement("n_train", training.n_train, allowed, "batch_size")
        earlier = training.earlier_steps
        if earlier and self.task.earlier is None:
            raise disagreement("earlier_steps", earlier, "0: this task has no earlier one", "task")
        if self.task.earlier is not None and not 0 < earlier < training.steps:
            allowed = f"1 to {training.steps - 1}, below steps"
            raise disagreement("earlier_steps", earlier, allowed, "steps")
        return self

    @model_validator(mode="after")
    def _check_cost(self) -> Self:
        training = self.training
        for numbers, most in zip(
            self._numbers_per_seed(), (_MOST_AT_ONCE, _MOST_KEPT), strict=True
        ):
            if self.n_seeds * numbers > most:
                allowed = f"at most {most // numbers} at these sizes"
                if numbers > most:
                    allowed = "smaller sizes or batches: too large for a single seed"
                others = (*_COSTLY, *type(self.task).model_fields, "task")
                raise disagreement("n_seeds", self.n_seeds, allowed, *others)
        least = -(-training.steps // _MAX_EVALUATIONS)
        if training.evaluate_every < least:
            allowed = f"at least {least} for {training.steps} steps"
            raise disagreement("evaluate_every", training.evaluate_every, allowed, "steps")
        return self

    def _numbers_per_seed(self) -> tuple[int, int]:
        """Numbers in memory for a seed of all variants: in a step or evaluation, and always."""
        task, training = self.task, self.training
        examples = max(training.batch_size, min(training.n_eval, MEASURED_TOGETHER))
        answers = 2 * (training.batch_size + training.n_eval) * (task.n_ctx - task.answers_from)
        at_once = kept = 0
        for variant in self.sharing:
            wiring = self.wiring(variant)
            per_token = 4 * max(wiring.n_inner, wiring.vectors[wiring.roles["Q"]].n_numbers)
            per_token += 6 * wiring.sizes.d_model + 2 * wiring.sizes.d_mlp
            per_token += 3 * wiring.sizes.n_heads * wiring.n_maps * task.n_ctx
            at_once += examples * task.n_ctx * len(self.layer_specs) * per_token
            at_once += answers * task.n_classes
            kept += 5 * count_costs(wiring, task).parameters  # with gradient, averages and a root
            kept += 2 * training.n_train * task.n_ctx * (task.n_fields + 3)  # of 64 bits
        return at_once, kept

    @property
    def megabytes(self) -> float:
        """Memory that training takes, estimated: of a step's numbers a third is there at once.

        Measured on the defaults of the tasks: large ones take two thirds of it to all of it, small
        ones up to 50 MB more.
        """
        at_once, kept = self._numbers_per_seed()
        return self.n_seeds * 4 * (kept + at_once / 3) / 2**20

    @property
    def n_runs(self) -> int:
        """Variants × seeds."""
        return len(self.sharing) * self.n_seeds

    @property
    def seeds(self) -> range:
        """The seed of every run of one variant."""
        return range(self.first_seed, self.first_seed + self.n_seeds)

    @property
    def runs(self) -> list[tuple[Variant, int]]:
        """(variant, seed) of every run, in the order of all result arrays."""
        return [(variant, seed) for variant in self.sharing for seed in self.seeds]

    @property
    def n_heads(self) -> int:
        """The most heads that one of its variants has: the axis of heads in all arrays."""
        return max(self.wiring(variant).sizes.n_heads for variant in self.sharing)

    @property
    def layer_specs(self) -> tuple[LayerSpec, ...]:
        """The attention layers, in the order of all arrays."""
        return layer_specs_of(self.size, self.task)

    @property
    def _stacked(self) -> Size:
        """The size with all attention layers counted, of the encoder and of the decoder."""
        return self.size.model_copy(update={"n_layers": len(self.layer_specs)})

    @property
    def plateau(self) -> float | None:
        """The accuracy of a guess between an entry and its mirror, or None.

        Plain Q=K and Q=K=V come near it with one head, one layer and no MLP, at the task's default
        sizes. It is no limit: with 16 entries both reached two thirds.
        """
        size = self.size
        bare = size.n_heads == size.n_layers == 1 and size.d_mlp == 0 and size.self_mask
        return self.task.plateau if bare and size.positions == "none" and not size.causal else None

    def wiring(self, variant: str, stage: Variant | None = None) -> Wiring:
        """What a variant's attention computes, at its sizes in this experiment.

        Args:
            stage: one of its stages, at the variant's sizes; None: the last.
        """
        return self.adjusted(variant).wire(stage or Variant(variant), self.task)

    def adjusted(self, variant: str) -> Adjusted:
        """The sizes of a variant, and how they were changed to make costs equal.

        Raises:
            ValueError: if costs are made equal and the variant is none of the experiment's.
        """
        if self.equal == "nothing":
            return Adjusted(self._stacked, None, "", 0.0)
        known = _equalised(self.sharing, self._stacked, self.task, self.equal)
        found = known.get(Variant(variant))
        if found is None:
            raise ValueError(f"variant: got {str(variant)!r}, allowed those of this experiment")
        return found

    def tie_step(self, variant: str) -> int:
        """The step at which a variant is tied, 0 if it is not tied later.

        An evaluation follows at once, so that what tying costs is seen.
        """
        variant = Variant(variant)
        if "tie" not in variant.given:
            return 0
        every, steps = self.training.evaluate_every, self.training.steps
        return min(round(tie_share(variant) * steps / every) * every, steps)

    def task_at(self, step: int) -> Task:
        """What is trained on after so many steps: the task, or the earlier one."""
        earlier = self.task.earlier
        return earlier if earlier and step < self.training.earlier_steps else self.task

    def costs(self, variant: str) -> Costs:
        """Parameters, cache and multiply-adds of one run of a variant."""
        return count_costs(self.wiring(variant), self.task)

    def settings(self) -> dict[str, Any]:
        """Every setting, flat, as plain values; `Experiment(**e.settings()) == e`."""
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
        """The same experiment with some settings changed."""
        return Experiment(**{**self.settings(), **settings})

    def to_json(self) -> str:
        """The canonical form: every setting, flat, keys sorted.

        Settings that came later are left out at what they were before, so that hashes stay.
        """
        flat, defaults = self.settings(), default_settings(self.task.name)
        told = {
            name: value
            for name, value in flat.items()
            if not (_UNTOLD.get(name) == value == defaults[name])
        }
        return json.dumps({"v": SCHEMA, **told}, sort_keys=True, ensure_ascii=False)

    def to_params(self) -> dict[str, str]:
        """The link form: only what differs from the task's defaults, as text."""
        defaults = default_settings(self.task.name)
        params = {
            name: _text(value)
            for name, value in self.settings().items()
            if value != defaults[name] or (name == "task" and value != DEFAULT_TASK)
        }
        return {"v": str(SCHEMA), **params} if params else {}

    def to_text(self) -> str:
        """The link form as one query string; the default experiment is the empty text."""
        return urlencode(self.to_params(), safe=",")

    @property
    def hash(self) -> str:
        """Sixteen hexadecimal digits of the canonical form's content."""
        return hash_of(self.to_json())


def hash_of(text: str) -> str:
    """The hash of an experiment in its canonical form."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def from_text(text: str) -> Experiment:
    """Read `Experiment.to_text` or `Experiment.to_json`.

    Raises:
        InvalidExperiment: if it cannot be read; names the field.
    """
    if not text.lstrip().startswith("{"):
        return from_params(dict(parse_qsl(text.lstrip("?"), keep_blank_values=True)))
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidExperiment([Problem("text", text[:40], f"JSON ({error})")]) from None
    return from_params(settings)


def from_params(params: Mapping[str, Any]) -> Experiment:
    """Read the settings of a link or of a JSON object.

    Raises:
        InvalidExperiment: if a field is unknown or its value is not allowed.
    """
    settings = dict(params)
    version = settings.pop("v", SCHEMA)
    if str(version) != str(SCHEMA):
        raise InvalidExperiment([Problem("v", version, f"{SCHEMA}, the version this copy reads")])
    return Experiment(**settings)


def settings(task: str) -> dict[str, Setting]:
    """Every numeric or optional setting of a task's experiments, by name."""
    return {
        name: setting_of(name, info, TASKS[task].overrides.get(name, info.default))
        for model in (Experiment, TASKS[task], Size, TrainingSettings)
        for name, info in model.model_fields.items()
        if info.title is not None
    }


def default_settings(task: str) -> dict[str, Any]:
    """The flat settings of a task's default experiment."""
    sharing = [sharing.value for sharing in Sharing]
    values = {name: setting.default for name, setting in settings(task).items()}
    return {"task": task, "sharing": sharing, **values}


def problems_of(error: ValidationError, task: str = DEFAULT_TASK) -> list[Problem]:
    """Pydantic's findings in our words: the field, the value, what is allowed."""
    return [_problem(finding, settings(task)) for finding in error.errors()]


def _problem(finding: ErrorDetails, known: Mapping[str, Setting]) -> Problem:
    if finding["type"] == "disagreement":
        return Problem(**finding["ctx"])
    name = str(finding["loc"][0]) if finding["loc"] else "experiment"
    message = str(finding["msg"]).removeprefix("Value error, ")
    return Problem(name, finding["input"], known[name].allowed if name in known else message)


def _grouped(given: dict[str, Any]) -> dict[str, Any]:
    """Sort flat settings into the task's dials, size and training, filling in defaults."""
    values = dict(given)
    name = values.pop("task", DEFAULT_TASK)
    if isinstance(name, Task):
        values = {**name.model_dump(), **values}
        name = name.name
    if not isinstance(name, str) or name not in TASKS:
        raise InvalidExperiment([Problem("task", name, allowed_names(TASKS, str(name)))])
    defaults = default_settings(name)
    problems = [_unknown(key, values[key], defaults) for key in values if key not in defaults]
    values = {**defaults, **values}
    groups: dict[str, BaseModel] = {}
    for model in (_Runs, TASKS[name], Size, TrainingSettings):
        try:
            groups[model.__name__] = model(**{key: values[key] for key in model.model_fields})
        except ValidationError as error:
            problems += problems_of(error, name)
    if problems:
        raise InvalidExperiment(problems)
    runs, task, size, training = groups.values()
    return {**dict(runs), "task": task, "size": size, "training": training}


def _unknown(name: str, value: Any, known: Iterable[str]) -> Problem:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"a known setting (did you mean {close[0]}?)" if close else "one of " + ", ".join(known)
    return Problem(name, value, hint)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, list) else str(value)


@lru_cache(64)
def _equalised(
    variants: tuple[Variant, ...], size: Size, task: Task, equal: Equal
) -> dict[Variant, Adjusted]:
    return equalise(variants, size, task, equal)


_COSTLY = (
    "n_heads",
    "n_layers",
    "d_mlp",
    "d_model",
    "d_head",
    "batch_size",
    "n_eval",
    "n_train",
    "sharing",
)
"""Settings besides seeds and the task's dials that decide how much is computed at once."""

_SHAPING = ("n_heads", "d_head", "d_model", "positions", "n_layers")
"""Settings that decide whether a variant is possible."""

_MOST_AT_ONCE = 2**30
"""Intermediate values of one step of all runs; cohorts take turns, so never all at once."""

_MOST_KEPT = 2**29
"""Numbers that all runs keep in memory from beginning to end."""

_MAX_EVALUATIONS = 4000
"""Evaluations of one experiment; all of them travel to the page with every snapshot."""
