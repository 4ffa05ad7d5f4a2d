"""What the Dockerfile says, and the proxies of docs/hosting.md, without a container engine."""

import json
import os
import re
import select
import shlex
import socket
import ssl
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]

FOLDER = ROOT / "docs" / "hosting"

HOST = "127.0.0.1"
"""Name of the machine in the tests; for an address, Caddy writes the certificate itself."""


class Dockerfile:
    """Instructions of a Dockerfile: name and text, continued lines joined, no comments."""

    def __init__(self, text):
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
        found = (line.partition(" ") for line in joined.splitlines() if line.strip())
        self.instructions = [(name, rest.strip()) for name, _, rest in found]
        words = [word for text in self.all("ENV") for word in shlex.split(text)]
        self.environment = dict(word.split("=", maxsplit=1) for word in words)
        self.command = json.loads(self.all("CMD")[-1])
        self.health = json.loads(self.all("HEALTHCHECK")[-1].partition("CMD ")[2])
        copies = [text.split() for text in self.all("COPY")]
        self.copied = [(source, target) for *sources, target in copies for source in sources]

    def all(self, name):
        """Return the texts of all instructions of one kind, in their order."""
        return [text for kind, text in self.instructions if kind == name]


def read_dockerfile():
    """Return the Dockerfile of this repository."""
    return Dockerfile((ROOT / "Dockerfile").read_text(encoding="utf-8"))


def services(variables):
    """Return the services of the compose file with their variables replaced."""

    def value(found):
        name, default = found["name"], found["default"]
        return variables[name] if default is None else variables.get(name, default)

    text = (FOLDER / "compose.yaml").read_text(encoding="utf-8")
    pattern = r"\$\{(?P<name>\w+)(?::-(?P<default>[^}]*)|:\?[^}]*)?\}"
    return yaml.safe_load(re.sub(pattern, value, text))["services"]


@contextmanager
def proxies(upstream, folder):
    """Start HAProxy and Caddy with our files; yield the port for HTTPS, and what trusts it.

    A Caddy before 2.7, as Debian's, does not speak HAProxy's protocol. It sees the visitors'
    addresses all the same, because here HAProxy may connect from them. `upstream` is the port of
    the hosted copy, and Caddy keeps its certificates in the folder.
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
    caddyfile = changed(FOLDER / "Caddyfile", caddy_changes, folder)
    configuration = changed(FOLDER / "haproxy.cfg", haproxy_changes, folder)
    root = folder / "caddy/pki/authorities/local/root.crt"
    with (
        running(["caddy", "run", "--config", caddyfile, "--adapter", "caddyfile"], folder),
        running(["haproxy", "-f", configuration], folder),
    ):
        yield https, trusted_by(https, root, folder)


def changed(path, changes, folder):
    """Write a file with some of its texts replaced once into a folder, and return its path."""
    text = path.read_text(encoding="utf-8")
    for old, new in changes.items():
        assert old in text, f"no {old!r} in {text}"
        text = text.replace(old, new, 1)
    (folder / path.name).write_text(text, encoding="utf-8")
    return str(folder / path.name)


@contextmanager
def running(command, folder):
    """Run one of the proxies, with the variables of its service and a log in the folder."""
    service = services({"ATTNKIT_HOST": HOST}).get(command[0], {})
    folders = {"XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with (folder / f"{command[0]}.log").open("wb") as log:
        environment = {**os.environ, **service.get("environment", {}), **folders}
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def trusted_by(port, certificate, folder, name=HOST):
    """Return what trusts the proxy at a port, as soon as it answers with its certificate."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(OSError):
            context = ssl.create_default_context(cafile=str(certificate))
            with (
                socket.create_connection((HOST, port), 5) as connection,
                context.wrap_socket(connection, server_hostname=name),
            ):
                return context
        time.sleep(0.05)
    raise AssertionError([log.read_text(encoding="utf-8") for log in folder.glob("*.log")])


@contextmanager
def unfinished(port, context):
    """Open a connection whose header does not end."""
    with (
        socket.create_connection((HOST, port), 60) as connection,
        context.wrap_socket(connection, server_hostname=HOST) as inside,
    ):
        inside.sendall(b"GET / HTTP/1.1\r\nHost: ")
        yield inside


def n_kept(port, n, source):
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


def free_ports(n):
    """Return ports that nobody listens on."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(n)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [probe.getsockname()[1] for probe in probes]
