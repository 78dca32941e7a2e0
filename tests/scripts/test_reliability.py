"""Every test named in the documents of promises exists, so that each promise is tested."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from benchmarks.figures import Figure
from benchmarks.markdown import BEGIN, END, put_into

REPOSITORY = Path(__file__).resolve().parents[2]
RELIABILITY = REPOSITORY / "docs" / "reliability.md"
COMPATIBILITY = REPOSITORY / "docs" / "compatibility.md"
_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_FUNCTION = re.compile(r"^ *(?:async )?def (\w+)\(", re.MULTILINE)
_FEATURE = re.compile(r"^\| (?!Feature|---)[^|]+ \| ([^|]*) \|", re.MULTILINE)
_PROMISE = re.compile(r"^\| (?!Promise|---|What)[^|]+ \| ([^|]*tests/[^|]*) \|$", re.MULTILINE)


@cache
def functions_in(file: str) -> frozenset[str]:
    return frozenset(_FUNCTION.findall((REPOSITORY / file).read_text("utf-8")))


@pytest.mark.parametrize("document", [RELIABILITY, COMPATIBILITY], ids=lambda file: file.stem)
def test_every_test_in_the_document_exists(document: Path) -> None:
    named = _NAMED.findall(document.read_text("utf-8"))
    assert len(named) > 50
    missing = [f"{file}::{name}" for file, name in named if name not in functions_in(file)]
    assert missing == []


def test_every_promise_of_the_document_refers_to_a_test() -> None:
    for cell in _PROMISE.findall(RELIABILITY.read_text("utf-8")):
        assert _NAMED.fullmatch(cell.strip()), cell


def test_every_feature_of_the_document_refers_to_a_test_or_command() -> None:
    shown = _FEATURE.findall(COMPATIBILITY.read_text("utf-8"))
    assert len(shown) > 70
    assert [cell for cell in shown if not re.search("::test_|`perdure |`make ", cell)] == []


def test_new_figures_replace_the_old_figures_in_the_document(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", "utf-8")
    put_into(file, [Figure("append", "p50", 1.25, "ms", 1.0, 1.0)], is_quick=True)
    text = file.read_text("utf-8")
    assert "| append | p50 | 1.25 ms | 1 | ≤ 1 | **missed** |" in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text


def test_document_has_a_section_for_the_measured_figures() -> None:
    assert BEGIN in RELIABILITY.read_text("utf-8")
