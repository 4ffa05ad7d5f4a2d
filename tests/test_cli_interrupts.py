"""Ctrl-C and SIGTERM at any moment: exit code 130, one line, and what is finished is saved."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from children import child

from attnkit.__main__ import main
from attnkit.command.interrupts import Interrupts, interrupts
from attnkit.model.kernel import cache
from attnkit.training import Training
from attnkit.training.results import Result

ROOT = Path(__file__).parents[1]
SMALL = "--sharing QKV,Q=K=V --seeds 2 --set d_head=3 --set batch_size=16 --set n_eval=16".split()
LINE = "attnkit: interrupted"
SECONDS = 60
"""Time that any process here may take."""


@pytest.fixture(autouse=True)
def interruptible():
    """Let child processes receive Ctrl-C even where this process was told to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def start(*arguments):
    """Start the command line in a process of its own, where coverage handles no signals."""
    environment = {n: value for n, value in os.environ.items() if not n.startswith("COVERAGE")}
    return child(
        sys.executable,
        "-m",
        "attnkit",
        *arguments,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def wait_for(process, ready):
    """Wait until `ready(process)` is true, which may raise OSError before."""
    deadline = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if ready(Path("/proc", str(process.pid))):
                return
        except OSError:
            pass
        os.sched_yield()
    pytest.fail(f"not reached; exit code {process.poll()}")


def handles_signals(folder):
    """Whether the command handles SIGTERM, which Python by itself does not."""
    status = dict(
        line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line
    )
    return int(status["SigCgt"], 16) >> (signal.SIGTERM - 1) & 1


def imports_torch(folder):
    """Whether the process has begun to load torch."""
    return "libtorch" in (folder / "maps").read_text()


def interrupted(process, number=signal.SIGINT):
    """Interrupt a process; returns its output and the lines it wrote on standard error."""
    process.send_signal(number)
    output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    return output, errors.splitlines()


@pytest.mark.server
@pytest.mark.parametrize(
    ("number", "ready"), [(signal.SIGTERM, handles_signals), (signal.SIGINT, imports_torch)]
)
def test_an_interrupt_before_the_work_is_one_line(number, ready):
    """From the first moment, and while torch is imported, which cannot be interrupted cleanly."""
    with start("train") as process:
        wait_for(process, ready)
        assert interrupted(process, number) == ("", [LINE])


@pytest.mark.server
@pytest.mark.long
def test_an_interrupt_while_the_kernel_is_compiled_is_one_line(tmp_path, monkeypatch):
    """Here another process has been compiling it, and the command waits."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("ATTNKIT_ENGINE", "kernel")
    cold = tmp_path / cache.cache_key()
    cold.mkdir(mode=0o700)
    with cache.FileLock(cold / "lock"), start("train", *SMALL) as process:
        assert process.stderr.readline().startswith("Compiling the training kernel once")
        assert interrupted(process) == ("", [LINE])


@pytest.mark.server
def test_interrupts_during_training_keep_what_is_finished(tmp_path):
    """Further ones do not disturb the saving: numbers and weights are as they were then.

    A process of its own takes five seconds to import torch and to begin.
    """
    path, folder = tmp_path / "numbers.json", tmp_path / "result"
    targets = ["--json", str(path), "--out", str(folder)]
    with start("train", *SMALL, "--steps", "6000", *targets) as process:
        assert process.stderr.readline().startswith("step ")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        output, (*lines, stopped, last) = interrupted(process)
    document = json.loads(path.read_text())
    assert "(interrupted)" in output
    assert stopped.startswith(f"Stopped at step {document['steps']:,} of 6,000; ")
    assert last == LINE
    assert all(line.startswith("step ") for line in lines)
    assert document["status"] == "stopped"
    assert 0 < document["steps"] < 6000
    assert [run["accuracy"] is None for run in document["runs"]] == [False] * 4
    assert Result.load(folder).snapshot.step == document["steps"]


class Left(BaseException):
    """Exception that stands for the end of the process."""


@pytest.fixture
def handler(monkeypatch):
    """A handler that was not installed, in a process that does not end."""

    def leave(code):
        raise Left(code)

    monkeypatch.setattr("os._exit", leave)
    monkeypatch.setattr("os.write", lambda *_: None)
    return Interrupts()


def test_signals_end_the_next_computation_or_this_one(handler):
    """Before the first one the process ends; during one, later signals are only counted."""
    with pytest.raises(Left):
        handler.received()
    with pytest.raises(KeyboardInterrupt), handler:
        pytest.fail("began")


def test_a_signal_during_a_computation_raises_once(handler):
    """The second and third are counted only, as results are being saved."""
    with pytest.raises(KeyboardInterrupt), handler:
        handler.received()
    handler.received()
    handler.received()
    assert handler.n_signals == 3


def test_five_signals_end_the_process_even_while_it_saves(handler):
    """One after a computation is counted; a disk that does not answer must not hold anybody."""
    with handler:
        pass
    handler.received()
    assert handler.n_signals == 1
    handler.n_signals = 0
    with handler:
        handler.hold()
        for _ in range(4):
            handler.received()
        with pytest.raises(Left):
            handler.received()


def test_a_signal_after_the_last_step_costs_no_result(tmp_path, monkeypatch):
    """The result is put together, saved and printed before the command ends."""
    put_together = Training.result

    def interrupted_result(training):
        interrupts.received()
        return put_together(training)

    monkeypatch.setattr(Training, "result", interrupted_result)
    monkeypatch.setattr(interrupts, "n_signals", 0)
    path = tmp_path / "numbers.json"
    assert main(["train", *SMALL, "--steps", "2", "--json", str(path)]) == 130
    assert json.loads(path.read_text())["status"] == "finished"


COMMANDS = [["train", *SMALL, "--steps", "40"]] * 14 + [
    ["claims", "--quick", "symmetry_follows"],
    ["claims", "--list"],
    ["models", "nosuchthing"],
    ["variants"],
    ["bench", "--only-supply"],
    ["code", "nowhere", "--out", "nowhere"],
]


@pytest.mark.server
@pytest.mark.long
@pytest.mark.parametrize("n", range(len(COMMANDS)))
def test_an_interrupt_at_a_random_moment_has_no_traceback(tmp_path, monkeypatch, seed, n):
    """Import, training, saving, shutdown: 130, unless the command was done by then."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    seconds = random.Random(f"{seed} {n}").uniform(0, 0.3 if n % 2 else 4)
    with start(*COMMANDS[n]) as process:
        wait_for(process, handles_signals)
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=SECONDS)
    assert "Traceback" not in errors, seconds
    assert process.returncode in (130, *([0, 2] if seconds > 0.3 else []))
    assert (LINE in errors) == (process.returncode == 130)
