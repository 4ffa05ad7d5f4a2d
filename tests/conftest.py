"""What all tests share: how much is drawn, one browser, one server, one thread of torch."""

import contextlib
import functools
import logging
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import searching
import torch
from platformdirs import user_cache_path
from price import NIGHT, Price
from waiting import end_pages_service

from attnkit.foundation.language import language
from attnkit.foundation.process import n_cores
from attnkit.service.server import server_settings
from attnkit.training.engine import choose_engine, ready_engine

# The products of tests are small, and tests run in one process per core: two threads in each would
# wait for each other. Tests about threads set their own number with the fixture `threads`.
torch.set_num_threads(1)

# The kernel is compiled once, also for processes that a test starts with another home; and torch
# does not name its folder later, in the middle of a test.
os.environ.setdefault("NUMBA_CACHE_DIR", str(user_cache_path("attnkit") / "kernel"))
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(user_cache_path("attnkit") / "torch"))

_LONG, _WAITING = ("long", "weights"), ("browser", "server")

USUAL_SECONDS = 20
"""Seconds of a test marked `long` that does not say how many it takes: `long(seconds=60)`."""


def pytest_addoption(parser):
    """Say what else may run, and what is drawn in searches and how often."""
    add = parser.addoption
    add("--long", action="store_true", help="run the tests marked `long`, too, which take minutes")
    add("--night", type=int, help="add so many seconds of `long` tests, drawn")
    add("--seed", type=int, help="draw everything from this number; without it, from the commit")
    add("--minutes", type=float, default=1.0, help="length of the mixture of attacks at night")
    add("--examples", type=int, help="draw so many times as many examples (1; with --long 10)")
    add("--price", action="store_true", help="fail if the tests cost more than their budget")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Let all searches, those of Hypothesis and the order among them, draw what the options say."""
    searching.set_size(config.getoption("--examples") or (10 if config.getoption("--long") else 1))
    if config.getoption("--seed") is None:
        config.option.seed = seed_of_commit()  # pytest-xdist hands it to its processes
    config.option.hypothesis_seed = str(config.getoption("--seed"))
    config.pluginmanager.register(Price(config, _kind_of_cost))


def seed_of_commit():
    """Return a number that every commit has its own of; 0 outside of a repository."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=7", "HEAD"]
    with contextlib.suppress(OSError):
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        return int(found.stdout or "0", 16)
    return 0


def pytest_report_header(config):
    """Name the number that everything is drawn from."""
    return f"drawn from --seed {config.getoption('--seed')}: the order, links, windows, examples"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Run one process for every core that may be used; one more makes it no faster."""
    return n_cores()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Choose the tests of the day, some of the night or all, and draw their order.

    What needs neither browser nor server is marked `core`. What waits for servers comes first.
    Processes of pytest-xdist take whole files in this order, so a long file is never the last one.
    """
    for item in items:
        if _kind(item.keywords) == "core":
            item.add_marker(pytest.mark.core)
    nightly = [item for item in items if any(map(item.get_closest_marker, _LONG))]
    drawn = random.Random(config.getoption("--seed"))
    if config.getoption("--long"):
        for item in items:
            item.add_marker(pytest.mark.timeout(0))  # some take long
        left_out = set()
    else:
        drawn.shuffle(nightly)
        seconds = n_cores() * (config.getoption("--night") or 0)
        left_out = {*nightly} - {*_worth(nightly, seconds)}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
    files = sorted({item.path for item in items})
    drawn.shuffle(files)
    drawn.shuffle(items)
    items.sort(key=lambda item: (_kind(item.keywords) == "core", files.index(item.path)))


def _worth(nightly, seconds):
    """Yield drawn tests of the night that together take at most so many seconds of one core."""
    for item in nightly:
        mark = item.get_closest_marker("long")
        if mark is None:
            continue  # it needs packages that are not installed
        cost = mark.kwargs.get("seconds", USUAL_SECONDS)
        if cost <= seconds:
            seconds -= cost
            yield item


def _kind(keywords):
    """Return what a test needs: "browser", "server", or "core" if it needs neither."""
    return next((mark for mark in _WAITING if mark in keywords), "core")


def _kind_of_cost(item):
    """Return the kind of a test in the table of costs, where tests of the night stand apart."""
    return NIGHT if any(map(item.get_closest_marker, _LONG)) else _kind(item.keywords)


@pytest.fixture(scope="session")
def long(request):
    """Whether the soak and the long fault runs are wanted in their full length."""
    return request.config.getoption("--long")


@pytest.fixture(scope="session")
def seed(request):
    """What tests draw from: the same number draws the same again."""
    return request.config.getoption("--seed")


