"""The browser's side of Streamlit's websocket protocol: one tab with its elements and widgets.

A tab opens a page, keeps the element tree and the state of every widget, and answers the timers of
live fragments. Messages are those of the protobuf modules in the streamlit wheel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

HOST = "127.0.0.1"
"""The only address that a tab connects to."""

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

_LARGEST_MESSAGE = 2**25

_MOST_MESSAGES = 200_000
"""Largest number of messages read in one wait: a server that never stops must not hang a test."""

_CACHED_MESSAGES = 500


class TimedOut(AssertionError):
    """An expected change of the page did not come in time."""


@dataclass
class Node:
    """One element of the page.

    Attributes:
        element: The protobuf message.
        run: Id of the script run that drew it last.
        fragment: Id of the fragment that it belongs to; empty outside of fragments.
    """

    element: Any
    run: str
    fragment: str


@dataclass
class _Timer:
    """A live fragment's timer, which a browser implements with `setInterval`."""

    interval: float
    due: float


@dataclass
class Run:
    """One run of the page's script, or of some of its fragments."""

    id: str
    fragments: frozenset[str] = frozenset()


class Tab:
    """One tab, connected inside a `with` statement.

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
        changes: Time on the clock of `time.monotonic` and user key, for every change of a
            component's data.
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
        self.changes: list[tuple[float, str]] = []
        self._patience = patience
        self._page_name = page
        self._page_hash = ""
        self._nodes: dict[tuple[int, ...], Node] = {}
        self._states: dict[str, tuple[str, Any]] = {}
        self._timers: dict[str, _Timer] = {}
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
        connection = connect(
            f"ws{secure}://{HOST}:{self._port}/_stcore/stream",
            origin=Origin(f"http{secure}://{HOST}:{self._port}"),
            subprotocols=[Subprotocol("streamlit")],
            proxy=None,
            max_size=_LARGEST_MESSAGE,
            open_timeout=self._patience,
            close_timeout=1,
            ping_interval=None,
            **self._options,
        )
        with ExitStack() as stack:
            self._socket = stack.enter_context(connection)
            self._send_rerun()
            self._wait_for_answer(fragment="")
            self._exit_stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit_stack.close()

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
            wake = min([deadline, *(timer.due for timer in self._timers.values())])
            self._receive(max(0.0, wake - time.monotonic()))
            if time.monotonic() >= deadline:
                break
        return until()

    def wait_for(self, what: str, until: Callable[[], bool]) -> None:
        """Watch until a condition holds.

        Args:
            what: Name of the condition, for the error message.
            until: The condition.

        Raises:
            TimedOut: If the condition does not hold in time.
        """
        if not self.watch(self._patience, until):
            seen = [*self.exceptions, *self.texts()[:8]]
            raise TimedOut(f"{what} did not come in {self._patience:g} s; the page says {seen}")

    def texts(self) -> list[str]:
        """Return all texts on the page from top to bottom: markdown, headings, alerts."""
        ordered = [self._nodes[path].element for path in sorted(self._nodes)]
        return [
            body
            for element in ordered
            if (body := getattr(getattr(element, element.WhichOneof("type")), "body", ""))
        ]

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
        for fragment, timer in self._timers.items():
            if now >= timer.due:
                missed = int((now - timer.due) / timer.interval)
                timer.due += (1 + missed) * timer.interval
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
            timer = self._timers.get(fragment)
            if timer is None or timer.interval != interval:
                self._timers[fragment] = _Timer(interval, time.monotonic() + interval)
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
                key = user_key(element.bidi_component.id) or ""
                self.changes.append((time.monotonic(), key))
        elif kind in WIDGETS:
            self._update_state(kind, getattr(element, kind))

    def _update_state(self, kind: str, widget: Any) -> None:
        """Give a new widget its default, and any widget the value that the server has set."""
        if widget.set_value:
            self._states[widget.id] = (WIDGETS[kind], _value_from_server(kind, widget))
        elif widget.id not in self._states:
            default = _default_of(kind, widget)
            if default is not None:  # a list from which nothing is chosen yet has no state
                self._states[widget.id] = (WIDGETS[kind], default)

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


def user_key(id: str) -> str | None:
    """Return the key that the page's code gave; ids have the form `$$ID-<hash>-<key>`."""
    key = id.split("-", maxsplit=2)[-1]
    return None if key == "None" else key


def id_of(element: Any) -> str:
    """Return the id of an element; empty if its type has none."""
    id_: str = getattr(getattr(element, element.WhichOneof("type")), "id", "")
    return id_


def _value_from_server(kind: str, widget: Any) -> Any:
    if kind in ("button_group", "multiselect"):
        return list(widget.raw_values)
    if kind == "slider":
        return list(widget.value)
    return widget.raw_value if kind in ("selectbox", "radio") else widget.value


def _default_of(kind: str, widget: Any) -> Any:
    """Return the value of a widget that has just appeared; None if nothing is chosen."""
    if kind == "button_group":
        return [widget.options[i].content for i in widget.default]
    if kind == "multiselect":
        return [widget.options[i] for i in widget.default]
    if kind == "slider":
        return list(widget.default)
    if kind in ("selectbox", "radio"):
        return widget.options[widget.default] if widget.HasField("default") else None
    return widget.default
