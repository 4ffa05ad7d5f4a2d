"""The proxies of docs/hosting.md in front of a hosted copy, without a container engine."""

from __future__ import annotations

import os
import re
import select
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from dockerfile import ROOT

FOLDER = ROOT / "docs" / "hosting"

HOST = "127.0.0.1"
"""Name of the machine in the tests; for an address, Caddy writes the certificate itself."""

SITE = "class.example.org"
"""Name of the machine in docs/hosting.md."""


def services(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the services of the compose file with their variables replaced.

    Raises:
        KeyError: If a variable without a default has no value.
    """
    text = (FOLDER / "compose.yaml").read_text(encoding="utf-8")

    def value(found: re.Match[str]) -> str:
        name, default = found["name"], found["default"]
        return variables[name] if default is None else variables.get(name, default)

    pattern = r"\$\{(?P<name>\w+)(?::-(?P<default>[^}]*)|:\?[^}]*)?\}"
    found: dict[str, Any] = yaml.safe_load(re.sub(pattern, value, text))["services"]
    return found


@contextmanager
def proxies(upstream: int, folder: Path) -> Iterator[tuple[int, ssl.SSLContext]]:
    """Start HAProxy and Caddy with our files; yield the port for HTTPS, and what trusts it.

    A Caddy before 2.7, as Debian's, does not speak HAProxy's protocol. It sees the visitors'
    addresses all the same, because here HAProxy may connect from them.

    Args:
        upstream: Port of the hosted copy.
        folder: Where Caddy keeps its certificates.
    """
    http, https, inner = free_ports(3)
    caddy_changes = {
        "{\n": f"{{\n\thttp_port {http}\n\thttps_port {inner}\n\tskip_install_trust\n",
        "attnkit:8501": f"{HOST}:{upstream}",
    }
    haproxy_changes = {
        "    bind :80\n": "",
        "bind :443": f"bind {HOST}:{https}",
        "caddy caddy": f"caddy {HOST}:{inner}",
    }
    modules = subprocess.run(["caddy", "list-modules"], capture_output=True, text=True, check=True)
    if "caddy.listeners.proxy_protocol" not in modules.stdout:
        caddyfile = (FOLDER / "Caddyfile").read_text(encoding="utf-8")
        (wrappers,) = re.findall(r"\t\tlistener_wrappers \{.*?\n\t\t\}\n", caddyfile, re.DOTALL)
        caddy_changes[wrappers] = ""
        haproxy_changes["send-proxy-v2"] = "source 0.0.0.0 usesrc clientip"
    caddyfile = changed("Caddyfile", caddy_changes, folder)
    configuration = changed("haproxy.cfg", haproxy_changes, folder)
    root, deadline = folder / "caddy/pki/authorities/local/root.crt", time.monotonic() + 60
    with (
        running(["caddy", "run", "--config", caddyfile, "--adapter", "caddyfile"], folder),
        running(["haproxy", "-f", configuration], folder),
    ):
        while not (root.exists() and answers(https, root)):
            if time.monotonic() > deadline:
                logs = [log.read_text(encoding="utf-8") for log in folder.glob("*.log")]
                raise AssertionError("\n".join(["the proxies did not start:", *logs]))
            time.sleep(0.1)
        yield https, ssl.create_default_context(cafile=str(root))


@contextmanager
def nginx(upstream: int, folder: Path) -> Iterator[tuple[int, ssl.SSLContext]]:
    """Start nginx with the lines of docs/hosting.md; yield its port, and what trusts it.

    Args:
        upstream: Port of the hosted copy.
        folder: Where nginx keeps its files.
    """
    (port,) = free_ports(1)
    certificate, key, began = folder / "own.pem", folder / "own.key", time.monotonic()
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-keyout", str(key), "-out", str(certificate), "-days", "2"]
    subject = ["-subj", f"/CN={SITE}", "-addext", f"subjectAltName=DNS:{SITE}"]
    subprocess.run([*command, *subject], check=True, capture_output=True)
    text = (FOLDER.parent / "hosting.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"```nginx\n(.*?)```", text, re.DOTALL)
    changes = {
        "listen 443": f"listen {HOST}:{port}",
        "/etc/ssl/class.example.org.pem": str(certificate),
        "/etc/ssl/private/class.example.org.key": str(key),
        "127.0.0.1:8501": f"{HOST}:{upstream}",
    }
    folders = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    lines = f"http {{\naccess_log off;\n{folders}{replaced(lines, changes)}}}\n"
    configuration = folder / "nginx.conf"
    configuration.write_text(
        f"daemon off;\npid {folder}/pid;\nevents {{}}\n{lines}", encoding="utf-8"
    )
    with running(["nginx", "-c", str(configuration), "-e", "stderr"], folder):
        while not answers(port, certificate, SITE):
            if time.monotonic() > began + 60:
                raise AssertionError((folder / "nginx.log").read_text(encoding="utf-8"))
            time.sleep(0.05)
        yield port, ssl.create_default_context(cafile=str(certificate))


def replaced(text: str, changes: Mapping[str, str]) -> str:
    """Return a text in which some texts are replaced once."""
    for old, new in changes.items():
        assert old in text, f"no {old!r} in {text}"
        text = text.replace(old, new, 1)
    return text


def changed(name: str, changes: Mapping[str, str], folder: Path) -> str:
    """Write a file of ours with some of its texts replaced once, and return its path."""
    text = replaced((FOLDER / name).read_text(encoding="utf-8"), changes)
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


@contextmanager
def running(command: Sequence[str], folder: Path) -> Iterator[None]:
    """Run one of the proxies, with the variables of its service and a log in the folder."""
    service = services({"ATTNKIT_HOST": HOST}).get(command[0], {})
    folders = {"XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with (folder / f"{command[0]}.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, **service.get("environment", {}), **folders},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def answers(port: int, root: Path, name: str = HOST) -> bool:
    """Return whether something at a port speaks TLS with a certificate that this root trusts."""
    context = ssl.create_default_context(cafile=str(root))
    try:
        with (
            socket.create_connection((HOST, port), 5) as connection,
            context.wrap_socket(connection, server_hostname=name),
        ):
            return True
    except OSError:
        return False


@contextmanager
def unfinished(port: int, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    """Open a connection whose header does not end."""
    with (
        socket.create_connection((HOST, port), 60) as connection,
        context.wrap_socket(connection, server_hostname=HOST) as inside,
    ):
        inside.sendall(b"GET / HTTP/1.1\r\nHost: ")
        yield inside


def n_kept(port: int, n: int, source: str) -> int:
    """Return how many of so many new connections of one address are not closed for a second."""
    with ExitStack() as stack:
        closed, n_open = select.poll(), 0
        for _ in range(n):
            with suppress(ConnectionResetError):  # closed before it was seen to be open
                opened = socket.create_connection((HOST, port), 10, source_address=(source, 0))
                closed.register(stack.enter_context(opened), select.POLLIN)
                n_open += 1
        time.sleep(1)
        return n_open - len(closed.poll(0))


def free_ports(n: int) -> list[int]:
    """Return ports that nobody listens on."""
    probes = [socket.socket() for _ in range(n)]
    try:
        for probe in probes:
            probe.bind((HOST, 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
