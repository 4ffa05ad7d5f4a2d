"""The cache of the compiled kernel: its folder, and the child process that fills it."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from attnkit.foundation.process import environment_with_package
from attnkit.model.kernel import cache

SMALL_KERNEL = str(Path(__file__).parent / "small_kernel.py")
"""What the child process compiles here: the kernel itself takes half a minute."""


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


def complete(folder):
    """Fill a cache folder as a compilation does."""
    (folder / "kernel_0").mkdir(parents=True)
    (folder / "kernel_0" / "step.nbi").write_text("machine code")
    (folder / "complete").touch()


def test_a_cold_cache_is_compiled_once_and_says_so(place):
    """By a child process; others find the functions without a word, in the folder of this kernel.

    If it is damaged, one process falls back to torch and deletes it, and the next one compiles:
    four processes that import numba take 6 s.
    """
    said = []
    assert not cache.is_compiled()
    cache.ensure_compiled(said.append)
    assert cache.is_compiled()
    cache.ensure_compiled(said.append)
    assert said == ["Compiling the training kernel once, about half a minute ..."]
    assert loaded().stdout == b"1"
    assert {path.name for path in (place / "caches").iterdir()} == {cache.cache_key()}
    for data in cache.cache_folder().glob("*/*.nb?"):
        data.write_bytes(b"")
    assert (loaded().returncode, cache.cache_folder().exists()) == (1, False)
    assert loaded().returncode == 0


def loaded():
    """Load the small kernel in another process, which prints how many functions it found."""
    command = [sys.executable, SMALL_KERNEL, "load"]
    return subprocess.run(command, env=environment_with_package(), capture_output=True, check=False)


def test_processes_that_compile_at_once_do_no_harm(place, monkeypatch):
    """One compiles, the others wait for it."""
    runs = place / "runs"
    mark = "from attnkit.model.kernel.cache import mark_compiled; mark_compiled()"
    monkeypatch.setattr(cache, "_COMMAND", ["-c", f"open({str(runs)!r}, 'a').write('.'); {mark}"])
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(cache.ensure_compiled, [lambda _: None] * 3))
    assert runs.read_text() == "."


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["-c", "import sys; sys.exit('first\\nlast line\\n')"], "last line"),
        (["-c", "pass"], "exit code 0"),
        ([SMALL_KERNEL, "fail"], "RuntimeError: Failed in nopython mode"),
        (["-c", "import threading; threading.Event().wait()"], "not finished after .*"),
    ],
)
def test_a_child_that_fails_is_an_error_with_its_last_line(place, monkeypatch, command, reason):
    """Or numba's first line, which says most; one that marks no cache has failed, too.

    One that does not end is given up after a limit.
    """
    monkeypatch.setattr(cache, "_COMMAND", command)
    if "wait" in command[1]:
        monkeypatch.setattr(cache, "MOST_SECONDS", 0.1)
    with pytest.raises(RuntimeError, match=f"^{reason}$"):
        cache.ensure_compiled(lambda _: None)
    assert not cache.is_compiled()


def test_where_the_cache_folder_cannot_be_written_a_private_temporary_one_serves(
    place, monkeypatch
):
    """The next process of this user finds the same one; nobody else can open it."""
    (place / "home").write_text("a file, so no folder can be made below it")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(place / "home"))
    folder = cache.cache_folder()
    assert folder.parent.parent == place
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    cache.cache_folder.cache_clear()
    assert cache.cache_folder() == folder


def test_folders_that_others_could_write_are_not_used(place, monkeypatch):
    """Neither a cache folder, nor a temporary one, a link to a folder, or another user's.

    What lies in it would be run.
    """
    open_to_all = place / "caches" / cache.cache_key()
    open_to_all.mkdir(parents=True)
    open_to_all.chmod(0o777)
    (place / f"{cache._PREFIX}0").touch(mode=0o600)
    (place / f"{cache._PREFIX}1").mkdir(mode=0o755)
    (place / "elsewhere").mkdir(mode=0o700)
    (place / f"{cache._PREFIX}2").symlink_to(place / "elsewhere")
    refused = {"caches", *(f"{cache._PREFIX}{n}" for n in range(3))}
    found = cache.cache_folder()
    assert found.parent.name not in refused
    cache.cache_folder.cache_clear()
    monkeypatch.setattr(cache.os, "getuid", lambda: 12345)
    assert cache.cache_folder() != found


def test_a_shipped_cache_of_this_kernel_is_copied(place, monkeypatch):
    """Files that can be only read are copied so that numba may write beside them."""
    shipped = place / "image"
    monkeypatch.setenv(cache.SHIPPED, str(shipped))
    complete(shipped / "another kernel")
    assert not cache.is_compiled()
    complete(shipped / cache.cache_key())
    (shipped / cache.cache_key() / "kernel_0" / "step.nbi").chmod(0o444)
    (shipped / cache.cache_key() / "kernel_0").chmod(0o555)
    assert cache.is_compiled()
    copied = cache.cache_folder() / "kernel_0" / "step.nbi"
    assert copied.read_text() == "machine code"
    assert copied.stat().st_mode & copied.parent.stat().st_mode & 0o200


@pytest.mark.parametrize("cut", ["shipped", "copied"])
def test_a_shipped_cache_that_is_not_complete_is_left_alone(place, monkeypatch, cut):
    """It was cut short while it was made, or its copy by a full disk; the kernel is compiled."""

    def copy(source, target, copy=cache.shutil.copyfile):
        if source.suffix == ".nbi":
            raise OSError("the disk is full")
        copy(source, target)

    monkeypatch.setenv(cache.SHIPPED, str(place / "image"))
    complete(place / "image" / cache.cache_key())
    if cut == "shipped":
        (place / "image" / cache.cache_key() / "complete").unlink()
    else:
        monkeypatch.setattr(cache.shutil, "copyfile", copy)
    assert not cache.is_compiled()


def test_the_key_changes_with_any_source_of_the_kernel_and_the_processor(place, monkeypatch):
    """numba's own key has neither what a module imports nor the versions beside its own."""
    (source := place / "kernel").mkdir()
    monkeypatch.setattr(cache, "_PACKAGE", source)
    generator = cache.cpu_target.target_context.codegen().__class__
    changes = [
        lambda: (source / "one.py").write_text("x = 1"),
        lambda: (source / "one.py").write_text("x = 2"),
        lambda: (source / "two.py").touch(),
        lambda: monkeypatch.setattr(cache.numba, "__version__", "0.0"),
        lambda: monkeypatch.setattr(generator, "magic_tuple", lambda _: ("other",)),
    ]
    keys = set()
    for change in changes:
        change()
        keys.add(cache.cache_key.__wrapped__())
    assert len(keys) == len(changes)
