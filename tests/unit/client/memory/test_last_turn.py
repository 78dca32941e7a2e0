"""Info on the last turn: the recalled texts with their scores, and the omitted texts."""

from __future__ import annotations

from pathlib import Path

from perdure import Agent, CompactionSettings, MemoryConfig, Runtime, assistant, user
from perdure.client.memory.last_turn import last_turn_of
from perdure.client.store import Store
from perdure.events.projection import events_of
from perdure.session.ids import StreamId
from perdure.testing import ScriptedModel


async def test_last_turn_lists_recalled_texts_with_reasons(store: Store, tmp_path: Path) -> None:
    (tmp_path / "hotels.md").write_text("# Hotels\n\nThe hotel Bellevue has no river.\n")
    said = await store.create(subject="ana")
    entry = await said.append(user("The hotel near the river is the Aurora."))
    fact = await store.memory.remember("Ana prefers a hotel with a garden", subject="ana")
    memory = MemoryConfig(knowledge=(str(tmp_path),))
    agent = Agent("helper", model="scripted:any", memory=memory)
    model = ScriptedModel(["The Aurora.", "Yes."])
    async with Runtime(store, agents=[agent], models=model) as runtime:
        chat = await runtime.start("helper", subject="ana")
        assert await last_turn_of(store.backend, chat.id) is None
        await chat.send("Which hotel near the river?")
        last = await last_turn_of(store.backend, chat.id)
        assert last is not None
        assert (last.turn, last.problem, last.trimmed) == (1, None, None)
        by_kind = {piece.kind: piece for piece in last.recalled}
        assert (by_kind["fact"].id, by_kind["fact"].words) == (fact.id, ("hotel",))
        assert by_kind["said"].id == entry.id
        assert set(by_kind["said"].words) == {"hotel", "near", "river"}
        assert "words" in by_kind["said"].why
        assert (by_kind["said"].score or 0) > 0
        source = by_kind["knowledge"].source
        assert source is not None
        assert (source.path, source.heading) == ("hotels.md", "Hotels")
        await said.erase_entries([entry])
        await store.memory.forget(fact.id)
        erased = await last_turn_of(store.backend, chat.id)
        assert erased is not None
        assert [piece.text is None for piece in erased.recalled].count(True) == 2
        log = await store.backend.entries(StreamId(chat.id))
        assert not any(b"Aurora is" in each.body or b"garden" in each.body for each in log)


async def test_last_turn_lists_omitted_texts_with_reasons(store: Store) -> None:
    for n in range(5):
        said = await store.create(subject="ana")
        await said.append(user(f"The hotel number {n} is near the river. " * 20))
    memory = MemoryConfig(max_working_tokens=900)
    agent = Agent("helper", model="scripted:any", memory=memory)
    async with Runtime(store, agents=[agent], models=ScriptedModel(["Yes."] * 5)) as runtime:
        chat = await runtime.start("helper", subject="ana")
        for n in range(8):
            await chat.session.append(user(f"{n} " * 200), assistant(f"{n} " * 200))
        await chat.send("Which hotel near the river?")
    last = await last_turn_of(store.backend, chat.id)
    assert last is not None
    assert last.trimmed is not None
    assert last.trimmed.dropped > 0
    assert (last.trimmed.limit, last.trimmed.tokens) == ("max_working_tokens", 900)
    assert last.trimmed.recalled > 0
    (entry,) = await store.backend.notes(chat.id, ("trimmed",))
    (told,) = events_of(entry)
    assert told.payload["limit"] == "max_working_tokens"


async def test_message_limit_is_reported_as_the_reason_for_omitted_messages(store: Store) -> None:
    limited = CompactionSettings(max_messages=3)
    agent = Agent("helper", model="scripted:any", compaction=limited)
    async with Runtime(store, agents=[agent], models=ScriptedModel(["Yes."] * 9)) as runtime:
        chat = await runtime.start("helper")
        for n in range(4):
            await chat.session.append(user(f"{n}"), assistant(f"{n}"))
        await chat.send("and?")
    last = await last_turn_of(store.backend, chat.id)
    assert last is not None
    assert last.trimmed is not None
    assert (last.trimmed.limit, last.trimmed.tokens) == ("max_messages", None)
