"""The documents of all commands match the commands."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
import typer

from perdure.apps.cli.program import shape_of, whole_program
from scripts import make_command_docs as docs

PROGRAM = shape_of(typer.main.get_command(whole_program()))


class Links(HTMLParser):
    """The links of a page, its link targets, and the resources that it loads from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.ids: set[str] = set()
        self.loaded: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.targets |= {str(given["href"])[1:]} if tag == "a" and "href" in given else set()
        self.ids |= {str(given["id"])} if "id" in given else set()
        self.loaded |= {str(given[name]) for name in ("src", "data") if name in given}
        self.loaded |= {str(given["href"])} if tag == "link" and "href" in given else set()


def test_command_documents_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert docs.main(["--check"]) == 0, capsys.readouterr().out


def test_every_command_and_option_is_in_both_documents() -> None:
    markdown, page = docs.markdown(PROGRAM), docs.page(PROGRAM)
    for command in PROGRAM.walk():
        assert command.line in markdown
        assert command.line in page
        for parameter in command.parameters:
            assert parameter.spellings[0] in markdown
            assert parameter.spellings[0] in page


def test_command_page_loads_no_external_resources() -> None:
    links = Links()
    links.feed(docs.page(PROGRAM))
    assert links.loaded == set()
    assert links.targets <= links.ids
    assert not re.search(r"url\(|@import|https?://", docs.STYLE.read_text(encoding="utf-8"))


def test_links_of_the_command_markdown_have_targets() -> None:
    markdown = docs.markdown(PROGRAM)
    targets = set(re.findall(r"\]\(#([^)]+)\)", markdown))
    assert targets <= set(re.findall(r'<a id="([^"]+)">', markdown))


def test_command_page_escapes_markup_in_texts() -> None:
    assert docs.cell("a|b") == "a\\|b"
    assert "<b>" not in "".join(docs._paragraphs(("<b>",)))  # pyright: ignore[reportPrivateUsage] - what would be markup
