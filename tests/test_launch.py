"""The start of the dashboard: ports, hosts, options of the command, without a server."""

import asyncio
import socket
import webbrowser
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import streamlit as st

import attnkit
from attnkit.command import lab as command
from attnkit.experiment import Experiment
from attnkit.foundation.settings import InvalidSettings
from attnkit.ui.server import launch, lifespan, startup


@contextmanager
def listening(port=0):
    """Listen on a port of this computer, and yield its number."""
    with socket.socket() as server:
        server.bind((launch.HOST, port))
        server.listen()
        yield server.getsockname()[1]


@pytest.fixture
def served(monkeypatch):
    """Return what the command would serve, after `announce` was called for an address."""
    found = {}

    def serve(host, port, *, announce, **options):
        found.update(host=host, port=port, **options)
        announce(f"http://{host}:{port}")

    monkeypatch.setattr(command, "serve", serve)
    for name in ("STREAMLIT_SERVER_ADDRESS", "STREAMLIT_SERVER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with listening() as free:
        pass
    for module in (launch, command):
        monkeypatch.setattr(module, "PORT", free)
    return found


def test_a_free_port_replaces_the_default_one_and_no_other(run, served):
    """The command says so; a given port that is taken is refused, also in Python, at once."""
    with listening(launch.PORT) as taken:
        _, output, _ = run("lab")
        assert f"(port {taken} is taken; Ctrl-C ends it)" in output
        assert served["port"] != taken
        for start in (
            lambda: launch.choose_port(launch.HOST, taken),
            lambda: attnkit.lab(Experiment(), port=taken),
        ):
            with pytest.raises(InvalidSettings, match=f"port: got {taken}, but another program"):
                start()
    assert launch.choose_port(launch.HOST, None) == taken


def test_hosts_and_ports_that_cannot_be_are_refused():
    """An empty host, too, because it would be every address of this computer."""
    for host in ("", "192.0.2.1", "a\0b", "unix:///tmp/x", "ü" * 99):
        with pytest.raises(InvalidSettings, match=r"^host: got '.*, allowed 127\.0\.0\.1, 0\.0"):
            launch.choose_port(host, None)
    for port in (-1, 0, 65536):
        with pytest.raises(InvalidSettings, match=f"port: got {port}, allowed a whole number fr"):
            launch.choose_port(launch.HOST, port)
    with pytest.raises(TypeError, match="experiment: got 'directed', allowed an Experiment"):
        attnkit.lab("directed")


def test_without_a_command_the_dashboard_is_served(run, served):
    """Its options are those of `lab`; a second line says if others can reach it."""
    code, output, errors = run()
    assert (code, errors) == (0, "")
    assert output == f"attnkit: http://127.0.0.1:{launch.PORT} (Ctrl-C ends it)\n"
    assert served == {"host": launch.HOST, "port": launch.PORT, "link": "", "open_browser": True}
    code, output, _ = run("--host", "0.0.0.0", "--no-browser", "--link", "?v=1&task=mutual x")
    assert (code, served["link"], served["open_browser"]) == (0, "?v=1&task=mutual%20x", False)
    assert output.splitlines()[1:] == [
        f"attnkit: others in your network can reach it, at port {launch.PORT}"
    ]
    hosts = ("127.0.0.1", "localhost", "::1", "0.0.0.0", "::")
    assert [launch.is_reachable_from_network(h) for h in hosts] == [False] * 3 + [True] * 2


def test_variables_of_streamlit_stand_in_for_options(run, served, monkeypatch):
    """Options stand before the environment variables."""
    monkeypatch.setenv("STREAMLIT_SERVER_ADDRESS", "127.0.0.2")
    with listening() as port:
        pass
    monkeypatch.setenv("STREAMLIT_SERVER_PORT", str(port))
    run("lab")
    assert (served["host"], served["port"]) == ("127.0.0.2", port)
    run("lab", "--host", "127.0.0.3")
    assert (served["host"], served["port"]) == ("127.0.0.3", port)


def test_bad_input_is_one_line(run, served, monkeypatch):
    """Options, and variables that would be a traceback in the server; nothing is served."""
    for arguments, variables, told in (
        (["lab"], {"ATTNKIT_MAX_STEPS": "many"}, "ATTNKIT_MAX_STEPS: got 'many'"),
        (["--port", "http"], {}, "--port: got 'http', allowed a whole number from 1 to 65,535"),
        (["lab", "--port", "70000"], {}, "--port: got '70000', allowed a whole number from 1"),
        (["--host", "192.0.2.1"], {}, "host: got '192.0.2.1', allowed 127.0.0.1"),
        (["--prot", "1"], {}, "unrecognized arguments: --prot 1, allowed --host, --port,"),
        (["lab", "extra"], {}, "unrecognized arguments: extra, allowed --host"),
        (["lab"], {"STREAMLIT_SERVER_PORT": "many"}, "STREAMLIT_SERVER_PORT: got 'many'"),
    ):
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            code, output, errors = run(*arguments)
        assert (code, output, len(errors.splitlines()), served) == (2, "", 1, {})
        assert errors.startswith(f"attnkit: error: {told}")


def test_a_browser_opens_where_there_is_a_screen(monkeypatch):
    """Between the start of the training process and its end."""
    events = []
    monkeypatch.setattr(startup, "start", lambda: events.append("start"))
    monkeypatch.setattr(startup, "stop", lambda: events.append("stop"))
    monkeypatch.setattr(webbrowser, "open", events.append)
    monkeypatch.setattr(lifespan, "LISTENING_SECONDS", 0.0)

    async def live():
        async with lifespan.lifespan(None, "?v=1"):
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    for headless, opened in ((False, ["http://localhost:8501/?v=1"]), (True, [])):
        events.clear()
        monkeypatch.setattr(st, "get_option", {"server.headless": headless}.get)
        with ThreadPoolExecutor(1) as pool:  # the shared browser has its loop in this thread
            pool.submit(asyncio.run, live()).result()
        assert events == ["start", *opened, "stop"]
