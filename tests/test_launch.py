"""The start of the dashboard: ports, hosts, options of the command, without a server."""

import socket
from contextlib import contextmanager

import pytest

import attnkit
from attnkit.command import lab as command
from attnkit.experiment import Experiment
from attnkit.foundation.settings import InvalidSettings
from attnkit.ui import launch


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
    with listening() as taken:
        free = taken
    monkeypatch.setattr(launch, "PORT", free)
    monkeypatch.setattr(command, "PORT", free)
    return found


def test_a_free_port_replaces_the_default_one_if_that_is_taken(monkeypatch):
    """A free port replaces the default one if no port was asked for."""
    with listening() as taken:
        monkeypatch.setattr(launch, "PORT", taken)
        assert launch.choose_port(launch.HOST, None) != taken
    assert launch.choose_port(launch.HOST, None) == taken


def test_a_given_port_that_is_taken_is_refused():
    """The message names the port and what to do, also in Python, before anything starts."""
    with listening() as taken:
        for start in (
            lambda: launch.choose_port(launch.HOST, taken),
            lambda: attnkit.lab(Experiment(), port=taken),
        ):
            with pytest.raises(InvalidSettings, match=f"port: got {taken}, but another program"):
                start()


@pytest.mark.parametrize("host", ["", "192.0.2.1", "a\0b", "unix:///tmp/x", "ü" * 99])
def test_a_host_that_is_not_this_computer_is_refused(host):
    """An empty host is refused, too, because it would be every address of this computer."""
    with pytest.raises(InvalidSettings, match=r"^host: got '.*, allowed 127\.0\.0\.1, 0\.0\.0\.0"):
        launch.choose_port(host, None)


@pytest.mark.parametrize("port", [-1, 0, 65536])
def test_a_port_out_of_range_is_refused(port):
    """The message says what is allowed."""
    with pytest.raises(InvalidSettings, match=f"port: got {port}, allowed a whole number from 1"):
        launch.choose_port(launch.HOST, port)


def test_hosts_that_others_can_reach():
    """Other computers reach all addresses but those of the loopback."""
    hosts = ("127.0.0.1", "localhost", "::1", "0.0.0.0", "::")
    assert [launch.is_reachable_from_network(h) for h in hosts] == [False] * 3 + [True] * 2


def test_without_a_command_the_dashboard_is_served(run, served):
    """It serves on the default host and port, and the address is one line."""
    code, output, errors = run()
    assert (code, errors) == (0, "")
    assert output == f"attnkit: http://127.0.0.1:{launch.PORT} (Ctrl-C ends it)\n"
    assert served == {"host": launch.HOST, "port": launch.PORT, "link": "", "open_browser": True}


def test_options_without_a_command_are_those_of_the_dashboard(run, served):
    """A second line says that others can reach it."""
    code, output, _ = run("--host", "0.0.0.0", "--no-browser", "--link", "?v=1&task=mutual x")
    assert code == 0
    assert output.splitlines()[1] == (
        f"attnkit: others in your network can reach it, at port {launch.PORT}"
    )
    assert served["link"] == "?v=1&task=mutual%20x"
    assert not served["open_browser"]


def test_a_taken_default_port_is_said_in_the_same_line(run, served):
    """The command chooses another port and says so."""
    with listening(launch.PORT):
        _, output, _ = run("lab")
    assert f"(port {launch.PORT} is taken; Ctrl-C ends it)" in output
    assert served["port"] != launch.PORT


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


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--port", "http"], "--port: got 'http', allowed a whole number from 1 to 65,535"),
        (["lab", "--port", "70000"], "--port: got '70000', allowed a whole number from 1"),
        (["--host", "192.0.2.1"], "host: got '192.0.2.1', allowed 127.0.0.1"),
        (["--prot", "1"], "unrecognized arguments: --prot 1, allowed --host, --port,"),
        (["lab", "extra"], "unrecognized arguments: extra, allowed --host"),
    ],
)
def test_bad_input_is_one_line(run, served, arguments, told):
    """Bad options end with exit code 2, and nothing is served."""
    code, output, errors = run(*arguments)
    assert (code, output) == (2, "")
    assert errors.startswith(f"attnkit: error: {told}")
    assert len(errors.splitlines()) == 1
    assert not served


def test_a_wrong_variable_of_the_server_is_one_line(run, served, monkeypatch):
    """It would be a traceback if the server found it."""
    monkeypatch.setenv("ATTNKIT_MAX_STEPS", "many")
    monkeypatch.setenv("STREAMLIT_SERVER_PORT", "many")
    code, _, errors = run("lab")
    assert code == 2
    assert "ATTNKIT_MAX_STEPS" in errors
    monkeypatch.delenv("ATTNKIT_MAX_STEPS")
    code, _, errors = run("lab")
    assert (code, "STREAMLIT_SERVER_PORT: got 'many'" in errors) == (2, True)
    assert not served


def test_the_lab_in_python_refuses_what_is_no_experiment():
    """The message says what is allowed."""
    with pytest.raises(TypeError, match="experiment: got 'directed', allowed an Experiment"):
        attnkit.lab("directed")
