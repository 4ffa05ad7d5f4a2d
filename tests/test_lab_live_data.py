"""Live data of the Lab on a real server: what a tick sends, and when the ticks end."""

from urllib.parse import urlencode

import pytest
from visiting import SMALL, UNENDING

from attnkit.bench.visitor import Visitor

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]


def test_live_data_come_by_themselves_until_the_end(port):
    """Curves grow and accuracy rises by themselves after Train, and the ticking ends."""
    link = urlencode({**SMALL, "steps": "5000", "n_entries": "4"})
    with Visitor(port, link) as visitor:
        visitor.wait_for("all thumbnails", lambda: not visitor.ticking)
        visitor.press("train")
        ends = []

        def finished():
            ends.append(visitor.evaluated_to())
            return any(text.startswith("Finished") for text in visitor.texts())

        visitor.wait_for("the end", finished)
        visitor.settle()
        assert not visitor.ticking
        _, accuracy = visitor.curves()["QKV"]
        assert len(set(ends)) > 2
        assert visitor.evaluated_to() == 5000
        assert accuracy[-1] > accuracy[0] + 0.2
        assert visitor.exceptions == []


def test_a_tick_sends_live_data_only_and_a_picker_the_board(port):
    """Some kilobytes, without code or widgets."""
    with Visitor(port, urlencode({**SMALL, **UNENDING})) as visitor:
        visitor.press("train")
        visitor.wait_for("a curve", lambda: visitor.ticking and visitor.evaluated_to() > 0)
        bytes_before, n_before = visitor.bytes_received, len(visitor.changes)
        visitor.wait_for("ticks", lambda: len(visitor.changes) >= n_before + 6)
        assert visitor.bytes_received - bytes_before < 150_000
        visitor.press("stop")
        visitor.wait_for("the stop", lambda: not visitor.ticking)
        visitor.settle()
        n_before = len(visitor.changes)
        visitor.set("seed_0_1", "0")
        assert visitor.run.fragments
        assert {key for _, key in visitor.changes[n_before:]} <= {"board"}
