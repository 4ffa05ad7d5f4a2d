"""Build of the wheel, and its use as a stranger would: `python tests/wheel.py`.

It builds the source distribution and the wheel, checks them, and installs the wheel into a clean
environment outside of the repository. There the dashboard is served and a real browser trains, and
the command line trains and tests a claim. Needs the extra `dev` and Chromium, which .ci/run has.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from browsing import chromium
from lab_browsing import open_lab, press, visitor_page, wait_for_figure
from playwright.sync_api import sync_playwright
from visitors import Visitors

import attnkit

ROOT = Path(__file__).parents[1]
STEPS = 60
LINK = f"v=1&sharing=QKV,Q%3DK&n_seeds=2&steps={STEPS}&first_seed=7"
CLAIM = "two_roles"
PATIENCE = 300.0
"""Seconds after which a step has failed."""


def main() -> None:
    """Build, check, install, train, test a claim, and serve."""
    check_tag()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build(folder / "dist")
        python = install(wheel, folder / "environment")
        place = folder / "elsewhere"
        place.mkdir()
        use_commands(python.with_name("attnkit"), place)  # compiles the kernel, once
        serve_and_train(python.with_name("attnkit"), place)


def check_tag() -> None:
    """Compare the version with the tag of this commit, if it has one that names a version."""
    found = run("git", "tag", "--points-at", "HEAD", "--list", "v*", folder=ROOT).split()
    allowed = [f"v{attnkit.__version__}"]
    assert found in ([], allowed), f"tags {found} of this commit, allowed {allowed}"


def build(folder: Path) -> Path:
    """Build both distributions and check them; the wheel of the source distribution is the same."""
    began = time.monotonic()
    # Without --wheel it is built from the source distribution; without isolation no download.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, source)
    direct = folder / "direct"
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", direct, ROOT)
    assert contents(next(direct.glob("*.whl"))) == contents(wheel)
    megabytes = wheel.stat().st_size / 1e6
    say(f"built a wheel of {megabytes:.1f} MB in {time.monotonic() - began:.0f} s")
    return wheel


def contents(wheel: Path) -> dict[str, int]:
    """Return the files of a wheel with their checksums."""
    with zipfile.ZipFile(wheel) as opened:
        return {file.filename: file.CRC for file in opened.infolist()}


def install(wheel: Path, folder: Path) -> Path:
    """Install the wheel with the pinned versions of its dependencies; return the interpreter."""
    began = time.monotonic()
    uv = [sys.executable, "-m", "uv", "--quiet"]
    run(*uv, "venv", "--python", sys.executable, folder)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    pins = ["--constraint", ROOT / "requirements.txt"]
    run(*uv, "pip", "install", "--python", python, *pins, wheel)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    say(f"installed {size / 1e6:,.0f} MB in {time.monotonic() - began:.0f} s")
    return python


def serve_and_train(command: Path, place: Path) -> None:
    """Serve the dashboard from the wheel, train in a real browser, and end it with Ctrl-C."""
    began = time.monotonic()
    with serving(command, place) as address, sync_playwright() as playwright:
        say(f"serves {address} after {time.monotonic() - began:.0f} s")
        browser = chromium(playwright)
        with visitor_page(Visitors(browser)) as page:
            open_lab(page, address, f"?{LINK}")
            press(page, "train")
            wait_for_figure(page, STEPS, STEPS)
            page.locator("a[href$='/questions']").first.click()
            page.get_by_role("heading", name="Questions").first.wait_for()
        browser.close()
    say(f"a browser has trained and seen another page after {time.monotonic() - began:.0f} s")


@contextmanager
def serving(command: Path, place: Path) -> Iterator[str]:
    """Serve the dashboard in a folder without the repository, and yield the server's address."""
    with subprocess.Popen(
        [command, "--no-browser"],
        cwd=place,
        env=environment(place),
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        late = threading.Timer(PATIENCE, server.kill)  # otherwise CI would wait for ever
        late.start()
        line = server.stdout.readline()
        late.cancel()
        found = re.fullmatch(r"attnkit: (http://127\.0\.0\.1:\d+) \(.*\)\n", line)
        try:
            assert found, line
            yield found[1]
        finally:
            server.send_signal(signal.SIGINT)
        assert server.wait(PATIENCE) == 130


def use_commands(command: Path, place: Path) -> None:
    """Train and test a claim on the command line of the wheel."""
    began = time.monotonic()
    settings = ["--sharing", "QKV,Q=K", "--seeds", "2", "--steps", str(STEPS)]
    document = json.loads(run(command, "train", *settings, "--json", "-", folder=place))
    assert len(document["runs"]) == 4
    report = place / "claims.json"
    run(command, "claims", CLAIM, "--quick", "--json", report, folder=place)
    (claim,) = json.loads(report.read_text(encoding="utf-8"))["claims"]
    bench = subprocess.run(
        [command, "bench"], cwd=place, env=environment(place), stderr=subprocess.PIPE
    )
    assert (bench.returncode, bench.stderr.count(b"\n")) == (2, 1), bench.stderr
    say(f"trained, and {CLAIM} {claim['verdict']}, in {time.monotonic() - began:.0f} s")


def environment(place: Path) -> dict[str, str]:
    """Return an environment that neither finds the repository nor keeps results of this user."""
    unset = ("PYTHONPATH", "VIRTUAL_ENV", "STREAMLIT_SERVER_PORT", "STREAMLIT_SERVER_ADDRESS")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    return {**kept, "ATTNKIT_STORE": str(place / "store")}


def run(*command: str | Path, folder: Path | None = None) -> str:
    """Run a command and return its output; its messages are shown only if it fails."""
    variables = {**os.environ, **uv_settings()} if folder is None else environment(folder)
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    shown = " ".join(map(str, command))
    assert not done.returncode, f"{shown}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def uv_settings() -> dict[str, str]:
    """Return pip's settings of packages' places under the names that uv reads."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    given = dict(line.split("=", 1) for line in listed.stdout.splitlines())
    names = {
        "index-url": "UV_DEFAULT_INDEX",
        "find-links": "UV_FIND_LINKS",
        "cert": "SSL_CERT_FILE",
    }
    return {
        name: value.strip("'")
        for option, name in names.items()
        for place, value in given.items()
        if place.rpartition(".")[2] == option and name not in os.environ
    }


def say(text: str) -> None:
    """Write one line for whoever watches."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
