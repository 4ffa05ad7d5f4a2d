"""Starts the dashboard as the image does, without a container engine: `python tests/hosted.py`.

Then it starts it once more as docs/hosting/compose.yaml does, with the proxy in front of it.

In namespaces of its own: a root file system that can be only read, holding what the Dockerfile
copies and the Python environment this runs in; a data folder and an empty /tmp that can be written;
the image's user, variables, command and health check. Needs Linux, root and Caddy, as in .ci/run.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
from dockerfile import ROOT, Dockerfile, read
from proxy import HEADER_SECONDS, HOST, free_ports, proxy, seconds_without_header, services
from visitor import Visitor

USER = 1000
PATIENCE = 300.0
SOFT = 256
SECRET = "a secret of this test"
ELSEWHERE = "127.0.0.2"
EXPERIMENT = "v=1&n_seeds=2&steps=60&sharing=QKV,Q%3DK&first_seed=7"

BOX = """
root=$1 app=$2 data=$3 python=$4 environment=$5; shift 5
read_only() { mkdir -p "$root$2"; mount --bind "$1" "$root$2"; mount -o remount,bind,ro "$root$2"; }
mount -t tmpfs -o mode=755 root "$root"
for folder in bin lib lib64 usr etc; do
  if [ -L "/$folder" ]; then cp -P "/$folder" "$root"
  elif [ -d "/$folder" ]; then read_only "/$folder" "/$folder"; fi
done
mkdir "$root/tmp" "$root/data" "$root/dev" "$root/proc"
mount -t tmpfs -o mode=1777,size=64m tmp "$root/tmp"
mount --bind "$data" "$root/data"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
if [ "$USER_ID" = 0 ]; then mkdir "$root/app"; mount --bind "$app" "$root/app"
else read_only "$app" /app; fi
read_only "$python" "$python"
read_only "$environment" "$environment"
mount -o remount,ro "$root"
exec setpriv --no-new-privs chroot --userspec="$USER_ID:$USER_ID" "$root" \
  /usr/bin/env -i --chdir=/app "$@"
"""
"""Run by a shell in mount and process namespaces of its own; root may write to /app."""


def main() -> None:
    """Start it, train as a visitor, stop it; start it again and find the result."""
    image = read()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("root", "app", "data"):
            (folder / part).mkdir()
        os.chown(folder / "data", USER, USER)
        copy_app(image, folder / "app")
        compile_kernel(image, folder)
        with serving(image, folder) as (port, server):
            say(f"serves after {server.seconds:.1f} s as user {server.process.uids().real}")
            with Visitor(port, link=EXPERIMENT, patience=PATIENCE) as visitor:
                visitor.press("train")
                visitor.wait_for("the end of training", lambda: is_finished(visitor))
                assert not visitor.exceptions, visitor.exceptions
                visitor.wait_for(
                    "what trained it",
                    lambda: any("by the compiled kernel on " in text for text in visitor.texts()),
                )
            assert "Compiling" not in server.log, server.log
        events = [line["event"] for line in server.events]
        assert events[0] == "server started", events
        assert events[-1] == "server stopped", events
        assert "experiment finished" in events, events
        files = [path.name for path in (folder / "data").iterdir()]
        assert files == ["results.sqlite"], files
        say(f"trained, kept {files[0]}, told {', '.join(events)}")
        check_compose(image, folder)
        check_refusal(image, folder)
        say("a setting that is not allowed stops the server at once, by its name")


class Server:
    """A server that was started, and its log."""

    def __init__(self, process: psutil.Process, seconds: float, log: Path) -> None:
        self.process, self.seconds, self._log = process, seconds, log

    @property
    def log(self) -> str:
        """All that it wrote on standard output and standard error."""
        return self._log.read_text(encoding="utf-8")

    @property
    def events(self) -> list[dict[str, object]]:
        """The events that it logged, which are its lines of JSON."""
        return [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]


@contextmanager
def serving(
    image: Dockerfile,
    folder: Path,
    changes: Mapping[str, str] | None = None,
    open_files: int | None = None,
) -> Iterator[tuple[int, Server]]:
    """A running server, stopped afterwards as Docker does; it must end well and leave nothing.

    Args:
        image: What starts it.
        folder: Its folders.
        changes: Environment variables besides those of the image.
        open_files: Soft limit of open files at its start. None: that of this process.
    """
    (port,), log = free_ports(1), folder / "log"
    began = time.monotonic()
    limit = ["prlimit", f"--nofile={open_files}:"] if open_files else []
    variables = {**(changes or {}), "STREAMLIT_SERVER_PORT": str(port)}
    box = start(image, folder, variables, log, command=[*limit, *image.command])
    try:
        while not is_well(image, port):
            if box.poll() is not None or time.monotonic() > began + PATIENCE:
                raise AssertionError(f"it did not start:\n{log.read_text(encoding='utf-8')}")
            time.sleep(0.1)
        (process,) = psutil.Process(box.pid).children()
        assert process.uids().real == USER
        yield port, Server(process, time.monotonic() - began, log)
        process.terminate()
        assert box.wait(timeout=10) == 0, log.read_text(encoding="utf-8")
    finally:
        box.kill()  # and with it all that it started
        box.wait()


def start(
    image: Dockerfile,
    folder: Path,
    changes: dict[str, str],
    log: Path,
    *,
    command: Sequence[str] = (),
    user: int = USER,
) -> subprocess.Popen[bytes]:
    """Start a command in the box, by default the image's own."""
    environment = {
        "PATH": f"{sys.prefix}/bin:/usr/bin:/bin",
        **image.environment,
        "STREAMLIT_SERVER_ADDRESS": HOST,
        **changes,
    }
    assert environment["ATTNKIT_STORE"] == "/data"
    places = [folder / "root", folder / "app", folder / "data", sys.base_prefix, sys.prefix]
    namespaces = ["unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child"]
    variables = [f"{name}={value}" for name, value in environment.items()]
    program = command or image.command
    with log.open("wb") as told:
        return subprocess.Popen(
            [*namespaces, "sh", "-euc", BOX, "sh", *map(str, places), *variables, *program],
            env={**os.environ, "USER_ID": str(user)},
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=subprocess.STDOUT,
        )


