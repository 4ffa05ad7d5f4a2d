"""The compiled kernel against the formulas, its memory and its cache; who trains."""

import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache as cache_of
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from random_experiments import COMPOSED, TINY, mixed, sizes
from reference import InspectedExample
from searching import briefly

from attnkit.experiment import Experiment
from attnkit.foundation.process import environment_with_package
from attnkit.foundation.settings import InvalidExperiment
from attnkit.model.initial import generator_for
from attnkit.model.kernel import cache
from attnkit.model.kernel import model as kernel_model
from attnkit.model.kernel.compiling import ARGUMENTS, compile_all
from attnkit.model.kernel.model import KernelModel
from attnkit.training import Training, engine
from attnkit.training.data import stack
from attnkit.training.engine import ENGINE, choose_engine, is_ready, kernel_knows, ready_engine

CPU, GPU = torch.device("cpu"), torch.device("cuda")
CANARY = np.float32(-12345.0)


@given(sizes() | mixed())
@briefly(45)
@example(Experiment(d_model=16, n_heads=5, d_head=9, n_seeds=2, d_mlp=11, **TINY))
@example(Experiment(task="dictionary", blocks="standard", d_mlp=7, n_heads=3, batch_size=16))
@example(Experiment(task="language", n_seeds=1, batch_size=16))
@example(Experiment(task="phonebook", blocks="final_norm", n_heads=3, batch_size=16))
@example(Experiment(sharing=COMPOSED, n_seeds=2, n_layers=3, **TINY))
def test_kernel_computes_the_formulas(experiment):
    """At all sizes, all variants that it knows; gradients are written, not added."""
    assume(experiment.size.d_head > 1 or not any(v.given for v in experiment.sharing))
    if known := [v for v in experiment.sharing if kernel_knows(experiment, v)]:
        model = KernelModel(experiment, list(experiment.seeds), CPU, sharing=known)
        noise = torch.randn(len(model.numbers), generator=generator_for(0, "noise"))
        model.numbers.add_(0.1 * noise)
        model.gradient.fill_(math.nan)
        looked = InspectedExample(model, experiment, 16)
        for variant in known:
            looked.check(variant, 1e-4)


def test_a_decoder_of_one_block_asks_a_longer_encoder(monkeypatch):
    """Sixteen positions ask twenty-one, and none of those is left out."""
    experiment = Experiment(task="translation", max_length=18, n_seeds=1, batch_size=16)
    monkeypatch.setattr(type(experiment.task), "n_source", 21)
    model = KernelModel(experiment, list(experiment.seeds), CPU)
    looked = InspectedExample(model, experiment, 16, n_labels=16)
    for variant in experiment.sharing:
        looked.check(variant, 1e-4)


@given(sizes())
@briefly(10)
def test_kernel_writes_nowhere_else(experiment):
    """Numbers between its buffers, before and behind them, stay as they were."""
    outside = []

    def guarded(plan):
        memory = np.full(plan.n_scratch + 64, CANARY)
        start = 16 + -memory.ctypes.data // 4 % 16
        scratch, free = memory[start : start + plan.n_scratch], np.ones(len(memory), bool)
        free[start : start + plan.n_scratch] = False
        free[start + np.array(plan.gaps, int)] = True
        memory[~free] = 0
        outside.append((memory, free))
        return scratch

    drawn = [experiment.task.make_examples(16, generator_for(0, "kernel"))] * experiment.n_seeds
    examples = stack(drawn, len(drawn), CPU)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_model, "_scratch", guarded)
        model = KernelModel(experiment, list(experiment.seeds), CPU)
        before = model.numbers.clone()
        model.differentiate(examples.tokens, examples.labels)
        model.logits(examples.tokens, [])
        model.logits(examples.tokens)
    assert len(outside) >= 3
    assert all((memory[places] == CANARY).all() for memory, places in outside)
    assert torch.equal(before, model.numbers)
    for run in range(model.n_runs):
        for view in model.run_parameters(run, model.gradient).values():
            view.zero_()
    assert not model.gradient.any()


