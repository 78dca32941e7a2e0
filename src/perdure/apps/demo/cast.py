"""Who acts in the demonstration: an offline model, and one tool that changes something.

The process that is killed and the process that resumes use the same agent; only the tool's patience
differs, so that there is time to kill it after it has written and before it has answered.
"""

from __future__ import annotations

import asyncio
import os
import textwrap
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import msgspec

from perdure.apps.terminal.output import out_style, show, width
from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import safe
from perdure.apps.wiring import scenario_in
from perdure.client.agents.agent import Agent
from perdure.client.clock import SystemClock
from perdure.models.router import ModelRouter
from perdure.models.scripted import ScriptedModel
from perdure.tools.decorator import tool
from perdure.tools.spec import ToolSpec

DATA = Path(str(files("perdure"))) / "data"
SAMPLE = DATA / "sample.jsonl"
SCENARIO = DATA / "demo.yaml"
MODEL = "scripted:demo"
NOTEBOOK = "notebook.txt"
ADDRESS = "PERDURE_STORE"
"""What in its environment tells a process where the store is."""

ASKS_FOR_A_LINE = "Before we go on, please write down where we are."
REMEMBERED = "write down where we are"
"""What somebody may remember of it later."""

ASKS_THE_OTHER_WAY = "Let us go the other way from here."

FOREVER_S = 60.0
"""How long the tool of the process that is to be killed takes to answer."""


def line_tool(folder: Path, pause_s: float = 0.0) -> ToolSpec:
    """The tool: it appends a line to a file in `folder`, and answers `pause_s` seconds later."""

    @tool(effect="write", on_unknown="ask")
    async def add_line(
        path: Annotated[str, "The name of the file."], text: Annotated[str, "The line."]
    ) -> str:
        """Append a line to a file."""
        append_line(folder / Path(path).name, text)
        await asyncio.sleep(pause_s)
        return f"appended to {path}"

    return add_line


def append_line(file: Path, text: str) -> None:
    """Write `text` at the end of `file`; on the disk when this returns."""
    with file.open("a", encoding="utf-8") as opened:
        opened.write(text + "\n")
        opened.flush()
        os.fsync(opened.fileno())


def lines_in(file: Path) -> int:
    """How many lines are in `file`; 0 when it is not there."""
    return file.read_text(encoding="utf-8").count("\n") if file.exists() else 0


def demo_agent(folder: Path, pause_s: float = 0.0) -> Agent:
    """The agent of the demonstration; see `line_tool`."""
    return Agent(
        "demo",
        model=MODEL,
        instructions="You help to show what a durable session is.",
        tools=(line_tool(folder, pause_s),),
    )


def demo_models() -> ModelRouter:
    """The models of the demonstration: one, which acts ``demo.yaml``."""
    scripted = ScriptedModel(scenario_in(SCENARIO), clock=SystemClock())
    return ModelRouter({"scripted": scripted})


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
