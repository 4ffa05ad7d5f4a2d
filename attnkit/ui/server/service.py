"""What a server has once: its start and end, the store, the training service, and its owner."""

from __future__ import annotations

import gc
import hashlib
import hmac
import threading
import time
import uuid
from collections.abc import Callable
from functools import cache
from typing import Generic, TypeVar

import streamlit as st
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from streamlit import config, net_util
from streamlit.errors import StreamlitAPIException, StreamlitSecretNotFoundError

from attnkit.experiment import Experiment
from attnkit.foundation.language import mark, tr
from attnkit.foundation.process import give_memory_back, n_cores, prepare_for_serving
from attnkit.service.classes import Classes
from attnkit.service.jobs import Watcher
from attnkit.service.logs import log, log_foreign_errors, versions
from attnkit.service.server import server_settings
from attnkit.service.service import TrainingService
from attnkit.service.store import ResultStore, Unavailable
from attnkit.training.pace import duration_in_words
from attnkit.ui.server import guard
from attnkit.ui.server.browser_messages import decide_what_browsers_keep
from attnkit.ui.server.turns import session_address, waiting

CONNECTION = "attnkit"
"""Name of the connection in Streamlit's secrets; it overrides the server's settings."""

T = TypeVar("T")


class Singleton(Generic[T]):
    """Function that makes an object at its first call and returns it to every caller.

    It can be used as a decorator. Callers in other threads wait until the object is made. If that
    fails, the next caller tries again. `st.cache_resource` is not the owner of such objects,
    because one message from any visitor (`clear_cache`) empties all of Streamlit's caches.
    """

    def __init__(
        self, make: Callable[[], T], release: Callable[[T], object] = lambda _: None
    ) -> None:
        self._make, self._release = make, release
        self._lock, self._objects = threading.Lock(), list[T]()

    def __call__(self) -> T:
        """Return the object, and make it if there is none yet."""
        with self._lock:
            if not self._objects:
                self._objects.append(self._make())
            return self._objects[0]

    def clear(self) -> None:
        """Release the object; the next call makes another one."""
        with self._lock:
            cleared, self._objects = self._objects, []
        for released in cleared:
            self._release(released)


def _open_store() -> ResultStore | Unavailable:
    settings = server_settings()
    try:
        return ResultStore(
            _connection() or settings.store,
            megabytes=settings.store_megabytes,
            result_megabytes=settings.result_megabytes,
            moved=lambda why: log("database moved aside", reason=why),
        )
    except Unavailable as error:
        return error


result_store = Singleton(
    _open_store, release=lambda store: None if isinstance(store, Unavailable) else store.close()
)
"""Return the store, or the error that says why the settings describe none.

A database that is away is noticed at its use only: every method may raise `Unavailable`."""


def _open_classes() -> Classes:
    store = result_store()
    return Classes(store.database if isinstance(store, ResultStore) else None)


classes = Singleton(_open_classes, release=Classes.dispose)
"""Return the classes of this server, which end with it if there is no store."""


def stored_experiment(hash: str) -> Experiment | str | None:
    """Return the experiment of a stored result; None if absent, a text if the store fails."""
    store = result_store()
    if isinstance(store, Unavailable):
        return str(store)
    try:
        return store.experiment(hash)
    except Unavailable as error:
        return str(error)


def _connection() -> Engine | None:
    """Return the database of `[connections.attnkit]` in the secrets; None if they have none."""
    try:
        if CONNECTION not in st.secrets.get("connections", {}):
            return None
    except StreamlitSecretNotFoundError:
        return None
    try:
        engine: Engine = st.connection(CONNECTION, type="sql").engine
    except (ImportError, StreamlitAPIException, SQLAlchemyError, ValueError):
        # Their texts may hold a password. Without +psycopg, SQLAlchemy takes another driver.
        text = mark(
            "[connections.attnkit] in the secrets is not the address of a database whose driver is "
            "installed; that of PostgreSQL begins with postgresql+psycopg://"
        )
        raise Unavailable(text) from None
    return engine


def _start_service() -> TrainingService:
    store = result_store()
    kept = store if isinstance(store, ResultStore) else None
    return TrainingService(store=kept, waiting=waiting)


training_service = Singleton(_start_service, release=TrainingService.close)
"""Return the service; it is started with the server, or else with the first page."""


def training_time(*experiments: Experiment, reuse: bool = True) -> str:
    """Return about how long experiments will train, one after the other, in words.

    Args:
        reuse: Whether finished runs are taken over, and not trained again.
    """
    service = training_service()
    seconds = sum(service.estimate(experiment, reuse=reuse) for experiment in experiments)
    time = duration_in_words(seconds)
    if service.n_active:
        # Translators: After "It takes" or a similar beginning of a sentence.
        return tr("about {time} on this server, longer while others train", time=time)
    # Translators: After "It takes" or a similar beginning of a sentence.
    return tr("about {time} on this server", time=time)


def watcher() -> Watcher:
    """Return the tab and visitor of this session; on a hosted copy with the network address."""
    if "visitor" not in st.session_state:
        st.session_state.visitor = _browser() or uuid.uuid4().hex
    address = session_address() if server_settings().hosted else ""
    return Watcher(_tab(), st.session_state.visitor, address)


def _browser() -> str:
    """Return an id that all tabs of a browser share, from Streamlit's XSRF cookie; or "".

    The cookie is `2|mask|masked token|time`, with a new mask every time.
    """
    try:
        _, mask, masked, _ = st.context.cookies["_streamlit_xsrf"].split("|")
        key = bytes.fromhex(mask)
        token = bytes(byte ^ key[i % len(key)] for i, byte in enumerate(bytes.fromhex(masked)))
    except (KeyError, ValueError, ZeroDivisionError):
        return ""
    return hashlib.blake2b(token, digest_size=8).hexdigest()


