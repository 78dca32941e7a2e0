from __future__ import annotations

import re
from pathlib import Path

from rich.cells import cell_len

import perdure
from perdure.apps.terminal.output import plain_table
from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import Column, table

COLUMNS = (Column("ID"), Column("COUNT", is_right=True), Column("TITLE", gives_way=True))


def test_text_columns_are_aligned_left_and_numbers_right() -> None:
    rows = [("a", "1", "first"), ("bcd", "22", "漢字")]
    assert list(table(COLUMNS, rows, 80, Style())) == [
        "ID   COUNT  TITLE",
        "a        1  first",
        "bcd     22  漢字",
    ]


def test_flexible_column_is_cut_in_a_long_line() -> None:
    rows = [("abc", "1", "a title that is much too long for this line")]
    lines = list(table(COLUMNS, rows, 30, Style()))
    assert all(cell_len(line) <= 30 for line in lines)
    assert lines[1].startswith("abc      1  a title")
    assert lines[1].endswith("…")


def test_column_has_a_minimum_width() -> None:
    rows = [("x" * 30, "1", "a long title")]
    assert list(table(COLUMNS, rows, 20, Style()))[1].endswith("a long…")


def test_table_without_rows_has_a_heading() -> None:
    assert list(table(COLUMNS, [], 80, Style())) == ["ID  COUNT  TITLE"]


def test_flexible_columns_share_the_remaining_space() -> None:
    columns = (Column("A", gives_way=True), Column("B", gives_way=True), Column("C"))
    rows = [("a" * 60, "b" * 40, "c" * 10)]
    (_, line) = table(columns, rows, 54, Style())
    assert [len(cell) for cell in line.split()] == [20, 20, 10]


def test_titles_of_all_tables_are_in_capitals() -> None:
    apps = Path(perdure.__file__).parent / "apps"
    sources = "".join(file.read_text() for file in apps.rglob("*.py"))
    titles = re.findall(r'\bColumn\(\s*"([^"]*)"', sources)
    assert len(titles) > 40
    assert [title for title in titles if title != title.upper()] == []
    assert plain_table([{"id": "a", "next in": "2 s"}]) == ["ID  NEXT IN", "a   2 s"]
