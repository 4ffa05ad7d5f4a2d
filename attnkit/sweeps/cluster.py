"""Executor of a Ray cluster, on one machine or many.

Ray starts a task again whose worker or machine was lost. Results never live in the cluster: tasks
write them into a folder, so that a cluster that ends takes only unfinished tasks with it.

Whoever reaches a cluster's ports runs code on its machines. A cluster that is started here
therefore listens on the loopback interface only and asks for a secret token. For other clusters,
see Ray's documentation on `RAY_AUTH_MODE=token`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, wait
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import shorten
from typing import Any

from attnkit.foundation.extras import install_hint
from attnkit.foundation.plugins import PLUGINS, import_plugins
from attnkit.foundation.process import (
    N_CORES,
    environment_with_package,
    n_cores,
    prepare_for_training,
)
from attnkit.foundation.settings import shown
from attnkit.sweeps.values import InvalidSweep
from attnkit.training.engine import ENGINE

MAX_RETRIES = 3
"""Number of times that a task is started again after its worker or its machine was lost."""

PATIENCE = 15
"""Seconds in which a cluster has to answer."""

_MESSAGE = 400
"""Number of characters of Ray's messages that are quoted."""

_SHORT = "/tmp"
"""Folder for a new cluster's files: the paths of its sockets may have 107 characters."""

_ADDRESS = "RAY_ADDRESS"
"""Environment variable that names a cluster."""

_FOLDER = "RAY_TMPDIR"
"""Environment variable that names the folder for a new cluster's files."""

_JOBS, _CLIENTS = "the address of Ray's dashboard and jobs", "the address of Ray's client"

_OTHERS = {"http://": _JOBS, "https://": _JOBS, "ray://": _CLIENTS}
"""Addresses of a cluster that other programs use."""

_LOOPBACK = ("127.0.0.1", "localhost", "::1")

_ONE_THREAD = (N_CORES, "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # what Ray would print of the cluster's troubles
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # below `uv run`, each worker would install all again
    "RAY_py_gcs_connect_timeout_s": str(PATIENCE),
    "RAY_gcs_server_request_timeout_seconds": str(PATIENCE),
}
"""Settings that Ray reads from the environment when it is imported."""


class ClusterUnavailable(InvalidSweep):
    """Error for a Ray cluster that cannot be used; the message is one line."""


