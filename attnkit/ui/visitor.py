"""A visitor without a browser: speaks Streamlit's websocket protocol to a running dashboard.

It does what a browser tab does, as far as tests need it: opens a link, keeps the element tree and
the state of every widget, presses buttons, answers the timers of live fragments, and reads the
data of live components. Messages are those of the protobuf modules in the streamlit wheel.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

import numpy as np
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

HOST = "127.0.0.1"
"""A visitor goes nowhere else."""

ROOT = Path(__file__).parents[2]

_LARGEST_MESSAGE = 2**25
_MOST_MESSAGES = 200_000
"""Messages read in one wait, at most: a server that never falls silent must not hang a test."""

_CACHED_MESSAGES = 500

_SETTLING = 2.0
"""Seconds to let runs end before acting; a tick for a fragment that is gone is never answered."""

_WIDGETS = {
    "number_input": "double_value",
    "checkbox": "bool_value",
    "button_group": "string_array_value",
    "selectbox": "string_value",
    "text_input": "string_value",
}
"""Elements whose state travels with every rerun, and the field it travels in."""


class TimedOut(AssertionError):
    """What was waited for did not come."""


@dataclass
class _Node:
    """An element on the page, and the run that last drew it."""

    element: Any
    run: str
    fragment: str


@dataclass
class _Timer:
    """A live fragment's timer: the browser's setInterval."""

    interval: float
    due: float


@dataclass
class Run:
    """One run of the page's script, or of some of its fragments."""

    id: str
    fragments: frozenset[str] = frozenset()


