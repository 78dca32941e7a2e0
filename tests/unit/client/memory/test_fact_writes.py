"""The text of a fact, its sources, and its subject."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

import perdure
from perdure import user
from perdure.client.clock import Outside
from perdure.client.memory import fact_writes
from perdure.client.store import Store
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.memory.facts import Fact
from perdure.session.memory.kinds import FACT_KINDS, FactRemembered, memory_stream
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, CommitResult
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.rivals import meanwhile

LATER = datetime(2030, 1, 1, tzinfo=UTC)


async def test_fact_takes_the_subject_of_its_source(store: Store) -> None:
    session = await store.create(subject="ana")
    one, two = await session.append(user("I like tea"), user("and milk"))
    fact = await store.memory.remember("likes tea", source=one)
    assert (fact.subject, fact.sources) == ("ana", (one.id,))
    both = await store.memory.remember("likes tea and milk", source=[one, two.id, one])
    assert both.sources == (one.id, two.id)
    named = await store.memory.remember("knows Ana", source=one, subject="bob")
    assert (named.subject, named.sources) == ("bob", (one.id,))


async def test_repeated_correction_with_same_key_has_no_further_effect(store: Store) -> None:
    said = await (await store.create(subject="ana")).append(user("green tea"))
    fact = await store.memory.remember("likes tea", subject="ana")
    await store.memory.correct(fact.id, "likes black tea", idempotency_key="k")
    await store.memory.correct(fact.id, "likes green tea", source=said)
    for _ in range(2):
        again = await store.memory.correct(fact.id, "likes black tea", idempotency_key="k")
        assert (again.text, again.sources) == ("likes green tea", (said.id,))
        assert [each.text for each in again.history] == ["likes tea", "likes black tea"]
    for change in ({"text": "other"}, {"text": "likes black tea", "source": said}):
        with pytest.raises(perdure.errors.IdempotencyMismatch):
            await store.memory.correct(fact.id, **change, idempotency_key="k")  # pyright: ignore[reportArgumentType] - of names


async def test_sources_of_several_subjects_require_subject_argument(store: Store) -> None:
    entries = [
        await (await store.create(subject=subject)).append(user("Hello"))
        for subject in ("ana", "bob")
    ]
    with pytest.raises(perdure.errors.WrongArgument, match="several subjects"):
        await store.memory.remember("know each other", source=entries)
    fact = await store.memory.remember("know each other", source=entries, subject="ana")
    assert fact.subject == "ana"


async def test_missing_or_erased_source_raises_entry_not_found(store: Store) -> None:
    session = await store.create()
    entry = await session.append(user("Hello"))
    await session.erase_entries([entry])
    fact = await store.memory.remember("likes tea")
    for source in ("nothing", "nothing/1", entry, fact.id):
        with pytest.raises(perdure.errors.EntryNotFound):
            await store.memory.remember("x", source=source)


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"text": " \n"}, perdure.errors.WrongArgument, "empty"),
    ({"text": "a\0b"}, perdure.errors.WrongArgument, "NUL"),
    ({"text": "half \ud800"}, perdure.errors.WrongArgument, "half"),
    ({"text": "x" * 17_000_000}, perdure.errors.LimitExceeded, "fact of 17,000,000 bytes"),
    ({"text": "key: ghp_" + "a1B2" * 9}, perdure.errors.SecretPasted, "github-token"),
    (
        {"text": "x", "valid_from": LATER, "valid_to": LATER},
        perdure.errors.WrongArgument,
        "valid_to",
    ),
    ({"text": "x", "said_by": "nobody"}, perdure.errors.WrongArgument, "said_by"),
]


@pytest.mark.parametrize(("arguments", "error", "reason"), WRONG)
async def test_invalid_text_is_neither_remembered_nor_corrected(
    store: Store, arguments: dict[str, Any], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        await store.memory.remember(**arguments)
    fact = await store.memory.remember("likes tea")
    with pytest.raises(error, match=reason):
        await store.memory.correct(fact.id, **arguments)
    assert await store.memory.facts() == [fact]


async def test_repeated_call_with_same_key_returns_first_fact(store: Store) -> None:
    memory = store.memory
    first = await memory.remember("likes tea", subject="ana", idempotency_key="k")
    assert await memory.remember("likes tea", subject="ana", idempotency_key="k") == first
    newer = await memory.correct(first.id, "likes milk", idempotency_key="k2")
    assert await memory.correct(first.id, "likes milk", idempotency_key="k2") == newer
    assert len(newer.history) == 1
    with pytest.raises(perdure.errors.IdempotencyMismatch):
        await memory.remember("likes coffee", subject="ana", idempotency_key="k")


async def test_same_fact_remembered_twice_is_stored_once(store: Store) -> None:
    memory = store.memory
    first = await memory.remember("likes “thé”", subject="ana")
    assert await memory.remember("likes “thé”", subject="ana") == first
    said = await (await store.create(subject="ana")).append(user("I like tea"))
    assert await memory.remember("likes “thé”", source=said) == first  # it depends on no source
    assert await memory.facts(subject="ana") == [first]
    others = [
        await memory.remember("likes “thé”", subject="bob"),
        await memory.remember("likes “thé”", subject="ana", agent="helper"),
        await memory.remember("likes “thé”", subject="ana", said_by="tool"),
        await memory.remember("likes “thé”", subject="ana", valid_to=LATER),
        await memory.remember("likes “Thé”", subject="ana"),
    ]
    assert len({first.id, *(each.id for each in others)}) == 6
    await memory.forget(first.id)
    assert (await memory.remember("likes “thé”", subject="ana")).id != first.id


async def test_fact_repeated_with_another_source_gets_both_sources(store: Store) -> None:
    session = await store.create(subject="ana")
    one, two = await session.append(user("I like tea"), user("Tea again"))
    first = await store.memory.remember("likes tea", source=one)
    second = await store.memory.remember("likes tea", source=[two, one])
    assert (second.id, second.sources) == (first.id, (one.id, two.id))
    assert await store.memory.remember("likes tea", source=two) == second
    await session.erase_entries([one])
    (left,) = await store.memory.facts(subject="ana")
    assert (left.id, left.sources) == (first.id, (two.id,))
    lasting = await store.memory.remember("likes tea", subject="ana")
    assert (lasting.id != first.id, lasting.sources) == (True, ())


async def test_same_fact_remembered_concurrently_is_stored_once(store: Store) -> None:
    calls = (store.memory.remember("likes tea", subject="ana") for _ in range(5))
    facts = await asyncio.gather(*calls)
    assert len({fact.id for fact in facts}) == 1
    assert len(await store.memory.facts(subject="ana")) == 1


class CountingStore(MemoryStore):
    """A store that counts reads of notes, and commits rejected because the head had moved."""

    reads = conflicts = 0

    async def notes(self, stream: StreamId, kinds: Sequence[str]) -> list[Entry]:
        self.reads += 1
        await asyncio.sleep(0)  # as in a store with a thread: other tasks run meanwhile
        return await super().notes(stream, kinds)

    async def commit(self, commit: Commit) -> CommitResult:
        try:
            return await super().commit(commit)
        except perdure.errors.HeadConflict:
            self.conflicts += 1
            raise


async def test_each_concurrent_remember_call_reads_facts_at_most_twice(clock: ManualClock) -> None:
    counting = CountingStore(clock=clock, random=SeededRandom())
    memory = Store(counting, Outside(clock, SeededRandom(1))).memory
    await asyncio.gather(*(memory.remember(f"fact {n}", subject="ana") for n in range(30)))
    assert len(await memory.facts(subject="ana")) == 30
    assert (counting.conflicts, counting.reads) == (0, 2 * 30 + 1)


async def test_forgotten_fact_is_not_stored_again_by_the_same_key(
    store: Store,
) -> None:
    memory = store.memory
    first = await memory.remember("likes tea", subject="ana")
    for _ in range(2):
        again = await memory.remember("likes tea", subject="ana", idempotency_key="k")
        assert again == first
    newer = await memory.correct(first.id, "likes milk")
    assert await memory.remember("likes tea", subject="ana", idempotency_key="k") == newer
    await memory.forget(first.id)
    with pytest.raises(perdure.errors.FactNotFound):
        await memory.remember("likes tea", subject="ana", idempotency_key="k")
    assert await memory.facts(subject="ana") == []


async def test_idempotency_key_used_for_another_fact_raises_mismatch(
    store: Store,
) -> None:
    memory = store.memory
    for text in ("likes tea", "likes milk"):
        await memory.remember(text, subject="ana")
    await memory.remember("likes rice", subject="ana", idempotency_key="new")
    await memory.remember("likes milk", subject="ana", idempotency_key="known")
    for key in ("new", "known"):
        for text in ("likes tea", "likes bread"):
            with pytest.raises(perdure.errors.IdempotencyMismatch):
                await memory.remember(text, subject="ana", idempotency_key=key)
    assert len(await memory.facts(subject="ana")) == 3


async def test_corrected_fact_keeps_its_sources_by_default(
    store: Store,
) -> None:
    session = await store.create()
    one, two = await session.append(user("I like tea"), user("No, milk"))
    fact = await store.memory.remember("likes tea", source=one)
    assert (await store.memory.correct(fact.id, "likes green tea")).sources == (one.id,)
    assert (await store.memory.correct(fact.id, "likes milk", source=two)).sources == (two.id,)


async def test_concurrent_first_facts_of_a_subject_share_one_stream(store: Store) -> None:
    texts = [f"fact {number}" for number in range(8)]
    facts = await asyncio.gather(*(store.memory.remember(t, subject="ana") for t in texts))
    assert {fact.id.rpartition("/")[0] for fact in facts} == {memory_stream("ana")}
    assert {fact.text for fact in await store.memory.facts(subject="ana")} == {*texts}


async def test_new_fact_about_an_erased_subject_can_be_remembered(store: Store) -> None:
    await store.memory.remember("likes tea", subject="ana")
    await store.memory.remember("likes milk", subject="bob")
    await store.erase(subject="ana")
    assert await store.memory.facts(subject="ana") == []
    assert len(await store.memory.facts(subject="bob")) == 1
    again = await store.memory.remember("likes coffee", subject="ana")
    assert await store.memory.facts(subject="ana") == [again]


async def test_ordinary_session_is_never_used_as_a_memory_stream(store: Store) -> None:
    await store.create(id=memory_stream("ana"))
    assert await store.memory.facts(subject="ana") == []
    with pytest.raises(perdure.errors.SessionExists):
        await store.memory.remember("likes tea", subject="ana")


async def test_correction_of_a_forgotten_fact_stores_no_text(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in (None, "key"):
        fact = await store.memory.remember("likes tea", subject="ana")
        commit = store.backend.commit

        async def forgotten_first(asked: Commit, fact: Fact = fact, commit: Any = commit) -> Any:
            monkeypatch.setattr(store.backend, "commit", commit)
            await store.memory.forget(fact.id)
            return await commit(asked)

        monkeypatch.setattr(store.backend, "commit", forgotten_first)
        with pytest.raises(perdure.errors.FactNotFound):
            await store.memory.correct(fact.id, "likes milk", idempotency_key=key)
        notes = await store.backend.notes(memory_stream("ana"), FACT_KINDS)
        assert not [note for note in notes if b"milk" in note.body]


async def test_fact_remembered_just_before_the_same_fact_is_stored_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = FactRemembered("likes tea")
    rival = partial(fact_writes.remember, store.backend, store.outside, new, "ana")  # elsewhere
    meanwhile(monkeypatch, store.backend, FactRemembered.kind, rival)
    await store.memory.remember("likes tea", subject="ana")
    assert len(await store.memory.facts(subject="ana")) == 1
