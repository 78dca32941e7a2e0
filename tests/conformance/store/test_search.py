"""Full-text search over every branch of every session of a namespace."""

from __future__ import annotations

from typing import Unpack

import msgspec
import pytest
from typing_extensions import TypedDict

from perdure.client.lookup.search_hits import hits_in_force
from perdure.errors import InvalidQuery, StoreUnavailable
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import NewEntry, Sibling
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import BranchSummary, Compaction, CustomMessage
from perdure.session.messages import (
    Message,
    TextPart,
    ThinkingPart,
    ToolResultPart,
    assistant,
    thinking,
    tool_call,
    tool_result,
    user,
)
from perdure.session.notes import SessionInfoChanged
from perdure.session.search.parts import sizes
from perdure.session.search.values import MOST_RANKED, Hit, SearchQuery, SearchRole
from perdure.stores.retention.erase import EraseRequest
from perdure.stores.session_store import SessionStore
from tests.conformance.store.backends import Data
from tests.conformance.store.building import (
    S,
    append,
    create,
    fork,
    header,
    labelled,
    moved,
    replied,
    said,
)
from tests.conformance.store.random_log import BATCHES, check_it_finds_what_memory_finds
from tests.fakes.clock import START_MS
from tests.fakes.samples import ALL_ONLY, case

pytestmark = pytest.mark.needs("search")


class Filters(TypedDict, total=False):
    roles: tuple[SearchRole, ...]
    sessions: tuple[StreamId, ...]
    tools: tuple[str, ...]
    since: int | None
    until: int | None
    is_on_branch: bool | None
    limit: int


def searching(store: SessionStore) -> SessionStore:
    return store


async def search(store: SessionStore, text: str, **filters: Unpack[Filters]) -> list[Hit]:
    return await searching(store).search.hits(SearchQuery(text=text, **filters))


async def found(store: SessionStore, text: str, **filters: Unpack[Filters]) -> set[str | None]:
    """Return the matching entries; None represents the title a session was created with."""
    return {hit.entry for hit in await search(store, text, **filters)}


def marked(hit: Hit) -> list[str]:
    """Return the marked parts of the snippet."""
    return [hit.snippet[first:last] for first, last in hit.marks]


async def written(store: SessionStore, *texts: str) -> None:
    """Create a session with the user messages `texts`."""
    await create(store, S, *[said(text) for text in texts])


# ---------------------------------------------------------------- what fits


async def test_query_matches_expected_texts(store: SessionStore) -> None:
    await written(store, "the tide table", "a table, tides; the tide", "Tide and moon", "else")
    for query, fitting in [
        ("tide", {0, 1, 2}),
        ("TIDE", {0, 1, 2}),
        ("tide table", {0, 1}),
        ('"tide table"', {0}),
        ('"table tide"', set[int]()),
        ("tid*", {0, 1, 2}),
        ('"the tide ta"*', {0}),
        ("tide moon OR table", {0, 1, 2}),
        ("tide NOT moon", {0, 1}),
        ("tide AND NOT moon", {0, 1}),
        ("tide AND moon", {2}),
        ('tide NOT "tide table"', {1, 2}),
        ("tide NOT tab*", {2}),
        ("NOT moon tide", {0, 1}),
        ("nothing", set[int]()),
        ("the,tide!", {0, 1}),
        ('"unfinished quote tide', set[int]()),
        ('"tide', {0, 1, 2}),
    ]:
        with case((query, fitting)):
            assert await found(store, query) == {f"s/{seq}" for seq in fitting}


