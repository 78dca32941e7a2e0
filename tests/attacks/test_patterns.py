"""Work on text from outside is linear: four times the text is not sixteen times the work.

Every compiled pattern of the package is tested with texts made from its own form, so new patterns
are tested automatically; hand-written scanners are tested by name.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from perdure.apps.settings.lines import lines_of
from perdure.context.files import without_file_lists
from perdure.egress.destinations import destination_of
from perdure.engine.flows.rules.signals import signal_in
from perdure.errors import PerdureError
from perdure.interop.formats.markdown import inert
from perdure.interop.redaction.placeholders import REDACTIONS, Redactor
from perdure.models.providers.classify import is_overflow, redact_text, used_and_limit
from perdure.secrets.mask import mask_secrets
from perdure.secrets.pasted_keys import credentials_in
from perdure.secrets.shapes import finds
from perdure.session.search.query import sought_in
from perdure.session.search.words import terms
from perdure.tools.commands import words_of
from perdure.workflow.expressions import template_of
from perdure.yaml.nodes import YamlReader
from tests.fakes.hostile_patterns import growth, patterns, seconds_of, texts_for

LENGTH = 2_000
MOST_GROWTH = 9.0
"""Limit of the growth: 4 is linear, 16 is quadratic; other programs disturb the measurement."""

OF_OURS = {
    ("perdure.tools.docstring", "_ENTRY"),  # reads docstrings of the program itself
    ("perdure.interop.workflow_export.slugs", "_NAMED"),  # reads Unicode's names of characters
}


def all_of(pattern: Any) -> Callable[[Any], object]:
    def work(text: Any) -> object:
        pattern.pattern.fullmatch(text)
        pattern.pattern.match(text)
        return None if pattern.is_anchored else sum(1 for _ in pattern.pattern.finditer(text))

    return work


@pytest.mark.all_only
def test_no_pattern_of_the_package_takes_more_than_linear_time(
    record_property: Callable[[str, object], None],
) -> None:
    tried, count, slow = 0, 0, list[str]()
    for pattern in patterns():
        if (pattern.module, pattern.name) in OF_OURS:
            continue
        count += 1
        work = all_of(pattern)
        for made in texts_for(pattern.pattern):
            tried += 1
            grown = growth(work, made, LENGTH)
            if grown > MOST_GROWTH:
                slow.append(f"{pattern.module}.{pattern.name} {made(40)!r}: x{grown:.1f}")
                break
    told = f"{count} patterns, {tried} hostile texts at n and 4n, {len(slow)} through"
    record_property("forms", told)
    sys.stdout.write(told + "\n")
    assert slow == []
    assert count > 100


def redactor(text: str) -> str:
    learnt = Redactor(REDACTIONS)
    learnt.learn(text)
    learnt.settle()
    return learnt.replace(text)


def yaml(text: str) -> object:
    return YamlReader().root(text[: len(text) // 8])  # a pure reader: slow, but no slower than so


def numbered(form: str) -> Callable[[int], str]:
    return lambda length: "".join(form.format(n) for n in range(length // len(form)))


def repeated(unit: str, end: str = "") -> Callable[[int], str]:
    return lambda length: unit * (length // len(unit)) + end


SCANNERS: list[tuple[str, Callable[[str], object], Callable[[int], str]]] = [
    ("secrets: tokens in one run", lambda text: list(finds(text)), repeated("eyJ-")),
    ("secrets: tokens with ends", lambda text: list(finds(text)), repeated("-eyJaaaaaaaaaa", ".")),
    ("secrets: keys before a call", lambda text: list(finds(text)), repeated("key=aaaa", "(")),
    ("secrets: signatures", lambda text: list(finds(text)), repeated("sig=", "(")),
    ("secrets: placeholders", lambda text: list(finds(text)), repeated("[a-1] password=x1x1x1 ")),
    (
        "secrets: private keys",
        lambda text: list(finds(text)),
        repeated("-----BEGIN PRIVATE KEY-----"),
    ),
    ("secrets: addresses", lambda text: list(finds(text)), repeated("a://b:")),
    ("secrets: cookies", mask_secrets, repeated("Set-Cookie: ")),
    ("secrets: spaces", mask_secrets, repeated("password   ")),
    ("secrets: in lines", lambda text: list(credentials_in(text)), repeated("key=\n")),
    ("redaction: many passwords", redactor, numbered("password=x{0}y{0}z1 ")),
    ("redaction: many people", redactor, numbered("/home/person{0} ")),
    ("redaction: one person", redactor, repeated("/home/ann ann ")),
    ("providers: keys in errors", redact_text, repeated("://a:")),
    ("providers: overflow", is_overflow, repeated("input token count ")),
    ("providers: numbers", used_and_limit, repeated("1,")),
    ("providers: limits", used_and_limit, repeated("maximum 1 tokens ")),
    ("handoff: openings", signal_in.__wrapped__, repeated("```handoff\n")),
    (
        "handoff: longer and longer",
        signal_in.__wrapped__,
        repeated("~~~~handoff\n"),
    ),
    (
        "handoff: marks",
        signal_in.__wrapped__,
        repeated("```handoff\n", "`" * 999),
    ),
    (
        "markdown: ticks",
        inert,
        lambda length: " ".join("`" * n for n in range(1, int((2 * length) ** 0.5))),
    ),
    ("markdown: pairs of ticks", inert, repeated("` `` ")),
    ("markdown: fences", inert, repeated("```\n~~~\n")),
    ("markdown: spaces", inert, repeated(" ", "a")),
    ("summaries: lists that never end", without_file_lists, repeated("<read-files>\n\n")),
    ("summaries: line feeds", without_file_lists, repeated("\n", "<")),
    ("templates: openings", template_of, repeated("{{'")),
    ("templates: pipes", template_of, repeated("{{inputs.a | json |")),
    ("templates: brackets", template_of, repeated("{{inputs.a|default(", " ")),
    ("settings: quoted keys", lines_of, repeated('""', "!")),
    ("settings: words", lines_of, repeated("a", "!")),
    ("search: words of other scripts", terms, repeated("\u0e01\u0301")),
    ("search: words that go on", terms, repeated("\u00e9")),
    ("yaml: brackets", yaml, repeated("[")),
    ("yaml: keys", yaml, repeated("? ")),
    ("yaml: quotes", yaml, repeated('"a": ', "x")),
    ("yaml: spaces", yaml, repeated(" ", "a")),
    ("yaml: dashes", yaml, repeated("- ")),
    ("yaml: anchors", yaml, repeated("&a ")),
    ("queries: alternatives", sought_in, repeated('"a" OR ')),
    ("queries: operators", sought_in, repeated("OR ")),
    ("queries: quotes", sought_in, repeated('"a')),
    ("addresses: schemes", destination_of, repeated("a+")),
    ("addresses: labels", destination_of, lambda length: "https://" + "a." * (length // 2)),
    ("commands: quotes", words_of, repeated("'a' ")),
    ("commands: backslashes", words_of, repeated("\\a")),
]


@pytest.mark.parametrize(("name", "work", "made"), SCANNERS, ids=[each[0] for each in SCANNERS])
def test_no_scanner_takes_more_than_linear_time(
    name: str, work: Callable[[str], object], made: Callable[[int], str]
) -> None:
    def tried(text: str) -> None:
        with suppress(PerdureError, ValueError):
            work(text)

    assert growth(tried, made, 16_000) <= MOST_GROWTH, name


def test_sixteen_kilobytes_of_token_prefixes_are_scanned_quickly() -> None:
    """In an earlier version, this text blocked the event loop for five seconds."""
    assert seconds_of(lambda: list(finds("eyJ-" * 4096))) < 0.25
    begun = time.process_time()
    mask_secrets("eyJ-" * 40_960)
    assert time.process_time() - begun < 5
