"""Recall on session files: through the index, and without one."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

import perdure
from perdure.errors import StoreReadOnly
from perdure.memory.question import question_of
from perdure.memory.ranking import Scope, ranking
from perdure.memory.sums import PlainSums
from perdure.session.ids import StreamId
from perdure.session.search.parts import sizes
from perdure.session.search.values import SearchQuery
from perdure.stores.jsonl.disk.folder import Folder
from perdure.stores.jsonl.store import JsonlStore
from perdure.stores.search.index_keys import subject_key
from perdure.stores.search.recall_plan import Asked
from tests.conformance.store.building import append, create, header, said
from tests.fakes.clock import START_MS
from tests.fakes.session_files import file_of
from tests.integration.jsonl.conftest import Opener

A, S = StreamId("a"), StreamId("s")


async def texts(store: JsonlStore, question: str, *subjects: str | None) -> list[str]:
    asked = question_of(question, START_MS)
    scope = Scope(subjects=tuple(map(subject_key, subjects or (None,))))
    found = await store.search.recall(Asked(asked.words, ranking(asked, scope, 10, PlainSums)))
    return [each.found.what.text for each in found]


async def fill(store: JsonlStore) -> None:
    for stream, subject in ((A, None), (S, "ana")):
        await create(store, header(stream, subject=subject), said(f"the harbour of {stream}"))
        await append(store, stream, said("the tide"), said("the moon"))


def unwritable(folder: Path) -> None:
    (folder / ".perdure" / "search.db").mkdir(parents=True)


@pytest.mark.parametrize("has_index", [True, False])
async def test_recall_finds_only_messages_of_the_given_scope(
    open_store: Opener, folder: Path, monkeypatch: pytest.MonkeyPatch, *, has_index: bool
) -> None:
    if not has_index:
        unwritable(folder)
        monkeypatch.setattr("perdure.stores.jsonl.search.search.MOST_BEHIND", 0)
    store = await open_store()
    await fill(store)
    for _ in range(2):
        assert (await texts(store, "which harbour"))[0] == "the harbour of a"
        assert (await texts(store, "which harbour", "ana"))[0] == "the harbour of s"
    await append(store, S, said("a second harbour"))
    assert "a second harbour" in await texts(store, "which harbour", "ana")
    assert "a second harbour" not in await texts(store, "which harbour")
    await store.search.reindex() if has_index else None
    assert "a second harbour" in await texts(await open_store(), "which harbour", "ana")


@pytest.mark.parametrize("is_indexed", [True, False])
async def test_recall_finds_no_old_words_of_rewritten_session(
    open_store: Opener, folder: Path, monkeypatch: pytest.MonkeyPatch, *, is_indexed: bool
) -> None:
    if is_indexed:
        monkeypatch.setattr(sizes, "SCANNED", 0)
    store, other = await open_store(), await open_store()
    await fill(store)
    for each in (store, other):
        assert (await texts(each, "which harbour"))[0] == "the harbour of a"
    path = file_of(folder, A)
    content = path.read_bytes().replace(b"the harbour", b"the airport")
    path.unlink()
    path.write_bytes(content)
    for each in (store, other, await open_store()):
        assert await texts(each, "which harbour") == []
        assert (await texts(each, "which airport"))[0] == "the airport of a"


async def test_index_of_a_read_only_folder_is_used(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store()
    await create(store, A, *[said(f"word {number}") for number in range(100)])
    query = SearchQuery(text="word", limit=200)
    for has_log in (False, True):
        await store.search.hits(query)
        if has_log:
            with mock.patch("perdure.stores.jsonl.search.index_file.IndexFile.settle"):
                await append(store, A, *[said("word") for _ in range(sizes.SCANNED + 1)])
                await store.search.hits(query)
        expected = await store.search.hits(query)
        fresh = await open_store()
        with monkeypatch.context() as patched:
            patched.setattr(Folder, "hold_lock", refusing)
            patched.setattr("perdure.stores.jsonl.search.search.Search", None)
            assert await fresh.search.hits(query) == expected
            patched.setattr("perdure.stores.jsonl.search.search.RecallScan.step", None)
            assert len(await texts(fresh, "which word")) == 10


def refusing(folder: Folder, *_args: object, **_options: object) -> None:
    raise StoreReadOnly(str(folder.path))


async def test_memory_of_session_files_recalls_an_earlier_session(tmp_path: Path) -> None:
    async with perdure.open(f"jsonl:///{tmp_path}") as store:
        session = await store.create()
        await session.append(perdure.user("The hotel in Lisbon is the Aurora"))
        (hit,) = await store.memory.recall("Which hotel was it?")
        assert (hit.session_id, hit.text) == (session.id, "The hotel in Lisbon is the Aurora")
        await store.erase(session.id)
        assert await store.memory.recall("Which hotel was it?") == []
