"""A search of session files skips exactly the text that cannot match."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perdure
from perdure.session.codec import encode, new_tree
from perdure.session.entries import Entry
from perdure.session.ids import StreamId, entry_id
from perdure.session.messages import Message, TextPart, ToolCallPart, assistant, user
from perdure.session.search.matches import counts_in
from perdure.session.search.query import Phrase, Sought
from perdure.session.search.searchable import searchable_of
from perdure.session.search.values import MOST_RANKED, SearchQuery
from perdure.session.search.words import terms
from perdure.stores.jsonl.disk.feed import Span
from perdure.stores.jsonl.search.positions import Places
from perdure.stores.jsonl.search.prefilter import Prefilter, PrefilterMatch
from tests.conformance.store.building import append, create, said
from tests.integration.jsonl.conftest import Opener, opened

S = StreamId("s")
PIECES = st.sampled_from(
    [
        *("Tide", "tide_table", "été", "e\u0301te", "STRASSE", "straße", "ﬁn", "co\u00adop", "½"),
        *(
            "酒店",
            "が",
            "か\u3099",
            "привет",
            "Й",
            "한국어",
            "①",
            "\uff21\uff22",
            "na\u00efve—x",
            "“quoted”",
        ),
        *(
            "\n",
            "\t",
            '"',
            "\\",
            "\\n",
            "\\u0041",
            "/",
            " ",
            " ",
            " ",
            "\x1b[1m",
            "\u2028",
            "\u200d",
        ),
        *(
            "1e5",
            "07",
            "5e",
            "true",
            "null",
            "x" * 70,
            "y" * 64 + "z",
            "👩🏽\u200d💻",
            "\u212a",
            "\u017f",
        ),
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=3), max_size=6).map("".join)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**18), 10**18)
PLAIN: st.SearchStrategy[Any] = st.recursive(
    TEXTS | NUMBERS | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def _called(args: dict[str, Any]) -> ToolCallPart:
    return ToolCallPart("call-1", "run", args)


PARTS = TEXTS.map(TextPart) | st.dictionaries(TEXTS, PLAIN, max_size=3).map(_called)


def words_in(body: bytes) -> list[str]:
    """Return the searchable words of a message."""
    entry = Entry(S, 0, "tree", None, None, 0, "message", 1, body)
    found = searchable_of(entry)
    return [] if found is None else terms(found.text)


def sought(*phrases: Sequence[str], is_prefix: bool = False) -> Sought:
    return Sought(tuple((Phrase(tuple(each), is_prefix),) for each in phrases))


def spelled_otherwise(body: bytes) -> list[bytes]:
    """Return one line for each way in which perdure or another program can write `body`."""
    value = json.loads(body)
    return [
        body,
        json.dumps(value).encode(),
        json.dumps(value, ensure_ascii=False).encode(),
        msgspec.json.encode({"perdure": {"text": body.decode()}}),
        msgspec.json.encode({"perdure": {"text": json.dumps(value, indent=1)}}),
        msgspec.json.encode({"perdure": {"of": "s", "raw": body}}),
    ]


@given(st.lists(PARTS, max_size=3).map(tuple), st.data())
def test_search_prefilter_never_skips_a_matching_entry(
    parts: tuple[Any, ...], data: st.DataObject
) -> None:
    body = encode(Message("assistant", parts))
    known = words_in(body)
    if not known:
        return
    begin = data.draw(st.integers(0, len(known) - 1))
    row = known[begin : begin + data.draw(st.integers(1, 12))]
    end = row[-1][: data.draw(st.integers(1, len(row[-1])))]
    for query in (
        sought(row),
        sought([*row[:-1], end], is_prefix=True),
        sought(*([word] for word in set(row))),
    ):
        for line in spelled_otherwise(body):
            if counts_in(words_in(body), query) is not None:
                assert PrefilterMatch(Prefilter(query)).take(line), (query, line)


def may_hold(line: bytes, *row: str) -> bool:
    return PrefilterMatch(Prefilter(sought(row))).take(line)


def test_search_prefilter_skips_an_entry_without_query_words() -> None:
    line = encode(user("The tide is “out” — été, привет, \x1b[0m12 of 345.6"))
    for row in (["moon"], ["347"], ["мир"], ["ete", "moon"]):
        assert not may_hold(line, *row), row
    for row in (["tide"], ["34"], ["ete"], ["приве"], ["tide", "is"], ["12", "of"]):
        assert may_hold(line, *row), row


def test_search_prefilter_skips_an_entry_without_the_exact_phrase() -> None:
    line = encode(user('The tide\n\t(is) 5 m, or "so"'))
    assert may_hold(line, "tide", "is", "5")
    assert may_hold(encode(user("tide\x1f\x00is")), "tide", "is")
    assert may_hold(line, "so", "the")  # a string ends there, and another may go on
    assert not may_hold(line, "the", "is")
    assert not may_hold(line, "is", "tide")


def test_query_words_can_be_in_several_lines_of_one_entry() -> None:
    looking = PrefilterMatch(Prefilter(sought(["tide"], ["moon"])))
    assert not looking.take(b'{"text":"tide"}\n')
    assert looking.take(b'{"text":"moon"}\n')


def test_entries_that_the_feed_file_lacks_get_the_last_positions() -> None:
    places = Places([Span(5, S, 0, 2), Span(20, S, 2, 1)], 4, 100)
    assert [places.of(seq) for seq in range(5)] == [5, 6, 20, 103, 104]
    assert (places.is_in_order, places.newest) == (True, 104)
    torn = Places([Span(5, S, 0, 2), Span(20, S, 3, 1)], 3, 100)
    assert (torn.is_in_order, torn.of(2), torn.newest) == (False, 102, 103)


@pytest.fixture
def no_index(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every search need an index, even for a single entry, but prevent its creation."""
    monkeypatch.setattr("perdure.stores.jsonl.search.search.MOST_BEHIND", 0)
    (folder / ".perdure" / "search.db").mkdir(parents=True)


