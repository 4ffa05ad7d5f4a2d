"""Results on network file systems: without shared memory, without locks, on several machines.

The faults are those of SQLite's own system calls, as NFS, Lustre and file systems of containers
have them.
"""

import ctypes
import errno
import fcntl
import os
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from sqlalchemy import text
from storing import connected, put, stored

from attnkit.service import database_engines
from attnkit.service.database_engines import FILE
from attnkit.service.store import Unavailable

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the faults are those of Linux")

INT, LONG, POINTER = ctypes.c_int, ctypes.c_long, ctypes.c_void_p
MMAP = ctypes.CFUNCTYPE(POINTER, POINTER, ctypes.c_size_t, INT, INT, INT, LONG, use_errno=True)
FCNTL = ctypes.CFUNCTYPE(INT, INT, INT, POINTER, use_errno=True)
SLEEP = ctypes.CFUNCTYPE(INT, POINTER, INT)
SET = ctypes.CFUNCTYPE(INT, POINTER, ctypes.c_char_p, POINTER)


class FileSystem(ctypes.Structure):
    """SQLite's `sqlite3_vfs` up to the functions that are replaced."""

    _fields_ = [
        ("numbers", INT * 3),
        ("next", POINTER),
        ("name", POINTER),
        ("data", POINTER),
        ("functions", POINTER * 9),
        ("sleep", POINTER),
        ("time", POINTER * 3),
        ("set_call", SET),
    ]


def failure(number):
    """Set the error number of a system call, and return what it returns then."""
    ctypes.set_errno(number)
    return -1


@contextmanager
def replaced(name, kind, function):
    """Replace a system call of SQLite."""
    sqlite = ctypes.CDLL(getattr(sys.modules["_sqlite3"], "__file__", None))
    try:
        sqlite.sqlite3_vfs_find.restype = ctypes.POINTER(FileSystem)
    except AttributeError:
        pytest.skip("this Python hides its SQLite")
    system = sqlite.sqlite3_vfs_find(None)
    call, sleep, before = kind(function), SLEEP(lambda *_: 0), system.contents.sleep
    system.contents.sleep = ctypes.cast(sleep, POINTER).value  # instead of ten seconds
    system.contents.set_call(ctypes.cast(system, POINTER), name, ctypes.cast(call, POINTER))
    try:
        yield
    finally:
        system.contents.set_call(ctypes.cast(system, POINTER), name, None)
        system.contents.sleep = before


def without_shared_memory():
    """A file system on which files cannot be mapped into memory."""
    return replaced(b"mmap", MMAP, lambda *_: failure(errno.ENODEV))


def without_locks(number, ending=""):
    """A file system on which files whose names have this ending cannot be locked."""
    true = ctypes.CDLL(None, use_errno=True).fcntl
    true.argtypes = [INT, INT, POINTER]

    def called(file, command, argument):
        locks = command in (fcntl.F_SETLK, fcntl.F_SETLKW)
        if locks and Path(f"/proc/self/fd/{file}").readlink().name.endswith(ending):
            return failure(number)
        return true(file, command, argument)

    return replaced(b"fcntl", FCNTL, called)


@pytest.fixture
def logged(tmp_path, open_store):
    """A folder with two results in a file with a write-ahead log that nobody has finished."""
    store = open_store(tmp_path / "here")
    put(store, 1, 2)
    assert (tmp_path / "here" / f"{FILE}-wal").stat().st_size
    return shutil.copytree(tmp_path / "here", tmp_path / "moved")


@pytest.mark.parametrize(
    "fault",
    [without_shared_memory, lambda: without_locks(errno.ENOSYS, "-shm")],
    ids=["disk I/O error", "locking protocol"],
)
def test_results_are_kept_where_no_log_can_be(fault, tmp_path, logged, open_store):
    """A new file, and one that was moved there, have a rollback journal; nobody is kept out."""
    with fault():
        for folder, n_before in ((tmp_path / "new", 0), (logged, 2)):
            stores = [open_store(folder) for _ in range(2)]
            hashes = put(stores[0], 3) + put(stores[1], 4)
            assert stored(stores[0]) >= set(hashes)
            assert len(stored(open_store(folder))) == n_before + 2
            with connected(folder) as connection:
                pragmas = ("journal_mode", "synchronous", "auto_vacuum", "locking_mode")
                found = [connection.scalar(text(f"PRAGMA {name}")) for name in pragmas]
            assert found == ["delete", 2, 2, "normal"]


@pytest.fixture
def on_nfs(tmp_path, monkeypatch):
    """The folder of the test as a mount of NFS, whose folders have no locks."""
    mounts = [SimpleNamespace(mountpoint=str(tmp_path.resolve()), fstype="nfs4")]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: mounts)

    def refused(*_):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr(fcntl, "flock", refused)


def test_a_file_that_several_machines_share_has_no_log(tmp_path, logged, open_store, on_nfs):
    """Not even where it seems to work; a damaged file moves aside, though folders have no locks."""
    assert len(stored(open_store(logged))) == 2
    store = open_store(tmp_path)
    put(store, 3)
    for folder in (tmp_path, logged):
        with connected(folder) as connection:
            assert connection.scalar(text("PRAGMA journal_mode")) == "delete"
    store.close()
    (tmp_path / FILE).write_bytes(b"Dear diary, " * 500)
    assert stored(store) == set()
    assert (tmp_path / f"{FILE}.broken-1").is_file()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS], ids=errno.errorcode.get)
def test_a_file_system_without_locks_is_named(number, tmp_path, open_store, monkeypatch):
    """The message says where results can be kept."""

    def refused(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "lockf", refused)
    monkeypatch.setattr(database_engines, "BUSY_SECONDS", 0)
    with without_locks(number), pytest.raises(Unavailable, match=r"NFS .* in ATTNKIT_STORE$"):
        put(open_store(tmp_path), 1)
    assert len(put(open_store(tmp_path), 1)) == 1
