"""Build of the wheel, and its use as a stranger would: `python tests/wheel.py`.

It builds the wheel and installs it into a clean environment outside of the repository. There the
command line trains, and the dashboard is served. `--long` builds and checks the source distribution
first, tests a claim, and trains in a real browser. Needs the extra `dev`, and then Chromium.
"""

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
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import attnkit

ROOT = Path(__file__).parents[1]
STEPS = 60
PATIENCE = 300.0  # seconds after which a step has failed


def main():
    """Build, install, train, serve; with `--long` also what takes minutes."""
    is_long, began = "--long" in sys.argv, time.monotonic()
    found = run("git", "tag", "--points-at", "HEAD", "--list", "v*", folder=ROOT).split()
    allowed = [f"v{attnkit.__version__}"]
    assert found in ([], allowed), f"tags {found} of this commit, allowed {allowed}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build("--wheel", folder / "direct")
        if is_long:
            both = [zipfile.ZipFile(one) for one in (wheel, build("", folder / "dist"))]
            found = [{one.filename: one.CRC for one in opened.infolist()} for opened in both]
            assert found[0] == found[1], "the wheel of the source distribution is another one"
            run(sys.executable, "-m", "twine", "check", "--strict", *(folder / "dist").iterdir())
        command, place = install(wheel, folder / "environment"), folder / "elsewhere"
        place.mkdir()
        settings = ["--sharing", "QKV,Q=K", "--seeds", "2", "--steps", str(STEPS)]
        document = json.loads(run(command, "train", *settings, "--json", "-", folder=place))
        assert len(document["runs"]) == 4
        if is_long:
            use_commands(command, place)
        with serving(command, place) as address:
            with urlopen(f"{address}/_stcore/health", timeout=PATIENCE) as answer:
                assert answer.read() == b"ok"
            if is_long:
                train_in_browser(address)
    sys.stdout.write(f"built, installed and used the wheel in {time.monotonic() - began:.0f} s\n")


def build(kind, folder):
    """Build what a flag of `build` says, and return the wheel; without isolation no download."""
    run(sys.executable, "-m", "build", "--no-isolation", *kind.split(), "--outdir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel, folder):
    """Install the wheel with the pinned versions of its dependencies; return its command."""
    uv = [sys.executable, "-m", "uv", "--quiet"]
    run(*uv, "venv", "--python", sys.executable, folder)
    commands = folder / ("Scripts" if os.name == "nt" else "bin")
    pins = ["--constraint", ROOT / "requirements.txt"]
    run(*uv, "pip", "install", "--python", commands / "python", *pins, wheel)
    return commands / "attnkit"


@contextmanager
def serving(command, place):
    """Serve the dashboard in a folder without the repository until Ctrl-C; yield its address."""
    started = {"cwd": place, "env": environment(place), "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([command, "--no-browser"], **started) as server:
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


def train_in_browser(address):
    """Train in a real browser, and see another page."""
    from browsing import chromium
    from lab_browsing import open_lab, press, visitor_page, wait_for_figure
    from playwright.sync_api import sync_playwright
    from visitors import Visitors

    with sync_playwright() as playwright, visitor_page(Visitors(chromium(playwright))) as page:
        open_lab(page, address, f"?v=1&sharing=QKV,Q%3DK&n_seeds=2&steps={STEPS}&first_seed=7")
        press(page, "train")
        wait_for_figure(page, STEPS, STEPS)
        page.locator("a[href$='/questions']").first.click()
        page.get_by_role("heading", name="Questions").first.wait_for()


def use_commands(command, place):
    """Test a claim, and see the error of a command that needs the repository."""
    report = place / "claims.json"
    run(command, "claims", "two_roles", "--quick", "--json", report, folder=place)
    (claim,) = json.loads(report.read_text(encoding="utf-8"))["claims"]
    assert claim["verdict"]
    given = {"cwd": place, "env": environment(place), "stderr": subprocess.PIPE}
    bench = subprocess.run([command, "bench"], **given, check=False)
    assert (bench.returncode, bench.stderr.count(b"\n")) == (2, 1), bench.stderr


def environment(place):
    """Return an environment that neither finds the repository nor keeps results of this user."""
    unset = ("PYTHONPATH", "VIRTUAL_ENV", "STREAMLIT_SERVER_PORT", "STREAMLIT_SERVER_ADDRESS")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    return {**kept, "ATTNKIT_STORE": str(place / "store")}


def run(*command, folder=None):
    """Run a command and return its output; its messages are shown only if it fails."""
    variables = {**os.environ, **uv_settings()} if folder is None else environment(folder)
    command = list(map(str, command))
    given = {"cwd": folder, "env": variables, "timeout": PATIENCE}
    done = subprocess.run(command, **given, capture_output=True, text=True, check=False)
    shown = " ".join(command)
    assert not done.returncode, f"{shown}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def uv_settings():
    """Return pip's settings of packages' places under the names that uv reads."""
    pip = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(pip, capture_output=True, text=True, check=True).stdout
    given = dict(line.split("=", 1) for line in listed.splitlines())
    names = {"index-url": "DEFAULT_INDEX", "find-links": "FIND_LINKS"}
    names = {option: f"UV_{name}" for option, name in names.items()} | {"cert": "SSL_CERT_FILE"}
    return {
        name: value.strip("'")
        for option, name in names.items()
        for place, value in given.items()
        if place.rpartition(".")[2] == option and name not in os.environ
    }


if __name__ == "__main__":
    main()
