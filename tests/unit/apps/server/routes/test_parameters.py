"""Parameters that routes share: the same bounds apply in every route."""

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


async def test_error_for_an_unknown_query_parameter_contains_the_parameter(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        made = (await server.http.post("/v1/sessions", json={})).json()["id"]
        for url in (
            "/v1/sessions?agnet=desk",
            "/v1/search?q=x&agnet=desk",
            f"/v1/sessions/{made}?x=1",
        ):
            refused = await server.http.get(url)
            assert (refused.status_code, refused.json()["code"]) == (400, "parameter_unknown"), url
        refused = await server.http.get("/v1/search?q=x&agnet=desk")
        assert "'agnet'; this takes agent, folder" in refused.json()["detail"]


async def test_empty_body_has_no_fields(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        session = f"/v1/sessions/{await server.said('hi')}"
        forked = await server.http.post(f"{session}/fork")
        assert forked.status_code == 201, forked.text
        for _ in range(2):
            key = {"Idempotency-Key": "k"}
            ended = await server.http.post(f"{session}/end", headers=key)
            assert (ended.status_code, ended.json()["state"]) == (200, "ended")
        assert (await server.http.post("/v1/sessions")).status_code == 201
        needed = await server.http.post("/v1/memory/facts")
        assert (needed.status_code, needed.json()["code"]) == (400, "invalid_request")
        assert "`text`" in needed.json()["detail"]
