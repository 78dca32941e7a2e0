"""Parameters that routes share: their bounds hold in every route."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.served import served


async def test_limit_outside_its_bounds_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        for limit in ("0", "501", "-1", "x", "1.5", ""):
            got = await server.http.get("/v1/sessions", params={"limit": limit})
            assert got.status_code == 400, limit
            assert "limit" in str(got.json()["errors"])
        assert (await server.http.get("/v1/sessions", params={"limit": 500})).status_code == 200
