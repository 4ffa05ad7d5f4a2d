"""A visitor without a browser: speaks Streamlit's websocket protocol to a running dashboard.

It does what a browser tab does, as far as tests need it: opens a link, keeps the element tree and
the state of every widget, presses buttons, answers the timers of live fragments, and reads the
data of live components. Messages are those of the protobuf modules in the streamlit wheel.

Run as a script it measures what one visitor costs a training dashboard:

    python tests/visitor.py [--seconds N]
"""
# ruff: noqa: T201  a script prints

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
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

ROOT = Path(__file__).parents[1]

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
        source = component.mixed.json if component.WhichOneof("data") == "mixed" else component.json
        data: dict[str, Any] = json.loads(source)
        return data

    def curves(self, key: str = "accuracy") -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """The mean curves of a live figure: panel name → (steps, values)."""
        figure = self.data(key)["figure"]
        names = [_plain(note["text"]) for note in figure["layout"]["annotations"]]
        curves: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for trace in figure["data"]:
            if "hovertemplate" in trace:
                panel = int(trace["xaxis"].removeprefix("x") or 1) - 1
                curves.setdefault(names[panel], (_unpacked(trace["x"]), _unpacked(trace["y"])))
        return curves

    def evaluated_to(self) -> int:
        """The last step that the accuracy figure shows."""
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
            self._states[widget.id] = (_WIDGETS[kind], _default_of(kind, widget))

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
    """The value that a widget has when it first appears."""
    if kind == "button_group":
        return [widget.options[i].content for i in widget.default]
    return widget.options[widget.default] if kind == "selectbox" else widget.default


def _plain(html: str) -> str:
    """A panel's name without its coloured square."""
    return re.sub("<[^>]*>", "", html).replace("■", "").strip()


def _unpacked(array: dict[str, str]) -> np.ndarray:
    """Plotly's form of a typed array as numpy."""
    return np.frombuffer(base64.b64decode(array["bdata"]), array["dtype"].replace("f4", "<f4"))


@contextmanager
def dashboard(seconds: float = 60.0) -> Iterator[int]:
    """A dashboard server of one's own on a free port, which is given; ended afterwards.

    Raises:
        RuntimeError: if it did not answer in time or ended by itself; holds what it said.
    """
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "dashboard.py"]
    for option, value in {"headless": "true", "port": port, "address": HOST}.items():
        command += [f"--server.{option}", str(value)]
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
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


@dataclass
class Cost:
    """What was measured; rates in model-steps per second, times in seconds."""

    headless: list[float] = field(default_factory=list)
    headless_wall: list[float] = field(default_factory=list)
    live: list[float] = field(default_factory=list)
    live_wall: list[float] = field(default_factory=list)
    ticks: list[float] = field(default_factory=list)
    kilobytes: list[float] = field(default_factory=list)
    first_frame: list[float] = field(default_factory=list)
    first_point: list[float] = field(default_factory=list)
    answers: list[float] = field(default_factory=list)


_MOST_STEPS = 20_000

_HEADLESS = """
import sys, time
from attnkit.process import prepare_for_training
prepare_for_training()
import attnkit as ak
ak.train(ak.Experiment(steps=20), "cpu")  # the live process is warm, too
experiment = ak.Experiment(steps=int(sys.argv[1]))
began = time.perf_counter()
result = ak.train(experiment, "cpu")
seconds = time.perf_counter() - began
print(result.model_steps_per_second, experiment.n_runs * result.snapshot.step / seconds)
"""


