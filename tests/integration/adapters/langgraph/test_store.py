"""Tests of `PerdureStore` beyond LangGraph's own tests, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import GetOp, PutOp

import perdure
from perdure.adapters.langgraph import PerdureStore
from perdure.adapters.langgraph.items import DELETED
from perdure.adapters.langgraph.namespaces import StoredNamespace
from tests.fakes.leaks import leaks_in, pages_with
from tests.fakes.parts import make_parts_of_few_texts
from tests.integration.adapters.conftest import POSTGRES_LATER

ANA = ("users", "ana")


def test_items_survive_reopening_and_are_found_by_text(store_address: str) -> None:
    with perdure.blocking.open(store_address) as store:
        items = PerdureStore(store)
        items.put(ANA, "1", {"text": "The lighthouse is on the cape."})
        items.put(ANA, "2", {"text": "The harbour is closed.", "hidden": "lighthouse"}, ["text"])
        items.put(ANA, "3", {"text": "A lighthouse in secret."}, index=False)
        items.put(("users", "ben"), "1", {"text": "Ben has seen the lighthouse."})
    with perdure.blocking.open(store_address) as store:
        items = PerdureStore(store)
        found = items.search(ANA, query="lighthouse")
        assert [item.key for item in found] == ["1"]
        assert found[0].score is not None
        assert len(items.search(("users",), query="lighthouse")) == 2
        assert len(items.search(ANA, query="lighthouse", filter={"text": "x"})) == 0
        assert items.search(ANA, query="?!") == []
        assert [item.key for item in items.search(ANA)] == ["1", "2", "3"]
        assert [info.id for info in store.recent()] == []


def test_update_keeps_creation_time_and_replaces_searchable_text(store_address: str) -> None:
    with perdure.blocking.open(store_address) as store:
        items, other = PerdureStore(store), PerdureStore(store)
        items.put(ANA, "k", {"text": "red"})
        first = other.get(ANA, "k")
        items.put(ANA, "k", {"text": "green"})
        second = other.get(ANA, "k")
        assert first is not None
        assert second is not None
        assert second.created_at == first.created_at <= second.updated_at
        assert other.search(ANA, query="red") == []
        assert [item.value for item in other.search(ANA, query="green")] == [{"text": "green"}]


def test_deleted_langgraph_item_is_erased_from_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_parts_of_few_texts(monkeypatch)
    file = tmp_path / "s.db"
    with perdure.blocking.open(f"sqlite:///{file}") as store:
        items = PerdureStore(store)
        for text in ("SECRET one", "SECRET two"):
            items.put(ANA, "k", {"text": text})
        items.put(ANA, "other", {"text": "stays"})
        assert len(items.search(ANA, query="SECRET")) == 1
        pages = pages_with(file, "SECRET")
        assert pages
        items.delete(ANA, "k")
        items.delete(ANA, "never there")
        assert items.get(ANA, "k") is None
        assert items.search(ANA, query="SECRET") == []
        assert items.list_namespaces() == [ANA]
        items.delete(ANA, "other")
        assert items.list_namespaces() == []
        items.put(ANA, "k", {"text": "new"})
        assert PerdureStore(store).get(ANA, "k") is not None
        assert store.verify().is_ok
    assert leaks_in(file, "SECRET", pages) == []


def test_any_value_comes_back_unchanged(store_address: str) -> None:
    values: list[dict[str, Any]] = [
        {},
        {"n": 2**70, "x": [None, True, 1.5], "deep": {"a": {"b": []}}},
        {"url": "data:image/png;base64,AAAA", "nul": "a\0b", "half": "\ud800"},
        {"long": "x" * 100_000},
    ]
    with perdure.blocking.open(store_address) as store:
        items = PerdureStore(store)
        for number, value in enumerate(values):
            for index in (None, False, ["half", "long"]):
                key = f"a key: {number} {index} {'y' * 60}"
                items.put(ANA, key, value, index)
                item = items.get(ANA, key)
                assert item is not None
                assert item.value == value
                assert item.key == key


def test_invalid_items_of_other_writers_are_reported_and_ignored(
    store_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with perdure.blocking.open(store_address) as store:
        PerdureStore(store).put(("a",), "k", {"n": 1})
        (info,) = store.recent(None, scope="all", id_prefix="lgs:a:")
        session = store.open(info.id)
        wrong: list[object] = [{}, {"key": 7, "created_at": 7}, {"key": "k", "created_at": "now"}]
        wrong += [{"key": "k", "created_at": 7, "value": 7}]
        wrong += [{"key": "k", "created_at": 7, "vectors": ["abc"]}]
        for each in wrong:
            session.append(perdure.user("{}", foreign={"langgraph.item": each}))
        session.append(perdure.Note("langgraph.item.deleted", {"n": 7}))
        items = PerdureStore(store)
        assert [each.value for each in items.search(("a",))] == [{"n": 1}]
        items.put(("a",), "k", {"n": 2})
        items.delete(("a",), "k")
        assert items.search(("a",)) == []
    assert caplog.text.count("is not counted: this adapter did not write it") >= len(wrong)


def test_items_of_a_namespace_are_not_found_in_an_unrelated_namespace(store_address: str) -> None:
    names = [("a", "b", "c"), ("a", "b:c"), ("a:b", "c"), ("ä",), ("x" * 90, "y" * 90), ("a", "b")]
    with perdure.blocking.open(store_address) as store:
        items = PerdureStore(store)
        for number, name in enumerate(names):
            items.put(name, "k", {"n": number})
        for number, name in enumerate(names):
            item = items.get(name, "k")
            assert item is not None
            assert item.value == {"n": number}
        assert items.list_namespaces(prefix=("a",)) == [("a", "b"), ("a", "b", "c"), ("a", "b:c")]
        assert len(items.search(("a", "b"))) == 2


@POSTGRES_LATER
async def test_langgraph_store_on_an_async_store_rejects_blocking_calls(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        items = PerdureStore(store)
        await asyncio.gather(*(items.aput(ANA, f"{n}", {"n": n}) for n in range(20)))
        await asyncio.gather(*(items.adelete(ANA, f"{n}") for n in range(15)))
        kept = [item.key for item in await items.asearch(ANA)]
        assert sorted(kept) == ["15", "16", "17", "18", "19"]
        with pytest.raises(TypeError, match=r"this store .* perdure\.blocking\.open"):
            items.get(ANA, "15")


def test_store_batch_reads_first_and_then_makes_its_changes(store_address: str) -> None:
    with perdure.blocking.open(store_address) as store:
        items = PerdureStore(store)
        changes = [PutOp(("a",), "k", {"n": 1}), PutOp(("b",), "k", {"n": 2})]
        results = items.batch([*changes, GetOp(("a",), "k"), PutOp(("a",), "k", {"n": 3})])
        assert results == [None, None, None, None]
        assert [item.value for item in items.search(())] == [{"n": 3}, {"n": 2}]


def test_langgraph_search_filters_items_by_their_values(store_address: str) -> None:
    with perdure.blocking.open(store_address) as store:
        items = PerdureStore(store)
        for number in range(4):
            value = {"n": number, "user": {"name": f"u{number}"}, "even": number % 2 == 0}
            items.put(ANA, f"{number}", value)

        def keys(wanted: dict[str, Any]) -> str:
            return "".join(item.key for item in items.search(ANA, filter=wanted))

        assert keys({"n": {"$gte": 1, "$lt": 3}}) == "12"
        assert keys({"n": {"$ne": 1}}) == "023"
        assert keys({"user": {"name": "u2"}}) == "2"
        assert keys({"user.name": "u2"}) == "2"
        assert keys({"even": True}) == "02"
        assert keys({"even": 1}) == ""
        assert keys({"missing": {"$gt": 1}}) == ""
        with pytest.raises(ValueError, match="unknown operator"):
            keys({"n": {"$near": 1}})


class FailsOnce:
    """A session whose first erasure fails."""

    def __init__(self, session: perdure.Session) -> None:
        self.session = session
        self.failures = 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    async def erase_entries(self, entries: list[str], **options: Any) -> Any:
        if self.failures:
            self.failures -= 1
            raise OSError("disk full")
        return await self.session.erase_entries(entries, **options)


async def test_failed_erasure_is_completed_by_next_erasure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_parts_of_few_texts(monkeypatch)
    file = tmp_path / "s.db"
    async with await perdure.open(f"sqlite:///{file}") as store:
        items = PerdureStore(store)
        await items.aput(ANA, "k", {"text": "SECRET"})
        await items.aput(ANA, "other", {"text": "stays"})
        assert len(await items.asearch(ANA, query="SECRET")) == 1
        pages = pages_with(file, "SECRET")
        assert pages
        (info,) = await store.recent(None, scope="all")
        session = await store.open(info.id)
        failing: Any = FailsOnce(session)
        namespace = StoredNamespace(ANA, failing, info.created_at)
        await namespace.refresh(info.entries)
        await session.append(perdure.Note(DELETED, {"key": "k"}))
        await namespace.refresh(info.entries + 1)
        with pytest.raises(OSError, match="disk full"):
            await namespace.erase_deleted()
        await namespace.erase_deleted()
        assert failing.failures == 0
    assert leaks_in(file, "SECRET", pages) == []