class Visitor:
    """One tab, open inside a `with` statement.

    Args:
        port: where the dashboard listens on this machine.
        link: query string of the page, without the question mark.
        page: path of the page, empty for the first one.
        patience: seconds that any wait lasts at most.

    Attributes:
        link: the address bar's query string as it is now.
        run: the script run that is going on or was the last.
        bytes_received: payload of all messages so far.
        messages_received: their number.
        exceptions: messages of exceptions shown on the page, ever.
        changes: (seconds on `time.monotonic`'s clock, user key) of every component given new data.
    """

    def __init__(self, port: int, link: str = "", page: str = "", patience: float = 30.0) -> None:
        self.link = link
        self.run = Run("")
        self.bytes_received = 0
        self.messages_received = 0
        self.exceptions: list[str] = []
        self.changes: list[tuple[float, str]] = []
        self._patience = patience
        self._page_name = page
        self._page_hash = ""
        self._nodes: dict[tuple[int, ...], _Node] = {}
        self._states: dict[str, tuple[str, Any]] = {}
        self._timers: dict[str, _Timer] = {}
        self._cache: dict[str, ForwardMsg] = {}
        self._asked: set[str] = set()  # fragments whose timer was answered, until they are drawn
        self._busy = False
        self._n_full_runs = 0
        self._port = port
        self._opened = ExitStack()
        self._socket: ClientConnection

    def __enter__(self) -> Self:
        connection = connect(
            f"ws://{HOST}:{self._port}/_stcore/stream",
            origin=Origin(f"http://{HOST}:{self._port}"),
            subprotocols=[Subprotocol("streamlit")],
            proxy=None,
            max_size=_LARGEST_MESSAGE,
            open_timeout=self._patience,
            close_timeout=1,
        )
        with ExitStack() as stack:
            self._socket = stack.enter_context(connection)
            self._send_rerun()
            self._wait_for_answer(fragment="")
            self._opened = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    # What is on the page

    def find(self, key: str) -> Any:
        """The element with this user key, as a protobuf message.

        Raises:
            KeyError: if the page has none.
        """
        for _, element in self._keyed():
            if _user_key(element.id) == key:
                return element
        known = sorted(filter(None, (_user_key(element.id) for _, element in self._keyed())))
        raise KeyError(f"no element {key!r}; there are {', '.join(known)}; {self.exceptions}")

    def has(self, key: str) -> bool:
        """Whether an element with this user key is on the page."""
        return any(_user_key(element.id) == key for _, element in self._keyed())

    def texts(self) -> list[str]:
        """Everything written on the page, from top to bottom: markdown, headings, alerts."""
        ordered = [self._nodes[path].element for path in sorted(self._nodes)]
        return [
            body
            for element in ordered
            if (body := getattr(getattr(element, element.WhichOneof("type")), "body", ""))
        ]

    def data(self, key: str) -> dict[str, Any]:
        """What a component was last given to draw."""
        component = self.find(key)
        source = component.bytes or component.json
        data: dict[str, Any] = json.loads(source)
        return data

    def curves(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """The mean accuracy curves of the board: variant → (steps, values)."""
        board = self.data("board")
        steps = _unpacked(board["steps"])
        return {
            column["name"]: (steps, _unpacked(column["curve"]["mean"]))
            for column in board["columns"]
            if column["curve"] is not None
        }

    def single_runs(self) -> dict[str, list[float]]:
        """The last shown accuracy of every seed: variant → one per seed."""
        board = self.data("board")
        n_steps = len(_unpacked(board["steps"]))
        return {
            column["name"]: _unpacked(column["curve"]["runs"]).reshape(-1, n_steps)[:, -1].tolist()
            for column in board["columns"]
            if column["curve"] is not None
        }

    def progress(self) -> int:
        """The step that the status line names; 0 if there is none."""
        steps = (re.search(r"[Ss]tep (\d+) of \d+, \d+ models", text) for text in self.texts())
        return next((int(step[1]) for step in steps if step), 0)

    def evaluated_to(self) -> int:
        """The last step that the board shows."""
        return max(int(steps[-1]) for steps, _ in self.curves().values())

    @property
    def ticking(self) -> bool:
        """Whether a live fragment's timer runs."""
        return bool(self._timers)

    # What a person does

    def press(self, key: str) -> float:
        """Press a button and wait for the page; return the seconds until the page was done.

        Raises:
            ValueError: if it cannot be pressed.
        """
        button = self.find(key)
        if button.disabled:
            raise ValueError(f"the button {key!r} is disabled")
        return self._act(button.id, "trigger_value", True)

    def set(self, key: str, value: Any) -> float:
        """Give a widget a value and wait for the page; return the seconds until it was done."""
        for kind, element in self._keyed():
            if kind in _WIDGETS and _user_key(element.id) == key:
                return self._act(element.id, _WIDGETS[kind], value)
        raise KeyError(f"no widget with key {key!r}")

    def watch(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Answer timers and take what comes, for so long or until something holds.

        Returns:
            Whether it held.
        """
        deadline = time.monotonic() + seconds
        for _ in range(_MOST_MESSAGES):
            if until():
                return True
            self._tick()
            wake = min([deadline, *(timer.due for timer in self._timers.values())])
            self._take(max(0.0, wake - time.monotonic()))
            if time.monotonic() >= deadline:
                break
        return until()

    def wait_for(self, what: str, until: Callable[[], bool]) -> None:
        """Watch until something holds.

        Raises:
            TimedOut: if it never does; names what was waited for and what the page says.
        """
        if not self.watch(self._patience, until):
            seen = [*self.exceptions, *self.texts()[:8]]
            raise TimedOut(f"{what} did not come in {self._patience:g} s; the page says {seen}")

    def settle(self) -> None:
        """Let what is going on end, so that the next answer is the answer to what comes next."""
        self.watch(_SETTLING, lambda: not self._busy and not self._asked)

    # The protocol

    def _keyed(self) -> Iterator[tuple[str, Any]]:
        for node in self._nodes.values():
            kind = node.element.WhichOneof("type")
            element = getattr(node.element, kind)
            if "id" in element.DESCRIPTOR.fields_by_name and element.id:
                yield kind, element

    def _act(self, widget: str, field: str, value: Any) -> float:
        """What one widget's change makes of the page; a trigger is sent once, a state stays."""
        began = time.monotonic()
        self.settle()
        fragment = next(
            (node.fragment for node in self._nodes.values() if _id_of(node.element) == widget), ""
        )
        if field == "trigger_value":
            self._send_rerun(fragment=fragment, trigger=widget)
        else:
            self._states[widget] = (field, value)
            self._send_rerun(fragment=fragment)
        self._wait_for_answer(fragment)
        return time.monotonic() - began

    def _wait_for_answer(self, fragment: str) -> None:
        if fragment:
            self._asked.add(fragment)
            self.wait_for("the fragment", lambda: fragment not in self._asked)
        else:
            n_before = self._n_full_runs
            self.wait_for("the page", lambda: self._n_full_runs > n_before)

    def _send_rerun(self, fragment: str = "", trigger: str = "", *, by_timer: bool = False) -> None:
        message = BackMsg()
        rerun = message.rerun_script
        rerun.query_string = self.link
        rerun.page_script_hash = self._page_hash
        rerun.page_name = "" if self._page_hash else self._page_name
        rerun.fragment_id = fragment
        rerun.is_auto_rerun = by_timer
        rerun.cached_message_hashes.extend(self._cache)
        rerun.widget_states.SetInParent()
        for widget, (field_name, value) in self._states.items():
            state = rerun.widget_states.widgets.add(id=widget)
            if field_name == "string_array_value":
                state.string_array_value.SetInParent()
                state.string_array_value.data.extend(value)
            else:
                setattr(state, field_name, value)
        if trigger:
            rerun.widget_states.widgets.add(id=trigger, trigger_value=True)
        self._socket.send(message.SerializeToString())

    def _tick(self) -> None:
        """Ask for every fragment whose timer is due, like a browser's setInterval."""
        now = time.monotonic()
        for fragment, timer in self._timers.items():
            if now >= timer.due:
                missed = int((now - timer.due) / timer.interval)
                timer.due += (1 + missed) * timer.interval
                self._asked.add(fragment)
                self._send_rerun(fragment=fragment, by_timer=True)

    def _take(self, seconds: float) -> None:
        """Take one message, or none if none comes in time."""
        try:
            payload = self._socket.recv(timeout=seconds, decode=False)
        except TimeoutError:
            return
        self.bytes_received += len(payload)
        self.messages_received += 1
        message = ForwardMsg.FromString(payload)
        if message.WhichOneof("type") == "ref_hash":
            known = ForwardMsg()
            known.CopyFrom(self._cache[message.ref_hash])
            known.metadata.CopyFrom(message.metadata)
            message = known
        elif message.metadata.cacheable:
            self._cache[message.hash] = message
            while len(self._cache) > _CACHED_MESSAGES:
                del self._cache[next(iter(self._cache))]
        self._obey(message)

    def _obey(self, message: ForwardMsg) -> None:
        kind = message.WhichOneof("type")
        if kind == "new_session":
            self._begin_run(message)
        elif kind == "delta":
            self._draw(message)
        elif kind == "script_finished":
            self._end_run(message)
        elif kind == "auto_rerun":
            given = message.auto_rerun
            known = self._timers.get(given.fragment_id)
            if known is None or known.interval != given.interval:
                due = time.monotonic() + given.interval
                self._timers[given.fragment_id] = _Timer(given.interval, due)
        elif kind == "stop_auto_rerun":
            for fragment in message.stop_auto_rerun.fragment_ids:
                self._timers.pop(fragment, None)
        elif kind == "navigation":
            self._page_hash = message.navigation.page_script_hash
        elif kind == "page_info_changed":
            self.link = message.page_info_changed.query_string

    def _begin_run(self, message: ForwardMsg) -> None:
        identity = message.metadata.run
        self.run = Run(identity.script_run_id, frozenset(identity.fragment_ids))
        self._busy = True
        self._page_hash = message.new_session.page_script_hash
        if not self.run.fragments:  # a whole run starts its timers anew
            self._timers.clear()
            self._asked.clear()

    def _draw(self, message: ForwardMsg) -> None:
        path, delta = tuple(message.metadata.delta_path), message.delta
        if delta.WhichOneof("type") != "new_element":  # a block: its children tell where they are
            self._nodes.pop(path, None)
            return
        element = delta.new_element
        kind = element.WhichOneof("type")
        before = self._nodes.get(path)
        for below in [other for other in self._nodes if other[: len(path)] == path]:
            del self._nodes[below]
        if kind is None:
            return
        self._nodes[path] = _Node(element, self.run.id, delta.fragment_id)
        if kind == "exception":
            self.exceptions.append(f"{element.exception.type}: {element.exception.message}")
        elif kind == "bidi_component":
            if before is None or before.element != element:
                key = _user_key(element.bidi_component.id) or ""
                self.changes.append((time.monotonic(), key))
        elif kind in _WIDGETS:
            self._adopt(kind, getattr(element, kind))

    def _adopt(self, kind: str, widget: Any) -> None:
        """A new widget starts at its default; the server may set another value at any time."""
        if widget.set_value:
            self._states[widget.id] = (_WIDGETS[kind], _value_of(kind, widget))
        elif widget.id not in self._states:
            default = _default_of(kind, widget)
            if default is not None:  # a list from which nothing is chosen yet has no state
                self._states[widget.id] = (_WIDGETS[kind], default)

    def _end_run(self, message: ForwardMsg) -> None:
        """Forget what the run did not draw again; a run that was cut short has a successor."""
        if message.script_finished == ForwardMsg.FINISHED_EARLY_FOR_RERUN:
            return
        self._busy = False
        fragments = self.run.fragments
        for path, node in list(self._nodes.items()):
            concerned = not fragments or node.fragment in fragments
            if concerned and node.run != self.run.id:
                del self._nodes[path]
        present = {_id_of(node.element) for node in self._nodes.values()}
        self._states = {name: state for name, state in self._states.items() if name in present}
        self._asked -= fragments
        self._n_full_runs += not fragments


def _user_key(id: str) -> str | None:
    """The key given by the page's code; ids read `$$ID-<hash>-<key>`."""
    key = id.split("-", maxsplit=2)[-1]
    return None if key == "None" else key


def _id_of(element: Any) -> str:
    name: str = getattr(getattr(element, element.WhichOneof("type")), "id", "")
    return name


def _value_of(kind: str, widget: Any) -> Any:
    """The value that the server sets."""
    if kind == "button_group":
        return list(widget.raw_values)
    return widget.raw_value if kind == "selectbox" else widget.value


def _default_of(kind: str, widget: Any) -> Any:
    """The value that a widget has when it first appears; None if nothing is chosen."""
    if kind == "button_group":
        return [widget.options[i].content for i in widget.default]
    if kind == "selectbox":
        return widget.options[widget.default] if widget.HasField("default") else None
    return widget.default


def _unpacked(text: str) -> np.ndarray:
    """Little-endian float32 in base64 as numpy."""
    return np.frombuffer(base64.b64decode(text), "<f4")


@contextmanager
def dashboard(
    seconds: float = 60.0,
    command: Sequence[str] = ("streamlit", "run", "dashboard.py"),
    environment: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """A dashboard server of one's own on a free port, which is given; ended afterwards.

    Args:
        seconds: how long it may take to answer.
        command: the module to run and what it is given. environment: variables besides ours.

    Raises:
        RuntimeError: if it did not answer in time or ended by itself; holds what it said.
    """
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    command = [sys.executable, "-m", *command]
    for option, value in {"headless": "true", "port": port, "address": HOST}.items():
        command += [f"--server.{option}", str(value)]
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
        )
        answered = False
        try:
            answered = _answers(server, port, time.monotonic() + seconds)
            if answered:
                yield port
        finally:
            well = answered and server.poll() is None
            server.terminate()
            try:
                server.wait(timeout=10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
            if not well:
                log.seek(0)
                said = log.read()[-2000:].decode()
                raise RuntimeError(f"the dashboard ended with {server.returncode}: {said}")


def _answers(server: subprocess.Popen[bytes], port: int, deadline: float) -> bool:
    """Whether the server says it is well before the deadline."""
    while time.monotonic() < deadline:
        try:
            with urlopen(f"http://{HOST}:{port}/_stcore/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            with suppress(subprocess.TimeoutExpired):
                server.wait(timeout=0.1)
                return False  # it has ended
    return False