def compile_kernel(image: Dockerfile, folder: Path) -> None:
    """Run the instruction that compiles the kernel, as root, who alone may write to /app."""
    (text,) = (text for text in image.all("RUN") if "attnkit.model.kernel" in text)
    log = folder / "log"
    box = start(image, folder, {}, log, command=["sh", "-c", text], user=0)
    try:
        assert box.wait(timeout=PATIENCE) == 0, log.read_text(encoding="utf-8")
    finally:
        box.kill()
        box.wait()


def check_compose(image: Dockerfile, folder: Path) -> None:
    """A copy as in the compose file, where few files may be open, and visitors of its proxy."""
    given = {"ATTNKIT_HOST": HOST, "ATTNKIT_OWNER_SECRET": SECRET}
    changes = services(given)["attnkit"]["environment"]
    with (
        serving(image, folder, changes, open_files=SOFT) as (port, server),
        proxy(port, folder) as (https, trusted),
        ExitStack() as stack,
    ):

        def visitor(**options: Any) -> Visitor:
            forged = {"X-Forwarded-For": "192.0.2.1", "Forwarded": "for=192.0.2.1"}
            options |= {"patience": PATIENCE, "ssl": trusted, "additional_headers": forged}
            return stack.enter_context(Visitor(https, **options))

        for _ in range(2 * SOFT):
            stack.enter_context(socket.create_connection((HOST, port), timeout=10))
        first = visitor(link=EXPERIMENT)
        verb = "Trained earlier"
        first.wait_for("the kept result", lambda: is_finished(first, verb))
        say(f"found the result again after a restart, with {server.process.num_fds()} open files")
        trains = visitor(link=f"{EXPERIMENT}&steps=5000&n_seeds=8", source_address=(ELSEWHERE, 0))
        trains.press("train")
        trains.wait_for("the first steps", lambda: trains.progress() > 0)
        owner = visitor(page="owner")
        owner.set("owner_secret", SECRET)
        owner.press("owner_sign_in")
        owner.wait_for("what trains", lambda: owner.has("owner_address"))
        addresses = list(owner.find("owner_address").options)
        assert addresses == [f"{ELSEWHERE}: 1"], addresses
        for one in (first, trains, owner):
            assert not one.exceptions, one.exceptions
        seconds = seconds_without_header(https, trusted)
        assert HEADER_SECONDS <= seconds < PATIENCE, seconds
    say("trained through the proxy; the copy saw the visitor's address, whatever the headers said")


def check_refusal(image: Dockerfile, folder: Path) -> None:
    """A setting that is not allowed."""
    log = folder / "log"
    (port,) = free_ports(1)
    changes = {"STREAMLIT_SERVER_PORT": str(port), "ATTNKIT_MAX_STEPS": "many"}
    box = start(image, folder, changes, log)
    try:
        assert box.wait(timeout=PATIENCE) != 0
    finally:
        box.kill()
        box.wait()
    assert "ATTNKIT_MAX_STEPS" in log.read_text(encoding="utf-8")


def copy_app(image: Dockerfile, folder: Path) -> None:
    """What the Dockerfile copies, as it lies here."""
    for source, target in image.copied:
        found = ROOT / source
        if found.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(found, folder / target, ignore=ignored, dirs_exist_ok=True)
        else:
            (folder / target).mkdir(parents=True, exist_ok=True)
            shutil.copy(found, folder / target)


def is_well(image: Dockerfile, port: int) -> bool:
    """What the image's health check says."""
    command = [sys.executable, *image.health[1:]]
    environment = {"STREAMLIT_SERVER_PORT": str(port)}
    return not subprocess.run(command, env=environment, capture_output=True, check=False).returncode


def is_finished(visitor: Visitor, verb: str = "Finished: ") -> bool:
    """Whether the page shows a finished experiment."""
    return any(text.startswith(verb) for text in visitor.texts())


def say(text: str) -> None:
    """One line for whoever watches."""
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main()
