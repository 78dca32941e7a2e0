"""A session's context: the entries that remain, were removed, or would be sent."""

from __future__ import annotations

import pytest

from perdure.client.session import Session
from perdure.client.store import Store
from perdure.errors import InvalidEntry
from perdure.session.codec import new_side
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.kinds import Compaction, ModelChange
from perdure.session.messages import assistant, user
from perdure.session.notes import SessionStarted
from perdure.stores.protocol import Commit, Write
from tests.fakes.chats import MODEL, Stage, says


async def grown(store: Store) -> tuple[Session, list[Entry]]:
    """A session with a compaction that hides its first two messages."""
    session = await store.create(id="s")
    entries = await session.append(
        user("first"), assistant("one"), user("second"), assistant("two")
    )
    await session.append(Compaction("So far.", first_kept=entries[2].id))
    return session, entries


async def test_entries_hidden_by_a_compaction_are_listed(
    store: Store,
) -> None:
    session, entries = await grown(store)
    await session.pin(entries[0])
    left = await session.left_by()
    assert left is not None
    assert (left.entries, left.pinned) == ((entries[1].id,), (entries[0].id,))
    assert await session.left_by(left.compaction) == left
    with pytest.raises(InvalidEntry, match="no compaction"):
        await session.left_by(entries[0])
    await session.uncompact()
    assert await session.left_by() is None


async def test_entry_outside_the_tree_cannot_be_pinned(store: Store) -> None:
    session, entries = await grown(store)
    note = await session.label(entries[0], "x")
    with pytest.raises(InvalidEntry, match="not part of the conversation"):
        await session.pin(note)


async def test_context_is_limited_to_max_messages_of_agent(
    store: Store,
) -> None:
    session = await store.create(id="s")
    started = new_side(SessionStarted({"id": "a", "compaction": {"max_messages": 2}}))
    await store.backend.commit(
        Commit(writes=(Write(stream=StreamId(session.id), entries=(started,)),), at=1)
    )
    await session.append(user("first"), assistant("one"), user("second"), assistant("two"))
    context = await session.context()
    assert [each.message.text for each in context.messages] == ["second", "two"]
    assert context.dropped == 2


async def models_of(session: Session) -> tuple[str | None, str | None]:
    """Return the model from the context and from the info of the session."""
    return (await session.context()).model, (await session.info()).model


async def test_context_and_info_contain_the_model_of_the_last_answer(store: Store) -> None:
    session = await store.create(id="s")
    assert await models_of(session) == (None, None)
    hello = await session.append(user("Hi"))
    await session.append(assistant("one", model="openai:a"), user("And?"))
    last = await session.append(assistant("two", model="openai:b"), user("Well?"))
    assert await models_of(session) == ("openai:b", "openai:b")
    await session.append(ModelChange("openai:c"))
    assert await models_of(session) == ("openai:c", "openai:c")
    await session.append(assistant("three", model="openai:d"))
    assert await models_of(session) == ("openai:d", "openai:d")
    await session.append(Compaction("gist"), user("And then?"))
    assert await models_of(session) == ("openai:d", "openai:d")
    await session.branch(last[0])
    assert await models_of(session) == ("openai:b", "openai:b")
    await session.branch(hello)
    assert await models_of(session) == (None, None)
    await store.erase("s")
    assert (await session.info()).model is None


async def test_context_and_info_contain_the_model_of_the_agent(store: Store) -> None:
    stage = Stage(says("hi"))
    chat = await stage.chat(thinking_level="high")
    assert await models_of(chat.session) == (MODEL, MODEL)
    await chat.send("Hello")
    await chat.session.append(assistant("from a fallback", model="openai:b"))
    assert await models_of(chat.session) == (MODEL, MODEL)
    assert (await chat.session.context()).thinking_level == "high"
    await chat.set_model("openai:c")
    await chat.set_thinking_level("low")
    assert await models_of(await chat.session.fork()) == ("openai:c", "openai:c")
    assert (await chat.session.context()).thinking_level == "low"
