"""Small sweeps that visitors run: the form, its texts, and training point by point."""

import re
from types import SimpleNamespace

import pytest
from inline_sweeps import run_inline

from attnkit.experiment.experiment import settings
from attnkit.service.jobs import Watcher
from attnkit.service.server import ServerSettings
from attnkit.service.service import Refused
from attnkit.sweeps import Sweep, SweepResult
from attnkit.sweeps.shipped import FOLDER, SHIPPED, load_shipped
from attnkit.sweeps.values import InvalidSweep
from attnkit.tasks import TASKS
from attnkit.training import train
from attnkit.ui.sweeps.live_sweep import PAUSED, STOPPED, LiveSweep
from attnkit.ui.sweeps.sweep_form import (
    MOST_POINTS,
    SweepForm,
    axes_of,
    estimate_in_words,
    on_screen,
    problems_here,
    read_values,
    suggested,
)

SIZES = {"n_values": 7, "d_model": 16, "batch_size": 16, "n_eval": 16}

SWEEP = Sweep(
    base={"task": "directed", "steps": 6, "evaluate_every": 3, "d_head": 3, **SIZES},
    axes={"n_entries": [5, 16], "n_names": [20, 11]},
    sharing=["QKV", "K=V"],
    n_seeds=2,
)
"""A book of 11 names has no 16 entries: one of four points is impossible."""


@pytest.fixture
def service(monkeypatch):
    """Stands in for the training service: trains at once, or refuses."""
    begun = []

    def submit(experiment, **_):
        if found.refusal:
            raise Refused(found.refusal)
        begun.append(experiment)
        return str(len(begun) - 1)

    def job(job_id, watcher):
        snapshot = train(begun[int(job_id)], "cpu").snapshot
        return SimpleNamespace(state="finished", snapshot=snapshot)

    found = SimpleNamespace(submit=submit, job=job, refusal="", estimate=lambda experiment: 40.0)
    found.wait = found.stop_watching = lambda *_: None
    for module in ("watched_job", "sweeps.sweep_form"):
        monkeypatch.setattr(f"attnkit.ui.{module}.training_service", lambda: found)
    return found


@pytest.fixture
def live(service):
    """A sweep that has begun."""
    live = LiveSweep.of(SWEEP, Watcher("tab", "visitor"))
    live.go_on()
    return live


def test_the_form_reads_values_and_tells_wrong_ones_in_the_words_of_the_page():
    """As a list or a range that doubles; by the label of the setting, with what is allowed."""
    for text, values in {
        "2, 4, 8": [2, 4, 8],
        "2 4;8": [2, 4, 8],
        "2 … 16": [2, 4, 8, 16],
        "3..20": [3, 6, 12, 20],  # doubling misses the last one
        "4, 4": [4],
    }.items():
        assert read_values(text, settings("phonebook")["d_head"]) == values, text
    width, many = settings("directed")["d_head"].label, ", ".join(map(str, range(4, 17)))
    for given, found in (
        *(({"first_values": text}, width) for text in ("", "many", "8 … 2", "0 … 8", "4, 100000")),
        ({"second": "d_head"}, "twice"),
        ({"first_values": many, "second_values": many}, str(MOST_POINTS)),
    ):
        form = SweepForm(task="directed")
        vars(form).update({"first_values": many, "second": "n_values"} | given)
        with pytest.raises(InvalidSweep) as caught:
            form.sweep()
        message = on_screen(caught.value, "directed")
        assert found in message, given
        assert not re.search("d_head|axes", message), given


def test_what_the_form_suggests_can_run_and_its_cost_is_told(service, monkeypatch):
    """For every task and axis; each limit once; shipped sweeps are complete and small."""
    for task in TASKS:
        form = SweepForm()
        form.set_task(task)
        assert 1 <= form.sweep().n_points <= MOST_POINTS, task
        for name, setting in axes_of(task).items():
            assert read_values(suggested(name, form.base), setting), (task, name)
    assert re.match("12 models .* 4 points; 4 .*about 2 min", estimate_in_words(SWEEP))
    limits = ServerSettings(max_steps=5)
    monkeypatch.setattr("attnkit.ui.sweeps.sweep_form.server_settings", lambda: limits)
    (problem,) = problems_here(SWEEP)
    assert re.search(r"\b6\b.*\b5\b", problem)
    for name in SHIPPED:
        assert load_shipped(name).n_missing == 0, name
        assert (FOLDER / f"{name}.parquet").stat().st_size <= 2_000_000, name


def test_a_live_sweep_has_the_numbers_of_the_same_sweep_on_the_command_line(live, tmp_path):
    """One seed means one run, wherever it is trained; what is impossible has the same reason."""
    assert len(live.result().runs) == 4
    while live.moving:
        assert live.result().n_missing == SWEEP.n_runs - 4 * live.n_finished
        live.follow()
    result = live.result()
    assert live.finished
    assert live.result() is result  # until another point is finished
    file = tmp_path / "sweep.parquet"
    file.write_bytes(result.to_bytes())
    loaded = SweepResult.load(file)
    assert loaded.sweep == SWEEP
    assert loaded.runs.to_csv() == result.runs.to_csv()
    expected = run_inline(SWEEP, tmp_path / "sweep")[1].runs
    assert expected["error"].notna().sum() == 4
    names = list(expected.columns.drop(["seconds", "tried"]))
    assert result.runs[names].to_csv() == expected[names].to_csv()


def test_a_series_that_is_paused_or_refused_keeps_its_points(live, service, monkeypatch):
    """It goes on with the next one; what ends elsewhere is told in words."""
    live.follow()
    live.stop(PAUSED)
    assert (live.moving, live.ended, live.n_finished) == (False, False, 1)
    service.refusal = "12 experiments wait already"
    live.go_on()
    assert "12 experiments wait already" in live.problem
    service.refusal = ""
    for job, problem in (
        (None, "."),
        (SimpleNamespace(state="failed", error="not enough memory"), "not enough memory."),
        (SimpleNamespace(state="stopped", error=""), "Stopped."),
    ):
        live.go_on()
        with monkeypatch.context() as patch:
            patch.setattr(service, "job", lambda *_, job=job: job)
            live.follow()
        assert live.problem.endswith(problem)
        assert not live.moving
    live.go_on()
    live.follow()
    assert (live.n_finished, len(live.experiments)) == (2, 3)
    live.stop(STOPPED)
    assert live.ended
