"""Which engine trains, the cache of the compiled kernel, and what happens where there is none."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache as cache_of
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from attnkit.foundation.process import environment_with_package
from attnkit.foundation.settings import InvalidExperiment, InvalidSettings
from attnkit.model.kernel import cache
from attnkit.training import engine
from attnkit.training.engine import ENGINE, choose_engine, is_ready, ready_engine

CPU, GPU = torch.device("cpu"), torch.device("cuda")

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
    for device in (CPU, GPU):
        with pytest.raises(InvalidSettings, match=r"^ATTNKIT_ENGINE: got 'fast', .*kernel.*torch"):
            choose_engine(device)
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
    told = capsys.readouterr().err
    assert (told.count("\n"), told.count("LLVM ERROR: out of memory")) == (1, 1)
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


# The cache


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
    """By a child process; others find the functions without a word; damaged ones are deleted."""
    said = []
    assert not cache.is_compiled()
    cache.ensure_compiled(said.append)
    assert cache.is_compiled()
    cache.ensure_compiled(said.append)
    assert len(said) == 1
    command = [sys.executable, SMALL_KERNEL, "load"]  # prints how many functions it found
    assert subprocess.check_output(command, env=environment_with_package()) == b"1"
    assert {path.name for path in (place / "caches").iterdir()} == {cache.cache_key()}
    damaged = SimpleNamespace(compile_all=fail)
    monkeypatch.setitem(sys.modules, "attnkit.model.kernel.compiling", damaged)
    with pytest.raises(RuntimeError, match="LLVM ERROR"):
        cache.load()
    assert not cache.cache_folder().exists()


def test_of_processes_that_compile_at_once_one_does(place, monkeypatch):
    """And the others wait for it."""
    runs, complete = str(place / "runs"), str(cache.cache_folder() / "complete")
    command = ["-c", f"open({runs!r}, 'a').write('.'); open({complete!r}, 'w')"]
    monkeypatch.setattr(cache, "_COMMAND", command)
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(cache.ensure_compiled, [lambda _: None] * 3))
    assert Path(runs).read_text() == "."


def test_a_child_that_fails_is_an_error_with_its_last_line(place, monkeypatch):
    """Or numba's first line; one that marks no cache or does not end has failed, too."""
    for command, reason in (
        (["-c", "import sys; sys.exit('first\\nlast line\\n')"], "last line"),
        (["-c", "pass"], "exit code 0"),
        ([SMALL_KERNEL, "fail"], "RuntimeError: Failed in nopython mode"),
        (["-c", "import threading; threading.Event().wait()"], "not finished after .*"),
    ):
        monkeypatch.setattr(cache, "_COMMAND", command)
        if "wait" in command[1]:
            monkeypatch.setattr(cache, "MOST_SECONDS", 0.1)
        with pytest.raises(RuntimeError, match=f"^{reason}$"):
            cache.ensure_compiled(lambda _: None)
        assert not cache.is_compiled()


def test_folders_that_others_could_write_are_not_used(place, monkeypatch):
    """What lies in them would be run. The next process finds the private folder that serves."""
    open_to_all = place / "caches" / cache.cache_key()
    open_to_all.mkdir(parents=True)
    open_to_all.chmod(0o777)
    (place / f"{cache._PREFIX}0").touch(mode=0o600)
    (place / f"{cache._PREFIX}1").mkdir(mode=0o755)
    (place / "elsewhere").mkdir(mode=0o700)
    (place / f"{cache._PREFIX}2").symlink_to(place / "elsewhere")
    refused = {"caches", *(f"{cache._PREFIX}{n}" for n in range(3))}
    found = cache.cache_folder()
    assert found.parent.parent == place
    assert found.parent.name not in refused
    assert found.parent.stat().st_mode & 0o777 == 0o700
    (place / "home").touch()  # no folder can be made below it
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(place / "home"))
    cache.cache_folder.cache_clear()
    assert cache.cache_folder() == found
    cache.cache_folder.cache_clear()
    monkeypatch.setattr(cache.os, "getuid", lambda: 12345)
    assert cache.cache_folder() != found


@pytest.mark.parametrize("fault", ["", "other kernel", "not complete", "full disk"])
def test_a_shipped_cache_of_this_kernel_is_copied(place, monkeypatch, fault):
    """So that numba may write beside files that can be only read; none that is cut short."""

    def copy(source, target, copy=cache.shutil.copyfile):
        if fault == "full disk" and source.suffix == ".nbi":
            raise OSError("the disk is full")
        copy(source, target)

    monkeypatch.setattr(cache.shutil, "copyfile", copy)
    monkeypatch.setenv(cache.SHIPPED, str(place / "image"))
    folder = place / "image" / ("another" if fault == "other kernel" else cache.cache_key())
    (folder / "kernel_0").mkdir(parents=True)
    (folder / "kernel_0" / "step.nbi").write_text("machine code")
    (folder / "kernel_0" / "step.nbi").chmod(0o444)
    (folder / "kernel_0").chmod(0o555)
    if fault != "not complete":
        (folder / "complete").touch()
    assert cache.is_compiled() == (not fault)
    if not fault:
        copied = cache.cache_folder() / "kernel_0" / "step.nbi"
        assert copied.read_text() == "machine code"
        assert copied.stat().st_mode & copied.parent.stat().st_mode & 0o200


def test_the_key_changes_with_any_source_of_the_kernel_and_the_processor(place, monkeypatch):
    """numba's own key has neither what a module imports nor the versions beside its own."""
    (source := place / "kernel").mkdir()
    monkeypatch.setattr(cache, "_PACKAGE", source)
    generator = cache.cpu_target.target_context.codegen().__class__
    changes = [
        *(lambda n=n: (source / "one.py").write_text(f"x = {n}") for n in (1, 2)),
        lambda: (source / "two.py").touch(),
        lambda: monkeypatch.setattr(cache.numba, "__version__", "0.0"),
        lambda: monkeypatch.setattr(generator, "magic_tuple", lambda _: ("other",)),
    ]
    keys = set()
    for change in changes:
        change()
        keys.add(cache.cache_key.__wrapped__())
    assert len(keys) == len(changes)
