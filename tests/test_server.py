"""The settings of one copy: defaults, the environment, refusals, the table of docs/hosting.md."""

import re
from pathlib import Path

import pytest

from attnkit.examples import FOLDER as EXAMPLES
from attnkit.experiment import Experiment
from attnkit.foundation.settings import PREFIX, InvalidSettings
from attnkit.service.server import ServerSettings
from attnkit.tasks import TASKS

HOSTING = Path(__file__).parents[1] / "docs" / "hosting.md"


def of(**given):
    """Return the settings with some environment variables, named without the prefix."""
    return ServerSettings.of({PREFIX + name.upper(): value for name, value in given.items()})


def test_a_copy_is_a_laptop_until_one_variable_makes_it_a_hosted_one():
    """Then limits of everything that costs others are smaller; an empty variable is none."""
    own = ServerSettings()
    for environment in (
        {},
        {"ATTNKIT_MODULES": "mine", "PATH": "/bin"},
        {"ATTNKIT_MAX_STEPS": "", "ATTNKIT_HOSTED": ""},
    ):
        assert ServerSettings.of(environment) == own
    assert not own.hosted
    hosted = of(hosted="true")
    limits = [name for name in hosted.shown() if re.match("max_|.*megabytes|visitor_|job_", name)]
    assert all(getattr(hosted, name) <= getattr(own, name) for name in limits)
    assert hosted.max_megabytes <= hosted.training_megabytes
    assert (hosted.log_level, own.log_level) == ("info", "warning")
    given = of(hosted="1", max_steps="20000")  # what is given comes before what `hosted` brings
    assert given == hosted.model_copy(update={"max_steps": 20_000})


def test_a_value_that_is_not_allowed_names_its_variable_and_secrets_are_never_shown():
    """Neither in an error, nor in the text of the settings, nor on the owner's page."""
    wrong = {"hosted": "perhaps", "max_steps": "many", "max_runs": "0", "max_waiting": "-1"}
    wrong["max_parameters"] = "250.000"
    wrong |= {"job_seconds": "nan", "log_level": "loud"}
    for name, value in {**wrong, "owner_secret": "horsesh"}.items():
        with pytest.raises(InvalidSettings, match=f"^ATTNKIT_{name.upper()}: got ") as error:
            of(**{name: value})
    found = of(owner_secret="horseshoe", store="postgresql://eva:word@host/runs")
    assert found.owner_secret.get_secret_value() == "horseshoe"
    assert found.store.endswith("word@host/runs")
    assert set(found.shown()) == set(ServerSettings.model_fields) - {"owner_secret"}
    assert [of(store=s).shown()["store"] for s in ("", "/data")] == ["folder", "folder"]
    assert found.shown()["store"] == "postgresql"
    assert not re.search("horsesh|word@", f"{error.value} {found.shown()}")
    assert "horsesh" not in f"{found} {found!r}"


def test_default_experiments_are_trained_and_kept_on_a_hosted_copy():
    """One result is a small share of the store: nobody flushes what others trained with a few."""
    hosted = of(hosted="true")
    assert hosted.result_megabytes <= 0.02 * hosted.store_megabytes
    for task in TASKS:
        experiment = Experiment(task=task)
        numbers = sum(experiment.costs(variant).parameters for variant, _ in experiment.runs)
        snapshot = (EXAMPLES / f"{task}.safetensors").stat().st_size
        assert hosted.problems(experiment) == [], task
        assert 4 * numbers + snapshot < hosted.result_megabytes * 2**20, task


def test_what_is_beyond_a_limit_is_named_with_the_limit():
    """Field, value, what is allowed; the limit itself is."""
    two = {"sharing": ["QKV", "Q=K"]}
    for limits, experiment, field, says in (
        ({"max_steps": "50"}, {"steps": 51}, "steps", "50"),
        ({"max_runs": "7"}, {**two, "n_seeds": 4}, "n_seeds", "3 with so many variants"),
        ({"max_parameters": "1000"}, {}, "parameters", "1,000"),
        ({"max_megabytes": "1"}, {}, "memory", "1 MB"),
    ):
        (problem,) = of(**limits).problems(Experiment(**experiment))
        assert problem.field == field
        assert f"at most {says} on this copy" in str(problem)
    experiment = Experiment(steps=50, n_seeds=4, **two)
    n = max(experiment.costs(variant).parameters for variant in experiment.sharing)
    limits = {"max_steps": "50", "max_runs": "8", "max_parameters": str(n)}
    assert of(**limits).problems(experiment) == []


def test_the_page_on_hosting_lists_every_setting():
    """Its table is this one; copy it from the failure if a setting has changed."""
    rows = []
    for name, field in ServerSettings.model_fields.items():
        values = [of(hosted=yes).model_dump()[name] for yes in ("", "true")]
        own, hosted = (
            f"{value:,.0f}" if type(value) in (int, float) else str(value).lower()
            for value in ([""] * 2 if name == "owner_secret" else values)
        )
        rows.append(f"| `{PREFIX}{name.upper()}` | {field.description} | {own} | {hosted} |")
    text = HOSTING.read_text(encoding="utf-8")
    assert re.findall(rf"^\| `{PREFIX}.*$", text, re.MULTILINE) == rows
