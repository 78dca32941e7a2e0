from __future__ import annotations

from perdure.codecs.lines import Line
from perdure.interop.formats.items import SourceHeader
from perdure.interop.formats.sources.content import Held
from perdure.interop.formats.sources.outline import Outline, Whole
from perdure.interop.formats.sources.parse_state import WARNINGS_OF_A_SORT, Record, SourceDraft
from perdure.session.messages import user


def test_record_without_a_time_gets_the_time_of_the_previous_record() -> None:
    items = Whole()
    draft = SourceDraft("test", items=items)
    draft.add(Record(Line(1, 0, b"x"), {}, at=7), user("a"), None)
    draft.add(Record(Line(2, 2, b"x"), {}), user("b"), None)
    assert [item.at for item in items.items] == [7, 7]


def test_repeated_warnings_are_replaced_by_a_count() -> None:
    draft = SourceDraft("test")
    for number in range(WARNINGS_OF_A_SORT + 5):
        draft.report_malformed(Line(number, 0, b""), "bad")
    parsed = draft.finish(SourceHeader(), None)
    assert len(parsed.warnings) == WARNINGS_OF_A_SORT + 1
    assert parsed.warnings[-1].startswith("5 more")
    assert len(parsed.malformed) == WARNINGS_OF_A_SORT + 5


def test_version_of_a_file_is_reported_only_if_it_is_unknown() -> None:
    draft = SourceDraft("test")
    for version in (None, 1, 3, 3.0):
        draft.check_version(Line(1, 0, b""), version, 3)
    assert draft.finish(SourceHeader(), None).warnings == ()
    for version in (0, 4, 2.5, 99):
        draft.check_version(Line(1, 0, b""), version, 3)
    assert len(draft.finish(SourceHeader(), None).warnings) == 4


def test_record_waiting_for_a_parent_is_read_again_later() -> None:
    content = Held(b'\n{"type":"a","id":"x"}')
    draft = SourceDraft("test", content, Outline())
    line = Line(2, 1, content.content[1:])
    record = Record(line, {"type": "a", "id": "x"})
    draft.release_line(record)
    assert (record.line.content, record.fields) == (b"", {})
    draft.restore(record)
    assert (record.line, record.fields) == (line, {"type": "a", "id": "x"})


def test_known_fields_of_unreadable_line_are_preserved() -> None:
    content = Held(b"broken")
    draft = SourceDraft("test", content, Outline())
    record = Record(Line(1, 0, b"broken"), {"isSidechain": True})
    draft.release_line(record)
    draft.restore(record)
    assert (record.line.content, record.fields) == (b"broken", {"isSidechain": True})


def test_small_source_is_stored_whole() -> None:
    draft = SourceDraft("test", Held(b"x"))
    record = Record(Line(1, 0, b"x"), {"type": "a"})
    draft.release_line(record)
    assert (record.line.content, record.fields) == (b"x", {"type": "a"})


def test_malformed_lines_are_reported_once() -> None:
    draft = SourceDraft("test")
    draft.report_malformed(Line(3, 0, b""), "bad")
    draft.report_malformed(Line(2, 0, b""), "bad")
    assert draft.newly_malformed() == [2, 3]
    draft.report_malformed(Line(9, 0, b""), "bad")
    assert draft.newly_malformed() == [9]
