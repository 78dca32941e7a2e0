from __future__ import annotations

from perdure.engine.branch import entries_left
from perdure.session.messages import assistant, user
from tests.fakes.chats import Stage


async def test_abandoned_entries_are_those_of_old_branch_only() -> None:
    store = Stage().store
    session = await store.create(id="s")
    a, b, c = await session.append(user("a"), assistant("b"), user("c"))
    d = await session.append(user("d"), parent=a)
    backend = store.backend
    left = await entries_left(backend, session.id, c.id, d.id)
    assert [entry.id for entry in left] == [b.id, c.id]
    assert [e.id for e in await entries_left(backend, session.id, c.id, None)] == [a.id, b.id, c.id]
    assert await entries_left(backend, session.id, a.id, c.id) == []
