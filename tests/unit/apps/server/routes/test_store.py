"""Routes of the store: its info and maintenance, its agents, contents of messages."""

from __future__ import annotations

from pathlib import Path

import perdure
from perdure.session.messages import MediaPart
from perdure.stores.retention.backups import Backup
from perdure.stores.retention.policy import Retention
from tests.fakes.served import served

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 60


async def test_store_can_be_inspected_and_verified_over_http(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        await server.said("hi")
        shown = (await server.http.get("/v1/store")).json()
        assert (shown["backend"], shown["streams"]) == ("memory", 1)
        assert (await server.http.post("/v1/store/verify")).json()["isOk"]
        writer = await server.client("write")
        assert (await writer.post("/v1/store/verify")).status_code == 403


async def test_maintenance_response_lists_backups_and_retention_limits(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"], address=f"sqlite:///{tmp_path}/store.db") as server:
        await server.said("hi")
        bare = (await server.http.get("/v1/store/maintenance")).json()
        assert bare["backups"] == []
        assert set(bare["retention"].values()) == {None, 0}
        keeping = server.store.backend.retention
        await keeping.remember_backup(Backup("/backups/first", 1_000))
        await keeping.remember_backup(Backup("/backups/second", 2_000))
        await keeping.set_policy(Retention(max_sessions=0, max_age_s=86_400))
        shown = (await server.http.get("/v1/store/maintenance")).json()
        assert [each["path"] for each in shown["backups"]] == ["/backups/second", "/backups/first"]
        assert (shown["retention"]["maxAgeS"], shown["retention"]["expiring"]) == (86_400, 1)
        writer = await server.client("write")
        assert (await writer.get("/v1/store/maintenance")).status_code == 403


async def test_agent_list_contains_only_agents_of_the_token(tmp_path: Path) -> None:
    agents = [perdure.Agent(name, model="scripted:desk") for name in ("a", "b")]
    async with served(tmp_path, agents=agents) as server:
        only = await server.client(agent="b")
        for client, names in ((server.http, ["a", "b"]), (only, ["b"])):
            found = (await client.get("/v1/agents")).json()["items"]
            assert [each["id"] for each in found] == names


async def test_content_is_served_only_for_the_entry_that_contains_it(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        session = await server.store.create()
        for kind, shown in (
            ("image/png", "image/png"),
            ("application/pdf", "application/octet-stream"),
        ):
            entry = await session.append(
                perdure.user("look", perdure.media(PNG + kind.encode(), kind))
            )
            part = entry.message.parts[1] if entry.message else None
            assert isinstance(part, MediaPart)
            url = f"/v1/sessions/{session.id}/contents/{part.handle.removeprefix('media://')}"
            got = await server.http.get(url, params={"entry": entry.id})
            assert got.content == PNG + kind.encode()
            assert got.headers["content-type"] == shown
            assert "sandbox" in got.headers["content-security-policy"]
            assert got.headers["cache-control"] == "no-store"  # it may be erased tomorrow
            other = await server.http.get(url, params={"entry": f"{session.id}/99"})
            assert other.status_code == 404