@pytest.mark.usefixtures("no_index")
async def test_only_newest_entries_of_long_session_are_decoded(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store()
    many = 300 + MOST_RANKED
    await create(store, S, *[said(f"tide {number}") for number in range(many)])
    await create(store, StreamId("other"), said("moon"))
    decoded: list[str] = []
    whole = searchable_of

    def seen(entry: Entry) -> Any:
        decoded.append(entry.id)
        return whole(entry)

    monkeypatch.setattr("perdure.stores.scan.searchable_of", seen)
    [*hits] = await store.search.hits(SearchQuery(text="tide", limit=many))
    assert len(hits) == MOST_RANKED
    assert entry_id(S, 0) not in decoded
    decoded.clear()
    assert [hit.stream for hit in await store.search.hits(SearchQuery(text="moon"))] == ["other"]
    assert decoded == ["other/0"]


@pytest.mark.usefixtures("no_index")
async def test_long_search_reports_progress(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.stores.jsonl.search.unindexed.STEP_COST", 1)
    store = await open_store()
    for name in ("a", "b"):
        await create(store, StreamId(name), said("tide"), said("moon"))
    told: list[tuple[int, int]] = []
    hits = await store.search.hits(
        SearchQuery(text="moon"), lambda done, all: told.append((done, all))
    )
    assert len(hits) == 2
    assert told == sorted(told)
    assert (told[0][0] < 4, told[-1]) == (True, (4, 4))


async def test_search_finds_the_text_that_import_adds_to_a_shell_command(
    tmp_path: Path,
) -> None:
    header = {"type": "session", "version": 3, "id": "p", "timestamp": "2024-01-15T10:30:00.000Z"}
    command = {"role": "bashExecution", "command": "make", "output": "ok", "exitCode": 0}
    place = {"id": "a1", "parentId": None, "timestamp": "2024-01-15T10:30:01.000Z"}
    lines = [header, {"type": "message", **place, "message": command}]
    (tmp_path / "x_p.jsonl").write_bytes(b"".join(msgspec.json.encode(x) + b"\n" for x in lines))
    async with opened(tmp_path, "pi") as store:
        assert len(await store.search.hits(SearchQuery(text='"I ran this command" make'))) == 1


@pytest.mark.usefixtures("no_index")
async def test_line_written_during_search_hides_no_hit(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.stores.jsonl.search.unindexed.STEP_COST", 1)
    monkeypatch.setattr("perdure.stores.jsonl.search.unindexed._ROWS", 1)
    store, other = await open_store(), await open_store()
    await create(store, S, said("tide 1"), said("tide 2"), said("tide 3"))
    told = 0

    def write(_done: int, _all: int) -> None:
        nonlocal told
        told += 1

    searching = store.search.hits(SearchQuery(text="tide"), write)
    await append(other, S, new_tree(assistant("tide 4")))
    assert {hit.entry for hit in await searching} >= {entry_id(S, seq) for seq in range(3)}
    assert told > 3


@pytest.mark.parametrize("told_of", [(), ((1, 1),)])
async def test_search_reports_progress_only_without_an_index(
    folder: Path, told_of: tuple[tuple[int, int], ...], request: pytest.FixtureRequest
) -> None:
    if told_of:
        request.getfixturevalue("no_index")
    told: list[tuple[int, int]] = []
    async with perdure.open(f"jsonl:///{folder}") as store:
        session = await store.create()
        await session.append(user("tide"))
        [hit] = await store.search("tide", on_progress=lambda done, all: told.append((done, all)))
    assert hit.snippet == "tide"
    assert tuple(told) == told_of
