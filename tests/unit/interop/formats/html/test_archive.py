"""The index as bytes: its rows are data, and nothing else is in it."""

from __future__ import annotations

import json
import re

from perdure.interop.formats.html.archive import ArchiveRow, page_name, render_index
from perdure.session.ids import StreamId

HOSTILE = "</script><script>alert(1)</script>&<!--{{script}}"


def test_index_holds_its_rows_as_data_only() -> None:
    row = ArchiveRow("a.html", HOSTILE, HOSTILE, HOSTILE)
    index = render_index([row]).decode()
    assert index.count("<script") == 2
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', index)
    assert found is not None
    assert json.loads(found[1])[0]["title"] == HOSTILE
    assert "default-src &#x27;none&#x27;" in index
    assert "http" not in index.replace("http-equiv", "")
    assert render_index([row]).decode() == index


def test_page_is_named_after_its_session_where_that_is_a_file_name() -> None:
    assert page_name(StreamId("01jd")) == "01jd.html"
    names = [page_name(StreamId(id)) for id in ("index", "..", "a b", "é", "x" * 200)]
    assert len(set(names)) == 5
    assert all(re.fullmatch(r"sha256-[0-9a-f]{16}\.html", name) for name in names)
