"""Start of the dashboard's server: its script, host and port, in this process or in a child.

The command `lab` serves in its own process. `lab` in Python starts that command as a child, so
that it needs neither Streamlit nor a free main thread.
"""

from __future__ import annotations

import asyncio
import atexit
import errno
import os
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
import webbrowser
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnkit.experiment import Experiment
from attnkit.experiment.links import link_text
from attnkit.foundation.process import WITH_PARENT, environment_with_package
from attnkit.foundation.settings import InvalidSettings, shown

if TYPE_CHECKING:
    from attnkit.training.results import Result

HOST = "127.0.0.1"
"""Default host: only programs on this computer reach the dashboard."""

PORT = 7580
"""Default port; a free one replaces it where another program listens there."""

LARGEST_PORT = 65535

LISTENING_SECONDS = 1.0
"""Seconds until the server answers; a browser opened earlier shows an empty page for a moment."""

_HOST_VARIABLE, _PORT_VARIABLE = "STREAMLIT_SERVER_ADDRESS", "STREAMLIT_SERVER_PORT"

_KINDS = {"integer": "a whole number", "float": "a number", "boolean": "true or false"}
"""Kinds of Streamlit's options in words."""

_COLAB = (
    "Colab passes no WebSockets on, so no browser can open the dashboard that runs there: show "
    "results in the notebook (`result`, `result.plot()`), or run attnkit on your own computer."
)
_JUPYTERHUB = (
    "This address needs jupyter-server-proxy: if it is not found, run `pip install "
    "jupyter-server-proxy` in the environment of JupyterLab and restart your server."
)


def dashboard_script() -> Path:
    """Return the script that Streamlit runs; its pages and its configuration stand beside it.

    It is `dashboard.py` of the repository, which a wheel holds in `attnkit/ui/app`.
    """
    packaged = Path(__file__).parents[1] / "app" / "dashboard.py"
    return packaged if packaged.is_file() else Path(__file__).parents[3] / "dashboard.py"


def wanted_place(host: str | None, port: int | None) -> tuple[str, int | None]:
    """Return the given host and port, or else those of Streamlit's environment variables.

    The host is `HOST` if neither names one; the port stays None.

    Raises:
        InvalidSettings: If the variable of the port has no port.
    """
    if port is None and (text := os.environ.get(_PORT_VARIABLE)):
        port = int(text) if text.isdecimal() and len(text) <= len(str(LARGEST_PORT)) else 0
        if not 1 <= port <= LARGEST_PORT:
            allowed = f"allowed a whole number from 1 to {LARGEST_PORT:,}"
            raise InvalidSettings(f"{_PORT_VARIABLE}: got {shown(text, quoted=True)}, {allowed}")
    return os.environ.get(_HOST_VARIABLE) or HOST if host is None else host, port


def choose_port(host: str, port: int | None) -> int:
    """Return a port on which nobody listens: `port`, or the default one if it is None and free.

    Raises:
        InvalidSettings: If the given port is taken or not allowed, or if this computer does not
            have the host's address.
    """
    if port is not None and not 1 <= port <= LARGEST_PORT:
        raise InvalidSettings(f"port: got {port}, allowed a whole number from 1 to {LARGEST_PORT}")
    for candidate in (PORT, 0) if port is None else (port,):
        try:
            return _bindable(host, candidate)
        except (OSError, TypeError, ValueError) as error:  # the last two: cannot be a host
            problem = getattr(error, "errno", None)
        if port is None and problem in (errno.EADDRINUSE, errno.EACCES):
            continue
        if problem == errno.EACCES:
            reason = "but this user may not listen there, allowed are ports from 1024"
            raise InvalidSettings(f"port: got {candidate}, {reason}")
        if problem != errno.EADDRINUSE:
            allowed = f"allowed {HOST}, 0.0.0.0 or another address of this computer"
            raise InvalidSettings(f"host: got {shown(host, quoted=True)}, {allowed}")
    reason = "but another program listens there; without a port, a free one is chosen"
    raise InvalidSettings(f"port: got {port}, {reason}")


def serve(
    host: str,
    port: int,
    *,
    link: str = "",
    open_browser: bool = True,
    announce: Callable[[str], None] = print,
) -> None:
    """Serve the dashboard until a signal ends it; call it once, in the main thread.

    Args:
        port: Port on which nobody listens, see `choose_port`.
        link: Query string of the first page with its "?", or an empty text.
        announce: Receives the address as soon as the server listens.

    Raises:
        InvalidSettings: If a variable of Streamlit has a value that is not allowed.
    """
    import streamlit as st
    from streamlit.web import bootstrap

    from attnkit.ui.server.guard import guards
    from attnkit.ui.server.turns import trust_only_our_setting

    script = str(dashboard_script())
    sys.argv = [script]  # Streamlit reads the configuration beside this path
    trust_only_our_setting()
    options = {"logger.hideWelcomeMessage": True, **options_of_user(script)}
    options |= {"server.address": host, "server.port": port}
    if not open_browser:
        options["server.headless"] = True
    try:
        bootstrap.load_config_options(options)  # as `run` does, where an error is a traceback
    except RuntimeError as error:
        raise InvalidSettings(f"options of Streamlit: {error}") from error
    announced = partial(lifespan, link=link, announce=announce)
    st.App(script, lifespan=announced, middleware=guards()).run(config=options)


