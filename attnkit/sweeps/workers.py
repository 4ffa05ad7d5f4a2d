"""Workers that train the chunks of a sweep: processes on this machine, or a Ray cluster.

Results never live in the workers: tasks write them into the sweep's folder, so that a worker that
ends takes only unfinished tasks with it. Ray itself starts a task again whose worker or machine was
lost.

Whoever reaches a cluster's ports runs code on its machines. A cluster that is started here
therefore listens on the loopback interface only and asks for a secret token. For other clusters,
see Ray's documentation on `RAY_AUTH_MODE=token`.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import shorten
from typing import Any

from attnkit.foundation.extras import install_hint
from attnkit.foundation.machine import free_and_total_memory
from attnkit.foundation.plugins import PLUGINS, import_plugins
from attnkit.foundation.process import (
    N_CORES,
    environment_with_package,
    n_cores,
    prepare_for_training,
)
from attnkit.foundation.settings import shown
from attnkit.sweeps.specification import InvalidSweep
from attnkit.training.engine import ENGINE

_PATIENCE = 15
"""Seconds in which a cluster has to answer."""

_MESSAGE = 400
"""Number of characters of Ray's messages that are quoted."""

_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # what Ray would print of the cluster's troubles
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # below `uv run`, each worker would install all again
    "RAY_py_gcs_connect_timeout_s": str(_PATIENCE),
    "RAY_gcs_server_request_timeout_seconds": str(_PATIENCE),
}
"""Settings that Ray reads from the environment when it is imported."""


class WorkerLost(Exception):
    """Error of a task whose worker or machine was lost."""


@contextlib.contextmanager
def open_workers(place: str, megabytes: float) -> Iterator[Workers]:
    """Start workers, and end them with the block; at once if it ends with an error or Ctrl-C.

    Args:
        place: "local" for processes on this machine, or "ray" for a Ray cluster.
        megabytes: Memory that one worker needs, in MiB.

    Raises:
        InvalidSweep: If there is no such place, or if no worker can start there.
    """
    if place not in PLACES:
        raise InvalidSweep(f"place: got {place!r}, allowed {' or '.join(PLACES)}")
    free, _ = free_and_total_memory()
    n_fitting = int(0.8 * free / megabytes)  # some memory stays for other programs
    workers = PLACES[place](max(1, min(n_cores(), n_fitting)))
    try:
        yield workers
    except BaseException:
        workers.shutdown(cancel=True)
        raise
    workers.shutdown(cancel=False)


