"""Readiness: a server is not ready if its store is closed or missing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.apps.server import readiness
from perdure.apps.server.readiness import Readiness
from tests.fakes.served import served


def may_only_read(_path: Path, mode: int) -> bool:
    return not mode & os.W_OK


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "CHECK_S", 0)


async def test_readiness_request_needs_no_token(tmp_path: Path) -> None:
    async with served(tmp_path, address=f"sqlite:///{tmp_path / 'a.db'}") as server:
        got = await server.http.get("/readyz", headers={"Authorization": ""})
        assert (got.status_code, got.json()) == (200, {"status": "ready"})
        assert (await server.http.get("/healthz")).status_code == 200


async def test_closed_store_is_not_ready() -> None:
    async with perdure.open("memory:") as store:
        check = Readiness(store)
        assert await check.problem() is None
    assert await check.problem() is not None


async def test_store_that_rejects_writes_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "TIMEOUT_S", 0.2)
    async with perdure.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        await (await store.create()).append(perdure.user("hi"))
        check = Readiness(store)
        other: Any = apsw.Connection(str(tmp_path / "a.db"))
        other.execute("BEGIN IMMEDIATE")  # the only writer
        assert await check.problem() == "store_timeout"
        assert await store.backend.position() > 0
        other.execute("ROLLBACK")
        monkeypatch.setattr(readiness, "TIMEOUT_S", 60)
        other.close()
        assert await check.problem() is None


async def test_store_without_write_permission_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"sqlite:///{tmp_path / 'a.db'}"
    async with perdure.open(address) as store:
        await (await store.create()).append(perdure.user("hi"))
    monkeypatch.setattr(os, "access", may_only_read)
    async with perdure.open(address) as store:
        assert await store.backend.position() > 0
        assert await Readiness(store).problem() == "store_read_only"


async def test_draining_server_is_not_ready() -> None:
    async with perdure.open("memory:") as store:
        check = Readiness(store)
        check.is_draining = True
        assert await check.problem() == "draining"


async def test_readiness_result_is_reused_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "CHECK_S", 60)
    async with perdure.open("memory:") as store:
        check = Readiness(store)
        assert await check.problem() is None
    assert await check.problem() is None
