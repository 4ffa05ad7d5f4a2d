"""The start of the dashboard without a server: ports, hosts, options, and its address in links."""

import asyncio
import os
import socket
import warnings
import webbrowser
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import product
from types import SimpleNamespace
from unittest.mock import Mock, patch

import pytest
import streamlit as st
from streamlit import config

import attnkit
from attnkit.command import lab as command
from attnkit.experiment import Experiment
from attnkit.foundation.settings import InvalidSettings
from attnkit.service.server import server_settings
from attnkit.ui import address
from attnkit.ui.lab import share
from attnkit.ui.server import launch, service
from attnkit.ui.server.launch import hub_address, hub_advice


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
        assert f"port {taken} is taken" in output
        assert served["port"] != taken
        for start in (launch.choose_port, lambda _, port: attnkit.lab(Experiment(), port=port)):
            with pytest.raises(InvalidSettings, match=f"^port: got {taken}, "):
                start(launch.HOST, taken)
    assert launch.choose_port(launch.HOST, None) == taken


def test_without_a_command_the_dashboard_is_served(run, served):
    """Its options are those of `lab`; a second line says if others can reach it."""
    code, output, errors = run()
    assert (code, errors) == (0, "")
    assert output == f"attnkit: http://127.0.0.1:{launch.PORT} (Ctrl-C ends it)\n"
    assert served == {"host": launch.HOST, "port": launch.PORT, "link": "", "open_browser": True}
    code, output, _ = run("--host", "0.0.0.0", "--no-browser", "--link", "?v=1&task=mutual x")
    assert (code, served["link"], served["open_browser"]) == (0, "?v=1&task=mutual%20x", False)
    (line,) = output.splitlines()[1:]
    assert "network" in line
    assert str(launch.PORT) in line
    reachable = {"127.0.0.1": False, "localhost": False, "::1": False, "0.0.0.0": True, "::": True}
    assert {host: launch.is_reachable_from_network(host) for host in reachable} == reachable


def test_variables_of_streamlit_stand_in_for_options(run, served, monkeypatch):
    """Options stand before the environment variables."""
    monkeypatch.setenv("STREAMLIT_SERVER_ADDRESS", "127.0.0.2")
    monkeypatch.setenv("STREAMLIT_SERVER_PORT", str(launch.PORT))
    monkeypatch.setattr(command, "PORT", 1)
    for options, host in ((), "127.0.0.2"), (("--host", "127.0.0.3"), "127.0.0.3"):
        run("lab", *options)
        assert (served["host"], served["port"]) == (host, launch.PORT)


def test_every_variable_of_streamlit_is_obeyed(monkeypatch):
    """As `streamlit run` does, before our own defaults, but not before options of the command."""
    found, place = {}, {"server.address": launch.HOST, "server.port": 7777}
    monkeypatch.setattr(st.App, "run", lambda _, config: found.update(config))
    monkeypatch.setattr("streamlit.web.bootstrap.load_config_options", lambda config: None)
    monkeypatch.setattr("sys.argv", ["attnkit"])
    monkeypatch.setattr("attnkit.ui.server.turns.trust_only_our_setting", lambda: None)
    values = {int: (7, "7"), bool: (True, "yes"), float: (2.5, "2.5")}
    expected = {}
    with monkeypatch.context() as given:
        for option in config._config_options_template.values():
            if not option.sensitive and option.key not in place:
                value, text = values.get(option.type, ("word", "word"))
                if option.multiple:
                    value, text = (value, value), f"{text} {text}"
                expected[option.key] = value
                given.setenv(option.env_var, text)
        launch.serve(launch.HOST, 7777)
    assert found == {"logger.hideWelcomeMessage": True, **expected, **place}
    monkeypatch.setenv("STREAMLIT_SERVER_HEADLESS", "false")
    found.clear()
    launch.serve(launch.HOST, 7777, open_browser=False)
    assert found["server.headless"] is True
    for name, allowed in (("MAX_UPLOAD_SIZE", "a whole number"), ("ENABLE_CORS", "true or false")):
        said = f"^STREAMLIT_SERVER_{name}: got 'many', .*{allowed}"
        many = patch.dict(os.environ, {f"STREAMLIT_SERVER_{name}": "many"})
        with many, pytest.raises(InvalidSettings, match=said):
            launch.serve(launch.HOST, 7777)
    contradict = Mock(side_effect=RuntimeError("server.port does not work"))
    monkeypatch.setattr("streamlit.web.bootstrap.load_config_options", contradict)
    with pytest.raises(InvalidSettings, match=r"server\.port does not work"):
        launch.serve(launch.HOST, 7777)


