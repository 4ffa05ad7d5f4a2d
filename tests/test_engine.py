"""Which engine trains, and what happens where the kernel cannot be compiled."""

import subprocess
import sys

import pytest
import torch

from attnkit.foundation.settings import InvalidExperiment, InvalidSettings
from attnkit.training import engine
from attnkit.training.engine import ENGINE, choose_engine, is_ready, ready_engine

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    """Let every test find out anew what can be used here."""
    monkeypatch.delenv(ENGINE, raising=False)
    for known in (engine._compiles, engine._has_numba):
        known.cache_clear()
    yield
    for known in (engine._compiles, engine._has_numba):
        known.cache_clear()


def fail(*_):
    """Stand for a compilation that fails."""
    raise RuntimeError("LLVM ERROR: out of memory")


def test_the_environment_chooses_the_engine_of_a_cpu(monkeypatch):
    """An argument comes before it; a GPU has no other engine than torch, whatever is asked for."""
    assert (choose_engine(CPU), choose_engine(GPU)) == ("kernel", "torch")
    for name in ("kernel", "torch"):
        monkeypatch.setenv(ENGINE, name)
        assert choose_engine(CPU) == ready_engine(CPU) == name
        assert ready_engine(CPU, "torch") == choose_engine(GPU) == "torch"
        assert ready_engine(GPU, "kernel") == "torch"


def test_another_value_is_one_clear_error(monkeypatch, run):
    """It names variable, value and what is allowed; the command trains nothing and exits with 2."""
    monkeypatch.setenv(ENGINE, "fast")
    for device in (CPU, GPU):
        with pytest.raises(InvalidSettings, match=r"^ATTNKIT_ENGINE: got 'fast', .*kernel.*torch"):
            choose_engine(device)
    with pytest.raises(InvalidExperiment, match="engine: got 'fast', allowed kernel, torch"):
        ready_engine(CPU, "fast")
    code, output, errors = run("train", "--steps", "1", "--seeds", "1")
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert "ATTNKIT_ENGINE: got 'fast'" in errors


def test_torch_trains_where_numba_is_missing(monkeypatch, capsys):
    """Nothing is said of it: it is how such a platform works."""
    monkeypatch.setitem(sys.modules, "numba", None)
    assert choose_engine(CPU) == ready_engine(CPU) == "torch"
    assert capsys.readouterr().err == ""


def test_a_failed_compilation_is_told_once_and_torch_trains(monkeypatch, capsys):
    """A line with the reason; the next training does not try again."""
    monkeypatch.setattr("attnkit.model.kernel.cache.ensure_compiled", fail)
    assert [ready_engine(CPU), ready_engine(CPU, "kernel")] == ["torch", "torch"]
    line = "The training kernel cannot be compiled (LLVM ERROR: out of memory): torch trains"
    assert capsys.readouterr().err == f"{line} instead, slower.\n"


def test_an_engine_that_must_be_compiled_is_not_ready(monkeypatch):
    """Nor is one whose state cannot be read."""
    monkeypatch.setattr("attnkit.model.kernel.cache.is_compiled", lambda: False)
    assert (is_ready("kernel"), is_ready("torch")) == (False, True)
    monkeypatch.setattr("attnkit.model.kernel.cache.is_compiled", fail)
    assert not is_ready("kernel")


def test_training_on_torch_imports_no_numba():
    """It takes a second and 130 MB, and some platforms lack it."""
    code = (
        "import sys; from attnkit import Experiment, Training;"
        "Training(Experiment(n_seeds=1, steps=1, n_eval=16), 'cpu', 'torch').advance(1);"
        "raise SystemExit('numba' in sys.modules or 'attnkit.model.kernel' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
