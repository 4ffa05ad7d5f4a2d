"""An attacker of a hosted copy, over loopback only: its connections, messages and tabs."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from urllib.parse import urlencode

from forging import TYPED
from random_links import EQUAL, HEAVY
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit_tab import HOST, WIDGETS, TimedOut
from visitor import Visitor
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage
from websockets.sync.client import connect

from attnkit.experiment import Experiment
from attnkit.experiment.links import link_text
from attnkit.foundation.settings import InvalidExperiment
from attnkit.service.server import ServerSettings
from attnkit.training.memory import peak_megabytes
from attnkit.variants import CATALOGUE, OPTIONS

FOREIGN = "127.0.0.2"
"""Another address of loopback, from which attackers come. Nothing here leaves loopback."""

REFUSED = (OSError, InvalidHandshake, InvalidMessage, ConnectionClosed, EOFError, TimedOut)
"""Ends of an attacker's connection; `OSError` includes timeouts."""

PATIENCE = 30.0
"""Seconds after which an attacker's tab gives up a page."""

PAGES = (
    *("lab", "questions", "capacity", "attention", "asymmetry", "surgery", "similarity"),
    *("atlas", "guide", "variants", "runs"),
)

# messages


def message(**fields):
    """Encode a message of the given kind, such as `clear_cache=True`."""
    return BackMsg(**fields).SerializeToString()


def rerun(**fields):
    """Encode a message that draws a page."""
    return message(rerun_script={"widget_states": {}, **fields})


def with_states(n_bytes):
    """Encode a message that draws a page, with the state of a widget that nobody has."""
    state = {"id": "large", "string_value": "x" * n_bytes}
    return rerun(widget_states={"widgets": [state]})


def frame(opcode, payload=b"", *, last=True, length=None):
    """Encode a frame of a client; it may announce another length than it has."""
    size = len(payload) if length is None else length
    long = bytes([0x80 | 127]) + size.to_bytes(8, "big")
    sizes = bytes([0x80 | size]) if size < 126 else long
    return bytes([0x80 * last | opcode]) + sizes + bytes(4) + payload


def answer(connection, kind, seconds=5.0):
    """Return the next message of a kind; the code of a close, for "close"; None if none comes."""
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            payload = connection.recv(timeout=deadline - time.monotonic(), decode=False)
            found = ForwardMsg.FromString(payload)
            if found.WhichOneof("type") == kind:
                return found
    except ConnectionClosed as closed:
        if kind == "close":
            return closed.rcvd.code if closed.rcvd else 1006
    except TimeoutError:
        pass
    return None


def drain(connection):
    """Take all answers and forget them."""
    with suppress(*REFUSED):
        for _ in connection:
            pass


# connections


@contextmanager
def attacker(port, origin="", source=FOREIGN, session="", headers=()):
    """Open one WebSocket of an attacker; with a session, as a browser that connects again."""
    with connect(
        f"ws://{HOST}:{port}/_stcore/stream",
        source_address=(source, 0),
        origin=origin or f"http://{HOST}:{port}",
        subprotocols=["streamlit", "x", session] if session else ["streamlit"],
        additional_headers=list(headers),
        proxy=None,
        max_size=2**25,
        open_timeout=10,
        close_timeout=0.2,
        ping_interval=None,
    ) as connection:
        yield connection


@dataclass
class Attacker:
    """One attacker, who draws what to do.

    Attributes:
        port: Port of the attacked copy.
        source: The attacker's address.
        random: What all is drawn from.
        deadline: When the present move ends, on the clock of `time.monotonic`.
        counts: What has happened so far, by name.
    """

    port: int
    source: str
    random: random.Random
    deadline: float
    counts: Counter = field(default_factory=Counter)

    @property
    def left(self):
        """Seconds until the move ends; 0 if it is over."""
        return max(0.0, self.deadline - time.monotonic())

    def together(self, n, act):
        """Let so many act at once, each again and again until the deadline.

        Each has what it draws from a seed of its own. One who is refused waits a moment.
        """
        members = [replace(self, random=random.Random(self.random.random())) for _ in range(n)]

        def go_on(member):
            while member.left:
                try:
                    act(member)
                except REFUSED:
                    self.counts["refused"] += 1
                    time.sleep(0.02)

        with ThreadPoolExecutor(n) as pool:
            list(pool.map(go_on, members))

    @contextmanager
    def connection(self, *, deaf=False, **given):
        """Open a WebSocket; a deaf one takes no answers."""
        with attacker(self.port, **{"source": self.source, **given}) as connection:
            self.counts["opened"] += 1
            if not deaf:
                threading.Thread(target=drain, args=(connection,), daemon=True).start()
            yield connection

    @contextmanager
    def tab(self, link="", page=""):
        """Open a page in a tab."""
        with Hasty(self.port, link, page, PATIENCE, source_address=(self.source, 0)) as tab:
            self.counts["opened"] += 1
            yield tab

    @contextmanager
    def socket(self, *, upgraded=True):
        """Open a bare socket, or one that is a WebSocket already."""
        address = (HOST, self.port)
        with socket.create_connection(address, 10.0, source_address=(self.source, 0)) as opened:
            if upgraded:
                opened.sendall(_UPGRADE.format(port=self.port).encode())
                if b" 101 " not in opened.recv(4096):
                    raise ConnectionRefusedError
            self.counts["opened"] += 1
            yield opened

    def sleep(self, seconds):
        """Wait, at most until the deadline."""
        time.sleep(min(seconds, self.left))


