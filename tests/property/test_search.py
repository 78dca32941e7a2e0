"""The index of a file compared with a scan: both find the same in random logs.

The index and the scan find the same after any update of the index, after a rebuild, and while a
part of the log is not indexed yet.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import InvalidQuery
from perdure.session.codec import new_tree
from perdure.session.entries import LEAF, NewEntry
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.messages import assistant, tool_call, tool_result, user
from perdure.session.search.matches import counts_in
from perdure.session.search.parts import blocks, sizes
from perdure.session.search.query import MOST_PHRASES, sought_in
from perdure.session.search.snippets import snippet_of
from perdure.session.search.values import SearchQuery, SearchRole
from perdure.session.search.words import terms, words
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Write
from perdure.stores.session_store import SessionStore
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.clock import ManualClock, SeededRandom


def means_something(text: str) -> bool:
    try:
        sought_in(text)
    except InvalidQuery:
        return False
    return True


WORDS = (
    *(
        "tide",
        "tides",
        "Tide",
        "moon",
        "a",
        "a",
        "foo_bar",
        "foo",
        "bar",
        "été",
        "ete",
        "e\u0301te",
    ),
    *(
        "酒店",
        "店",
        "ガラス",
        "👍🏽",
        "x" * 70,
        "src/a.py",
        "3.14",
        "ﬁn",
        "OR",
        "NOT",
        "-",
        "\x00",
        "½",
    ),
)
texts = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join) | st.text(max_size=20)
sought_texts = st.lists(
    st.sampled_from(
        [*WORDS, "ti*", '"tide moon"', '"a foo"*', "moon OR a", "NOT moon", '"a a"', "酒*"]
    ),
    min_size=1,
    max_size=4,
).map(" ".join)
roles: st.SearchStrategy[tuple[SearchRole, ...]] = st.sampled_from(
    [(), (), (), ("user",), ("tool", "title"), ("assistant",)]
)
queries = st.builds(
    SearchQuery,
    text=sought_texts.filter(means_something),
    roles=roles,
    sessions=st.sampled_from([(), (), (StreamId("one"),), (StreamId("two"), StreamId("no"))]),
    tools=st.sampled_from([(), (), (), ("grep",)]),
    since=st.sampled_from([None, None, 3]),
    until=st.sampled_from([None, None, 6]),
    is_on_branch=st.sampled_from([None, None, True, False]),
    limit=st.sampled_from([50, 50, 3]),
)


def entry(text: str, kind: str, chance: int, at: int) -> NewEntry:
    message = {
        "user": user(text),
        "assistant": assistant(text),
        "call": assistant(tool_call("c", "grep", {"for": text})),
        "result": tool_result("c", text, name="grep"),
    }[kind]
    return new_tree(message, None if chance == 0 else LEAF, at=at)


entries = st.builds(
    entry,
    texts,
    st.sampled_from(["user", "assistant", "call", "result"]),
    st.integers(0, 5),
    st.integers(0, 9),
)
commits = st.lists(
    st.tuples(st.sampled_from(["one", "two"]), st.lists(entries, min_size=1, max_size=4)),
    min_size=1,
    max_size=6,
)


async def write(store: SessionStore, stream: str, *new: NewEntry, title: str | None = None) -> None:
    header = StreamHeader(StreamId(stream), 4, title=title) if title is not None else None
    write = Write(stream=StreamId(stream), create=header, entries=new)
    await store.commit(Commit(writes=(write,), at=5))


async def compare(
    path: Path, script: list[tuple[str, list[NewEntry]]], wanted: list[SearchQuery], index: set[int]
) -> None:
    clock = ManualClock()
    plain = MemoryStore(clock=clock, random=SeededRandom(1))
    indexed = await SqliteStore.open(path, durability="normal", clock=clock, random=SeededRandom(1))
    try:
        for store in (plain, indexed):
            await write(store, "one", title="tide table")
            await write(store, "two", title="")
        for number, (stream, new) in enumerate(script):
            for store in (plain, indexed):
                await write(store, stream, *new)
            if number in index:
                await index_more(indexed)
        await check_alike(plain, indexed, wanted)
        assert await indexed.search.reindex() == await plain.search.reindex()
        await check_alike(plain, indexed, wanted)
    finally:
        await indexed.close()


async def index_more(store: SqliteStore) -> None:
    # A search takes these steps for more entries than these logs have.
    with patch.object(sizes, "SCANNED", 0):
        await store.search.index()


async def check_alike(plain: MemoryStore, indexed: SqliteStore, wanted: list[SearchQuery]) -> None:
    for query in wanted:
        assert await indexed.search.hits(query) == await plain.search.hits(query)
    assert (await indexed.maintenance.verify()).problems == ()


@settings(max_examples=max(12, settings().max_examples // 3))
@given(
    commits,
    st.lists(queries, min_size=1, max_size=6),
    st.sets(st.integers(0, 5)),
    st.sampled_from([1, 4, 512]),
)
def test_index_finds_the_same_hits_as_a_scan(
    script: list[tuple[str, list[NewEntry]]],
    wanted: list[SearchQuery],
    index: set[int],
    loose: int,
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(sizes, "MOST_LOOSE", loose),
        patch.object(blocks, "BLOCK_BYTES", 40),
    ):
        asyncio.run(compare(Path(folder, "s.db"), script, wanted, index))


@given(st.text() | texts)
def test_words_of_any_text_have_increasing_correct_positions(text: str) -> None:
    found = list(words(text))

    assert [word.term for word in found] == terms(text)
    assert all(0 <= word.start < word.end <= len(text) for word in found)
    assert [word.start for word in found] == sorted(word.start for word in found)
    for word in found:
        assert word.term in terms(text[word.start : word.end])


@given(st.text() | texts)
def test_splitting_words_is_idempotent(text: str) -> None:
    """Text copied from a hit into a query finds the hit again."""
    for term in terms(text):
        assert terms(term) == [term]


@given(texts, st.text() | sought_texts)
def test_every_match_of_a_query_has_a_highlighted_snippet(text: str, query: str) -> None:
    if not means_something(query):
        return
    sought = sought_in(query)
    assert 1 <= len(sought.phrases) <= MOST_PHRASES
    counts = counts_in(terms(text), sought)
    snippet = snippet_of(text, sought.phrases)
    assert all(0 <= first < last <= len(snippet.text) for first, last in snippet.marks)
    if counts is not None:
        assert snippet.marks
