"""What the audience sees, and the ledger of claims: each is checked before it is printed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

import msgspec

from perdure.apps.terminal.output import out_style, show, width
from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import safe

INDENT = "   "


class Claim(msgspec.Struct, frozen=True):
    """Something that the demonstration says about itself, and whether it turned out to be so."""

    claim: str
    holds: bool


class Stage:
    """Prints the acts as they happen; with `is_shown` False it only keeps score."""

    def __init__(self, *, is_shown: bool) -> None:
        self.claims: list[Claim] = []
        self.style = out_style() if is_shown else Style()
        self.width = width()
        self._is_shown = is_shown
        self._acts = 0

    @property
    def is_ok(self) -> bool:
        """Whether every claim so far holds."""
        return all(claim.holds for claim in self.claims)

    def act(self, title: str) -> None:
        """Begin the next act."""
        self._acts += 1
        self._show("")
        self._show(self.style.paint(f"{self._acts}  {title}", "strong"))

    def say(self, text: str = "") -> None:
        """A line of text."""
        lines = textwrap.wrap(safe(text), self.width - len(INDENT)) or [""]
        self.show_all(lines)

    def show_all(self, lines: Iterable[str]) -> None:
        """Lines that are drawn already."""
        for line in lines:
            self._show(f"{INDENT}{line}".rstrip())

    def claim(self, text: str, *, holds: bool) -> None:
        """Say `text` with a mark that tells whether it holds."""
        self.claims.append(Claim(text, holds))
        marks = ("✓", "✗ NOT SO:") if self.style.is_unicode else ("+", "- NOT SO:")
        mark = self.style.paint(marks[0], "good") if holds else self.style.paint(marks[1], "bad")
        first, *rest = textwrap.wrap(safe(text), self.width - len(INDENT) - 2)
        self.show_all([f"{mark} {first}", *(f"  {line}" for line in rest)])

    def _show(self, line: str) -> None:
        if self._is_shown:
            show(line, is_flushed=True)
