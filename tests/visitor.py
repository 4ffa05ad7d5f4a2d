"""A person with a browser, over Streamlit's websocket protocol, and a dashboard server to visit.

A visitor's tab opens a page, keeps its elements, sends what the person has set with every message,
and answers the timers of live fragments. Messages are those of the streamlit wheel's protobuf.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple, Self
from urllib.request import urlopen

import numpy as np
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from attnkit.ui.server.launch import dashboard_script

HOST = "127.0.0.1"
"""The only address that a visitor connects to."""

_MOST_AGE = 2
"""Runs after which a browser forgets a large message, if none of them has drawn it."""

# Longest waits in seconds: for runs to end before the next action, short because a timer of a
# fragment that is gone is never answered, and for a new server's first answer.
_SETTLING, _ANSWERING = 2.0, 60.0


class TimedOut(AssertionError):
    """An expected change of the page did not come in time."""


class Node(NamedTuple):
    """One element of the page: its message, the run that drew it last, and its fragment's id."""

    element: Any
    run: str
    fragment: str


class Run(NamedTuple):
    """One run of the page's script, or of some of its fragments."""

    id: str
    fragments: frozenset[str] = frozenset()


class Visitor:
    """One tab and the actions of a person in it, connected inside a `with` statement.

    Args:
        port: Port on which the dashboard listens on this machine.
        link: Query string of the page, without the question mark.
        page: Path of the page; empty for the first one.
        patience: Longest duration of any wait, in seconds.
        options: Further options of the connection, such as `ssl` or `source_address`;
            see `connect` of websockets.

    Attributes:
        link: Current query string in the address bar.
        run: The current script run, or the last one.
        bytes_received: Total size of all messages received.
        exceptions: Messages of all exceptions that the page has shown.
        changes: User key for every change of a component's data.
    """

    def __init__(
        self, port: int, link: str = "", page: str = "", patience: float = 120.0, **options: Any
    ) -> None:
        self.link = link
        self.run = Run("")
        self.bytes_received = 0
        self.exceptions: list[str] = []
        self.changes: list[str] = []
        self._port, self._patience, self._options = port, patience, options
        self._page_name, self._page_hash = page, ""
        self._nodes: dict[tuple[int, ...], Node] = {}
        self._states: dict[str, dict[str, Any]] = {}  # of the widgets that the person has set
        self._timers: dict[str, tuple[float, float]] = {}  # fragment → interval, next time
        self._cache: dict[str, tuple[ForwardMsg, int]] = {}  # and the number of the last run
        self._n_runs, self._has_session = 0, False
        self._awaited: set[str] = set()  # fragments, and "" for the whole page
        self._busy = False
        self._exit_stack = ExitStack()
        self._socket: ClientConnection

    def __enter__(self) -> Self:
        secure = "s" if "ssl" in self._options else ""
        address = f"{HOST}:{self._port}"
        options: dict[str, Any] = {
            "origin": Origin(f"http{secure}://{address}"),
            "subprotocols": [Subprotocol("streamlit")],
            "proxy": None,
            "max_size": 2**25,
            "open_timeout": self._patience,
            "close_timeout": 1,
            "ping_interval": None,
            **self._options,
        }
        with ExitStack() as stack:
            opening = connect(f"ws{secure}://{address}/_stcore/stream", **options)
            self._socket = stack.enter_context(opening)
            self._ask()
            self._exit_stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit_stack.close()

    # What the page shows

    def _elements(self) -> list[Any]:
        """Return the messages of all elements from top to bottom."""
        shown = [self._nodes[path].element for path in sorted(self._nodes)]
        return [getattr(element, element.WhichOneof("type")) for element in shown]

    def texts(self) -> list[str]:
        """Return all texts on the page from top to bottom: markdown, headings, alerts."""
        return [body for element in self._elements() if (body := getattr(element, "body", ""))]

    def find(self, key: str) -> Any:
        """Return the element with a user key, as a protobuf message; the page must have it."""
        for element in self._elements():
            if user_key(getattr(element, "id", "")) == key:
                return element
        raise KeyError(f"no element {key!r}; there are {self.user_keys()}; {self.exceptions}")

    def user_keys(self) -> list[str]:
        """Return the user keys of all elements."""
        return [user_key(element.id) for element in self._elements() if getattr(element, "id", "")]

    def has(self, key: str) -> bool:
        """Return whether an element with this user key is on the page."""
        return key in self.user_keys()

    def elements(self, kind: str) -> list[Any]:
        """Return all elements of a type, such as `link_button`, as protobuf messages."""
        shown = [node.element for node in self._nodes.values()]
        return [getattr(one, kind) for one in shown if one.WhichOneof("type") == kind]

    def single_runs(self) -> dict[str, list[float]]:
        """Return the newest accuracy of every run on the board: variant → one per seed."""
        board = json.loads(self.find("board").bytes or self.find("board").json)
        n_steps = len(_unpacked(board["steps"]))
        return {
            column["name"]: _unpacked(column["curve"]["runs"]).reshape(-1, n_steps)[:, -1].tolist()
            for column in board["columns"]
            if column["curve"] is not None
        }

    def evaluated_to(self) -> int:
        """Return the last step that the board shows; −1 before there are curves."""
        board = json.loads(self.find("board").bytes or self.find("board").json)
        return int(_unpacked(board["steps"])[-1]) if self.single_runs() else -1

    def progress(self) -> int:
        """Return the step that the status line names; 0 if there is none."""
        steps = (re.search(r"[Ss]tep (\d+) of \d+, \d+ models", text) for text in self.texts())
        return next((int(step[1]) for step in steps if step), 0)

    def says(self, start: str) -> bool:
        """Return whether a text on the page starts with these words."""
        return any(text.startswith(start) for text in self.texts())

    @property
    def ticking(self) -> bool:
        """Whether a live fragment's timer runs."""
        return bool(self._timers)

    # What a person does

    def watch(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Receive and tick until the time is up or a condition holds; return whether it does."""
        deadline = time.monotonic() + seconds
        while not until():
            self._tick()
            wake = min([deadline, *(due for _, due in self._timers.values())])
            self._receive(max(0.0, wake - time.monotonic()))
            if time.monotonic() >= deadline:
                return until()
        return True

    def wait_for(self, what: str, until: Callable[[], bool]) -> None:
        """Watch until a condition holds, whose name an error message tells."""
        if not self.watch(self._patience, until):
            seen = [*self.exceptions, *self.texts()[:8]]
            raise TimedOut(f"{what} did not come in {self._patience:g} s; the page says {seen}")

    def press(self, key: str) -> None:
        """Press a button, which must not be disabled, and wait for the page."""
        button = self.find(key)
        if button.disabled:
            raise ValueError(f"the button {key!r} is disabled")
        self.wait_until_idle()
        self._ask(button.id, trigger_value=True)

    def set(self, key: str, value: float | str | list[str]) -> None:
        """Give a widget a value and wait for the page."""
        widget, is_text = self.find(key).id, isinstance(value, str)
        self.wait_until_idle()
        if isinstance(value, list):
            self._states[widget] = {"string_array_value": {"data": value}}
        else:
            self._states[widget] = {"string_value" if is_text else "double_value": value}
        self._ask(widget)

    def wait_until_idle(self) -> None:
        """Wait until all runs have ended, so that the next answer belongs to the next action."""
        self.watch(_SETTLING, lambda: not self._busy and not self._awaited)

    # What a browser sends and receives

    def _ask(self, widget: str = "", **trigger: bool) -> None:
        """Send what was done with a widget, and wait until what has drawn it is drawn anew."""
        nodes = self._nodes.values()
        drawn = (n.fragment for n in nodes if widget and widget == _id_of(n.element))
        fragment = next(drawn, "")
        self._send_rerun(fragment, [{"id": widget, **trigger}] if trigger else [])
        self._awaited.add(fragment)
        what = "the fragment" if fragment else "the page"
        self.wait_for(what, lambda: fragment not in self._awaited)

    def _send_rerun(
        self, fragment: str, triggers: Sequence[Mapping[str, Any]] = (), *, by_timer: bool = False
    ) -> None:
        states = [{"id": widget, **state} for widget, state in self._states.items()]
        rerun: Any = {
            "query_string": self.link,
            "page_script_hash": self._page_hash,
            "page_name": "" if self._page_hash else self._page_name,
            "fragment_id": fragment,
            "is_auto_rerun": by_timer,
            "cached_message_hashes": list(self._cache),
            "widget_states": {"widgets": [*states, *triggers]},
        }
        self._has_session = False  # until the answer comes, a browser forgets no message
        self._socket.send(BackMsg(rerun_script=rerun).SerializeToString())

    def _tick(self) -> None:
        """Request a rerun of every fragment whose timer is due."""
        now = time.monotonic()
        for fragment, (interval, due) in list(self._timers.items()):
            if now >= due:
                due += (1 + int((now - due) / interval)) * interval
                self._timers[fragment] = interval, due
                self._awaited.add(fragment)
                self._send_rerun(fragment, by_timer=True)

    def _receive(self, seconds: float) -> None:
        """Receive and apply one message, if one comes in time."""
        try:
            payload = self._socket.recv(timeout=seconds, decode=False)
        except TimeoutError:
            return
        self.bytes_received += len(payload)
        message = ForwardMsg.FromString(payload)
        if message.WhichOneof("type") == "ref_hash":
            assert message.ref_hash in self._cache, "a browser shows nothing any more"
            cached = ForwardMsg()
            cached.CopyFrom(self._cache[message.ref_hash][0])
            cached.metadata.CopyFrom(message.metadata)
            message = cached
        if message.metadata.cacheable or message.hash in self._cache:
            self._cache[message.hash] = message, self._n_runs
        self._apply(message)

    def _apply(self, message: ForwardMsg) -> None:
        kind = message.WhichOneof("type")
        if kind == "new_session":
            self._begin_run(message)
        elif kind == "delta":
            self._draw(message)
        elif kind == "script_finished":
            self._end_run(message)
        elif kind == "auto_rerun":
            fragment, interval = message.auto_rerun.fragment_id, message.auto_rerun.interval
            if fragment not in self._timers or self._timers[fragment][0] != interval:
                self._timers[fragment] = interval, time.monotonic() + interval
        elif kind == "stop_auto_rerun":
            for fragment in message.stop_auto_rerun.fragment_ids:
                self._timers.pop(fragment, None)
        elif kind == "navigation":
            self._page_hash = message.navigation.page_script_hash
        elif kind == "page_info_changed":
            self.link = message.page_info_changed.query_string

    def _begin_run(self, message: ForwardMsg) -> None:
        identity, self._has_session = message.metadata.run, True
        if self._busy and not self.run.fragments and identity.fragment_ids:
            # Streamlit loses the end of a page's run if a timer's message comes just then.
            self._awaited.discard("")
        self.run = Run(identity.script_run_id, frozenset(identity.fragment_ids))
        self._busy = True
        self._page_hash = message.new_session.page_script_hash
        if not self.run.fragments:  # a run of the whole script starts its timers anew
            self._timers.clear()
            self._awaited &= {""}

    def _draw(self, message: ForwardMsg) -> None:
        path, delta = tuple(message.metadata.delta_path), message.delta
        if delta.WhichOneof("type") != "new_element":  # children of a block come by themselves
            self._nodes.pop(path, None)
            return
        element = delta.new_element
        kind, previous = element.WhichOneof("type"), self._nodes.get(path)
        for descendant in [other for other in self._nodes if other[: len(path)] == path]:
            del self._nodes[descendant]
        if kind is None:
            return
        self._nodes[path] = Node(element, self.run.id, delta.fragment_id)
        if kind == "exception":
            self.exceptions.append(f"{element.exception.type}: {element.exception.message}")
        elif kind == "bidi_component" and (previous is None or previous.element != element):
            self.changes.append(user_key(element.bidi_component.id))
        elif getattr(getattr(element, kind), "set_value", False):  # the server knows its own value
            self._states.pop(_id_of(element), None)

    def _end_run(self, message: ForwardMsg) -> None:
        """Remove elements that the run did not draw again; a run cut short has a successor."""
        if message.script_finished == ForwardMsg.FINISHED_EARLY_FOR_RERUN:
            return
        self._busy, fragments = False, self.run.fragments
        self._n_runs += self._has_session
        for name, (cached, run) in list(self._cache.items() if self._has_session else ()):
            in_this_run = not fragments or cached.delta.fragment_id in fragments
            if in_this_run and run < self._n_runs - _MOST_AGE:
                del self._cache[name]
        for path, node in list(self._nodes.items()):
            in_this_run = not fragments or node.fragment in fragments
            if in_this_run and node.run != self.run.id:
                del self._nodes[path]
        present = {_id_of(node.element) for node in self._nodes.values()}
        self._states = {name: state for name, state in self._states.items() if name in present}
        self._awaited -= fragments or {""}


def user_key(id: str) -> str:
    """Return the key that the page's code gave; ids have the form `$$ID-<hash>-<key>`."""
    key = id.split("-", maxsplit=2)[-1]
    return "" if key == "None" else key


def _id_of(element: Any) -> str:
    """Return the id of an element; empty if its type has none."""
    return str(getattr(getattr(element, element.WhichOneof("type")), "id", ""))


def _unpacked(text: str) -> np.ndarray:
    """Decode little-endian float32 values from base64."""
    return np.frombuffer(base64.b64decode(text), "<f4")


@contextmanager
def dashboard(
    command: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Iterator[int]:
    """Start a dashboard server on a free port, yield the port, and end the server afterwards.

    The command is a module and its arguments; empty: Streamlit, with the dashboard. The environment
    is added to that of this process. A server that ends by itself is an error with its output.
    """
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    command = [sys.executable, "-m", *(command or ("streamlit", "run", "dashboard.py"))]
    for option, value in {"headless": "true", "port": port, "address": HOST}.items():
        command += [f"--server.{option}", str(value)]
    variables, folder = {**os.environ, **(environment or {})}, dashboard_script().parent
    with tempfile.TemporaryFile() as log:
        kept: Any = {"stdout": log, "stderr": subprocess.STDOUT}
        server = subprocess.Popen(command, cwd=folder, env=variables, **kept)
        answered = False
        try:
            answered = _answers(server, port)
            if answered:
                yield port
        finally:
            ran_to_the_end = answered and server.poll() is None
            server.terminate()
            try:
                server.wait(timeout=10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
            if not ran_to_the_end:
                log.seek(0)
                output = log.read()[-2000:].decode()
                raise RuntimeError(f"the dashboard ended with {server.returncode}: {output}")


def _answers(server: subprocess.Popen[bytes], port: int) -> bool:
    """Return whether the server soon reports that it is healthy."""
    deadline = time.monotonic() + _ANSWERING
    while time.monotonic() < deadline:
        try:
            with urlopen(f"http://{HOST}:{port}/_stcore/health", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            with suppress(subprocess.TimeoutExpired):
                server.wait(timeout=0.1)
                return False  # it has ended
    return False
