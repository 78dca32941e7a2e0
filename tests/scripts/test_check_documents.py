"""Each rule of scripts/check_documents.py reports a planted violation, and no borderline case."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts import check_documents
from scripts.check_documents import INDEX, MAP, TITLE, broken_links, map_faults, missing_documents

DOCUMENTS = {
    "README.md": "# Top\n",
    "docs/guide.md": '# A guide\n\n## What it is, `really`\n\n<a id="here"></a>\n',
}
PATHS = frozenset({*DOCUMENTS, "docs", "docs/images", "docs/images/a.png"})


def links(text: str) -> list[tuple[int, str]]:
    documents = {**DOCUMENTS, "docs/new.md": text}
    return [
        (found.line, found.message) for found in broken_links(documents, {*PATHS, "docs/new.md"})
    ]


@pytest.mark.parametrize(
    "target",
    [
        *("guide.md", "../README.md", "images/a.png", "images", "../docs/guide.md#a-guide"),
        *("guide.md#what-it-is-really", "guide.md#here", "#new", "https://example.org/x#y"),
    ],
)
def test_link_with_existing_target_is_accepted(target: str) -> None:
    assert links(f"# New\n\nSee [it]({target}).\n") == []


@pytest.mark.parametrize(
    ("target", "what"),
    [
        ("gone.md", "file"),
        ("README.md", "file"),
        ("images/b.png", "file"),
        ("guide.md#there", "heading"),
        ("#old", "heading"),
        ("images/a.png#top", "heading"),
    ],
)
def test_broken_link_is_reported_with_its_file_and_line(target: str, what: str) -> None:
    assert links(f"# New\n\n[one](guide.md), [two]({target})\n") == [
        (3, f"`{target}` leads to no {what}")
    ]


def test_link_inside_code_block_is_ignored() -> None:
    assert links("```\n[it](gone.md)\n```\n") == []


PACKAGE = ("__init__.py", "a/__init__.py", "a/one.py", "a/two.py", "a/below/three.py", "b/four.py")
FILES = {*(f"src/perdure/{path}" for path in PACKAGE), "docs/x.md", "tests/unit/test_y.py"}


def faults(*cells: str) -> list[tuple[int, str]]:
    rows = "".join(f"| what `this` does | {cell} |\n" for cell in cells)
    text = f"# The way in\n\n{TITLE}\n\n| X | Y |\n|---|---|\n{rows}\n## Rest\n\nand `b/four.py`\n"
    return [(found.line, found.message) for found in map_faults(text, FILES)]


@pytest.mark.parametrize(
    "cells",
    [
        ("`a/one.py`, `two.py`", "`a/below`", "`b/four.py`; `docs/x.md`"),
        ("`a`", "`b`: `four.py` (`really`, `from here`)"),
        ("`a/below/three.py`, `one.py`, `two.py`", "`b`, `tests/unit/test_y.py`"),
        ("`a`", "`perdure/b/four.py`, `src/perdure/b`"),
    ],
)
def test_architecture_map_that_lists_every_module_has_no_violation(cells: tuple[str, ...]) -> None:
    assert faults(*cells) == []


@pytest.mark.parametrize(
    ("cells", "line", "what"),
    [
        (("`a`",), 3, "`b/four.py` is not in it"),
        (("`a/one.py`", "`a/below`", "`b`"), 3, "`a/two.py` is not in it"),
        (("`a`, `b`, `a/gone.py`",), 7, "`a/gone.py` is not there"),
        (("`a`", "`b`", "`four.py`"), 9, "`four.py` is not there"),
        (("`a`", "`b`\n\nSee `a/five.py`."), 10, "`a/five.py` is not there"),
    ],
)
def test_missing_or_unknown_module_in_map_is_reported(
    cells: tuple[str, ...], line: int, what: str
) -> None:
    ((at, message),) = faults(*cells)
    assert (at, message.startswith(what)) == (line, True)


DOCS = {INDEX, "docs/a.md", "docs/guides/b.md", "docs/c.html", "docs/images/d.png", "README.md"}


def missing(text: str) -> list[str]:
    return [found.message.split()[0] for found in missing_documents(text, DOCS)]


def test_index_that_links_every_document_has_no_violation() -> None:
    assert missing("# Docs\n\n[a](a.md#part), [b](guides/b.md)\n\n| [c](c.html) |\n") == []


def test_document_missing_from_the_index_is_reported() -> None:
    assert missing("[a](a.md)\n") == ["`c.html`", "`guides/b.md`"]
    assert missing("[a](a.md)\n\n```\n[b](guides/b.md)\n```\n`c.html`\n") == [
        "`c.html`",
        "`guides/b.md`",
    ]


def test_every_document_is_reported_if_the_index_is_missing() -> None:
    assert missing("") == ["`a.md`", "`c.html`", "`guides/b.md`"]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    for path in FILES:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("", encoding="utf-8")
    text = f"[x](docs/x.md)\n\n{TITLE}\n\n| X | Y |\n|---|---|\n| all | `a`, `b` |\n"
    (tmp_path / MAP).write_text(text, encoding="utf-8")
    (tmp_path / INDEX).write_text("[x](x.md)\n", encoding="utf-8")
    return tmp_path


def test_check_of_a_clean_clone_exits_with_0(
    clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_documents.main([str(clone)]) == 0
    assert capsys.readouterr().out == ""


def test_violation_is_printed_with_its_file_and_line(
    clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (clone / "docs" / "x.md").write_text("[y](y.md)\n", encoding="utf-8")
    (clone / "src" / "perdure" / "late.py").write_text("", encoding="utf-8")
    (clone / "docs" / "new.md").write_text("", encoding="utf-8")
    assert check_documents.main([str(clone)]) == 1
    told = capsys.readouterr().out
    assert "docs/x.md:1: link: `y.md` leads to no file" in told
    assert "ARCHITECTURE.md:3: map: `late.py` is not in it" in told
    assert "docs/README.md:1: index: `new.md` is missing" in told