class RayExecutor(Executor):
    """Executor of the CPUs of a Ray cluster, one task on each.

    In a process that is connected to a cluster already, for example in one of its tasks, the
    executor uses that connection. Otherwise it connects to the cluster at the address, whose
    machines get this copy of the package and the plugin modules, or it starts one on this machine,
    which ends with this executor and with the thread that created it.

    Args:
        address: Address of a running cluster, `HOST:PORT`; "auto" for one on this machine, or
            "local" for a new one. None: the environment variable `RAY_ADDRESS`, or, without it, a
            new cluster.
        n_workers: Number of CPUs of a new cluster; None: one per core.

    Raises:
        ClusterUnavailable: If Ray is not installed, or no suitable cluster answers.
    """

    def __init__(self, address: str | None = None, n_workers: int | None = None) -> None:
        self._ray = _import_ray()
        self._pending: set[Future[Any]] = set()
        self._closed = False
        self._connected = not self._ray.is_initialized()
        self._folder: TemporaryDirectory[str] | None = None
        if self._connected:
            source = "address"
            if address in (None, "", "auto") and os.environ.get(_ADDRESS):  # as Ray does
                source, address = _ADDRESS, os.environ[_ADDRESS]
            if address in (None, "", "local"):
                self._start(n_workers or n_cores())
            else:
                self._connect(source, address)
        self._task = self._ray.remote(_call).options(num_cpus=1, max_retries=MAX_RETRIES)

    @property
    def n_workers(self) -> int:
        """Number of CPUs of the machines that the cluster has now, at least 1."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 0)))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Start a task as soon as a CPU is free; `cancel` of its future ends it while it runs."""
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = _TaskFuture(self._ray, self._task.remote(fn, args, kwargs))
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Disconnect, and end a cluster that was started here.

        Args:
            wait: Whether to wait for the tasks. Ray ends tasks of a process that disconnects.
            cancel_futures: Whether to end all tasks, also those that run.
        """
        self._closed = True
        pending = list(self._pending)
        if cancel_futures or not wait:
            for future in pending:
                future.cancel()
        _wait(pending, timeout=None if wait and not cancel_futures else PATIENCE)
        if self._connected:
            self._connected = False
            self._ray.shutdown(wait_for_processes=True)
        if self._folder is not None:
            self._folder.cleanup()

    def _start(self, n_workers: int) -> None:
        parent = os.environ.get(_FOLDER) or _SHORT
        try:
            self._folder = TemporaryDirectory(
                prefix="attnkit-ray-", dir=parent, ignore_cleanup_errors=True
            )
        except OSError as error:
            raise ClusterUnavailable(
                f"{_FOLDER}: got {shown(parent, quoted=True)}, allowed a folder in which files can "
                f"be made ({error.strerror})"
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

    def _connect(self, source: str, address: str) -> None:
        got = f"{source}: got {shown(address, quoted=True)}"
        host = _reachable_host(got, address)
        once = _environment({"RAY_gcs_server_port_wait_time_s": "1"})  # instead of 20 attempts
        with once, self._loopback() if host in _LOOPBACK else contextlib.nullcontext():
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
            raise ClusterUnavailable(f"{problem}: {shorten(str(error), _MESSAGE)}") from error
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


class _TaskFuture(Future[Any]):
    """Future of a Ray task.

    Its error is the task's own, or Ray's if this task's worker or machine was lost too often, or
    `ClusterUnavailable` if no other task would fare better.
    """

    def __init__(self, ray: Any, reference: Any) -> None:
        super().__init__()
        self._ray, self._reference = ray, reference
        reference.future().add_done_callback(self._finish)

    def cancel(self) -> bool:
        """End the task, also while it runs."""
        if not self.done():
            self._ray.cancel(self._reference, force=True)
        return super().cancel()

    def _finish(self, finished: Future[Any]) -> None:
        if not self.set_running_or_notify_cancel():
            return
        error = finished.exception()
        if error is None:
            self.set_result(finished.result())
            return
        known = self._ray.exceptions
        cause = getattr(error, "cause", None) or error
        lost = (known.WorkerCrashedError, known.OutOfMemoryError, known.NodeDiedError)
        if isinstance(cause, ImportError | known.RayError) and not isinstance(cause, lost):
            reason = shorten(str(cause), _MESSAGE)
            cause = ClusterUnavailable(f"place: the cluster cannot run tasks ({reason})")
        self.set_exception(cause)


def _call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function in a worker."""
    _prepare_worker()
    return function(*args, **kwargs)


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
        raise ClusterUnavailable(
            f"place: got 'ray', allowed 'local', or 'ray' after {install_hint('cluster')}"
        ) from error
    return ray


def _reachable_host(got: str, address: str) -> str:
    """Return the host of an address, at whose port something answers.

    Ray itself tries for a quarter of an hour.

    Args:
        got: Beginning of a message, which names the address and what holds it.
        address: The address.
    """
    if address == "auto":
        return ""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if "://" in address or not host or not port.isdigit():
        scheme = f"{address.partition('://')[0].lower()}://"
        other = f"{scheme} is {_OTHERS[scheme]}; " if scheme in _OTHERS else ""
        raise ClusterUnavailable(
            f"{got}, {other}allowed the HOST:PORT that `ray start --head` prints, 'auto' for the "
            "cluster of this machine, or 'local' for a new one"
        )
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise ClusterUnavailable(f"{got}, where no cluster answers ({error})") from error
    return host


@contextlib.contextmanager
def _runtime_environment(ship: bool) -> Iterator[dict[str, Any]]:
    """Give what Ray sets up for workers: one thread, the same plugins, engine and code."""
    variables = dict.fromkeys(_ONE_THREAD, "1")
    variables |= {name: os.environ[name] for name in (PLUGINS, ENGINE) if name in os.environ}
    if not ship:
        variables["PYTHONPATH"] = environment_with_package()["PYTHONPATH"]
        yield {"env_vars": variables}
        return
    modules = ["attnkit", *(name.strip() for name in os.environ.get(PLUGINS, "").split(","))]
    paths = {_path_of(name.partition(".")[0]) for name in filter(None, modules)}
    # With a working folder, workers do not look for modules in this process's folder first.
    with TemporaryDirectory() as folder:
        for path in filter(None, paths):
            copy = Path(folder) / path.name
            if path.is_dir():
                shutil.copytree(path, copy, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(path, copy)
        yield {"env_vars": variables, "working_dir": folder}


def _path_of(module: str) -> Path | None:
    """Return the folder of a package or the file of a module."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin)
    return path.parent if path.name == "__init__.py" else path


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


_wait = wait
"""`concurrent.futures.wait`, where `wait` is an argument."""