ALICE = {"JUPYTERHUB_SERVICE_PREFIX": "/user/alice/"}
PUBLIC = {**ALICE, "JUPYTERHUB_PUBLIC_URL": "https://hub.example/user/alice/"}
CODESPACE = {"CODESPACES": "true", "CODESPACE_NAME": "odd-7"}
FORWARDED = {**CODESPACE, "GITHUB_CODESPACES_PORT_FORWARDING_DOMAIN": "app.github.dev"}
PROXY = "jupyter-server-proxy"


@pytest.mark.parametrize(
    ("variables", "base", "expected", "advice"),
    [
        ({}, "attn", "", ""),
        (ALICE, "", "/user/alice/proxy/80/", PROXY),
        (ALICE, "/attn/", "/user/alice/proxy/80/attn/", PROXY),
        (PUBLIC, "attn", "https://hub.example/user/alice/proxy/80/attn/", PROXY),
        (FORWARDED, "attn", "https://odd-7-80.app.github.dev/attn/", ""),
        (CODESPACE, "", "", ""),
        ({"COLAB_RELEASE_TAG": "release"}, "", "", "Colab"),
    ],
)
def test_on_a_hub_the_address_is_the_one_of_the_hub(variables, base, expected, advice, monkeypatch):
    """Or one sentence says what to do; elsewhere the address is that of this computer."""
    for name in (*ALICE, *CODESPACE, "JUPYTERHUB_PUBLIC_URL", "COLAB_RELEASE_TAG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert hub_address(80, base) == expected
    assert advice in hub_advice()
    assert bool(advice) == bool(hub_advice())
    announced = f"{expected or 'http://x/'}?v=1"
    child = Mock(stdout=[f"attnkit: {announced} (Ctrl-C ends it)\n"])
    child.poll.return_value = None
    lab = object.__new__(launch.Lab)
    lab._process, lab.address = child, announced
    assert f'href="{announced}"' in lab._repr_html_()
    assert advice in lab._repr_html_()
    monkeypatch.setattr(launch.subprocess, "Popen", lambda *_, **__: child)
    monkeypatch.setattr(launch, "Lab", lambda _, address: address)
    with warnings.catch_warnings(record=True, action="always") as warned:
        assert attnkit.lab() == announced
    assert [advice in str(one.message) for one in warned] == [True] * bool(advice and not expected)


def test_bad_input_is_one_line(run, served, monkeypatch):
    """Options, and a variable that would be a traceback in the server; nothing is served."""
    monkeypatch.setenv("STREAMLIT_SERVER_PORT", "many")
    for text, told in (
        ("--port http", "--port: got 'http', allowed"),
        ("--port 8081 --host 192.0.2.1", "host: got '192.0.2.1', allowed"),
        ("--prot 1", "unrecognized arguments: --prot 1, allowed --host, --port,"),
        ("lab", "STREAMLIT_SERVER_PORT: got 'many'"),
    ):
        code, output, errors = run(*text.split())
        assert (code, output, len(errors.splitlines()), served) == (2, "", 1, {})
        assert errors.startswith(f"attnkit: error: {told}")
    hosts = ("", "a\0b", "unix:///tmp/x", "ü" * 99)
    wrong = [(host, None, "host: got '") for host in hosts]
    wrong += [(launch.HOST, n, f"port: got {n}, allowed .* 1 to 65535") for n in (-1, 0, 65536)]
    for host, port, told in wrong:
        with pytest.raises(InvalidSettings, match=f"^{told}"):
            launch.choose_port(host, port)
    with pytest.raises(TypeError, match="experiment: got 'directed', allowed an Experiment"):
        attnkit.lab("directed")


def test_a_browser_opens_where_there_is_a_screen(monkeypatch):
    """Between the start of the training process and its end."""
    events = []
    monkeypatch.setattr(service, "start", lambda: events.append("start"))
    monkeypatch.setattr(service, "stop", lambda: events.append("stop"))
    monkeypatch.setattr(webbrowser, "open", events.append)
    monkeypatch.setattr(launch, "LISTENING_SECONDS", 0.0)

    async def live():
        async with launch.lifespan(None, "?v=1"):
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    for name, headless in (("", False), ("class.example.org", False), ("", True)):
        options = {"server.headless": headless, "browser.serverAddress": name}
        monkeypatch.setattr(st, "get_option", options.get)
        monkeypatch.setattr(config, "is_manually_set", {"browser.serverAddress": bool(name)}.get)
        with ThreadPoolExecutor(1) as pool:  # the shared browser has its loop in this thread
            pool.submit(asyncio.run, live()).result()
    opened = [f"http://{name}:8501/?v=1" for name in ("localhost", "class.example.org")]
    assert events == ["start", opened[0], "stop", "start", opened[1], "stop", "start", "stop"]


LAN, HERE = "192.0.2.7", "http://localhost:8501/"
OTHER = f"http://{LAN}:8501/"


def test_a_loopback_address_is_replaced_by_the_one_in_the_network(monkeypatch):
    """With what is needed, or the reason if there is no other; a hosted copy names no other."""
    rows = (
        (HERE, None, LAN, OTHER, "8501"),
        (f"{HERE}attn/two/", None, LAN, f"{OTHER}attn/two/", "8501"),
        ("http://127.8.8.8:8501/", "0.0.0.0", LAN, OTHER, "8501"),
        ("http://[::1]:8501/", "::", LAN, OTHER, "8501"),
        (HERE, "127.0.0.1", LAN, HERE, "python -m attnkit --host 0.0.0.0"),
        (HERE, None, "127.0.0.1", HERE, "network"),
        ("https://class.example.org/", None, LAN, "https://class.example.org/", ""),
        (OTHER, None, LAN, OTHER, ""),  # works for others as it is
        ("", None, LAN, "", ""),  # one that is not known cannot be judged
    )
    for hosted in ("false", "true"):
        monkeypatch.setenv("ATTNKIT_HOSTED", hosted)
        server_settings.cache_clear()
        for shown, listens, network, offered, told in rows:
            monkeypatch.setattr(share.st, "get_option", {"server.address": listens}.get)
            monkeypatch.setattr(share, "get_internal_ip", lambda network=network: network)
            link, warning = share.reachable(shown)
            if hosted == "false":
                assert (link, bool(warning)) == (offered, bool(told)), shown
                assert told in warning
            else:
                is_here = any(name in shown for name in ("localhost", "127.", "::1"))
                assert (link, bool(warning)) == (shown, is_here)
                assert LAN not in warning


def test_a_base_path_stays_in_links(monkeypatch):
    """With any page open, even if the path ends with the name of one, as in “my-runs”."""
    pages = ("", "runs", "attention")
    infos = {name: {"url_pathname": name} for name in pages}
    url, options = SimpleNamespace(), {}
    manager = SimpleNamespace(get_pages=lambda: infos)
    context = SimpleNamespace(context_info=url, pages_manager=manager)
    monkeypatch.setattr(address, "get_script_run_ctx", lambda: context)
    monkeypatch.setattr(address.st, "get_option", options.get)
    bases = ("", "attn", "my-runs", "a b/user", "attention", "attn/runs")
    starts, ends = ("http://localhost:80/", "https://[::1]:7/"), ("", "/")
    for base, page, start, end in product(bases, pages, starts, ends):
        # A proxy may strip the path; only if it ends with a page's name must the server know it.
        for known in {base, base if base.rpartition("/")[2] in pages else ""}:
            options["server.baseUrlPath"] = known
            url.url = start + "/".join(filter(None, (base, page))) + end
            assert address.dashboard_address() == f"{start}{base}{'/' if base else ''}"
    for url.url in ("", "http://[", "ftp://x", "http://x:0"):
        assert address.dashboard_address() == ""
