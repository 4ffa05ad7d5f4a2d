"""A person with a browser, over Streamlit's websocket protocol, and a dashboard server to visit.

A visitor's tab opens a page, keeps the element tree and the state of every widget, and answers the
timers of live fragments. Messages are those of the protobuf modules in the streamlit wheel.
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

WIDGETS = {
    "number_input": "double_value",
    "checkbox": "bool_value",
    "button_group": "string_array_value",
    "selectbox": "string_value",
    "text_input": "string_value",
    "multiselect": "string_array_value",
    "radio": "string_value",
    "slider": "double_array_value",
}
"""Element type → field of the message that carries its state, for every stateful widget."""

_MOST_MESSAGES = 200_000
"""Largest number of messages read in one wait: a server that never stops must not hang a test."""

_CACHED_MESSAGES = 500

_SETTLING = 2.0
"""Longest wait, in seconds, for runs to end before the next action. It is short because a timer of
a fragment that is gone is never answered."""


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
        self,
        port: int,
        link: str = "",
        page: str = "",
        patience: float = 120.0,
        **options: Any,
    ) -> None:
        self.link = link
        self.run = Run("")
        self.bytes_received = 0
        self.exceptions: list[str] = []
        self.changes: list[str] = []
        self._patience = patience
        self._page_name = page
        self._page_hash = ""
        self._nodes: dict[tuple[int, ...], Node] = {}
        self._states: dict[str, tuple[str, Any]] = {}
        self._timers: dict[str, tuple[float, float]] = {}  # fragment → interval, next time
        self._message_cache: dict[str, ForwardMsg] = {}
        self._awaited_fragments: set[str] = set()
        self._busy = False
        self._n_full_runs = 0
        self._port = port
        self._options = options
        self._exit_stack = ExitStack()
        self._socket: ClientConnection

    def __enter__(self) -> Self:
        secure = "s" if "ssl" in self._options else ""
        options: dict[str, Any] = {
            "origin": Origin(f"http{secure}://{HOST}:{self._port}"),
            "subprotocols": [Subprotocol("streamlit")],
            "proxy": None,
            "max_size": 2**25,
            "open_timeout": self._patience,
            "close_timeout": 1,
            "ping_interval": None,
        }
        address = f"ws{secure}://{HOST}:{self._port}/_stcore/stream"
        with ExitStack() as stack:
            self._socket = stack.enter_context(connect(address, **options | self._options))
            self._send_rerun()
            self._wait_for_answer(fragment="")
            self._exit_stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit_stack.close()

    # What the page shows

    def texts(self) -> list[str]:
        """Return all texts on the page from top to bottom: markdown, headings, alerts."""
        ordered = [self._nodes[path].element for path in sorted(self._nodes)]
        return [
            body
            for element in ordered
            if (body := getattr(getattr(element, element.WhichOneof("type")), "body", ""))
        ]

    def find(self, key: str) -> Any:
        """Return the element with a user key, as a protobuf message.

        Raises:
            KeyError: If the page has none.
        """
        for _, element in self._elements_with_id():
            if user_key(element.id) == key:
                return element
        raise KeyError(f"no element {key!r}; there are {self.user_keys()}; {self.exceptions}")

    def user_keys(self) -> list[str]:
        """Return the user keys of all elements."""
        return [user_key(element.id) for _, element in self._elements_with_id()]

    def has(self, key: str) -> bool:
        """Return whether an element with this user key is on the page."""
        return key in self.user_keys()

    def elements(self, kind: str) -> list[Any]:
        """Return all elements of a type, such as `link_button`, as protobuf messages."""
        shown = [node.element for node in self._nodes.values()]
        return [getattr(one, kind) for one in shown if one.WhichOneof("type") == kind]

    def data(self, key: str) -> dict[str, Any]:
        """Return the data that a component has received last."""
        component = self.find(key)
        data: dict[str, Any] = json.loads(component.bytes or component.json)
        return data

    def curves(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return the mean accuracy curves of the board: variant → (steps, values)."""
        board = self.data("board")
        steps = _unpacked(board["steps"])
        return {
            column["name"]: (steps, _unpacked(column["curve"]["mean"]))
            for column in board["columns"]
            if column["curve"] is not None
        }

    def single_runs(self) -> dict[str, list[float]]:
        """Return the newest accuracy of every run on the board: variant → one per seed."""
        board = self.data("board")
        n_steps = len(_unpacked(board["steps"]))
        return {
            column["name"]: _unpacked(column["curve"]["runs"]).reshape(-1, n_steps)[:, -1].tolist()
            for column in board["columns"]
            if column["curve"] is not None
        }

    def progress(self) -> int:
        """Return the step that the status line names; 0 if there is none."""
        steps = (re.search(r"[Ss]tep (\d+) of \d+, \d+ models", text) for text in self.texts())
        return next((int(step[1]) for step in steps if step), 0)

    def says(self, start: str) -> bool:
        """Return whether a text on the page starts with these words."""
        return any(text.startswith(start) for text in self.texts())

    def evaluated_to(self) -> int:
        """Return the last step that the board shows; −1 before there are curves."""
        return max((int(steps[-1]) for steps, _ in self.curves().values()), default=-1)

    @property
    def ticking(self) -> bool:
        """Whether a live fragment's timer runs."""
        return bool(self._timers)

    # What a person does

    def watch(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Receive messages and answer timers until the time is up or a condition holds.

        Returns:
            Whether the condition holds.
        """
        deadline = time.monotonic() + seconds
        for _ in range(_MOST_MESSAGES):
            if until():
                return True
            self._tick()
            wake = min([deadline, *(due for _, due in self._timers.values())])
            self._receive(max(0.0, wake - time.monotonic()))
            if time.monotonic() >= deadline:
                break
        return until()

    def wait_for(self, what: str, until: Callable[[], bool]) -> None:
        """Watch until a condition holds, whose name an error message tells.

        Raises:
            TimedOut: If the condition does not hold in time.
        """
        if not self.watch(self._patience, until):
            seen = [*self.exceptions, *self.texts()[:8]]
            raise TimedOut(f"{what} did not come in {self._patience:g} s; the page says {seen}")

    def press(self, key: str) -> float:
        """Press a button and wait for the page; return the seconds until the page was done.

        Raises:
            ValueError: If the button is disabled.
        """
        button = self.find(key)
        if button.disabled:
            raise ValueError(f"the button {key!r} is disabled")
        return self._act(button.id, "trigger_value", True)

    def set(self, key: str, value: Any) -> float:
        """Give a widget a value and wait for the page; return the seconds until it was done."""
        for kind, element in self._elements_with_id():
            if kind in WIDGETS and user_key(element.id) == key:
                return self._act(element.id, WIDGETS[kind], value)
        raise KeyError(f"no widget with key {key!r}")

    def wait_until_idle(self) -> None:
        """Wait until all runs have ended, so that the next answer belongs to the next action."""
        self.watch(_SETTLING, lambda: not self._busy and not self._awaited_fragments)

    def _act(self, widget: str, field: str, value: Any) -> float:
        """Send a widget's change and wait; a trigger is sent once, a state with every rerun."""
        began = time.monotonic()
        self.wait_until_idle()
        fragment = self._fragment_of(widget)
        if field == "trigger_value":
            self._send_rerun(fragment=fragment, trigger=widget)
        else:
            self._states[widget] = (field, value)
            self._send_rerun(fragment=fragment)
        self._wait_for_answer(fragment)
        return time.monotonic() - began

    def _fragment_of(self, widget: str) -> str:
        """Return the id of the fragment that has drawn a widget; empty outside of fragments."""
        nodes = self._nodes.values()
        return next((node.fragment for node in nodes if id_of(node.element) == widget), "")

    def _elements_with_id(self) -> Iterator[tuple[str, Any]]:
        """Yield type and message of every element that has an id."""
        for node in self._nodes.values():
            kind = node.element.WhichOneof("type")
            element = getattr(node.element, kind)
            if "id" in element.DESCRIPTOR.fields_by_name and element.id:
                yield kind, element

    def _wait_for_answer(self, fragment: str) -> None:
        if fragment:
            self._awaited_fragments.add(fragment)
            self.wait_for("the fragment", lambda: fragment not in self._awaited_fragments)
        else:
            n_before = self._n_full_runs
            self.wait_for("the page", lambda: self._n_full_runs > n_before)

    # What a browser sends and receives

    def _send_rerun(self, fragment: str = "", trigger: str = "", *, by_timer: bool = False) -> None:
        message = BackMsg()
        rerun = message.rerun_script
        rerun.query_string = self.link
        rerun.page_script_hash = self._page_hash
        rerun.page_name = "" if self._page_hash else self._page_name
        rerun.fragment_id = fragment
        rerun.is_auto_rerun = by_timer
        rerun.cached_message_hashes.extend(self._message_cache)
        rerun.widget_states.SetInParent()
        for widget, (field_name, value) in self._states.items():
            state = rerun.widget_states.widgets.add(id=widget)
            if field_name.endswith("_array_value"):
                getattr(state, field_name).SetInParent()
                getattr(state, field_name).data.extend(value)
            else:
                setattr(state, field_name, value)
        if trigger:
            rerun.widget_states.widgets.add(id=trigger, trigger_value=True)
        self._socket.send(message.SerializeToString())

    def _tick(self) -> None:
        """Request a rerun of every fragment whose timer is due."""
        now = time.monotonic()
        for fragment, (interval, due) in list(self._timers.items()):
            if now >= due:
                due += (1 + int((now - due) / interval)) * interval
                self._timers[fragment] = interval, due
                self._awaited_fragments.add(fragment)
                self._send_rerun(fragment=fragment, by_timer=True)

    def _receive(self, seconds: float) -> None:
        """Receive and apply one message, if one comes in time."""
        try:
            payload = self._socket.recv(timeout=seconds, decode=False)
        except TimeoutError:
            return
        self.bytes_received += len(payload)
        message = ForwardMsg.FromString(payload)
        if message.WhichOneof("type") == "ref_hash":
            cached, known = ForwardMsg(), self._message_cache.pop(message.ref_hash)
            self._message_cache[message.ref_hash] = known  # those not used for longest are dropped
            cached.CopyFrom(known)
            cached.metadata.CopyFrom(message.metadata)
            message = cached
        elif message.metadata.cacheable:
            self._message_cache[message.hash] = message
            while len(self._message_cache) > _CACHED_MESSAGES:
                del self._message_cache[next(iter(self._message_cache))]
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
        identity = message.metadata.run
        if self._busy and not self.run.fragments and identity.fragment_ids:
            # Streamlit loses the end of a page's run if a timer's message comes just then.
            self._n_full_runs += 1
        self.run = Run(identity.script_run_id, frozenset(identity.fragment_ids))
        self._busy = True
        self._page_hash = message.new_session.page_script_hash
        if not self.run.fragments:  # a run of the whole script starts its timers anew
            self._timers.clear()
            self._awaited_fragments.clear()

    def _draw(self, message: ForwardMsg) -> None:
        path, delta = tuple(message.metadata.delta_path), message.delta
        if delta.WhichOneof("type") != "new_element":  # children of a block come by themselves
            self._nodes.pop(path, None)
            return
        element = delta.new_element
        kind = element.WhichOneof("type")
        previous = self._nodes.get(path)
        for descendant in [other for other in self._nodes if other[: len(path)] == path]:
            del self._nodes[descendant]
        if kind is None:
            return
        self._nodes[path] = Node(element, self.run.id, delta.fragment_id)
        if kind == "exception":
            self.exceptions.append(f"{element.exception.type}: {element.exception.message}")
        elif kind == "bidi_component":
            if previous is None or previous.element != element:
                self.changes.append(user_key(element.bidi_component.id))
        elif kind in WIDGETS:
            widget = getattr(element, kind)
            value = _value_of(kind, widget)
            if value is not None and (widget.set_value or widget.id not in self._states):
                self._states[widget.id] = (WIDGETS[kind], value)

    def _end_run(self, message: ForwardMsg) -> None:
        """Remove elements that the run did not draw again; a run cut short has a successor."""
        if message.script_finished == ForwardMsg.FINISHED_EARLY_FOR_RERUN:
            return
        self._busy = False
        fragments = self.run.fragments
        for path, node in list(self._nodes.items()):
            in_this_run = not fragments or node.fragment in fragments
            if in_this_run and node.run != self.run.id:
                del self._nodes[path]
        present = {id_of(node.element) for node in self._nodes.values()}
        self._states = {
            widget: state for widget, state in self._states.items() if widget in present
        }
        self._awaited_fragments -= fragments
        self._n_full_runs += not fragments


def user_key(id: str) -> str:
    """Return the key that the page's code gave; ids have the form `$$ID-<hash>-<key>`."""
    key = id.split("-", maxsplit=2)[-1]
    return "" if key == "None" else key


def id_of(element: Any) -> str:
    """Return the id of an element; empty if its type has none."""
    id_: str = getattr(getattr(element, element.WhichOneof("type")), "id", "")
    return id_


def _value_of(kind: str, widget: Any) -> Any:
    """Return the value that the server has set, or a new widget's default; None for no choice."""
    if widget.set_value:
        if kind in ("button_group", "multiselect"):
            return list(widget.raw_values)
        if kind in ("selectbox", "radio"):
            return widget.raw_value
        return list(widget.value) if kind == "slider" else widget.value
    if kind in ("button_group", "multiselect"):
        chosen = [widget.options[i] for i in widget.default]
        return [getattr(option, "content", option) for option in chosen]
    if kind in ("selectbox", "radio"):
        return widget.options[widget.default] if widget.HasField("default") else None
    return list(widget.default) if kind == "slider" else widget.default


def _unpacked(text: str) -> np.ndarray:
    """Decode little-endian float32 values from base64."""
    return np.frombuffer(base64.b64decode(text), "<f4")


@contextmanager
def dashboard(
    seconds: float = 60.0,
    command: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """Start a dashboard server on a free port, yield the port, and end the server afterwards.

    Args:
        seconds: Longest wait for its first answer.
        command: The module to run and its arguments. Empty: Streamlit, with the dashboard.
        environment: Environment variables in addition to those of this process.

    Raises:
        RuntimeError: If the server did not answer in time or ended by itself; contains its output.
    """
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    command = [sys.executable, "-m", *(command or ("streamlit", "run", "dashboard.py"))]
    for option, value in {"headless": "true", "port": port, "address": HOST}.items():
        command += [f"--server.{option}", str(value)]
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(
            command,
            cwd=dashboard_script().parent,
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


def _answers(server: subprocess.Popen[bytes], port: int, deadline: float) -> bool:
    """Return whether the server reports that it is healthy before the deadline."""
    while time.monotonic() < deadline:
        try:
            with urlopen(f"http://{HOST}:{port}/_stcore/health", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            with suppress(subprocess.TimeoutExpired):
                server.wait(timeout=0.1)
                return False  # it has ended
    return False
