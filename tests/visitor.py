"""A test client in place of a person with a browser, and a dashboard server for it to visit."""

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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
from streamlit_tab import HOST, WIDGETS, Tab, id_of, user_key

from attnkit.ui.server.launch import dashboard_script

__all__ = ["HOST", "Visitor", "dashboard"]

_SETTLING = 2.0
"""Longest wait, in seconds, for runs to end before the next action. It is short because a timer of
a fragment that is gone is never answered."""


class Visitor(Tab):
    """A tab with the actions of a person and the content of this dashboard's pages.

    See `Tab` for arguments and attributes.
    """

    def find(self, key: str) -> Any:
        """Return the element with a user key, as a protobuf message.

        Raises:
            KeyError: If the page has none.
        """
        for _, element in self._elements_with_id():
            if user_key(element.id) == key:
                return element
        keys = {user_key(element.id) or "" for _, element in self._elements_with_id()} - {""}
        raise KeyError(
            f"no element {key!r}; there are {', '.join(sorted(keys))}; {self.exceptions}"
        )

    def has(self, key: str) -> bool:
        """Return whether an element with this user key is on the page."""
        return any(user_key(element.id) == key for _, element in self._elements_with_id())

    def data(self, key: str) -> dict[str, Any]:
        """Return the data that a component has received last."""
        component = self.find(key)
        source = component.bytes or component.json
        data: dict[str, Any] = json.loads(source)
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

    def evaluated_to(self) -> int:
        """Return the last step that the board shows; −1 before there are curves."""
        return max((int(steps[-1]) for steps, _ in self.curves().values()), default=-1)

    @property
    def ticking(self) -> bool:
        """Whether a live fragment's timer runs."""
        return bool(self._timers)

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


def _unpacked(text: str) -> np.ndarray:
    """Decode little-endian float32 values from base64."""
    return np.frombuffer(base64.b64decode(text), "<f4")


@contextmanager
def dashboard(
    seconds: float = 60.0,
    command: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Iterator[int]:
    """Start a dashboard server on a free port, yield the port, and end the server afterwards.

    Args:
        seconds: Longest wait for its first answer.
        command: The module to run and its arguments. Empty: Streamlit, with the dashboard.
        environment: Environment variables in addition to those of this process.
        folder: The folder with `dashboard.py`. None: that of this copy.

    Raises:
        RuntimeError: If the server did not answer in time or ended by itself; contains its output.
    """
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    folder = folder or dashboard_script().parent
    command = [sys.executable, "-m", *(command or ("streamlit", "run", "dashboard.py"))]
    for option, value in {"headless": "true", "port": port, "address": HOST}.items():
        command += [f"--server.{option}", str(value)]
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(
            command,
            cwd=folder,
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
