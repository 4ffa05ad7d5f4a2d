"""The proxy of docs/hosting/ in front of a hosted copy, without a container engine."""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from dockerfile import ROOT

FOLDER = ROOT / "docs" / "hosting"

HOST = "127.0.0.1"
"""Name of the machine in the tests; for an address, Caddy writes the certificate itself."""

HEADER_SECONDS = 1.0
"""Deadline for headers in the tests, which is shorter than that of the Caddyfile."""


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
def proxy(upstream: int, folder: Path) -> Iterator[tuple[int, ssl.SSLContext]]:
    """Start Caddy with our Caddyfile; yield its port for HTTPS, and what trusts its certificate.

    Args:
        upstream: Port of the hosted copy.
        folder: Where Caddy keeps its certificates.
    """
    caddy = shutil.which("caddy")
    assert caddy is not None, "install Debian's package caddy"
    http, https = free_ports(2)
    text = (FOLDER / "Caddyfile").read_text(encoding="utf-8")
    for old, new in (
        ("{\n", f"{{\n\thttp_port {http}\n\thttps_port {https}\n\tskip_install_trust\n"),
        ("read_header 10s", f"read_header {HEADER_SECONDS}s"),
        ("attnkit:8501", f"{HOST}:{upstream}"),
    ):
        assert old in text, f"the Caddyfile has no {old!r}"
        text = text.replace(old, new, 1)
    file, log = folder / "Caddyfile", folder / "log"
    file.write_text(text, encoding="utf-8")
    folders = {"XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [caddy, "run", "--config", str(file), "--adapter", "caddyfile"],
            env={
                **os.environ,
                **services({"ATTNKIT_HOST": HOST})["proxy"]["environment"],
                **folders,
            },
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    root, deadline = folder / "caddy/pki/authorities/local/root.crt", time.monotonic() + 30
    try:
        while not (root.exists() and answers(https, root)):
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"it did not start:\n{log.read_text(encoding='utf-8')}")
            time.sleep(0.1)
        yield https, ssl.create_default_context(cafile=str(root))
    finally:
        process.terminate()
        process.wait()


def answers(port: int, root: Path) -> bool:
    """Return whether something at a port speaks TLS with a certificate that this root trusts."""
    context = ssl.create_default_context(cafile=str(root))
    try:
        with (
            socket.create_connection((HOST, port), 5) as connection,
            context.wrap_socket(connection, server_hostname=HOST),
        ):
            return True
    except OSError:
        return False


def seconds_without_header(port: int, context: ssl.SSLContext) -> float:
    """Return after how many seconds the proxy closes a connection whose header never ends."""
    began = time.monotonic()
    with (
        socket.create_connection((HOST, port), 30) as connection,
        context.wrap_socket(connection, server_hostname=HOST) as inside,
    ):
        inside.sendall(b"GET / HTTP/1.1\r\nHost: ")
        while inside.recv(4096):
            pass
    return time.monotonic() - began


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
