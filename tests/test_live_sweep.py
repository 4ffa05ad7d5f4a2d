"""Small sweeps that visitors run: the form's texts, and training point by point."""

import time

import pytest
from visiting import PATIENCE

from attnkit.experiment.experiment import settings
from attnkit.service.jobs import Watcher
from attnkit.service.service import Refused, TrainingService
from attnkit.sweeps import Sweep, SweepResult, run_sweep
from attnkit.sweeps.shipped import FOLDER, SHIPPED, load_shipped
from attnkit.sweeps.values import InvalidSweep
from attnkit.tasks import TASKS
from attnkit.ui.live_sweep import PAUSED, STOPPED, LiveSweep, parts_of
from attnkit.ui.service import training_service
from attnkit.ui.sweep_form import (
    MOST_POINTS,
    SweepForm,
    axes_of,
    estimate_in_words,
    on_screen,
    problems_here,
    read_values,
    suggested,
)

TINY = {
    "task": "directed",
    "n_names": 11,
    "n_values": 7,
    "d_model": 16,
    "steps": 6,
    "evaluate_every": 3,
    "batch_size": 16,
    "n_eval": 16,
}

CLASHING = {"n_entries": [5, 16], "n_names": [20, 11]}
"""Axes of which one combination is impossible."""

COLUMNS = ["d_head", "n_entries", "sharing", "seed", "accuracy", "loss", "parameters", "error"]

VISITOR = Watcher("tab", "visitor")


def tiny_sweep(**given):
    """Return a sweep that trains in a moment; head widths from three up, so that it differs."""
    own = {
        "base": TINY,
        "axes": {"d_head": [3, 5], "n_entries": [5, 7]},
        "sharing": ["QKV", "K=V"],
        "n_seeds": 2,
    }
    return Sweep(**{**own, **given})


def train(live):
    """Follow a sweep until it stands still."""
    if not live.job_id and not live.problem:
        live.go_on()
    deadline = time.monotonic() + PATIENCE
    while live.moving:
        assert time.monotonic() < deadline, "still training"
        job = live.job
        if job is not None and not job.over:
            training_service().wait(job.id, job.version, deadline - time.monotonic(), VISITOR)
        live.follow()
    return live


def test_values_are_read_as_a_list_or_as_a_range_that_doubles():
    """A last value that doubling misses is added."""
    for text, values in {
        "2, 4, 8": [2, 4, 8],
        "2 4;8": [2, 4, 8],
        "2 … 16": [2, 4, 8, 16],
        "3..20": [3, 6, 12, 20],
        "4, 4": [4],
    }.items():
        assert read_values(text, settings("phonebook")["d_head"]) == values, text


def test_wrong_values_are_told_in_the_words_of_the_page():
    """By the label of the setting, with what is allowed; also those that the sweep finds."""
    width = settings("phonebook")["d_head"]
    for text in ("", "many", "8 … 2", "0 … 8", "2 … "):
        with pytest.raises(InvalidSweep) as caught:
            read_values(text, width)
        message = on_screen(caught.value, "phonebook")
        assert message.startswith(width.label), text
        assert "allowed" in message
        assert "d_head" not in message
    with pytest.raises(InvalidSweep) as caught:
        SweepForm(first_values="4, 100000").sweep()
    message = on_screen(caught.value, "directed")
    assert "axes." not in message
    assert width.label in message


def test_a_sweep_of_too_many_points_or_of_one_setting_twice_is_refused():
    """The message says where larger ones run; an axis has one place."""
    many = ", ".join(str(value) for value in range(2, 17))
    form = SweepForm(first_values=many)
    form.second_values = many
    with pytest.raises(InvalidSweep, match=f"at most {MOST_POINTS}"):
        form.sweep()
    form = SweepForm()
    form.set_axis("second", "d_head")
    with pytest.raises(InvalidSweep, match="chosen twice"):
        form.sweep()


def test_the_form_suggests_a_sweep_that_can_run_for_every_task():
    """A newcomer can press the button at once; any axis has values, also switches and choices."""
    for task in TASKS:
        form = SweepForm()
        form.set_task(task)
        assert 1 <= form.sweep().n_points <= MOST_POINTS, task
        for name, setting in axes_of(task).items():
            assert read_values(suggested(name, task), setting), (task, name)


def test_points_that_are_impossible_fail_with_the_reason_and_the_others_train():
    """A book has no more entries than there are names."""
    parts, failed = parts_of(tiny_sweep(axes=CLASHING))
    assert len(parts) == 3
    assert [set(rows["sharing"]) for rows in failed] == [{"QKV"}, {"K=V"}]
    assert all(rows["error"].str.contains("n_entries: got 16").all() for rows in failed)


@pytest.mark.server
def test_a_live_sweep_has_the_numbers_of_the_same_sweep_on_the_command_line(
    pages_service, tmp_path
):
    """One seed means one run, wherever it is trained."""
    sweep = tiny_sweep()
    live = LiveSweep.of(sweep, VISITOR)
    assert live.result().runs.empty
    assert train(live).finished
    result = live.result()
    assert result.n_missing == 0
    assert live.result() is result  # until another point is finished
    file = tmp_path / "sweep.parquet"
    file.write_bytes(result.to_bytes())
    loaded = SweepResult.load(file)
    assert loaded.sweep == live.sweep
    assert loaded.runs.equals(result.runs)
    found = result.runs[COLUMNS]
    expected = run_sweep(sweep, tmp_path / "sweep").runs[COLUMNS]
    assert found.equals(expected.astype(found.dtypes))


@pytest.mark.server
def test_a_paused_sweep_keeps_its_points_and_goes_on(pages_service):
    """Stopped, it stays as it is."""
    sweep = tiny_sweep(base={**TINY, "steps": 3000}, first_seed=200)
    live = LiveSweep.of(sweep, VISITOR)
    live.go_on()
    live.stop(PAUSED)
    assert not live.moving
    assert not live.ended
    live.go_on()
    assert live.moving
    live.stop(STOPPED)
    assert live.ended
    assert live.n_finished < len(live.experiments)


@pytest.mark.server
def test_a_refusal_is_kept_as_the_problem(pages_service, monkeypatch):
    """With the words of the service."""

    def refuse(*_, **__):
        raise Refused("12 experiments wait already")

    live = LiveSweep.of(tiny_sweep(first_seed=300), VISITOR)
    with monkeypatch.context() as patched:
        patched.setattr(TrainingService, "submit", refuse)
        live.go_on()
    assert live.problem == "Not accepted: 12 experiments wait already."
    assert train(live).n_finished == 0


@pytest.mark.server
def test_the_estimate_counts_models_points_and_what_is_impossible(pages_service):
    """In one sentence before it starts."""
    text = estimate_in_words(tiny_sweep(axes=CLASHING))
    assert text.startswith("12 models at 4 points; 4 more are impossible")


def test_limits_of_a_hosted_copy_are_told_before_the_start(monkeypatch):
    """Each once, however many points exceed it."""
    from attnkit.service.server import ServerSettings

    limits = ServerSettings(max_steps=5)
    monkeypatch.setattr("attnkit.ui.sweep_form.server_settings", lambda: limits)
    (problem,) = problems_here(tiny_sweep(first_seed=500))
    assert "6 is not allowed" in problem


def test_shipped_sweeps_are_complete_and_small():
    """Two megabytes at most, as everybody who installs the package downloads them."""
    for name in SHIPPED:
        assert load_shipped(name).n_missing == 0, name
        assert (FOLDER / f"{name}.parquet").stat().st_size <= 2_000_000, name
