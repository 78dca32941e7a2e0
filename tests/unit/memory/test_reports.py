"""The report of an import is shown as one short line."""

from __future__ import annotations

from perdure.memory.reports import ImportedFacts, ImportedFolder, Unread, UnreadLine


def test_import_reports_contain_the_unread_files_and_lines() -> None:
    folder = ImportedFolder(1, 2, problems=(Unread("a.md", "it is binary"),))
    assert [each.path for each in folder.problems] == ["a.md"]
    assert "\n" not in repr(folder)
    facts = ImportedFacts(1, 0, (UnreadLine(3, "no JSON"),))
    assert [each.line for each in facts.problems] == [3]
    assert len(repr(facts)) < 200
