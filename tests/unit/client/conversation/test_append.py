"""Each call appends to a session's log in one commit."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.bounds.limits import InputLimits, use_input_limits
from perdure.client.conversation.append import prepare_input
from perdure.client.store import Store
from perdure.errors import HeadConflict, LimitExceeded
from perdure.session.messages import assistant, tool_call, tool_result, user
from perdure.session.notes import SessionEnded
from tests.fakes.rivals import meanwhile


async def test_several_items_are_appended_in_order_in_one_commit(store: Store) -> None:
    session = await store.create(id="s")
    first = await session.append(user("a"))
    entries = await session.append(assistant("b"), user("c"), parent=first)
    assert [entry.parent_id for entry in entries] == [first.id, entries[0].id]
    assert session.leaf == entries[1].id


async def test_append_fails_after_a_concurrent_append(store: Store) -> None:
    session = await store.create(id="s")
    await session.append(user("a"))
    with pytest.raises(HeadConflict):
        await session.append_many([user("b")], expected_head=-1)
    assert (await session.info()).messages == 1


@pytest.mark.parametrize("wrong", ["text", 5, None])
async def test_error_for_an_invalid_message_says_what_can_be_appended(
    store: Store, wrong: Any
) -> None:
    session = await store.create(id="s")
    with pytest.raises(TypeError, match="append messages"):
        await session.append(wrong)


async def test_message_over_the_limit_is_refused_before_any_work(store: Store) -> None:
    session = await store.create(id="s")
    use_input_limits(InputLimits(message_bytes=100))
    try:
        for said in (user("x" * 101), tool_result("c", "x" * 101), user("\u20ac" * 40)):
            with pytest.raises(LimitExceeded, match=r"limits\.message_bytes = 100"):
                await session.append(said)
        with pytest.raises(LimitExceeded):
            prepare_input("\u20ac" * 40)
        call = assistant(tool_call("c", "write", {"content": "x" * 101}))
        with pytest.raises(LimitExceeded):
            await session.append(call)
        await session.append(user("x" * 20))
    finally:
        use_input_limits(InputLimits())
    assert (await session.info()).messages == 1


async def test_session_ended_just_before_another_end_is_ended_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await store.create(id="s")
    await session.append(user("a"))
    other = await store.open("s")
    meanwhile(monkeypatch, store.backend, SessionEnded.kind, other.end)
    assert await session.end() is None
    kinds = [entry.kind async for entry in session.entries()]
    assert kinds.count(SessionEnded.kind) == 1
