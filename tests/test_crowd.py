"""A class at once, open tabs, and many who come and go: what `tests/crowd.py` measures."""

import pytest
from crowd import SMALL, Visitor, crowd, finished, hosted, idle, soak

pytestmark = [pytest.mark.server, pytest.mark.long, pytest.mark.alone]


@pytest.fixture(scope="module")
def server():
    """A hosted copy whose training process is warm, where leases are short."""
    with hosted(3, lease_seconds=5) as started:
        with Visitor(started.port, f"v=1&first_seed=990000&{SMALL}", patience=120) as first:
            first.press("train")
            first.wait_for("the end", lambda: finished(first))
        yield started


def test_who_presses_train_together_ends_together(server):
    """Nobody's equal work takes more than half as long again, and nothing goes wrong on a page."""
    report = crowd(server, 30, "")
    assert report.exceptions == []
    assert report.finished == report.visitors
    assert report.ratio <= 1.5
    assert report.megabytes <= 2500
    assert report.answer_95 <= 1.0


def test_open_tabs_cost_next_to_nothing(server):
    """Twenty of them a twentieth of a core."""
    assert idle(server, 20, 30.0) <= 0.05


def test_nothing_is_left_of_those_who_come_and_go(server):
    """No process, thread or file; memory as after the first of them; no job that trains on."""
    report = soak(server, 300)
    assert report.exceptions == []
    assert report.finished + report.vanished == report.experiments
    assert report.after["processes"] == report.before["processes"]
    assert report.after["threads"] <= report.before["threads"] + 2
    assert report.after["files"] <= report.before["files"] + 8  # of two sessions that just ended
    assert report.growth <= 1.1
