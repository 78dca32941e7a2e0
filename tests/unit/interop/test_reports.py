from __future__ import annotations

import msgspec

from perdure.interop.reports import ImportReport
from perdure.session.ids import StreamId


def test_report_has_the_fields_that_programs_read() -> None:
    report = ImportReport(StreamId("s"), "pi", 3, 2, 1, (4,), ("line 4: bad",), is_new=True)
    assert msgspec.json.decode(msgspec.json.encode(report)) == {
        "session": "s",
        "format": "pi",
        "entries": 3,
        "messages": 2,
        "skipped": 1,
        "malformed": [4],
        "warnings": ["line 4: bad"],
        "is_new": True,
        "is_erased": False,
    }
