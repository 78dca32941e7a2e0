"""An empty idempotency key is rejected: two different calls would count as one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure.client.agents.chat import Chat
from perdure.client.store import Store
from perdure.errors import WrongArgument
from perdure.session.messages import user
from tests.fakes.chats import Stage, says

CALLS: dict[str, Callable[[Store, Chat], Awaitable[Any]]] = {
    "Chat.send": lambda store, chat: chat.send("yes", idempotency_key=""),
    "Session.append_many": lambda store, chat: chat.session.append_many(
        [user("yes")], idempotency_key=""
    ),
    "Session.branch": lambda store, chat: chat.session.branch(None, idempotency_key=""),
    "Session.branch_with_summary": lambda store, chat: chat.session.branch_with_summary(
        None, "It was long.", idempotency_key=""
    ),
    "Store.commit": lambda store, chat: store.commit(
        [(chat.session, [user("yes")], {})], idempotency_key=""
    ),
    "Memory.remember": lambda store, chat: store.memory.remember("Tea.", idempotency_key=""),
    "Memory.correct": lambda store, chat: store.memory.correct("s/0", "Tea.", idempotency_key=""),
}


@pytest.mark.parametrize("called", CALLS)
async def test_empty_idempotency_key_is_rejected_before_anything_is_stored(called: str) -> None:
    stage = Stage(says("never said"))
    chat = await stage.chat()
    before = await stage.kinds()
    reason = rf"{called} takes str that is not empty or None as idempotency_key, not an empty one"
    with pytest.raises(WrongArgument, match=reason):
        await CALLS[called](stage.store, chat)
    assert await stage.kinds() == before