WORDS_OF_TEXTS = (
    ("call foo_bar(x)", ["foo_bar", "foo", "bar", "foo_ba*", '"foo bar"', "foo_bar(x)"]),
    ("see src/perdure/stores.py:12", ["perdure/stores.py", "stores", "stores.py:12"]),
    ("getUserName failed", ["getusername", "getUser*"]),
    ("run it with --force -rf", ["--force", "-rf", "force"]),
    ("version 3.14.1", ["3.14", "3.14.1", "14"]),
    (
        "Crème Brûlée à Zürich",
        ["creme", "brulee zurich", "CRÈME", "cre\u0301me", "Zu\u0308rich"],
    ),
    ("die Straße nach Ærø", ["strasse", "STRASSE", "ærø"]),
    ("我们选择了酒店", ["酒店", "选择", "我们选择了酒店", "店", '"选择了"', "酒*"]),
    ("東京タワーで会いましょう", ["東京", "タワー", "会いま", "東京タワー"]),
    ("ｶﾞﾗｽ", ["ガラス", "ガ"]),
    ("오늘 학교에서 만나요", ["학교", "학교에서", "만나"]),
    ("ฉันรักกรุงเทพ", ["กรุงเทพ", "รัก"]),
    ("اَلْكِتَابُ الجديد", ["الكتاب", "الجديد", "الكـــتاب"]),
    ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
    ("Привет, Ёлка", ["привет", "елка"]),
    ("done 👍🏽 and 👩\u200d💻 ✅", ["👍", "👍🏿", "👩\u200d💻", "✅", "💻"]),
    ("x" * 200 + " end", ["x" * 200, "x" * 200 + " end", "x" * 64 + "*", "end"]),
    ("a\u2028b\x00c\x85d e\u0301", ["a b c d é", "b", "e"]),
    ("½ cup of ﬂour", ["1 2 flour", "flour", "½"]),
)
"""Maps a text to the queries that find it and find no other text of the table."""


async def test_words_of_code_and_of_all_scripts_are_found(store: SessionStore) -> None:
    await written(store, *(text for text, _ in WORDS_OF_TEXTS), "something else")

    for seq, (_, queries) in enumerate(WORDS_OF_TEXTS):
        for query in queries:
            with case(query):
                (hit,) = await search(store, query)
                assert hit.entry == f"s/{seq}"
                assert marked(hit)


async def test_text_that_only_resembles_the_query_is_not_found(store: SessionStore) -> None:
    resembling = [
        ("我们选择了酒店", "店酒"),
        ("かき", "がき"),
        ("seabed", "sea"),
        ("foo_x_bar", "foo_bar"),
        ("state", "tate"),
        ("👍", "👎"),
    ]
    await written(store, *(text for text, _ in resembling))

    for text, query in resembling:
        with case((text, query)):
            assert await search(store, query) == []


async def test_query_without_terms_is_rejected(store: SessionStore) -> None:
    for query, reason in [
        ("", "no word"),
        ('  "" ** ', "no word"),
        ("NOT tide", "only says what not to find"),
        ("a OR NOT b", "OR cannot be joined with NOT"),
        ("a NOT b OR c", "OR cannot be joined with NOT"),
        ("a OR OR b", "needs a word on both sides"),
        ("w " * 65, "too long"),
        ('"' + "w " * 600 + '"', "too long"),
    ]:
        with case((query, reason)):
            with pytest.raises(InvalidQuery, match=reason) as refused:
                await search(store, query)

            assert refused.value.query == query


async def test_query_of_maximum_length_is_accepted(store: SessionStore) -> None:
    words = [f"w{number}" for number in range(60)]
    await written(store, " ".join(words), " ".join(reversed(words)))

    assert await found(store, " ".join(words)) == {"s/0", "s/1"}
    assert await found(store, f'"{" ".join(words)}"') == {"s/0"}
    assert await found(store, f'"{" ".join(["w"] * 500)}"') == set()


async def test_query_cannot_inject_index_syntax(store: SessionStore) -> None:
    await written(store, "x y z")
    for query in ['") OR text : (a', "text : a", 'a" OR "b', "a^b NEAR(c)", "{a}"]:
        with case(query):
            assert await search(store, query) == []


# ---------------------------------------------------------------- what is searched


