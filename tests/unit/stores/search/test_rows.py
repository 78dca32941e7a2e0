"""The rows of an index: counts after a reset, texts of rows, and plans without an event loop."""

from __future__ import annotations

import asyncio

import pytest

from perdure.session.search.parts.builder import Text
from perdure.session.search.phrase_text import join_terms
from perdure.session.search.words import VERSION
from perdure.stores.search.rows import LooseRow, Mark, loose_row, run_now


def test_reset_of_an_outdated_index_keeps_the_removal_count() -> None:
    assert Mark(VERSION - 1, 7, 3, 2, 5).usable == Mark(VERSION, 0, 0, 0, 5)
    mark = Mark(VERSION, 7, 3, 2, 5)
    assert mark.usable == mark
    assert [mark.has(position) for position in (7, 8, -3, -4)] == [True, False, True, False]


def test_indexed_text_can_be_stored_as_text_or_bytes() -> None:
    text = Text(7, 1, ["one", "two"], ["#ruser", "#s1"], 5)
    row = loose_row(text, join_terms(text.words))
    assert row.text == text
    assert row._replace(said=str(row.said).encode()).text == text
    with pytest.raises(UnicodeDecodeError):
        assert LooseRow(1, 1, 1, "@1", b"\xff").text
    with pytest.raises(ValueError, match="literal"):
        assert LooseRow(1, 1, 1, "#ruser", "x").text


def test_search_plan_that_awaits_raises_runtime_error() -> None:
    async def plan() -> int:
        return 7

    async def waiting() -> None:
        await asyncio.sleep(0)

    assert run_now(plan()) == 7
    with pytest.raises(RuntimeError, match="waited"):
        run_now(waiting())