def train_headless(steps: int) -> tuple[float, float]:
    """Model-steps per second of the default experiment alone: as reported, and by the clock."""
    command = [sys.executable, "-c", _HEADLESS, str(steps)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    reported, by_clock = map(float, done.stdout.split())
    return reported, by_clock


def measure_watching(port: int, steps: int, cost: Cost) -> None:
    """One visitor presses Train and watches to the end."""
    with Visitor(port, f"v=1&steps={steps}") as visitor:
        visitor.press("train")
        progress: list[tuple[float, int]] = []
        began, bytes_before = time.monotonic(), visitor.bytes_received

        def ended() -> bool:
            step, running = _progress(visitor)
            if running and step and (not progress or progress[-1][1] < step):
                progress.append((time.monotonic(), step))
            return step == steps and not running

        if not visitor.watch(300, ended):
            raise TimedOut(f"the end of training did not come: {visitor.texts()[:8]}")
        seconds = time.monotonic() - began
        if len(progress) < 2:
            raise TimedOut("training was over too soon to be measured: raise --seconds")
        (first_at, first), (last_at, last) = progress[0], progress[-1]
        cost.live_wall.append(_n_models(visitor) * (last - first) / (last_at - first_at))
        cost.live.append(_reported_rate(visitor))
        n_changes = sum(key == "accuracy" and at > began for at, key in visitor.changes)
        cost.ticks.append(n_changes / seconds)
        cost.kilobytes.append((visitor.bytes_received - bytes_before) / seconds / 1000)


def measure_answers(port: int, cost: Cost, repeats: int = 5, clicks: int = 10) -> None:
    """How soon the page answers Train, and a changed widget while models train."""
    with Visitor(port, f"v=1&steps={_MOST_STEPS}") as visitor:
        for _ in range(repeats):
            began, n_before = time.monotonic(), len(visitor.changes)
            visitor.press("train")
            cost.first_frame.append(_next_change(visitor, "accuracy", n_before) - began)
            visitor.wait_for(
                "the first point", lambda: _progress(visitor)[1] and visitor.evaluated_to() > 0
            )
            cost.first_point.append(time.monotonic() - began)
            visitor.press("stop")
            visitor.wait_for("the stop", lambda: not visitor.find("train").disabled)
        visitor.press("train")
        for click in range(clicks):
            visitor.watch(0.2 + 0.07 * click)  # at every phase of the timer
            cost.answers.append(visitor.set("set_n_values", 32 + (click + 1) % 2))
        visitor.press("stop")


def _next_change(visitor: Visitor, key: str, n_before: int) -> float:
    """When a component was given new data, after so many changes."""

    def times() -> list[float]:
        return [at for at, name in visitor.changes[n_before:] if name == key]

    visitor.wait_for(f"new data of {key}", lambda: bool(times()))
    return times()[0]


def _status(visitor: Visitor) -> re.Match[str] | None:
    """The line that says how far training is, if there is one."""
    pattern = r"(?P<state>\w+: )?Step (?P<step>\d+) of \d+, (?P<models>\d+) models"
    matches = (re.search(pattern, text) for text in visitor.texts())
    return next((match for match in matches if match), None)


def _progress(visitor: Visitor) -> tuple[int, bool]:
    """The step on the page, and whether it goes on."""
    status = _status(visitor)
    return (int(status["step"]), status["state"] is None) if status else (0, False)


def _n_models(visitor: Visitor) -> int:
    status = _status(visitor)
    assert status is not None
    return int(status["models"])


def _reported_rate(visitor: Visitor) -> float:
    rates = (re.search(r"([\d,]+) model-steps per second", text) for text in visitor.texts())
    rate = next(rate for rate in rates if rate)
    return float(rate[1].replace(",", ""))


def main() -> None:
    """Measure, and print medians."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    cost = Cost()
    rate, _ = train_headless(200)
    steps = min(_MOST_STEPS, max(300, round(rate * given.seconds / 25 / 10) * 10))
    print(f"load average {os.getloadavg()[0]:.2f}; {steps} steps of the default experiment")
    with dashboard() as port:
        for number in range(given.rounds):
            reported, by_clock = train_headless(steps)
            cost.headless.append(reported)
            cost.headless_wall.append(by_clock)
            measure_watching(port, steps, cost)
            print(
                f"round {number + 1}: headless {cost.headless[-1]:.0f}, live {cost.live[-1]:.0f}; "
                f"by the clock {cost.headless_wall[-1]:.0f}, {cost.live_wall[-1]:.0f}; "
                f"load {os.getloadavg()[0]:.2f}",
                flush=True,
            )
        measure_answers(port, cost)
    report(cost)


def report(cost: Cost) -> None:
    """Print medians over the rounds."""
    median = statistics.median
    ratio = median(live / alone for live, alone in zip(cost.live, cost.headless, strict=True))
    wall = median(
        live / alone for live, alone in zip(cost.live_wall, cost.headless_wall, strict=True)
    )
    print(f"headless       {median(cost.headless):8.0f} model-steps/s")
    print(f"live, watched  {median(cost.live):8.0f} model-steps/s, {ratio:.2f} of headless")
    print(f"by the clock   {median(cost.live_wall):8.0f} model-steps/s, {wall:.2f} of headless")
    print(f"new data       {median(cost.ticks):8.2f} ticks/s, {median(cost.kilobytes):.0f} kB/s")
    print(f"Train to frame {median(cost.first_frame):8.3f} s, median of {len(cost.first_frame)}")
    print(f"Train to point {median(cost.first_point):8.3f} s, first evaluation after step 0")
    p95 = float(np.percentile(cost.answers, 95))
    print(f"click answered {median(cost.answers):8.3f} s, 95th percentile {p95:.3f} s")


if __name__ == "__main__":
    main()
