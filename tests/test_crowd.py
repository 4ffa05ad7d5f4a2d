"""A class at once: a short form of what `tests/crowd.py` measures; the long one with `--long`."""

import pytest
from crowd import SMALL, Visitor, crowd, finished, hosted, idle, soak

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server():
    """A hosted copy whose training process is warm, where leases are short."""
    with hosted(3, lease_seconds=5) as started:
        with Visitor(started.port, f"v=1&first_seed=990000&{SMALL}", patience=120) as first:
            first.press("train")
            first.wait_for("the end", lambda: finished(first))
        yield started


def test_who_presses_train_together_ends_together(server, long):
    """Nobody's equal work takes more than half as long again, and nothing goes wrong on a page."""
    report = crowd(server, 30 if long else 6, "" if long else "steps=300&n_seeds=2")
    assert report.exceptions == []
    assert report.finished == report.visitors
    assert report.ratio <= 1.5
    assert report.megabytes <= 2500
    if long:
        assert report.answer_95 <= 1.0


def test_open_tabs_cost_next_to_nothing(server, long):
    """Twenty of them a twentieth of a core."""
    n_tabs = 20 if long else 5
    assert idle(server, n_tabs, 30.0 if long else 6.0) <= 0.05


def test_nothing_is_left_of_those_who_come_and_go(server, long):
    """No process, thread or file; memory as after the first of them; no job that trains on."""
    report = soak(server, 300 if long else 40)
    assert report.exceptions == []
    assert report.finished + report.vanished == report.experiments
    assert report.after["processes"] == report.before["processes"]
    assert report.after["threads"] <= report.before["threads"] + 2
    assert report.after["files"] <= report.before["files"] + 8  # of two sessions that just ended
    assert report.growth <= 1.1
