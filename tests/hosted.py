"""Start the dashboard as the image does, without a container engine: `python tests/hosted.py`.

It trains as a visitor, ends the server as Docker does, and finds the result kept. `--long` starts
it once more as docs/hosting/compose.yaml does, behind its proxies, and with a wrong setting.

In namespaces of its own: a root file system that can be only read, holding what the Dockerfile
copies and the Python environment this runs in; a data folder and an empty /tmp that can be written;
the image's user, variables, command and health check. Needs Linux, root and what .ci/run installs.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import psutil
from proxy import HOST, ROOT, free_ports, n_kept, proxies, read_dockerfile, services, unfinished
from visitor import Visitor

USER = 1000
PATIENCE = 300.0
SOFT = 256
SECRET = "a secret of this test"
ELSEWHERE, MANY = "127.0.0.2", "127.0.0.3"
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


def main():
    """Start a copy, train as a visitor, and stop it."""
    image = read_dockerfile()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("root", "app", "data"):
            (folder / part).mkdir()
        os.chown(folder / "data", USER, USER)
        for source, target in image.copied:  # as it lies here
            place, ignored = folder / "app" / target, shutil.ignore_patterns("__pycache__")
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, ignore=ignored, dirs_exist_ok=True)
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, place)
        (text,) = (text for text in image.all("RUN") if "attnkit.model.kernel" in text)
        with box(image, folder, command=["sh", "-c", text], user=0) as compiler:
            assert compiler.wait(PATIENCE) == 0, log_of(folder)
        with (
            serving(image, folder) as port,
            Visitor(port, EXPERIMENT, "", PATIENCE) as visitor,
        ):
            visitor.press("train")
            visitor.wait_for("the end of training", lambda: visitor.says("Finished"))
            trained_by = "by the compiled kernel on "
            visitor.wait_for("what trained it", lambda: trained_by in " ".join(visitor.texts()))
            assert not visitor.exceptions, visitor.exceptions
            assert "Compiling" not in log_of(folder), log_of(folder)
        lines = [line for line in log_of(folder).splitlines() if line.startswith("{")]
        events = [json.loads(line)["event"] for line in lines]
        assert (events[0], events[-1]) == ("server started", "server stopped"), events
        assert "experiment finished" in events, events
        assert [path.name for path in (folder / "data").iterdir()] == ["results.sqlite"]
        sys.stdout.write(f"trained, kept its result, told {', '.join(events)}\n")
        if "--long" in sys.argv:
            check_compose(image, folder)
            with box(image, folder, {"ATTNKIT_MAX_STEPS": "many"}) as refused:
                assert refused.wait(PATIENCE) != 0
            assert "ATTNKIT_MAX_STEPS" in log_of(folder)


@contextmanager
def box(image, folder, changes=None, *, command=(), user=USER):
    """Start a command in the box, by default the image's own, and kill it at the end."""
    environment = {"PATH": f"{sys.prefix}/bin:/usr/bin:/bin", **image.environment}
    environment |= {"STREAMLIT_SERVER_ADDRESS": HOST, **(changes or {})}
    assert environment["ATTNKIT_STORE"] == "/data"
    places = [folder / "root", folder / "app", folder / "data", sys.base_prefix, sys.prefix]
    namespaces = ["unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child"]
    variables = [f"{name}={value}" for name, value in environment.items()]
    program = command or image.command
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*namespaces, "sh", "-euc", BOX, "sh", *map(str, places), *variables, *program],
            env={**os.environ, "USER_ID": str(user)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.kill()  # and with it all that it started
        process.wait()


@contextmanager
def serving(image, folder, changes=None, limit=()):
    """Yield the port of a server that is well; stopped as Docker does, it must end well.

    The changes are environment variables; the limit stands before the image's command.
    """
    (port,) = free_ports(1)
    variables = {**(changes or {}), "STREAMLIT_SERVER_PORT": str(port)}
    health = {"env": {"STREAMLIT_SERVER_PORT": str(port)}, "capture_output": True}
    deadline = time.monotonic() + PATIENCE
    with box(image, folder, variables, command=[*limit, *image.command]) as started:
        while subprocess.run([sys.executable, *image.health[1:]], **health).returncode:
            assert started.poll() is None, log_of(folder)
            assert time.monotonic() < deadline, log_of(folder)
            time.sleep(0.3)
        (process,) = psutil.Process(started.pid).children()
        assert process.uids().real == USER
        yield port
        process.terminate()
        assert started.wait(10) == 0, log_of(folder)


def check_compose(image, folder):
    """Visit a copy as in the compose file through its proxies, where few files may be open."""
    given = {"ATTNKIT_HOST": HOST, "ATTNKIT_OWNER_SECRET": SECRET}
    changes = services(given)["attnkit"]["environment"]
    with (
        serving(image, folder, changes, ["prlimit", f"--nofile={SOFT}:"]) as port,
        proxies(port, folder) as (https, trusted),
        unfinished(https, trusted) as slow,
        ExitStack() as stack,
    ):
        forged = {"X-Forwarded-For": "192.0.2.1", "Forwarded": "for=192.0.2.1"}
        options = {"patience": PATIENCE, "ssl": trusted, "additional_headers": forged}
        visit = partial(Visitor, https, **options)
        for _ in range(2 * SOFT):
            stack.enter_context(socket.create_connection((HOST, port), timeout=10))
        first = stack.enter_context(visit(link=EXPERIMENT))
        first.wait_for("the kept result", lambda: first.says("Trained earlier"))
        link = f"{EXPERIMENT}&steps=5000&n_seeds=8"
        trains = stack.enter_context(visit(link=link, source_address=(ELSEWHERE, 0)))
        trains.press("train")
        trains.wait_for("the first steps", lambda: trains.progress() > 0)
        owner = stack.enter_context(visit(page="owner"))
        owner.set("owner_secret", SECRET)
        owner.press("owner_sign_in")
        owner.wait_for("what trains", lambda: owner.has("owner_address"))
        assert list(owner.find("owner_address").options) == [f"{ELSEWHERE}: 1"]
        assert not [*first.exceptions, *trains.exceptions, *owner.exceptions]
        assert n_kept(https, 600, MANY) == 500
        while slow.recv(4096):
            pass
    sys.stdout.write("trained through the proxies, which count addresses and end slow requests\n")


def log_of(folder):
    """Return all that the box has written on standard output and standard error."""
    return (folder / "log").read_text(encoding="utf-8")


if __name__ == "__main__":
    main()