@pytest.fixture(scope="session")
def minutes(request):
    """How long the mixture of attacks lasts at night."""
    return request.config.getoption("--minutes")


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server of our own: `.database()`, `.stop()`, `.start()`."""
    from postgres import server

    with server() as started:
        yield started


@pytest.fixture(scope="session")
def browser():
    """The one browser of all tests."""
    from browsing import LONG, chromium
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=LONG)
    with sync_playwright() as playwright, contextlib.closing(chromium(playwright)) as opened:
        yield opened


@pytest.fixture(scope="session")
def server_store(tmp_path_factory):
    """The folder in which the server of the browser tests keeps results."""
    return tmp_path_factory.mktemp("server_store")


@pytest.fixture(scope="session")
def port(server_store):
    """The port of the dashboard server that all tests of this process visit; it has an owner."""
    from browsing import OWNER_SECRET
    from visitor import dashboard

    environment = {
        "ATTNKIT_STORE": str(server_store),
        "ATTNKIT_OWNER_SECRET": OWNER_SECRET,
        "STREAMLIT_SERVER_FILE_WATCHER_TYPE": "none",
    }
    with dashboard(environment=environment) as port:
        yield port


@pytest.fixture(scope="session")
def address(port):
    """The address of that server."""
    return f"http://127.0.0.1:{port}"


@pytest.fixture(scope="session")
def visitors(browser):
    """Visitors of servers, one after the other: `.arrive(width, height)`, `.leave(page)`."""
    from visitors import Visitors

    with contextlib.closing(Visitors(browser)) as opened:
        yield opened


@pytest.fixture
def page(visitors):
    """A page of a new visitor; the test fails if the page reports an error."""
    from lab_browsing import visitor_page

    with visitor_page(visitors) as opened:
        yield opened


@pytest.fixture
def requested(page):
    """The addresses that the page asks for."""
    asked = []

    def note(request):
        asked.append(request.url)

    page.on("request", note)
    yield asked
    page.remove_listener("request", note)


@pytest.fixture(scope="module")
def pages_service():
    """The training service of all pages; the next module goes on with its process."""
    from attnkit.ui.server.service import training_service

    return training_service()


@pytest.fixture(scope="module")
def service():
    """A training service with its process, for all tests of a module that leave it as it was."""
    from attnkit.service.service import TrainingService

    with contextlib.closing(TrainingService()) as opened:
        yield opened


@pytest.fixture
def run(capsys):
    """Run the command line: `run(*arguments)` gives its exit code, output and errors."""
    from attnkit.__main__ import main

    def run_with(*arguments):
        capsys.readouterr()
        try:
            code = main(arguments)
        except SystemExit as end:  # argparse's way
            code = end.code
        return code, *capsys.readouterr()

    return run_with


@pytest.fixture(scope="session", autouse=True)
def own_data_folder(tmp_path_factory):
    """Nothing is kept among the results of whoever runs the tests."""
    os.environ["ATTNKIT_STORE"] = str(tmp_path_factory.mktemp("data"))
    server_settings.cache_clear()
    yield
    end_pages_service()


@pytest.fixture(scope="session", autouse=True)
def packages_are_searched_once():
    """Every `AppTest` would search all installed packages for components of Streamlit."""
    from streamlit.components.v2 import manifest_scanner

    found = functools.cache(manifest_scanner.scan_component_manifests)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_scanner, "scan_component_manifests", found)
        yield


@pytest.fixture(autouse=True)
def nothing_leaks():
    """Fail a test that changes what the next one finds, and forget the settings that it has set."""
    before = what_tests_share()
    yield
    server_settings.cache_clear()
    if "streamlit.logger" in sys.modules:  # handlers keep the stream of the test that begins them
        for logger in sys.modules["streamlit.logger"]._loggers.values():
            logger.streamlit_console_handler.stream = sys.stderr
    leaked = [name for name, value in what_tests_share().items() if value != before[name]]
    assert not leaked, f"the next test finds other values of {', '.join(leaked)}"


def what_tests_share():
    """Return what belongs to the whole process, by name."""
    from attnkit.claims import CLAIMS
    from attnkit.tasks import TASKS
    from attnkit.variants import CATALOGUE, OPTIONS

    environment = dict(os.environ)
    environment.pop("PYTEST_CURRENT_TEST", None)
    return {
        "the environment": environment,
        "the current folder": Path.cwd(),
        "sys.path": list(sys.path),
        "registered claims": list(CLAIMS),
        "registered tasks": list(TASKS),
        "registered variants": list(CATALOGUE),
        "registered words": list(OPTIONS),
        "the language": language(),
        "threads of torch": torch.get_num_threads(),
        "the type of new tensors": torch.get_default_dtype(),
        "the handler of SIGINT": signal.getsignal(signal.SIGINT),
        "hooks of errors": (sys.excepthook, sys.unraisablehook, threading.excepthook),
        "handlers of logs": list(logging.getLogger().handlers),
    }


@pytest.fixture(scope="session", autouse=True)
def compiled_kernel():
    """Compile the kernel before the first test, so that none waits for it or hears of it."""
    cpu = torch.device("cpu")
    assert ready_engine(cpu) == choose_engine(cpu), "the kernel cannot be compiled"


@pytest.fixture
def untouched():
    """Remove what a test registers after it."""
    from attnkit.claims import CLAIMS
    from attnkit.tasks import TASKS
    from attnkit.variants import CATALOGUE, OPTIONS

    known = [(registry, dict(registry)) for registry in (CLAIMS, TASKS, CATALOGUE, OPTIONS)]
    yield
    for registry, before in known:
        registry.clear()
        registry.update(before)


@pytest.fixture
def interruptible():
    """Receive Ctrl-C, also in child processes: a job in a shell's background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=[pytest.mark.server, pytest.mark.long])]
)
def where(request, tmp_path):
    """An empty place for results: a data folder, then a database of a PostgreSQL server."""
    if request.param == "sqlite":
        return tmp_path / "data"
    return request.getfixturevalue("postgres").database()


@pytest.fixture
def open_store():
    """Open stores, `open_store(where, megabytes=5)`, that are closed after the test."""
    from attnkit.service.store import ResultStore

    with contextlib.ExitStack() as opened:

        def open_one(where, **given):
            return opened.enter_context(contextlib.closing(ResultStore(where, **given)))

        yield open_one


@pytest.fixture
def threads():
    """Set the number of torch's threads for one test: `threads(1)`."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
