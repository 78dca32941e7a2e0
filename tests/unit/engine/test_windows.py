"""What is pinned is in the window a context is built from, wherever it stands on the branch."""

from __future__ import annotations

import pytest

from perdure.client.session import Session
from perdure.client.store import Store
from perdure.engine.windows import pinned_window
from perdure.session.entries import Entry
from perdure.session.kinds import Compaction
from perdure.session.messages import assistant, user
from tests.fakes.chats import Stage


@pytest.fixture
def store() -> Store:
    return Stage().store


async def grown(store: Store) -> tuple[Session, list[Entry]]:
    """A session whose first two messages a compaction hides."""
    session = await store.create(id="s")
    entries = await session.append(
        user("first"), assistant("one"), user("second"), assistant("two")
    )
    await session.append(Compaction("So far.", first_kept=entries[2].id))
    return session, entries


async def test_a_hidden_entry_is_there_while_it_is_pinned(store: Store) -> None:
    session, entries = await grown(store)
    await session.pin(entries[1])
    window = await pinned_window(store.backend, session.id, session.leaf)
    assert [entry.id for entry in window.pinned] == [entries[1].id]
    assert "one" in [item.message.text for item in (await session.context()).messages]
    assert await session.pins() == {entries[1].id}
    await session.unpin(entries[1])
    window = await pinned_window(store.backend, session.id, session.leaf)
    assert (window.pinned, window.pins) == ((), frozenset())


async def test_another_branch_and_another_fork_have_their_own(store: Store) -> None:
    session, entries = await grown(store)
    end = session.leaf
    away = await session.append(user("away"), parent=entries[0])
    await session.pin(away)
    assert (await pinned_window(store.backend, session.id, end)).pins == frozenset()
    fork = await session.fork()
    assert (await pinned_window(store.backend, fork.id, fork.leaf)).pins == {away.id}
