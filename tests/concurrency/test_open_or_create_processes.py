"""`open_or_create` in several concurrent processes: one session for an id, and no entry is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from tests.fakes.postgres import PostgresServer
from tests.fakes.processes import run_together

CHILD = Path(__file__).parent / "children" / "openers.py"
PROCESSES = 3
SESSIONS = 15


@pytest.fixture(params=["sqlite", "jsonl", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return the address of an empty store."""
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("warm_postgres")
        taken = server.take()
        yield taken
        server.give_back(taken)
    else:
        yield f"{request.param}:///{tmp_path / 's'}"


async def test_processes_open_or_create_one_session_for_an_id(address: str) -> None:
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