_UPGRADE = (
    "GET /_stcore/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:{port}\r\n"
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: streamlit\r\n\r\n"
)


class Hasty(Visitor):
    """A tab that acts faster than a person, with what its page offers."""

    def hurry(self, key):
        """Press a button without waiting for the answer."""
        widget = self.find(key).id
        self._send_rerun(fragment=self._fragment_of(widget), trigger=widget)

    def choose(self, drawn, seconds):
        """Draw one of the page's widgets and a value that it offers; wait so long for the page.

        Without seconds, wait for the answer as browsers do.
        """
        offered = [
            (kind, widget, values)
            for kind, widget in self._elements_with_id()
            if kind in WIDGETS and not widget.disabled and (values := _offered(kind, widget, drawn))
        ]
        if not offered:
            self.watch(1.0)
            return
        kind, widget, value = drawn.choice(offered)
        self._states[widget.id] = (WIDGETS[kind], value)
        fragment = self._fragment_of(widget.id)
        self._send_rerun(fragment=fragment)
        if seconds is None:
            self._wait_for_answer(fragment)
        else:
            self.watch(seconds)

    def widgets(self):
        """Return the ids of all elements that may have a state."""
        return [element.id for _, element in self._elements_with_id()]

    def send(self, payload):
        """Send a message as it is."""
        self._socket.send(payload)


def _offered(kind, widget, drawn):
    """Return a value that a widget offers; None if there is nothing to choose."""
    if kind == "number_input":
        low = widget.min if widget.has_min else 0.0
        high = widget.max if widget.has_max else low + 100.0
        return float(round(drawn.uniform(low, high)))
    if kind == "slider":
        return [float(drawn.randint(int(widget.min), int(widget.max)))]
    if kind == "checkbox":
        return drawn.random() < 0.5
    if kind == "text_input":
        return f"{TYPED} {drawn.random()}"
    options = [getattr(option, "content", option) for option in widget.options]
    if not options:
        return None
    if kind in ("button_group", "multiselect"):
        single = kind == "button_group" and widget.click_mode == widget.SINGLE_SELECT
        return drawn.sample(options, 1 if single else drawn.randint(1, len(options)))
    return drawn.choice(options)


# experiments and links

_HOSTED = ServerSettings.of({"ATTNKIT_HOSTED": "true"})
_SIZES = {
    "n_seeds": (1, 2, 4, 8, 12, 20),
    "d_model": (32, 64, 128),
    "n_heads": (1, 2, 4, 8),
    "d_head": (8, 16, 32),
    "n_layers": (1, 2, 4),
    "d_mlp": (0, 64, 256),
    "batch_size": (16, 64, 256, 512),
    "n_eval": (128, 1024, 2048),
    "n_train": (0, 0, 20_000, 200_000),
    "n_entries": (8, 12, 16),
}
_VARIANTS = sorted(str(named.variant) for named in CATALOGUE.values())


def large_experiment(drawn, low=400, high=1000):
    """Draw a valid experiment whose estimated memory in MB lies between two numbers."""
    while True:
        sizes = {name: drawn.choice(values) for name, values in _SIZES.items()}
        sharing = drawn.sample(_VARIANTS, drawn.randint(1, 6))
        try:
            drawn_one = Experiment(
                sharing=sharing, steps=5000, first_seed=drawn.randrange(900_000), **sizes
            )
        except InvalidExperiment:
            continue
        if low <= peak_megabytes(drawn_one) <= high and not _HOSTED.problems(drawn_one):
            return drawn_one


def link_of(experiment):
    """Return the link of an experiment without its question mark."""
    return link_text(experiment)[1:]


def expensive_link(drawn):
    """Draw a link that takes long to read: variants of equal costs that do not go together."""
    words = [
        name if sample is None else f"{name}={sample}"
        for name, option in OPTIONS.items()
        for sample in option.samples
    ]
    variants = (
        " ".join([drawn.choice(_VARIANTS), *drawn.sample(words, drawn.choice((0, 1, 1, 2)))])
        for _ in range(12)
    )
    fields = {"v": "1", "sharing": ",".join(variants), "equal": drawn.choice(EQUAL)}
    fields |= drawn.sample(list(HEAVY.items()), drawn.randint(5, len(HEAVY)))
    if drawn.random() < 0.3:
        fields[drawn.choice([*_SIZES, "positions", "causal"])] = drawn.choice((-1, "x", TYPED))
    return urlencode(fields, safe=",")
