"""A PostgreSQL server for the tests: Debian's programs, a folder that goes away, loopback only."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest
from sqlalchemy import create_engine

PATIENCE = 120
"""Seconds that the server may take to start or stop on a busy machine."""

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",  # no test kills this server and reads on
    "max_connections": "60",
    "shared_buffers": "16MB",
}


class Postgres:
    """A server that can be stopped and started again on the same port."""

    def __init__(self, programs, folder):
        self._programs, self._folder, self._as_user = programs, folder, {}
        if os.geteuid() == 0:  # it refuses to run as root
            names = {entry.pw_name for entry in pwd.getpwall()}
            user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
            shutil.chown(folder, user.pw_name)
            self._as_user = {"user": user.pw_name, "group": user.pw_gid, "extra_groups": []}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._run("initdb", "-U", "attnkit", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        self.start()

    def start(self):
        """Start, and return when it answers."""
        settings = " ".join(f"-c {name}='{value}'" for name, value in SETTINGS.items())
        options = ["-l", str(self._folder / "log"), "-o", f"-p {self.port} {settings}"]
        self._run("pg_ctl", "start", "-w", "-t", str(PATIENCE), *options)

    def stop(self):
        """Stop at once, whoever is connected."""
        self._run("pg_ctl", "stop", "-w", "-t", str(PATIENCE), "-m", "immediate")

    def url(self, database="postgres"):
        """The address of a database."""
        return f"postgresql://attnkit@127.0.0.1:{self.port}/{database}"

    def database(self):
        """The address of an empty database; there is one, because a new one takes too long."""
        engine = create_engine(self.url().replace("postgresql:", "postgresql+psycopg:"))
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for statement in (
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> "
                "pg_backend_pid() AND datname = current_database()",
                "DROP SCHEMA public CASCADE",
                "CREATE SCHEMA public",
            ):
                connection.exec_driver_sql(statement)
        engine.dispose()
        return self.url()

    def _run(self, program, *options):
        command = [str(self._programs / program), "-D", str(self._folder / "data"), *options]
        quiet = dict.fromkeys(("stdin", "stdout"), subprocess.DEVNULL)
        environment = {"PATH": os.defpath, "LC_ALL": "C"}
        others = {"cwd": self._folder, "timeout": 2 * PATIENCE, "env": environment}
        subprocess.run(command, check=True, **quiet, **others, **self._as_user)


@contextlib.contextmanager
def server():
    """A started server; without PostgreSQL the tests are skipped, but never in CI."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: float(p.parts[-2]))
    if not found:
        assert not os.environ.get("CI"), "CI needs PostgreSQL (Debian's package `postgresql`)"
        pytest.skip("no PostgreSQL on this machine (Debian's package `postgresql`)")
    with tempfile.TemporaryDirectory(prefix="attnkit-postgres-") as folder:
        started = Postgres(found[-1], Path(folder))
        try:
            yield started
        finally:
            started.stop()