_somebody_left = threading.Event()


def _gone(tab: str) -> None:
    """Report that the tab has lost its connection; a session that goes on arrives anew."""
    training_service().leave(tab)
    _somebody_left.set()


@st.cache_resource(scope="session", show_spinner=False, on_release=_gone)
def _tab() -> str:
    tab = uuid.uuid4().hex
    training_service().arrive(tab)
    return tab


@cache
def sweep() -> None:
    """Start the thread that collects the garbage of closed tabs, once per server.

    Each tab leaves event loops, with open files, in reference cycles. Streamlit's own collection
    after every script run is switched off, and the interpreter collects too rarely for three files
    per visit.
    """

    def collect() -> None:
        while _somebody_left.wait():
            time.sleep(5)  # other tabs may be closed meanwhile, and each collection takes 50 ms
            _somebody_left.clear()
            gc.collect()
            give_memory_back()

    threading.Thread(target=collect, name="attnkit-sweeper", daemon=True).start()


@Singleton
def start() -> None:
    """Log what runs here, and start the training process so that it is warm for the first visitor.

    Raises:
        InvalidSettings: If an environment variable has a value that is not allowed.
    """
    settings = server_settings()
    if settings.hosted:  # details of an error are for the log, not for visitors
        st.set_option("client.showErrorDetails", "none")
        config.set_option("logger.enableRich", False)  # it would print whole tracebacks
        config.set_option("server.maxUploadSize", 1)  # megabyte; a hosted copy takes no uploads
        # A page of another site would make Streamlit ask the network for its own addresses.
        net_util._internal_ip = net_util._external_ip = "127.0.0.1"
        guard.limit_sockets()
    log("server started", versions=versions(), settings=settings.shown(), cores=n_cores())
    if settings.hosted and not guard.in_front.is_set():
        log("not guarded")
    prepare_for_serving()
    decide_what_browsers_keep()
    training_service()
    sweep()
    if settings.hosted:  # until here, whoever starts the server reads why it does not start
        log_foreign_errors()


@Singleton
def start_and_freeze() -> None:
    """Start the server unless it is started, and exempt imported objects from garbage collection.

    Streamlit's full collection after every script run is switched off in .streamlit/config.toml;
    the interpreter's incremental one goes on.
    """
    start()
    gc.collect()
    gc.freeze()


def stop() -> None:
    """End the training process, store its finished results, and close the store."""
    training_service.clear()
    classes.clear()
    result_store.clear()
    log("server stopped")


SIGNED_IN = "owner"
"""Key of the session state that is true once the owner has signed in."""

LONGEST_DELAY, LONGEST_WAIT, MOST_ADDRESSES = 10.0, 600.0, 10_000
"""Limits of a gate: seconds before an attempt and after a wrong one, and remembered addresses."""


class Gate:
    """Gate that opens for one secret, with at most one attempt a second. Safe in many threads.

    After a wrong secret its address must wait for 2 seconds, then twice as long each time. If the
    secret is empty, the gate never opens.
    """

    def __init__(self, secret: str) -> None:
        self._secret, self._lock, self._free_at = secret.encode(), threading.Lock(), 0.0
        self._guessers: dict[str, tuple[int, float]] = {}  # wrong secrets, end of the wait

    def opens(self, secret: str, address: str = "") -> bool:
        """Return whether a secret is right, after earlier attempts; while shut, none is."""
        with self._lock:
            if not self._secret or self.shut_seconds(address) > 0:
                return False
            now = time.monotonic()
            begins = max(now, self._free_at)
            self._free_at = begins + 1.0
            right = hmac.compare_digest(secret.encode("utf-8", "replace"), self._secret)
            n_wrong = self._guessers.pop(address, (0, 0.0))[0] + 1
            if not right:
                wait = min(LONGEST_WAIT, 2.0 ** min(n_wrong, 10))
                self._guessers[address] = n_wrong, begins + wait
            if len(self._guessers) > MOST_ADDRESSES:
                del self._guessers[next(iter(self._guessers))]
        time.sleep(begins - now)
        return right

    def shut_seconds(self, address: str = "") -> float:
        """Return for how many seconds every secret of an address is refused."""
        _, until = self._guessers.get(address, (0, 0.0))
        return max(0.0, self._free_at - LONGEST_DELAY - time.monotonic(), until - time.monotonic())


def has_page() -> bool:
    """Return whether this copy has a page for its owner: if a secret is set."""
    return bool(server_settings().owner_secret.get_secret_value())


def is_signed_in() -> bool:
    """Return whether this session is the owner's."""
    return has_page() and st.session_state.get(SIGNED_IN) is True


@Singleton
def gate() -> Gate:
    """Return the gate of the server, which slows down visitors who guess the secret."""
    return Gate(server_settings().owner_secret.get_secret_value())


def sign_in(secret: str) -> bool:
    """Make this session the owner's if the secret is right, and return whether it is."""
    if shut_seconds():
        return False
    right = gate().opens(secret, session_address())
    if right:
        st.session_state[SIGNED_IN] = True
    log("owner signed in" if right else "owner refused", seconds=shut_seconds())
    return right


def shut_seconds() -> float:
    """Return the seconds for which this visitor's address may not try a secret."""
    return gate().shut_seconds(session_address())


@st.cache_data(ttl=30, show_spinner=False)
def store_megabytes() -> float | str:
    """Return the size of the store, at most half a minute old; a text if it is not known."""
    store = result_store()
    try:
        return store.n_bytes() / 2**20 if isinstance(store, ResultStore) else str(store)
    except Unavailable as error:
        return str(error)