async def test_all_user_and_model_text_is_found(store: SessionStore) -> None:
    await create(
        store,
        header("s", title="Maiden voyage"),
        said("asked"),
        new_tree(assistant("answered", thinking("pondered"))),
        new_tree(assistant(tool_call("c1", "read_file", {"path": "deep/hole.py", "n": [7, None]}))),
        new_tree(tool_result("c1", "file text", name="read_file")),
        new_tree(Compaction("gist of it")),
        new_tree(BranchSummary("left behind")),
        new_tree(CustomMessage("note", (TextPart("by an extension"),))),
        labelled("milestone", Sibling(0)),
        new_side(SessionInfoChanged(title="Second voyage")),
        new_tree(Message("assistant", (), stop_reason="error", error="overloaded today")),
    )

    for query, entry, role in [
        ("asked", "s/0", "user"),
        ("answered", "s/1", "assistant"),
        ("pondered", "s/1", "assistant"),
        ("deep/hole.py", "s/2", "assistant"),
        ("read_file 7", "s/2", "assistant"),
        ("file text", "s/3", "tool"),
        ("gist", "s/4", "summary"),
        ('"left behind"', "s/5", "summary"),
        ("extension", "s/6", "custom"),
        ("milestone", "s/7", "label"),
        ("second voyage", "s/8", "title"),
        ("maiden", None, "title"),
        ("overloaded", "s/9", "assistant"),
    ]:
        (hit,) = await search(store, query)
        assert (hit.stream, hit.entry, hit.role) == (S, entry, role), query
        assert hit.at == START_MS
    assert (await search(store, "milestone"))[0].about == "s/0"


async def test_removed_and_replaced_labels_are_not_found(store: SessionStore) -> None:
    await written(store, "one", "two", "three", "four")
    for entry, text in (
        ("s/0", "dog answer"),
        ("s/0", None),
        ("s/1", "dog question"),
        ("s/1", "cat question"),
        ("s/2", "dog"),
        ("s/3", "dog"),
        ("s/3", "dog"),
    ):
        await append(store, S, labelled(text, EntryId(entry)))

    async def labels(text: str, limit: int = 20) -> list[EntryId | None]:
        hits = await hits_in_force(searching(store), SearchQuery(text=text, limit=limit))
        return [hit.about for hit in hits]

    assert sorted(await labels("dog"), key=str) == ["s/2", "s/3"]
    assert len(await labels("dog", 2)) == 2  # old labels do not take the places of others
    assert len(await labels("dog", 1)) == 1
    assert await labels("dog", 0) == []
    assert await labels("question") == ["s/1"]
    assert await labels("answer") == []


async def test_search_ignores_redacted_and_unreadable_texts_and_flows(
    store: SessionStore,
) -> None:
    await create(
        store,
        S,
        new_tree(Message("assistant", (ThinkingPart("secret", is_redacted=True),))),
        NewEntry("message", b'{"role":"user","parts":[{"type":"text","text":"later"}]}', v=9),
        NewEntry("from_the_future", b'{"text":"later"}'),
        NewEntry("opaque", b"\xff later"),
        NewEntry("message", b'{"role":"user","parts":[{"type":"odd","text":"later"}]}'),
        labelled(None, None),
    )
    await create(store, header("flow", kind="flow", title="later"), said("later"))

    for query in ("secret", "later"):
        assert await search(store, query) == []


async def test_all_branches_are_searched_and_hits_have_positions(
    store: SessionStore,
) -> None:
    await written(store, "root word", "left word")
    await append(store, S, said("right word", EntryId("s/0")), labelled("a word", EntryId("s/1")))

    hits = {hit.entry: hit.is_on_branch for hit in await search(store, "word")}
    assert hits == {"s/0": True, "s/1": False, "s/2": True, "s/3": False}
    assert await found(store, "word", is_on_branch=True) == {"s/0", "s/2"}
    assert await found(store, "word", is_on_branch=False) == {"s/1", "s/3"}

    await append(store, S, moved(EntryId("s/1")))
    assert await found(store, "word", is_on_branch=True) == {"s/0", "s/1", "s/3"}
    await append(store, S, moved(None))
    assert await found(store, "word", is_on_branch=True) == set()


@pytest.mark.needs("pointer_fork")
async def test_search_finds_an_entry_shared_by_forks_once(store: SessionStore) -> None:
    await written(store, "shared word")
    await fork(store, S, "f", said("own word"))

    hits = await search(store, "word")
    assert {(hit.stream, hit.entry) for hit in hits} == {("s", "s/0"), ("f", "f/0")}
    assert all(hit.is_on_branch for hit in hits)


async def test_committed_text_is_found_immediately_by_every_handle(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "SCANNED", 12)
    one, other = await data.open(), await data.open()
    await create(one)

    for number in range(36):  # more than is read rather than indexed
        await append(one, S, said(f"word{number} each"))
        if number % 7 == 0:
            assert await found(other, f"word{number}") == {f"s/{number}"}
            assert len(await search(one, "each", limit=1000)) == number + 1


