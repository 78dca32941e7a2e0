"""`open_or_create` in several processes at once: one session for an id, and no entry is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from tests.fakes.postgres import PostgresServer
from tests.fakes.processes import run_together

CHILD = Path(__file__).parent / "children" / "openers.py"
PROCESSES = 3
SESSIONS = 15


@pytest.mark.parametrize("backend", ["sqlite", "jsonl", "postgres"])
async def test_processes_open_or_create_one_session_for_an_id(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    addresses = {"sqlite": f"sqlite:///{tmp_path}/s.db", "jsonl": f"jsonl:///{tmp_path}/s"}
    if backend == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        address = server.take()
    else:
        address = addresses[backend]
    async with perdure.open(address) as store:
        await store.info()
    assert run_together(CHILD, "open", address, PROCESSES, SESSIONS) == ["done"] * PROCESSES
    async with perdure.open(address) as store:
        found = await store.recent(None, id_prefix="user-")
        assert len(found) == SESSIONS
        for info in found:
            session = await store.open(info.id)
            said = [message.text for message in await session.messages()]
            assert sorted(said) == [f"w{number}" for number in range(PROCESSES)]
        assert (await store.verify()).is_ok
