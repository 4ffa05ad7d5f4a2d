"""Messages of visitors of a hosted copy, without a server: what passes, what waits, what closes."""

import asyncio
from unittest.mock import Mock

import pytest
from attackers import message, rerun, with_states
from guarding import HOST, OTHER, VISITOR, Guarded, guarded, nothing_starts, run

from attnkit.ui.server import connection, metering

__all__ = ["guarded", "nothing_starts"]


def test_only_messages_of_our_pages_reach_the_application(guarded):
    """Others are dropped without a word; what no browser sends ends the connection with a code."""
    ours = [rerun(), rerun(fragment_id="0123456789abcdef" * 2), message(stop_script=True)]
    ours.append(message(app_heartbeat=True))
    dropped = [
        message(clear_cache=True),
        message(set_run_on_save=True),
        message(load_git_info=True),
        message(debug_disconnect_websocket=True),
        message(debug_shutdown_runtime=True),
        message(file_urls_request={"request_id": "a", "file_names": ["b"]}),
        message(backend_operation_request={"request_id": "a"}),
        message(),
        b"",
        rerun(fragment_id='a\n{"event": "owner signed in"}'),
        rerun(fragment_id="a" * 1000),
    ]
    assert guarded.visit(*dropped, *ours) == ["accept", "send"]
    assert guarded.got == ours
    for sent, code in (
        (b"\xff\xff\xff", connection.NOT_UNDERSTOOD),
        ("text", connection.NO_TEXT),
        (with_states(metering.MOST_BYTES), connection.TOO_LARGE),
        (with_widgets(connection.MOST_STATES + 1), connection.TOO_LARGE),
    ):
        guarded.got.clear()
        assert guarded.visit(rerun(), sent, rerun()) == ["accept", code]
        assert guarded.got == [rerun()]


def with_widgets(number):
    """Return a message that draws a page, with the values of so many widgets."""
    return rerun(widget_states={"widgets": [{"id": f"{n}"} for n in range(number)]})


def test_nothing_more_is_read_from_a_visitor_who_is_gone(guarded):
    """The guard drops messages that came before the end; answering them logs a traceback."""
    events = [{"type": "websocket.connect"}, {"type": "websocket.receive", "bytes": rerun()}]

    async def receive():
        return events.pop(0)

    async def send(event):
        raise ConnectionResetError

    scope = {"type": "websocket", "client": (VISITOR, 1), "headers": [HOST]}
    run(guarded.guard(scope, receive, send))
    assert guarded.got == []


def test_an_address_rests_for_what_its_messages_cost(monkeypatch):
    """All its connections together take a third of the time; others are not slowed."""
    guarded, slept = Guarded(cost=0.1), []

    async def sleep(seconds):
        slept.append(seconds)
        guarded.now += seconds

    monkeypatch.setattr(connection.asyncio, "sleep", sleep)
    for _ in range(2):
        assert guarded.visit(*[rerun()] * 10) == ["accept", "send"]
    assert len(guarded.got) == 20
    assert sum(slept) == pytest.approx(19 * 0.1 * metering.REST)
    slept.clear()
    assert guarded.visit(rerun(), client=OTHER) == ["accept", "send"]
    assert slept == []


@pytest.mark.parametrize("others_train", [True, False])
def test_messages_wait_while_an_address_slows_the_training_of_others(monkeypatch, others_train):
    """Pages and training share the processor; without training, nobody has to wait."""
    monkeypatch.setattr(connection, "rest", lambda name: float(name == VISITOR))
    service = Mock(others_train=lambda name: others_train)
    monkeypatch.setattr(connection, "training_service", lambda: service)
    assert connection.must_wait(VISITOR) is others_train
    assert not connection.must_wait(OTHER)