async def test_search_returns_no_hit_from_other_namespaces(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "SCANNED", 12)
    mine, theirs = await data.open("mine"), await data.open("theirs")
    nobodys = await data.open("nobodys")
    await written(mine, "rare word", "word", "word word")
    alone = await search(mine, "word OR rare")

    for number in range(20):  # more than is read rather than indexed
        await create(theirs, header(f"t{number}", title="rare"), said("rare word"))

    assert await search(mine, "word OR rare") == alone
    await searching(mine).search.reindex()
    assert await search(mine, "word OR rare") == alone
    assert await search(mine, "rare", sessions=(StreamId("t1"),)) == []
    assert await search(nobodys, "word") == []
    assert len(await search(theirs, "rare", limit=500)) == 40


# ---------------------------------------------------------------- filters


async def test_hits_can_be_filtered_by_role_session_tool_and_time(store: SessionStore) -> None:
    await create(
        store,
        S,
        said("word", at=100),
        replied("word", at=200),
        new_tree(assistant(tool_call("c", "grep.it", {"for": "word"})), at=300),
        new_tree(tool_result("c", "word", name="grep.it"), at=400),
        new_tree(Message("tool", (ToolResultPart("d", "word", name="grep"),)), at=500),
    )
    await create(store, header("other", title="word", created_at=250), said("word", at=50))

    assert await found(store, "word", roles=("user",)) == {"s/0", "other/0"}
    assert await found(store, "word", roles=("user", "title")) == {"s/0", "other/0", None}
    assert await found(store, "word", sessions=(StreamId("other"),)) == {"other/0", None}
    assert await found(store, "word", sessions=(StreamId("none"), S), roles=("user",)) == {"s/0"}
    assert await found(store, "word", sessions=(StreamId("none"),)) == set()
    assert await found(store, "word", tools=("grep.it",)) == {"s/2", "s/3"}
    assert await found(store, "word", tools=("grep.it", "grep")) == {"s/2", "s/3", "s/4"}
    assert await found(store, "word", tools=("GREP",)) == set()
    assert await found(store, "word", since=200, until=400) == {"s/1", "s/2", None}
    assert await found(store, "word", until=100) == {"other/0"}
    assert await found(store, "word", since=400, roles=("tool",), tools=("grep",)) == {"s/4"}
    assert await found(store, "word NOT grep", since=400) == {"s/3", "s/4"}
    assert len(await search(store, "word", limit=2)) == 2
    assert await search(store, "word", limit=0) == []


# ---------------------------------------------------------------- order and snippets


async def test_hits_are_sorted_by_score_then_newest(store: SessionStore) -> None:
    long = "filler " * 40
    await written(store, f"tide {long}", "tide tide tide moon", "moon", "tide", "tide")

    hits = await search(store, "tide OR moon")
    assert hits[0].entry == "s/1"
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert [hit.entry for hit in await search(store, "tide")][-3:] == ["s/4", "s/3", "s/0"]
    assert [hit.entry for hit in await search(store, "tide", limit=1)] == ["s/1"]


@pytest.mark.all_only
async def test_search_hits_are_limited_to_the_newest_matches(store: SessionStore) -> None:
    entries = [said("word word") for _ in range(10)] + [said("word") for _ in range(MOST_RANKED)]
    await create(store, header("s", title="word"), *entries)

    hits = await search(store, "word", limit=5 * MOST_RANKED)
    assert len(hits) == MOST_RANKED
    assert hits[0].entry == f"s/{len(entries) - 1}"
    assert hits[-1].entry == "s/10"


async def test_snippet_contains_match_and_marks_it(store: SessionStore) -> None:
    await written(store, "before " * 60 + "a tide\n\n  table, the Tide" + " after" * 60)

    (hit,) = await search(store, '"tide table" tid*')

    assert hit.snippet.startswith("…before")
    assert hit.snippet.endswith("…")
    assert "a tide table, the Tide after" in hit.snippet
    assert marked(hit) == ["tide table", "Tide"]
    assert len(hit.snippet) <= 162


async def test_snippet_of_a_short_text_is_the_whole_text(store: SessionStore) -> None:
    await written(store, "Über  die\tTide\n")

    (hit,) = await search(store, "uber")

    assert (hit.snippet, hit.marks) == ("Über die Tide ", ((0, 4),))


