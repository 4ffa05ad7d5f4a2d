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

from attnkit.command.interrupts import Interrupts, interrupts
from attnkit.model.kernel import cache
from attnkit.training import Training
from attnkit.training.results import Result

ROOT = Path(__file__).parents[1]
SMALL = "--sharing QKV,Q=K=V --seeds 2 --set d_head=3 --set batch_size=16 --set n_eval=16".split()
LINE = "attnkit: interrupted"
SECONDS = 60
"""Time that any process here may take."""


pytestmark = pytest.mark.usefixtures("interruptible")


def start(*arguments):
    """Start the command line in a process of its own, where coverage handles no signals."""
    environment = {n: value for n, value in os.environ.items() if not n.startswith("COVERAGE")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return child(sys.executable, "-m", "attnkit", *arguments, env=environment, cwd=ROOT, **pipes)


def wait_for(process, ready):
    """Wait until `ready(folder of the process)` is true, which may raise OSError before."""
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
    lines = (folder / "status").read_text().splitlines()
    (caught,) = (line.split(":")[1] for line in lines if line.startswith("SigCgt"))
    return int(caught, 16) >> (signal.SIGTERM - 1) & 1


def imports_torch(folder):
    """Whether the process has begun to load torch."""
    return "libtorch" in (folder / "maps").read_text()


def interrupted(process, *numbers):
    """Interrupt a process; return its output and the lines that it wrote on standard error."""
    for number in numbers or [signal.SIGINT]:
        process.send_signal(number)
    output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    return output, errors.splitlines()


@pytest.mark.server
def test_an_interrupt_before_the_work_is_one_line():
    """From the first moment, and while torch is imported, which cannot be interrupted cleanly."""
    for number, ready in ((signal.SIGTERM, handles_signals), (signal.SIGINT, imports_torch)):
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
        numbers = signal.SIGINT, signal.SIGTERM, signal.SIGINT
        output, (*lines, stopped, last) = interrupted(process, *numbers)
    document = json.loads(path.read_text())
    assert "(interrupted)" in output
    assert stopped.startswith(f"Stopped at step {document['steps']:,} of 6,000; ")
    assert last == LINE
    assert all(line.startswith("step ") for line in lines)
    assert document["status"] == "stopped"
    assert 0 < document["steps"] < 6000
    assert [run["accuracy"] is None for run in document["runs"]] == [False] * 4
    assert Result.load(folder).snapshot.step == document["steps"]


def test_a_signal_ends_the_process_before_a_computation_and_is_counted_afterwards(monkeypatch):
    """During one the first raises; five end the process even while it saves."""

    class Left(BaseException):
        """Stands for the end of the process."""

    def leave(code):
        raise Left(code)

    monkeypatch.setattr("os._exit", leave)
    monkeypatch.setattr("os.write", lambda *_: None)
    before, during, after = Interrupts(), Interrupts(), Interrupts()  # none is installed
    with pytest.raises(Left):
        before.received()
    with pytest.raises(KeyboardInterrupt), before:
        pytest.fail("began")
    with pytest.raises(KeyboardInterrupt), during:
        during.received()
    for _ in range(3):  # results are being saved, to a disk that does not answer
        during.received()
    with pytest.raises(Left):
        during.received()
    with after:
        pass
    after.received()
    assert (after.n_signals, during.n_signals) == (1, 5)


def test_a_signal_after_the_last_step_costs_no_result(tmp_path, monkeypatch, run):
    """The result is put together, saved and printed before the command ends."""
    put_together = Training.result

    def interrupted_result(training):
        interrupts.received()
        return put_together(training)

    monkeypatch.setattr(Training, "result", interrupted_result)
    monkeypatch.setattr(interrupts, "n_signals", 0)
    path = tmp_path / "numbers.json"
    assert run("train", *SMALL, "--steps", "2", "--json", str(path))[0] == 130
    assert json.loads(path.read_text())["status"] == "finished"


COMMANDS = [
    "claims --quick symmetry_follows",
    "claims --list",
    "models nosuchthing",
    "variants",
    "bench --only-supply",
    "code nowhere --out nowhere",
    *[" ".join(["train", *SMALL, "--steps", "40"])] * 14,
]


@pytest.mark.server
@pytest.mark.long
def test_an_interrupt_at_a_random_moment_has_no_traceback(tmp_path, monkeypatch, seed):
    """Import, training, saving, shutdown: 130, unless the command was done by then."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    chance = random.Random(seed)
    for n, command in enumerate(COMMANDS):
        seconds = chance.uniform(0, 0.3 if n % 2 else 4)
        with start(*command.split()) as process:
            wait_for(process, handles_signals)
            time.sleep(seconds)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=SECONDS)
        assert "Traceback" not in errors, (command, seconds)
        assert process.returncode in (130, *([0, 2] if seconds > 0.3 else [])), (command, seconds)
        assert (LINE in errors) == (process.returncode == 130)
