"""The index page of an HTML archive: its rows are embedded only as data."""

from __future__ import annotations

import json
import re

from perdure.interop.formats.html.archive import (
    ArchiveRow,
    page_name,
    render_index,
    searched_text,
)
from perdure.interop.formats.html.page import render_page, transcript_in
from perdure.interop.formats.transcript import (
    Called,
    Facts,
    Medium,
    Piece,
    Result,
    Said,
    Strange,
    Thought,
    Transcript,
    TranscriptLine,
)
from perdure.session.ids import StreamId

HOSTILE = "</script><script>alert(1)</script>&<!--{{script}}"


def test_hostile_title_cannot_add_markup_to_the_archive_index() -> None:
    row = ArchiveRow("a.html", HOSTILE, HOSTILE, HOSTILE)
    index = render_index([row]).decode()
    assert index.count("<script") == 2
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', index)
    assert found is not None
    assert json.loads(found[1])[0]["title"] == HOSTILE
    assert "default-src &#x27;none&#x27;" in index
    assert "http" not in index.replace("http-equiv", "")
    assert render_index([row]).decode() == index


def test_searched_text_includes_all_branches_without_hidden_reasoning() -> None:
    pieces: tuple[Piece, ...] = (
        Said(r"a\*b <b> `*`"),
        Thought("secretly", is_redacted=True),
        Thought("openly"),
        Called("1", "grep", "x", '{"pattern": "*"}'),
        Result("1", "3 | matches", media=(Medium("image/png", 3, "plot_1.png"),)),
        Medium("image/png", 3, "tide_2.png"),
        Strange(HOSTILE),
    )
    lines = (
        TranscriptLine(0, "s/0", "user", 0, pieces, label="first_label"),
        TranscriptLine(1, "s/1", "assistant", 0, (Said("aside"),), parent=0, error="it *failed*"),
        TranscriptLine(2, "s/2", "assistant", 0, (Said("main"),), parent=0),
    )
    facts = Facts("s", 0, "perdure", title="a_title", system_prompt="be *brief*")
    shown = transcript_in(render_page(Transcript(facts, lines, 2)))

    assert searched_text(shown).splitlines() == [
        "a_title",
        "be *brief*",
        "first_label",
        r"a\*b <b> `*`",
        "openly",
        "grep",
        '{"pattern": "*"}',
        "3 | matches",
        "plot_1.png",
        "tide_2.png",
        HOSTILE,
        "aside",
        "it *failed*",
        "main",
    ]


def test_page_is_named_after_session_with_valid_file_name() -> None:
    assert page_name(StreamId("01jd")) == "01jd.html"
    names = [page_name(StreamId(id)) for id in ("index", "..", "a b", "é", "x" * 200)]
    assert len(set(names)) == 5
    assert all(re.fullmatch(r"sha256-[0-9a-f]{16}\.html", name) for name in names)