@asynccontextmanager
async def lifespan(
    _: object, link: str = "", announce: Callable[[str], None] | None = None
) -> AsyncIterator[None]:
    """Start the services of the pages before the first visitor comes, and stop them at the end.

    On a machine with a screen the dashboard opens in a browser. Streamlit does that by itself for
    plain scripts only, not for an `st.App`.

    Args:
        link: Query string of the page that opens, with its "?".
        announce: Receives the address of that page; on a hub, the one for browsers elsewhere.
    """
    import streamlit as st
    from streamlit import config
    from streamlit.web.server.server_util import get_url

    from attnkit.ui.server import service

    service.start()
    manual = config.is_manually_set("browser.serverAddress")
    host = st.get_option("browser.serverAddress" if manual else "server.address")
    reached = "localhost" if host in (None, "0.0.0.0", "::") else host
    reached = f"[{reached}]" if ":" in reached else reached
    address = get_url(reached) + (f"/{link}" if link else "")
    if announce is not None:
        port, base = (st.get_option(f"server.{name}") for name in ("port", "baseUrlPath"))
        through_hub = hub_address(port, base)
        announce(f"{through_hub}{link}" if through_hub else address)
    if not st.get_option("server.headless"):
        loop = asyncio.get_running_loop()
        loop.call_later(LISTENING_SECONDS, webbrowser.open, address)
    yield
    service.stop()


def options_of_user(script: str) -> dict[str, Any]:
    """Return Streamlit's options from its environment variables, as `streamlit run` reads them.

    Raises:
        InvalidSettings: If a variable has a value that is not allowed.
    """
    from streamlit.web.cli import main_run

    try:
        context = main_run.make_context("run", [script])
    except Exception as error:  # of Streamlit's own parser, which is not a dependency of ours
        option: Any = getattr(error, "param", None)
        name = getattr(option, "envvar", None)
        if name is None:
            raise
        allowed = f"allowed {_KINDS.get(option.type.name, option.type.name)}"
        raise InvalidSettings(
            f"{name}: got {shown(os.environ.get(name, ''), quoted=True)}, {allowed}"
        ) from error
    del context.params["target"], context.params["args"]
    return {
        name.replace("_", "."): value
        for name, value in context.params.items()
        if value not in (None, ())
    }


class Lab:
    """Dashboard that runs as a child of this Python process, and ends with it.

    Processes that this one has forked since then keep it alive, too; `stop` ends it all the same.

    Attributes:
        address: Address of the first page, with the link of its experiment.
    """

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self._process = process
        self.address = address
        # Nobody reads what modules of yours print there; a full pipe would stop the server.
        self._reader = threading.Thread(target=deque, args=(process.stdout, 0), daemon=True)
        self._reader.start()
        atexit.register(self.stop)

    def stop(self) -> None:
        """End the dashboard and its training; a dashboard that has ended stays as it is."""
        atexit.unregister(self.stop)
        if self._process.stdin is not None:
            self._process.stdin.close()
        # A second signal would end the server before its training process, so it comes late.
        for end in (self._process.terminate, self._process.kill):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(15)
                break
            end()
        self._process.wait()
        self._reader.join(1.0)
        if self._process.stdout is not None and not self._reader.is_alive():
            self._process.stdout.close()

    @property
    def is_running(self) -> bool:
        """Whether the dashboard has not ended."""
        return self._process.poll() is None

    def __repr__(self) -> str:
        return f"<Lab at {self.address}>" if self.is_running else "<Lab, stopped>"

    def _repr_html_(self) -> str:
        if not self.is_running:
            return "<p>This dashboard is stopped.</p>"
        address, advice = escape(self.address), escape(hub_advice())
        link = f'<a href="{address}" target="_blank" rel="noopener">{address}</a>'
        end = "It ends with this Python process, or with stop()."
        return f"<p>Dashboard: {link}. {' '.join(filter(None, (advice, end)))}</p>"


