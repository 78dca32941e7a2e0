"""Files are split at their headings without losing a word."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.memory.knowledge import Passage, agent_subject, passages_of, source_of
from perdure.session.codec import new_tree
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from tests.fakes.samples import case


def test_passages_have_the_headings_above_them() -> None:
    text = "Before.\n# A #\none\n### C\ntwo\n## B\nthree\n# D\n####### no heading\n#no\n"
    found = passages_of(text, is_markdown=True)
    assert [(each.heading, each.text.splitlines()[-1]) for each in found] == [
        (None, "Before."),
        ("A", "one"),
        ("A / C", "two"),
        ("A / B", "three"),
        ("D", "#no"),
    ]


def test_passages_of_a_code_file_have_no_headings() -> None:
    for fence in ("```", "~~~", "````"):
        with case(fence):
            text = f"# A\n{fence}sh\n# comment\n{fence}\n# B\n"
            found = passages_of(text, is_markdown=True)
            assert [each.heading for each in found] == ["A", "B"]


def test_passages_of_plain_text_have_no_headings() -> None:
    assert passages_of("# A\nword\n", is_markdown=False) == [Passage("# A\nword")]
    assert passages_of(" \n\n", is_markdown=True) == []


@given(st.text(alphabet="# a\n`~é", max_size=4_000), st.booleans())
def test_passages_contain_the_whole_text_and_have_a_limited_length(
    text: str, is_markdown: bool
) -> None:
    found = passages_of(text, is_markdown=is_markdown)
    assert all(0 < len(each.text) <= 1_200 for each in found)
    assert re.sub(r"\s", "", "".join(each.text for each in found)) == re.sub(r"\s", "", text)


@pytest.mark.full_only
def test_long_text_is_cut_in_linear_time() -> None:
    def seconds(text: str) -> float:
        started = time.process_time()
        passages_of(text, is_markdown=True)
        return time.process_time() - started

    for unit in ("# a\n", "word ", "`", "#", "\n", " "):
        with case(unit):
            seconds(unit * 1_000)
            once, four_times = seconds(unit * 20_000), seconds(unit * 80_000)
            assert four_times < 10 * once + 0.5


def test_knowledge_source_of_a_passage_has_path_and_heading() -> None:
    body = new_tree(Passage("text", "A / B").entry_body("a.md"))
    entry = Entry(StreamId("s"), 0, "tree", None, None, 0, body.kind, body.v, body.body)
    source = source_of(entry)
    assert source is not None
    assert (source.path, source.heading) == ("a.md", "A / B")


def test_knowledge_of_different_agents_has_different_subjects() -> None:
    assert agent_subject("a") != agent_subject("b")