def test_training_calls_what_is_compiled_ahead():
    """So no training waits for a compilation."""
    compile_all()
    experiment = Experiment(task="directed", **TINY, steps=2, clip=0.1)
    Training(experiment, "cpu", "kernel").advance(2)
    assert [len(function.signatures) for function in ARGUMENTS] == [1] * len(ARGUMENTS)


SMALL_KERNEL = str(Path(__file__).parent / "small_kernel.py")  # the kernel takes ten seconds
fail = Mock(side_effect=RuntimeError("LLVM ERROR: out of memory"))


@pytest.fixture
def forget(monkeypatch):
    """Let a test find out anew what can be used here."""
    monkeypatch.delenv(ENGINE, raising=False)
    for each in (engine._compiles, engine._has_numba):
        monkeypatch.setattr(engine, each.__name__, cache_of(each.__wrapped__))


def test_the_environment_chooses_the_engine_of_a_cpu(forget, monkeypatch, run):
    """An argument comes before it; a GPU has torch alone; another value is one clear error."""
    assert (choose_engine(CPU), choose_engine(GPU)) == ("kernel", "torch")
    for name in ("kernel", "torch"):
        monkeypatch.setenv(ENGINE, name)
        assert choose_engine(CPU) == ready_engine(CPU) == name
        assert ready_engine(CPU, "torch") == choose_engine(GPU) == "torch"
        assert ready_engine(GPU, "kernel") == "torch"
    monkeypatch.setenv(ENGINE, "fast")
    with pytest.raises(InvalidExperiment, match="engine: got 'fast', allowed kernel, torch"):
        ready_engine(CPU, "fast")
    code, output, errors = run("train", "--steps", "1", "--seeds", "1")
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert "ATTNKIT_ENGINE: got 'fast'" in errors


def test_torch_trains_where_the_kernel_cannot(forget, monkeypatch, capsys):
    """Without a word where numba is missing; a failed compilation is told once, not tried again."""
    with monkeypatch.context() as missing:
        missing.setitem(sys.modules, "numba", None)
        assert choose_engine(CPU) == ready_engine(CPU) == "torch"
        assert capsys.readouterr().err == ""
    engine._has_numba.cache_clear()
    monkeypatch.setattr(cache, "ensure_compiled", fail)
    assert [ready_engine(CPU), ready_engine(CPU, "kernel")] == ["torch", "torch"]
    assert capsys.readouterr().err.count("LLVM ERROR: out of memory") == 1
    for state in (lambda: False, fail):
        monkeypatch.setattr(cache, "is_compiled", state)
        assert (is_ready("kernel"), is_ready("torch")) == (False, True)


def test_training_on_torch_imports_no_numba():
    """It takes a second and 130 MB, and some platforms lack it."""
    code = (
        "import sys; from attnkit import Experiment, Training;"
        "Training(Experiment(n_seeds=1, steps=1, n_eval=16), 'cpu', 'torch').advance(1);"
        "raise SystemExit('numba' in sys.modules or 'attnkit.model.kernel' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture
def place(monkeypatch, tmp_path):
    """An empty place for caches and temporary folders, as a new process of this user sees it."""
    monkeypatch.delenv(cache.SHIPPED, raising=False)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "caches"))
    monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(cache, "_COMMAND", [SMALL_KERNEL])
    cache.cache_folder.cache_clear()
    yield tmp_path
    cache.cache_folder.cache_clear()


def test_a_cold_cache_is_compiled_once_and_says_so(place, monkeypatch):
    """By one child process; others find the functions without a word; damaged ones are deleted."""
    said, child = [], Mock(wraps=subprocess.run)
    assert not cache.is_compiled()
    with monkeypatch.context() as patch, ThreadPoolExecutor(3) as threads:
        patch.setattr(cache.subprocess, "run", child)
        list(threads.map(cache.ensure_compiled, [said.append] * 3))
    assert (len({*said}), child.call_count, cache.is_compiled()) == (1, 1, True)
    cache.ensure_compiled(pytest.fail)
    command = [sys.executable, SMALL_KERNEL, "load"]  # prints how many functions it found
    assert subprocess.check_output(command, env=environment_with_package()) == b"1"
    assert {path.name for path in (place / "caches").iterdir()} == {cache.cache_key()}
    damaged = SimpleNamespace(compile_all=fail)
    monkeypatch.setitem(sys.modules, "attnkit.model.kernel.compiling", damaged)
    with pytest.raises(RuntimeError, match="LLVM ERROR"):
        cache.load()
    assert not cache.cache_folder().exists()