class LocalWorkers:
    """Processes on this machine, each of which trains on one core.

    If one is killed, for example because memory is short, all unfinished tasks are lost, and the
    next task starts new processes. They end with the process that started them, however that ends.

    Args:
        n_workers: Number of processes.

    Raises:
        InvalidSweep: If no process can start.
    """

    def __init__(self, n_workers: int) -> None:
        self.n_workers = min(n_workers, 61) if os.name == "nt" else n_workers
        self._pool = self._new_pool()
        try:
            self.result(self.submit(os.getpid))
        except WorkerLost:
            self.shutdown(cancel=True)
            raise InvalidSweep(
                "place: no worker process can start here; in a script, train below the line "
                'if __name__ == "__main__":, because every worker imports the script'
            ) from None

    def _new_pool(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")  # threads of torch do not survive a fork
        return ProcessPoolExecutor(self.n_workers, context, _prepare_process)

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Start a task as soon as a worker is free, and return it."""
        try:
            return self._pool.submit(function, *args)
        except BrokenProcessPool:
            self._pool = self._new_pool()
            return self._pool.submit(function, *args)

    def wait(self, tasks: Collection[Future[Any]], seconds: float) -> set[Future[Any]]:
        """Return tasks that are finished; none if that takes longer than some seconds."""
        return wait(tasks, seconds, FIRST_COMPLETED).done

    def result(self, task: Future[Any]) -> Any:
        """Return the result of a task when it is finished, or raise its error or `WorkerLost`."""
        try:
            return task.result()
        except BrokenProcessPool as error:
            raise WorkerLost(str(error)) from None

    def shutdown(self, *, cancel: bool) -> None:
        """End the workers, at once if unfinished tasks are cancelled."""
        processes = list((getattr(self._pool, "_processes", None) or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=cancel)
        for process in processes:
            if cancel:
                process.terminate()
            process.join()


def _prepare_process() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C for all
    os.environ[N_CORES] = "1"
    prepare_for_training()
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


class RayWorkers:
    """CPUs of a Ray cluster, one task on each.

    In a process that is connected to a cluster already, for example in one of its tasks, that
    connection is used. Otherwise `RAY_ADDRESS` names the cluster, whose machines get this copy of
    the package and the plugin modules: `HOST:PORT`, or "auto" for one on this machine. Without the
    variable, or with "local", a cluster is started on this machine, which ends with its workers and
    with the thread that created it.

    Args:
        n_workers: Number of CPUs of a new cluster.

    Raises:
        InvalidSweep: If Ray is not installed, or no suitable cluster answers.
    """

    def __init__(self, n_workers: int) -> None:
        self._ray = _import_ray()
        self._unfinished: set[Any] = set()
        self._connected = not self._ray.is_initialized()
        self._folder: TemporaryDirectory[str] | None = None
        if self._connected:
            address = os.environ.get("RAY_ADDRESS", "")
            if address in ("", "local"):
                self._start(n_workers)
            else:
                self._connect(address)
        self._task = self._ray.remote(_call).options(num_cpus=1, max_retries=3)

    @property
    def n_workers(self) -> int:
        """Number of CPUs of the machines that the cluster has now, at least 1."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 0)))

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Any:
        """Start a task as soon as a CPU is free, and return the reference to its result."""
        task = self._task.remote(function, args)
        self._unfinished.add(task)
        return task

    def wait(self, tasks: Collection[Any], seconds: float) -> list[Any]:
        """Return tasks that are finished; none if that takes longer than some seconds."""
        finished: list[Any] = self._ray.wait(list(tasks), num_returns=1, timeout=seconds)[0]
        return finished

    def result(self, task: Any) -> Any:
        """Return the result of a task when it is finished.

        Raises:
            WorkerLost: If its worker was lost.
            InvalidSweep: If no other task would fare better.
            Exception: The error of the task itself.
        """
        known = self._ray.exceptions
        try:
            return self._ray.get(task)
        except (known.WorkerCrashedError, known.OutOfMemoryError, known.NodeDiedError) as error:
            raise WorkerLost(str(error)) from error
        except known.RayError as error:
            cause = getattr(error, "cause", None) or error
            if not isinstance(cause, ImportError | known.RayError):
                raise cause from None
            reason = f"place: the cluster cannot run tasks ({shorten(str(cause), _MESSAGE)})"
            raise InvalidSweep(reason) from error
        finally:
            self._unfinished.discard(task)

    def shutdown(self, *, cancel: bool) -> None:
        """Disconnect, and end a cluster that was started here."""
        for task in self._unfinished if cancel else ():
            self._ray.cancel(task, force=True)
        if self._unfinished:
            n_tasks, seconds = len(self._unfinished), _PATIENCE if cancel else None
            self._ray.wait(list(self._unfinished), num_returns=n_tasks, timeout=seconds)
        if self._connected:
            self._connected = False
            self._ray.shutdown(wait_for_processes=True)
        if self._folder is not None:
            self._folder.cleanup()

    def _start(self, n_workers: int) -> None:
        parent = os.environ.get("RAY_TMPDIR") or "/tmp"  # paths of sockets have 107 characters
        try:
            self._folder = TemporaryDirectory(
                prefix="attnkit-ray-", dir=parent, ignore_cleanup_errors=True
            )
        except OSError as error:
            raise InvalidSweep(
                f"RAY_TMPDIR: got {shown(parent, quoted=True)}, allowed a folder in which files "
                f"can be made ({error.strerror})"
            ) from error
        with _environment({"RAY_AUTH_TOKEN": _token()}), self._loopback():
            self._init(
                "place: got 'ray', but no cluster can be started on this machine",
                ship=False,
                address="local",
                num_cpus=n_workers,
                num_gpus=0,
                include_dashboard=False,
                object_store_memory=80 << 20,  # results are not kept there
                _temp_dir=self._folder.name,
                _system_config={"memory_monitor_refresh_ms": 0},
            )

    def _connect(self, address: str) -> None:
        got = f"RAY_ADDRESS: got {shown(address, quoted=True)}"
        host = _reachable_host(got, address)
        once = _environment({"RAY_gcs_server_port_wait_time_s": "1"})  # instead of 20 attempts
        with (
            once,
            self._loopback()
            if host in ("127.0.0.1", "localhost", "::1")
            else contextlib.nullcontext(),
        ):
            problem = f"{got}, where no cluster accepts this process"
            self._init(f"{problem} (RAY_AUTH_TOKEN may be needed)", ship=True, address=address)

    def _init(self, problem: str, *, ship: bool, **options: Any) -> None:
        """Call `ray.init`, silently, and keep the process's answer to SIGTERM."""
        main = threading.current_thread() is threading.main_thread()
        on_sigterm = signal.getsignal(signal.SIGTERM)
        try:
            with _runtime_environment(ship) as runtime_environment:
                self._ray.init(
                    log_to_driver=False,
                    logging_level=logging.CRITICAL,
                    runtime_env=runtime_environment,
                    **options,
                )
        except Exception as error:
            self._ray.shutdown()
            if self._folder is not None:
                self._folder.cleanup()
            raise InvalidSweep(f"{problem}: {shorten(str(error), _MESSAGE)}") from error
        finally:
            if main:
                signal.signal(signal.SIGTERM, on_sigterm)

    @contextlib.contextmanager
    def _loopback(self) -> Iterator[None]:
        """Let Ray keep the address 127.0.0.1, which it otherwise replaces by the machine's."""
        constants = self._ray._private.ray_constants
        before, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
        try:
            yield
        finally:
            constants.ENABLE_RAY_CLUSTER = before


def _call(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    _prepare_worker()
    return function(*args)


@cache
def _prepare_worker() -> None:
    prepare_for_training()
    for problem in import_plugins():
        raise ImportError(problem)


def _import_ray() -> Any:
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise InvalidSweep(
            f"place: got 'ray', allowed 'local', or 'ray' after {install_hint('cluster')}"
        ) from error
    return ray


def _reachable_host(got: str, address: str) -> str:
    """Return the host of an address, at whose port something answers.

    Ray itself would try for half a minute, and print warnings meanwhile.
    """
    if address == "auto":
        return ""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if "://" in address or not host or not port.isdigit():
        raise InvalidSweep(
            f"{got}, allowed the HOST:PORT that `ray start --head` prints, 'auto' for the "
            "cluster of this machine, or 'local' for a new one"
        )
    try:
        socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise InvalidSweep(f"{got}, where no cluster answers ({error})") from error
    return host


@contextlib.contextmanager
def _runtime_environment(ship: bool) -> Iterator[dict[str, Any]]:
    """Give what Ray sets up for workers: one thread, the same plugins, engine and code."""
    threads = (N_CORES, "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    variables = dict.fromkeys(threads, "1")
    variables |= {name: os.environ[name] for name in (PLUGINS, ENGINE) if name in os.environ}
    if not ship:
        variables["PYTHONPATH"] = environment_with_package()["PYTHONPATH"]
        yield {"env_vars": variables}
        return
    modules = ["attnkit", *(name.strip() for name in os.environ.get(PLUGINS, "").split(","))]
    specs = (find_spec(name.partition(".")[0]) for name in filter(None, modules))
    files = (Path(spec.origin) for spec in specs if spec is not None and spec.origin is not None)
    paths = {str(file.parent if file.name == "__init__.py" else file) for file in files}
    shipped = {"py_modules": sorted(paths), "excludes": ["__pycache__"]}
    # With a working folder, workers do not look for modules in this process's folder first.
    with TemporaryDirectory() as folder:
        yield {"env_vars": variables, "working_dir": folder, **shipped}


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while, and drop those that Ray sets."""
    before = dict(os.environ)
    os.environ.update({**variables, **before})
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]


@cache
def _token() -> str:
    """Return the secret of clusters that this process starts; Ray reads it once."""
    return secrets.token_hex(32)


Workers = LocalWorkers | RayWorkers

PLACES: dict[str, Callable[[int], Workers]] = {"local": LocalWorkers, "ray": RayWorkers}
"""Class of the workers, by the name of the place where they run."""
