"""A real PgBouncer in transaction mode in front of a PostgreSQL server for tests."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.fakes.ports import reserved_port
from tests.fakes.postgres import PostgresServer

NO_PGBOUNCER = "there is no PgBouncer"
START_S = 60

_CONFIGURATION = """
[databases]
* = host={host}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = 1000
"""


class Pooler:
    """How to reach the databases of a server through the pooler."""

    def __init__(self, port: int, folder: str) -> None:
        self._port = port
        self._folder = folder

    def address_of(self, address: str, *, is_direct_named: bool = True) -> str:
        """The address of the same database through the pooler."""
        name = conninfo_to_dict(address)["dbname"]
        pooled = f"postgresql://postgres@127.0.0.1:{self._port}/{name}"
        return f"{pooled}?direct={quote(self._folder)}" if is_direct_named else pooled


@contextmanager
def pooling(server: PostgresServer, *, connections: int = 1) -> Generator[Pooler]:
    """Run PgBouncer with `connections` to each database of `server` inside the block."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip(NO_PGBOUNCER)
    if not server.is_ours:
        pytest.skip("the server is not reached by a socket here")
    told = conninfo_to_dict(server.address)
    host = str(told["host"])
    with (
        reserved_port() as port,
        tempfile.TemporaryDirectory(prefix="perdure-pool-") as name,
    ):
        folder = Path(name)
        users, configuration = folder / "users", folder / "pgbouncer.ini"
        users.write_text('"postgres" ""\n')
        configuration.write_text(
            _CONFIGURATION.format(host=host, port=port, users=users, connections=connections)
        )
        owner = Path(host).stat()
        for path in (folder, users, configuration):
            os.chown(path, owner.st_uid, owner.st_gid)
        process = subprocess.Popen(  # not as root, which it refuses
            [program, str(configuration)],
            user=owner.st_uid if os.getuid() == 0 else None,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_for(port, process)
            yield Pooler(port, host)
        finally:
            process.terminate()
            process.wait(START_S)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    pytest.fail("PgBouncer did not start")