class Slow(Guarded):
    """A guard that lets the address wait until a test says otherwise; the visitor stays."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.crowded, self.events, self.n_read = True, asyncio.Queue(), 0
        monkeypatch.setattr(connection, "CROWDED_SECONDS", 0.001)
        monkeypatch.setattr(connection, "is_crowded", lambda name: name == VISITOR and self.crowded)

    async def receive(self):
        """Wait for what the visitor sends."""
        event = await self.events.get()
        self.n_read += 1
        return event

    async def send(self, event):
        """Forget what the visitor is told."""

    async def visit(self, *payloads, client=VISITOR):
        """Connect, send messages, and let the guard read as many as it wants."""
        self.events.put_nowait({"type": "websocket.connect"})
        for payload in payloads:
            self.events.put_nowait({"type": "websocket.receive", "bytes": payload})
        scope = {"type": "websocket", "client": (client, 1), "headers": [HOST]}
        return asyncio.ensure_future(self.guard(scope, self.receive, self.send))

    async def has(self, *payloads):
        """Wait until exactly these messages have reached the application."""
        while len(self.got) < len(payloads):
            await asyncio.sleep(0.001)
        assert self.got == [*payloads]

    async def leave(self, task):
        """End the connection."""
        self.events.put_nowait({"type": "websocket.disconnect", "code": 1005})
        await task


def test_messages_wait_while_threads_of_their_address_wait(monkeypatch):
    """Each would start a thread that waits, too; those of others and signs of life pass."""

    async def visit_all():
        slow = Slow(monkeypatch)
        ours, alive = rerun(), message(app_heartbeat=True)
        task = await slow.visit(ours, client=OTHER)
        await slow.has(ours)
        await slow.leave(task)
        task = await slow.visit(alive, ours)
        await slow.has(ours, alive)
        await asyncio.sleep(0.05)
        await slow.has(ours, alive)
        slow.crowded = False
        await slow.has(ours, alive, ours)
        slow.crowded = True
        slow.events.put_nowait({"type": "websocket.receive", "bytes": ours})
        await slow.leave(task)  # nothing is drawn for who has left
        await slow.has(ours, alive, ours)

    run(visit_all())


def test_what_comes_meanwhile_is_read_and_a_fragment_that_redraws_itself_waits_once(monkeypatch):
    """Answers to pings come behind the messages; without them, uvicorn closes the connection."""

    async def visit():
        slow = Slow(monkeypatch)
        alone = {"is_auto_rerun": True}
        live = [rerun(fragment_id="live", query_string=f"{n}", **alone) for n in range(90)]
        other = rerun(fragment_id="other", **alone)
        presses = [rerun(fragment_id="live", query_string="press"), rerun()]
        task = await slow.visit(*live[:50], other, *presses, *live[50:])
        while slow.n_read < 94:  # the last one is read although all wait
            await asyncio.sleep(0.001)
        slow.crowded = False
        await slow.has(other, *presses, live[-1])
        slow.crowded, slow.n_read = True, 0
        many = [rerun(query_string="a" * 4000)] * 20  # the memory of what waits is bounded
        alive = message(app_heartbeat=True)
        for payload in [*many, *[alive] * 50]:
            slow.events.put_nowait({"type": "websocket.receive", "bytes": payload})
        await asyncio.sleep(0.05)
        assert slow.n_read < 12
        slow.crowded = False
        await slow.has(other, *presses, live[-1], *many, *[alive] * 50)
        await slow.leave(task)

    run(visit())


def test_what_does_not_pass_never_waits(monkeypatch):
    """Dropped messages take no memory, and one that ends the connection does so at once."""

    async def visit():
        slow = Slow(monkeypatch)
        task = await slow.visit(*[rerun()] * 2, *[b""] * 200, *[message(clear_cache=True)] * 200)
        while slow.n_read < 403:
            await asyncio.sleep(0.001)
        slow.events.put_nowait({"type": "websocket.receive", "text": "a" * 200_000})
        await task
        assert slow.got == []

    run(visit())