def lab(
    experiment: Experiment | Result | None = None,
    *,
    port: int | None = None,
    host: str | None = None,
    open_browser: bool = True,
) -> Lab:
    """Start the dashboard as a child process and open a browser on an experiment.

    The dashboard ends with this Python process. A finished result is put into the store of this
    user, so that the Lab shows it without training.

    Args:
        experiment: What the Lab shows first. None: the default experiment.
        port: Port of the server. None: that of `STREAMLIT_SERVER_PORT`, or the default port, or a
            free one if that is taken.
        host: Address on which the server listens; 0.0.0.0 lets others in the network reach it.
            None: that of `STREAMLIT_SERVER_ADDRESS`, or 127.0.0.1.
        open_browser: Whether a browser opens, if this computer has a screen.

    Raises:
        InvalidSettings: If the server cannot listen at this host and port, or if an environment
            variable has a value that is not allowed.
        RuntimeError: If the dashboard does not start; the message has its last line.
        TypeError: If `experiment` is neither an experiment nor a result.
    """
    from attnkit.training.results import Result

    if not isinstance(experiment, Experiment | Result | None):
        got = shown(experiment, quoted=True)
        raise TypeError(f"experiment: got {got}, allowed an Experiment, a Result or None")
    host, port = wanted_place(host, port)
    chosen = choose_port(host, port)
    if isinstance(experiment, Result):
        _store(experiment)
        experiment = experiment.experiment
    link = link_text(experiment) if experiment is not None else ""
    command = [sys.executable, "-m", "attnkit", "lab", WITH_PARENT, "--host", host]
    command += ["--port", str(chosen), "--link", link]
    command += [] if open_browser else ["--no-browser"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            env=environment_with_package(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            address = _address_of(process)
        except BaseException:
            process.kill()
            process.wait()
            raise
        if not address:  # it has ended
            process.communicate()
            log.seek(0)
            last = log.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise RuntimeError(f"the dashboard did not start: {last}")
    if not hub_address(chosen) and (advice := hub_advice()):
        warnings.warn(advice, stacklevel=2)
    return Lab(process, address)


def _address_of(process: subprocess.Popen[str]) -> str:
    """Return the address that the server announces; an empty text if it ends without one."""
    assert process.stdout is not None
    for line in process.stdout:
        # Modules of yours may have printed before. On a hub, the address may be a path.
        if line.startswith(("attnkit: http", "attnkit: /")):
            return line.split()[1]
    return ""


def is_reachable_from_network(host: str) -> bool:
    """Return whether a server that listens on this host accepts connections of other computers."""
    return not (host == "localhost" or host == "::1" or host.startswith("127."))


def _bindable(host: str, port: int) -> int:
    """Bind a port for a moment and return its number, which is another one for port 0."""
    if not host:  # would be all addresses
        raise ValueError("empty host")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        if os.name != "nt":  # as the server does: a port that was just released is free
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        return int(probe.getsockname()[1])


def _store(result: Result) -> None:
    """Put a finished result into the store that the dashboard reads."""
    from attnkit.service.server import server_settings
    from attnkit.service.store import ResultStore, TooLarge, Unavailable

    if result.snapshot.status != "finished":
        return
    settings = server_settings()
    # If it fails, the dashboard says so, and shows the experiment all the same.
    with suppress(Unavailable, TooLarge):
        store = ResultStore(settings.store, megabytes=settings.store_megabytes)
        try:
            store.put(*result.to_blobs())
        finally:
            store.close()


def hub_address(port: int, base: str = "") -> str:
    """Return the address of a port for a browser outside of the hub; empty without a hub.

    Without `JUPYTERHUB_PUBLIC_URL` it is only a path, which works as a link within a notebook.

    Args:
        port: Port on which a server listens.
        base: Path of the server's pages, as in Streamlit's option `server.baseUrlPath`.
    """
    end = f"{base.strip('/')}/".lstrip("/")
    if "CODESPACES" in os.environ:
        names = ("CODESPACE_NAME", "GITHUB_CODESPACES_PORT_FORWARDING_DOMAIN")
        name, domain = (os.environ.get(variable) for variable in names)
        return f"https://{name}-{port}.{domain}/{end}" if name and domain else ""
    if prefix := os.environ.get("JUPYTERHUB_SERVICE_PREFIX", "").strip("/"):
        public = os.environ.get("JUPYTERHUB_PUBLIC_URL", "").rstrip("/")
        start = public if public.endswith(f"/{prefix}") else f"/{prefix}"
        return f"{start}/proxy/{port}/{end}"
    return ""


def hub_advice() -> str:
    """Return what a hub needs before its users can open the dashboard; empty without such a hub."""
    if "COLAB_RELEASE_TAG" in os.environ:
        return _COLAB
    return _JUPYTERHUB if os.environ.get("JUPYTERHUB_SERVICE_PREFIX") else ""
