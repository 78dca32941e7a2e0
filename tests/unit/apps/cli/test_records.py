"""Tables of usage and of changed files in a narrow terminal."""

from __future__ import annotations

from rich.cells import cell_len

from perdure.apps.cli.records import edit_lines, usage_table
from perdure.apps.terminal.style import Style
from perdure.session.ids import EntryId, StreamId
from perdure.session.messages import Usage
from perdure.session.records import FileEdit, UsageTotal

DEEP = "packages/coding-agent/src/modes/interactive/theme"


def edits(*paths: str, cwd: str | None = "/home/ann/projects/pi-mono") -> list[FileEdit]:
    session = StreamId("s1")
    return [
        FileEdit(
            path=path,
            cwd=cwd,
            session=session,
            entry_id=EntryId("s1/12"),
            tool="write",
            at=1_700_000_000_000,
            edits=3,
        )
        for path in paths
    ]


def test_table_of_edits_with_long_paths_has_no_folder_column() -> None:
    found = edits(f"{DEEP}/dark.json", f"{DEEP}/theme.ts")
    heading, *lines = edit_lines(found, {"s1": "s1"}, 80, Style())
    assert "FOLDER" not in heading
    assert ["dark.json  s1 12" in lines[0], "theme.ts  s1 12" in lines[1]] == [True, True]
    assert all("  packages/" in line and cell_len(line) <= 80 for line in lines)


def test_table_of_edits_with_short_paths_has_a_folder_column() -> None:
    heading, line = edit_lines(edits("a.py"), {"s1": "s1"}, 80, Style())
    assert "FOLDER" in heading
    assert "  a.py  /home/ann/projects/pi-mono  s1 12" in line


def test_table_of_edits_without_width_limit_shows_whole_paths() -> None:
    _, line = edit_lines(edits(f"{DEEP}/dark.json"), {"s1": "s1"}, None, Style())
    assert f"{DEEP}/dark.json  /home/ann/projects/pi-mono" in line


def test_table_of_edits_without_folder_column_shows_absolute_path() -> None:
    found = edits(f"/home/ann/projects/pi-mono/{DEEP}/dark.json", cwd=None)
    _, line = edit_lines(found, {"s1": "s1"}, 80, Style())
    assert "  /home/" in line
    assert "/dark.json  s1 12" in line


def test_usage_table_of_sessions_fits_80_columns() -> None:
    used = Usage(
        input_tokens=12_345_678,
        output_tokens=1_234_567,
        cache_read_tokens=123_456_789,
        cache_write_tokens=2_345_678,
        cost_microcents=12_345_000_000,
    )
    total = UsageTotal("s1", 1_234, used, 1, 1)
    names = {"s1": ("01jdabcd", "2026-11-29", "Fix the theme of the editor in dark mode")}
    heading, line = usage_table("sessions", [total], names, 80, Style())
    assert "LAST USED" not in heading
    assert "Fix the theme of the" in line
    assert "123.5M" in line
    assert cell_len(line) <= 80
    heading, line = usage_table("sessions", [total], names, 120, Style())
    assert "LAST USED" in heading
    assert "123,456,789" in line


def test_usage_table_of_subagents_fits_80_columns() -> None:
    id = "5a1d0c9e-0000-4000-8000-00000000c005:agent-1"
    total = UsageTotal(id, 10_234, Usage(12_345_678, 1_234_567, 123_456_789, 9_345_678), 1, 1)
    names = {id: (id, "2026-11-29", "Count the rows of the orchard")}
    _, line = usage_table("sessions", [total], names, 80, Style())
    assert cell_len(line) <= 80
    assert ":agent-1  Count" in line


def test_narrow_usage_table_shows_the_whole_date() -> None:
    total = UsageTotal("2026-11-29", 10_234, Usage(12_345_678, 1_234_567, 123_456_789), 1, 1)
    for width in (40, 60):
        _, line = usage_table("daily", [total], {}, width, Style())
        assert line.startswith("2026-11-29  ")