def test_a_child_that_fails_is_an_error_with_its_last_line(place, monkeypatch):
    """Or numba's first line; one that marks no cache or does not end has failed, too."""
    endless = "import threading; threading.Event().wait()"
    for command, reason, seconds in (
        (["-c", "import sys; sys.exit('first\\nlast line\\n')"], "last line", 99),
        (["-c", "pass"], "exit code 0", 99),
        ([SMALL_KERNEL, "fail"], "RuntimeError: Failed in nopython mode", 99),
        (["-c", endless], "not finished after .*", 0.1),
    ):
        monkeypatch.setattr(cache, "_COMMAND", command)
        monkeypatch.setattr(cache, "MOST_SECONDS", seconds)
        with pytest.raises(RuntimeError, match=f"^{reason}$"):
            cache.ensure_compiled(lambda _: None)
        assert not cache.is_compiled()


def test_folders_that_others_could_write_are_not_used(place, monkeypatch):
    """What lies in them would be run. The next process finds the private folder that serves."""

    def found():
        cache.cache_folder.cache_clear()
        return cache.cache_folder()

    open_to_all = place / "caches" / cache.cache_key()
    open_to_all.mkdir(parents=True)
    open_to_all.chmod(0o777)
    (place / f"{cache._PREFIX}0").touch(mode=0o600)
    (place / f"{cache._PREFIX}1").mkdir(mode=0o755)
    (place / "elsewhere").mkdir(mode=0o700)
    (place / f"{cache._PREFIX}2").symlink_to(place / "elsewhere")
    refused = {path.name for path in place.iterdir()}
    private = found()
    assert private.parent.parent == place
    assert private.parent.name not in refused
    assert private.parent.stat().st_mode & 0o777 == 0o700
    (place / "home").touch()  # no folder can be made below it
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(place / "home"))
    assert found() == private
    monkeypatch.setattr(cache.os, "getuid", lambda: 12345)
    assert found() != private


@pytest.mark.parametrize("fault", ["", "other kernel", "not complete"])
def test_a_shipped_cache_of_this_kernel_is_copied(place, monkeypatch, fault):
    """So that numba may write beside files that can be only read; none that is cut short."""
    monkeypatch.setenv(cache.SHIPPED, str(place / "image"))
    folder = place / "image" / ("another" if fault == "other kernel" else cache.cache_key())
    (folder / "kernel_0").mkdir(parents=True)
    (folder / ("incomplete" if fault == "not complete" else "complete")).touch()
    (folder / "kernel_0" / "step.nbi").write_text("machine code")
    (folder / "kernel_0" / "step.nbi").chmod(0o444)
    (folder / "kernel_0").chmod(0o555)
    assert cache.is_compiled() == (not fault)
    if not fault:
        copied = cache.cache_folder() / "kernel_0" / "step.nbi"
        assert copied.read_text() == "machine code"
        assert copied.stat().st_mode & copied.parent.stat().st_mode & 0o200


def test_the_key_changes_with_any_source_of_the_kernel_and_the_processor(tmp_path, monkeypatch):
    """The key of numba has neither what a module imports nor the versions beside its own."""
    monkeypatch.setattr(cache, "_PACKAGE", tmp_path)
    generator = cache.cpu_target.target_context.codegen().__class__
    changes = [
        *(lambda n=n: (tmp_path / "one.py").write_text(f"x = {n}") for n in (1, 2)),
        lambda: (tmp_path / "two.py").touch(),
        lambda: monkeypatch.setattr(cache.numba, "__version__", "0.0"),
        lambda: monkeypatch.setattr(generator, "magic_tuple", lambda _: ("other",)),
    ]
    keys = set()
    for change in changes:
        change()
        keys.add(cache.cache_key.__wrapped__())
    assert len(keys) == len(changes)
