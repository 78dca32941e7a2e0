"""Readiness: a store that is closed or gone is not ready."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure.apps.server import readiness
from perdure.apps.server.readiness import Readiness
from tests.fakes.served import served


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "CHECK_S", 0)


async def test_server_is_ready_without_token(tmp_path: Path) -> None:
    async with served(tmp_path, address=f"sqlite:///{tmp_path / 'a.db'}") as server:
        got = await server.http.get("/readyz", headers={"Authorization": ""})
        assert (got.status_code, got.json()) == (200, {"status": "ready"})
        assert (await server.http.get("/healthz")).status_code == 200


async def test_closed_store_is_not_ready() -> None:
    async with perdure.open("memory:") as store:
        check = Readiness(store)
        assert await check.problem() is None
    assert await check.problem() is not None


async def test_result_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "CHECK_S", 60)
    async with perdure.open("memory:") as store:
        check = Readiness(store)
        assert await check.problem() is None
    assert await check.problem() is None
