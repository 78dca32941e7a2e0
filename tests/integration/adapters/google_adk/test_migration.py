"""Sessions of the ADK's own SQLite files and PostgreSQL tables are copied, and only once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.adk.events import Event, EventActions
from google.adk.sessions import BaseSessionService, DatabaseSessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

import perdure
from perdure.adapters.google_adk import PerdureSessionService, copy_sessions

ANA: dict[str, Any] = {"app_name": "app", "user_id": "ana", "session_id": "s"}
BEN: dict[str, Any] = {"app_name": "app", "user_id": "ben", "session_id": "s 2"}


def said(text: str, **delta: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return Event(
        invocation_id=f"i-{text}",
        author="user",
        content=content,
        actions=EventActions(state_delta=delta),
    )


async def copied_once(source: BaseSessionService, address: str) -> None:
    """Fill `source`, and copy it to `address` twice."""
    ana = await source.create_session(**ANA, state={"a": 1, "user:u": 1, "app:x": 1})
    await source.create_session(**BEN)
    await source.append_event(ana, said("one", a=2, k="v"))
    await source.append_event(ana, said("two", **{"app:x": 2, "user:u": None}))
    rewound = EventActions(rewind_before_invocation_id="i-two", state_delta={"k": None})
    await source.append_event(ana, Event(invocation_id="r", author="user", actions=rewound))
    async with perdure.open(address) as store:
        target = PerdureSessionService(store)
        assert await copy_sessions(source, target, "app") == {("ana", "s"): 3, ("ben", "s 2"): 0}
        for names in (ANA, BEN):
            theirs, ours = await source.get_session(**names), await target.get_session(**names)
            assert theirs is not None
            assert ours is not None
            assert ours.events == theirs.events
            assert ours.state == theirs.state
            assert ours.last_update_time == pytest.approx(theirs.last_update_time, abs=1e-5)
        stored = await store.open("adk:app:ana:s")
        assert [message.text for message in await stored.messages()] == ["one"]
        await source.append_event(ana, said("three", a=3))
        assert await copy_sessions(source, target, "app", "ana") == {("ana", "s"): 1}
        again = await target.get_session(**ANA)
        assert again is not None
        assert [event.invocation_id for event in again.events][-1] == "i-three"
        assert again.state["a"] == 3
        assert await copy_sessions(source, target, "app") == {("ana", "s"): 0, ("ben", "s 2"): 0}


async def test_sqlite_sessions_of_the_sqlite_service_are_copied_once(
    store_address: str, tmp_path: Path
) -> None:
    await copied_once(SqliteSessionService(str(tmp_path / "adk.db")), store_address)


async def test_sqlite_sessions_of_the_database_service_are_copied_once(tmp_path: Path) -> None:
    address = f"sqlite+aiosqlite:///{tmp_path / 'adk.db'}"
    async with DatabaseSessionService(address) as source:
        await copied_once(source, f"sqlite:///{tmp_path / 'perdure.db'}")


@pytest.mark.full_only
async def test_postgres_sessions_of_the_database_service_are_copied_once(
    postgres: Any, tmp_path: Path
) -> None:
    address: str = postgres.take()
    url = address.replace("postgresql://", "postgresql+psycopg://", 1)
    async with DatabaseSessionService(url) as source:
        await copied_once(source, f"sqlite:///{tmp_path / 'perdure.db'}")
    postgres.give_back(address)


async def test_long_session_is_copied_in_batches(tmp_path: Path) -> None:
    source = SqliteSessionService(str(tmp_path / "adk.db"))
    session = await source.create_session(**ANA)
    events = [said(f"{number}") for number in range(3)]
    for event in events:
        await source.append_event(session, event)
    session.events = [
        event.model_copy(update={"id": f"{n}-{event.id}"}) for n in range(400) for event in events
    ]
    session.events[7] = said("of a huge number", n=2**70)
    async with perdure.open(f"sqlite:///{tmp_path / 'perdure.db'}") as store:
        target = PerdureSessionService(store)
        assert await target.add_copy(session) == 1200
        ours = await target.get_session(**ANA)
        assert ours is not None
        assert ours.events == session.events
