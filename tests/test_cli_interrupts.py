"""Ctrl-C and SIGTERM at any moment: exit code 130, one line, and what is finished is saved."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from children import child

from attnkit.command.interrupts import Interrupts, interrupts
from attnkit.training import Training
from attnkit.training.results import Result

SMALL = "--sharing QKV,Q=K=V --seeds 2 --set d_head=3 --set batch_size=16 --set n_eval=16".split()
LINE = "attnkit: interrupted"

pytestmark = pytest.mark.usefixtures("interruptible")


def start(*arguments):
    """Start the command line in a process of its own, where coverage handles no signals."""
    environment = {n: value for n, value in os.environ.items() if not n.startswith("COVERAGE")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    root = Path(__file__).parents[1]
    return child(sys.executable, "-m", "attnkit", *arguments, env=environment, cwd=root, **pipes)


def interrupted(process, *numbers):
    """Interrupt a process; return its output and the lines that it wrote on standard error."""
    for number in numbers:
        process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    return output, errors.splitlines()


@pytest.mark.server
def test_interrupts_during_training_keep_what_is_finished(tmp_path):
    """Further ones do not disturb the saving: numbers and weights are as they were then."""
    path, folder = tmp_path / "numbers.json", tmp_path / "result"
    targets = ["--json", str(path), "--out", str(folder)]
    with start("train", *SMALL, "--steps", "6000", *targets) as process:
        assert process.stderr.readline().startswith("step ")
        numbers = signal.SIGINT, signal.SIGTERM, signal.SIGINT
        output, (*lines, stopped, last) = interrupted(process, *numbers)
    document = json.loads(path.read_text())
    assert "(interrupted)" in output
    assert f" {document['steps']:,} of 6,000" in stopped
    assert last == LINE
    assert all(line.startswith("step ") for line in lines)
    assert (document["status"], 0 < document["steps"] < 6000) == ("stopped", True)
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
