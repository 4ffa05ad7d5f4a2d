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
SECRET = "correct horse"


def of(**given):
    """The settings with some environment variables, named without the prefix."""
    return ServerSettings.of({PREFIX + name.upper(): value for name, value in given.items()})


def test_without_variables_a_copy_is_a_laptop():
    """Nobody has to set anything up for themselves."""
    assert ServerSettings.of({}) == ServerSettings()
    assert not ServerSettings().hosted
    assert ServerSettings.of({"ATTNKIT_MODULES": "mine", "PATH": "/bin"}) == ServerSettings()


@pytest.mark.parametrize("yes", ["true", "1", "yes", "True"])
def test_one_variable_makes_a_hosted_copy(yes):
    """Smaller limits in everything that costs others, and lines of log."""
    hosted, own = of(hosted=yes), ServerSettings()
    assert hosted.hosted
    limits = [name for name in hosted.shown() if re.match("max_|.*megabytes|visitor_|job_", name)]
    assert all(getattr(hosted, name) <= getattr(own, name) for name in limits)
    assert hosted.max_megabytes <= hosted.training_megabytes
    assert (hosted.log_level, own.log_level) == ("info", "warning")


def test_what_is_given_comes_before_what_hosted_brings():
    """One limit can be raised without the others."""
    assert of(hosted="true", max_steps="20000").max_steps == 20_000
    assert of(hosted="true", max_steps="20000").max_runs == of(hosted="true").max_runs


def test_an_empty_variable_is_none():
    """As forms of hosts have it, which send every field."""
    assert of(max_steps="", hosted="") == ServerSettings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hosted", "perhaps"),
        ("max_steps", "many"),
        ("max_runs", "0"),
        ("max_waiting", "-1"),
        ("job_seconds", "nan"),
        ("lease_seconds", "0"),
        ("log_level", "loud"),
        ("owner_secret", "short"),
    ],
)
def test_a_value_that_is_not_allowed_names_its_variable(name, value):
    """So that whoever set it finds it."""
    with pytest.raises(InvalidSettings, match=f"^ATTNKIT_{name.upper()}: got "):
        of(**{name: value})


def test_a_secret_is_never_shown():
    """Not by an error, not in the text of the settings, not by what the owner's page shows."""
    with pytest.raises(InvalidSettings) as error:
        of(owner_secret=SECRET[:7])
    found = of(owner_secret=SECRET)
    shown = f"{error.value} {found} {found!r} {found.shown()}"
    assert SECRET[:7] not in shown
    assert found.owner_secret.get_secret_value() == SECRET


@pytest.mark.parametrize(
    ("store", "kind"),
    [("", "folder"), ("/data", "folder"), ("postgresql://eva:word@host/runs", "postgresql")],
)
def test_of_the_store_only_the_kind_is_shown(store, kind):
    """Its address may hold a password."""
    shown = of(store=store).shown()
    assert shown["store"] == kind
    assert set(shown) == set(ServerSettings.model_fields) - {"owner_secret"}


def test_default_experiments_are_trained_and_kept_on_a_hosted_copy():
    """What every visitor can train: its snapshot and the numbers of its models.

    One result is a small share of the store: nobody flushes what others trained with a few.
    """
    hosted = of(hosted="true")
    assert hosted.result_megabytes <= 0.02 * hosted.store_megabytes
    for task in TASKS:
        experiment = Experiment(task=task)
        numbers = sum(experiment.costs(variant).parameters for variant, _ in experiment.runs)
        snapshot = (EXAMPLES / f"{task}.safetensors").stat().st_size
        assert hosted.problems(experiment) == [], task
        assert 4 * numbers + snapshot < hosted.result_megabytes * 2**20, task


@pytest.mark.parametrize(
    ("limits", "experiment", "field", "says"),
    [
        ({"max_steps": "50"}, {"steps": 51}, "steps", "at most 50 on this copy"),
        (
            {"max_runs": "7"},
            {"sharing": ["QKV", "Q=K"], "n_seeds": 4},
            "n_seeds",
            "at most 3 with so many variants on this copy",
        ),
        ({"max_parameters": "1000"}, {}, "parameters", "at most 1,000 on this copy"),
        ({"max_megabytes": "1"}, {}, "memory", "at most 1 MB on this copy"),
    ],
)
def test_what_is_beyond_a_limit_is_named_with_the_limit(limits, experiment, field, says):
    """Field, value, what is allowed."""
    (problem,) = of(**limits).problems(Experiment(**experiment))
    assert field in str(problem)
    assert says in str(problem)


def test_a_limit_itself_is_allowed():
    """At most means at most."""
    experiment = Experiment(steps=50, sharing=["QKV", "Q=K"], n_seeds=4)
    assert of(max_steps="50", max_runs="8").problems(experiment) == []


def table_row(name):
    """Return the row of a setting."""
    own, hosted = (of(hosted=yes).model_dump()[name] for yes in ("", "true"))
    cells = [
        f"{value:,.0f}"
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        else ""
        if name == "owner_secret"
        else str(value).lower()
        for value in (own, hosted)
    ]
    description = ServerSettings.model_fields[name].description
    return f"| `{PREFIX}{name.upper()}` | {description} | {cells[0]} | {cells[1]} |"


def test_the_page_on_hosting_lists_every_setting():
    """Its table is this one; copy it from the failure if a setting has changed."""
    text = HOSTING.read_text(encoding="utf-8")
    found = re.findall(rf"^\| `{PREFIX}.*$", text, re.MULTILINE)
    assert found == [table_row(name) for name in ServerSettings.model_fields]