@pytest.mark.full_only
@pytest.mark.parametrize(("step", "batch"), [(5, 8), pytest.param(1, 30, marks=ALL_ONLY)])
async def test_search_finds_the_same_hits_in_every_backend(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch, step: int, batch: int
) -> None:
    monkeypatch.setattr(sizes, "MOST_LOOSE", (BATCHES - 1) * batch)
    await check_it_finds_what_memory_finds(store, seed=1, step=step, batch=batch)


# ---------------------------------------------------------------- the index


async def test_reindexing_changes_no_search_result(store: SessionStore) -> None:
    await create(store, header("s", title="tide"), said("tide"), replied("ebb and tide"))
    await fork(store, S, "f", said("tide"))
    before = await search(store, "tide OR ebb")
    texts = len(before)  # each of them fits; a copied fork has its own of what it shares
    assert texts == (4 if store.capabilities.pointer_fork else 7)

    assert await searching(store).search.reindex() == texts
    assert await search(store, "tide OR ebb") == before
    assert (await store.maintenance.verify()).problems == ()
    assert await searching(store).search.reindex() == texts


async def test_search_of_empty_store_finds_nothing(store: SessionStore) -> None:
    assert await search(store, "word") == []
    assert await searching(store).search.reindex() == 0
    assert await search(store, "word") == []


async def test_search_of_closed_store_raises_store_unavailable(store: SessionStore) -> None:
    await store.close()

    for call in (search(store, "word"), searching(store).search.reindex()):
        with pytest.raises(StoreUnavailable):
            await call


async def test_search_finds_a_word_in_a_huge_text(store: SessionStore) -> None:
    await written(store, "filler " * 100_000 + "needle", "x" * 300_000 + " needle")

    assert await found(store, "needle") == {"s/0", "s/1"}
    assert all(marked(hit) == ["needle"] for hit in await search(store, "needle"))


@pytest.mark.all_only
async def test_search_finds_texts_in_several_index_parts(store: SessionStore) -> None:
    last = sizes.BATCH_ROWS - 1
    for number in range(3):  # each title is a text too: a part is full in the middle of a session
        stream = header(f"{number}", title=f"titled{number}")
        await create(store, stream, *[said(f"a word {each}") for each in range(last + 1)])

    for number in range(3):
        assert await found(store, f"titled{number}") == {None}
        assert await found(store, f'"a word {last}"') == {f"{each}/{last}" for each in range(3)}
    assert (await store.maintenance.verify()).problems == ()
    if not store.capabilities.erase:
        return

    await store.retention.erase(
        EraseRequest(id="e", scope="session", by="me", at=START_MS, name=StreamId("1"))
    )

    assert await found(store, "titled1") == set()
    assert await found(store, f'"a word {last}"') == {f"{each}/{last}" for each in (0, 2)}
    assert (await store.maintenance.verify()).problems == ()


@pytest.mark.full_only
@pytest.mark.needs("erase")
async def test_erased_text_is_not_found_but_other_texts_are(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "MOST_LOOSE", 64)
    await written(store, *(f"word stays{number}" for number in range(80)))  # they become a part
    await create(store, StreamId("gone"), *[said(f"word goes{number}") for number in range(9)])
    assert len(await search(store, "word", limit=1_000)) == 89

    await store.retention.erase(
        EraseRequest(id="e", scope="session", by="me", at=START_MS, name=StreamId("gone"))
    )

    assert await found(store, "goes*") == set()
    left = await search(store, "word", limit=1_000)
    assert {hit.entry for hit in left} == {f"s/{number}" for number in range(80)}
    assert await found(store, "stays7") == {"s/7"}
    assert (await store.maintenance.verify()).problems == ()
    await searching(store).search.reindex()
    assert await search(store, "word", limit=1_000) == left
    assert (await store.maintenance.verify()).problems == ()


async def test_search_hit_survives_json_round_trip(store: SessionStore) -> None:
    await written(store, "word")

    (hit,) = await search(store, "word")

    assert msgspec.json.decode(msgspec.json.encode(hit), type=Hit) == hit
    assert hit.entry == "s/0"
    assert user("word").text == hit.snippet
