"""Settings of a copy of the server: how much visitors may train, and where results are stored.

The defaults are those of a copy for oneself, which allows all that the machine can do;
`ATTNKIT_HOSTED=true` selects the defaults of a small machine that many people share. Every setting
is an environment variable: `ATTNKIT_MAX_STEPS=2000`. Streamlit also turns top-level secrets into
environment variables. There is no torch here, and no Streamlit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from attnkit.experiment import Experiment
from attnkit.foundation.language import mark
from attnkit.foundation.settings import PREFIX, InvalidSettings, Problem, has_separator
from attnkit.tasks import OwnData, Table
from attnkit.tasks.own_data import MOST_BYTES, MOST_ROWS
from attnkit.training.memory import peak_megabytes

_HOSTED: dict[str, Any] = {
    "store_megabytes": 500,
    "result_megabytes": 10,
    "max_runs": 60,
    "max_steps": 5000,
    "max_parameters": 250_000,
    "max_megabytes": 1000,
    "max_rows": 2000,
    "max_data_bytes": 200_000,
    "training_megabytes": 1200,
    "max_active": 32,
    "max_waiting": 100,
    "visitor_active": 1,
    "visitor_waiting": 1,
    "job_seconds": 600,
    "log_level": "info",
}
"""Other defaults of a copy that many people share, for two cores and less than 3 GB of memory."""


class ServerSettings(BaseModel):
    """Settings of one copy of the server; the defaults are those of a laptop."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hosted: bool = Field(
        False, description="Whether many strangers use this copy, which then has stricter defaults."
    )
    store: str = Field(
        "",
        description="Folder or database (`postgresql://…`) in which results are stored. Empty: a "
        "folder of this user.",
    )
    store_megabytes: int = Field(
        5000,
        ge=1,
        description="Size limit of the store in MB. Beyond it the least recently used results are "
        "deleted.",
    )
    result_megabytes: int = Field(
        5000,
        ge=1,
        description="Largest size of a single result in MB. A larger one is not stored, so that "
        "it does not displace many others.",
    )
    max_runs: int = Field(400, ge=1, description="Largest number of runs of one experiment.")
    max_steps: int = Field(50_000, ge=1, description="Largest number of steps of one experiment.")
    max_parameters: int = Field(
        100_000_000, ge=1, description="Largest number of parameters of one run."
    )
    max_megabytes: int = Field(
        8000, ge=1, description="Largest estimated memory of one experiment in MB."
    )
    max_rows: int = Field(
        MOST_ROWS, ge=1, description="Largest number of rows of a table of a visitor's own."
    )
    max_data_bytes: int = Field(
        MOST_BYTES,
        ge=1,
        description="Largest size of a table or a text of a visitor's own in bytes.",
    )
    training_megabytes: int = Field(
        8000, ge=1, description="Largest estimated memory of all experiments in training in MB."
    )
    max_active: int = Field(
        32, ge=1, description="Largest number of experiments of one address that train in turns."
    )
    max_waiting: int = Field(100, ge=0, description="Largest number of experiments that wait.")
    visitor_active: int = Field(
        8, ge=1, description="Largest number of experiments of one visitor that train in turns."
    )
    visitor_waiting: int = Field(
        8, ge=0, description="Largest number of experiments of one visitor that wait."
    )
    job_seconds: float = Field(
        3600.0, gt=0, description="Longest training time of one experiment in seconds."
    )
    address_header: str = Field(
        "",
        pattern="^[A-Za-z0-9-]*$",
        description="Header in which a trusted proxy writes a visitor's address, such as "
        "`X-Forwarded-For`; the last address in it counts. Empty: the address of the socket.",
    )
    classes: bool = Field(
        True,
        description="Whether lessons may collect the guesses of a class, as numbers without names.",
    )
    frame_ancestors: str = Field(
        "'self'",
        pattern="^[A-Za-z0-9'*:/. -]+$",
        description="Sites that may show the pages in a frame, in the form of `frame-ancestors` in "
        "a Content-Security-Policy.",
    )
    engine: Literal["kernel", "torch", ""] = Field(
        "",
        description="Engine that trains on a CPU: the compiled `kernel`, or `torch`. Empty: the "
        "kernel if numba can be imported.",
    )
    log_level: Literal["info", "warning", "error"] = Field(
        "warning",
        description="Lowest level of events that are logged on standard error: `info`, `warning` "
        "or `error`.",
    )
    owner_secret: SecretStr = Field(
        SecretStr(""),
        min_length=8,
        description="Secret that opens the owner's page at `/owner`, with at least 8 characters. "
        "Empty: no page.",
    )

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """Read the settings from environment variables.

        Raises:
            InvalidSettings: If a variable has a value that is not allowed; names the variable.
        """
        values = {
            name: environment[PREFIX + name.upper()]
            for name in cls.model_fields
            if environment.get(PREFIX + name.upper(), "") != ""
        }
        for name, value in values.items():
            if cls.model_fields[name].annotation is int and has_separator(value):
                message = f"{PREFIX}{name.upper()}: got {value!r}, allowed a whole number"
                raise InvalidSettings(message)
        try:
            hosted = cls.model_validate({k: v for k, v in values.items() if k == "hosted"}).hosted
            return cls.model_validate({**(_HOSTED if hosted else {}), **values})
        except ValidationError as error:
            problem = error.errors()[0]
            name = str(problem["loc"][0])
            value = "something" if name == "owner_secret" else repr(problem["input"])
            message = f"{PREFIX}{name.upper()}: got {value}, {problem['msg']}"
            raise InvalidSettings(message) from None

    def shown(self) -> dict[str, Any]:
        """Return all settings except secrets; for the store only its kind, without passwords."""
        kind = self.store.partition("://")[0] if "://" in self.store else "folder"
        return {**self.model_dump(exclude={"owner_secret"}), "store": kind}

    def is_private(self, experiment: Experiment) -> bool:
        """Return whether an experiment is for its visitor alone: with own data, on a hosted copy.

        It is not stored, and neither listed nor found for anybody else.
        """
        return self.hosted and isinstance(experiment.task, OwnData)

    def owner_of(self, experiment: Experiment, visitor: str) -> str:
        """Return the visitor who alone may find an experiment; empty if everybody may."""
        return visitor or "nobody" if self.is_private(experiment) else ""

    def data_problems(self, experiment: Experiment) -> list[Problem]:
        """Return why data of one's own may not be used on this copy; empty if they may."""
        task, problems = experiment.task, []
        if isinstance(task, OwnData) and (size := len(task.data.encode())) > self.max_data_bytes:
            size_given = mark("{size:,} bytes", size=size)
            problems.append(Problem("data", size_given, _at_most(self.max_data_bytes)))
        if isinstance(task, Table) and (n := task.rows.n_given) > self.max_rows:
            rows_given = mark("{n_rows:,} rows", n_rows=n)
            problems.append(Problem("data", rows_given, _at_most(self.max_rows)))
        return problems

    def problems(self, experiment: Experiment) -> list[Problem]:
        """Return why an experiment may not be trained on this copy; empty if it may."""
        n_parameters = max((experiment.costs(v).parameters for v in experiment.sharing), default=0)
        megabytes = peak_megabytes(experiment)
        size_settings = ("d_model", "d_head", "d_mlp", "n_heads", "n_layers", "task")
        problems = self.data_problems(experiment)
        if experiment.training.steps > self.max_steps:
            problems.append(Problem("steps", experiment.training.steps, _at_most(self.max_steps)))
        if experiment.n_runs > self.max_runs:
            limit = self.max_runs // len(experiment.sharing)
            allowed = mark("at most {limit:,} with so many variants on this copy", limit=limit)
            problems.append(Problem("n_seeds", experiment.n_seeds, allowed, ("sharing",)))
        if n_parameters > self.max_parameters:
            allowed = _at_most(self.max_parameters)
            given = mark("{number:,}", number=n_parameters)
            problems.append(Problem("parameters", given, allowed, size_settings))
        if megabytes > self.max_megabytes:
            allowed = mark("at most {limit:,} MB on this copy", limit=self.max_megabytes)
            given = mark("{megabytes:,.0f} MB", megabytes=megabytes)
            problems.append(Problem("memory", given, allowed, size_settings))
        return problems


@cache
def server_settings() -> ServerSettings:
    """Return the settings of this copy, which are read once.

    Raises:
        InvalidSettings: If an environment variable has a value that is not allowed.
    """
    return ServerSettings.of(os.environ)


def _at_most(limit: int) -> str:
    return mark("at most {limit:,} on this copy", limit=limit)
