"""The offline model of the demonstration, and the tool with a side effect.

The killed process and the resuming process use the same agent. The agents of the two processes
differ only in how long the tool pauses: in the killed process, the pause leaves time for the kill
after the write and before the result.
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
"""The environment variable that contains the address of the store."""

ASKS_FOR_A_LINE = "Before we go on, please write down where we are."
REMEMBERED = "write down where we are"
"""Words of `ASKS_FOR_A_LINE`, for which the demonstration searches later."""

ASKS_THE_OTHER_WAY = "Let us go the other way from here."

FOREVER_S = 60.0
"""How long the tool pauses in the process that will be killed."""


def line_tool(folder: Path, pause_s: float = 0.0) -> ToolSpec:
    """Return the tool that appends a line to a file in `folder`, then waits for `pause_s`."""

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
    """Append `text` to `file` as a line. Durable: the change is stored when this call returns."""
    with file.open("a", encoding="utf-8") as opened:
        opened.write(text + "\n")
        opened.flush()
        os.fsync(opened.fileno())


def lines_in(file: Path) -> int:
    """Count the lines of `file`; 0 if it does not exist."""
    return file.read_text(encoding="utf-8").count("\n") if file.exists() else 0


def demo_agent(folder: Path, pause_s: float = 0.0) -> Agent:
    """Return the agent of the demonstration, whose only tool is made by `line_tool`."""
    return Agent(
        "demo",
        model=MODEL,
        instructions="You help to show what a durable session is.",
        tools=(line_tool(folder, pause_s),),
    )


def demo_models() -> ModelRouter:
    """Return the only model of the demonstration, which follows ``demo.yaml``."""
    scripted = ScriptedModel(scenario_in(SCENARIO), clock=SystemClock())
    return ModelRouter({"scripted": scripted})


INDENT = "   "


class Claim(msgspec.Struct, frozen=True):
    """A statement that the demonstration prints, and whether the statement is true."""

    claim: str
    holds: bool


class Stage:
    """Prints the steps of the demonstration; if `is_shown` is False, it only records claims."""

    def __init__(self, *, is_shown: bool) -> None:
        self.claims: list[Claim] = []
        self.style = out_style() if is_shown else Style()
        self.width = width()
        self._is_shown = is_shown
        self._acts = 0

    @property
    def is_ok(self) -> bool:
        """Whether every claim made so far is true."""
        return all(claim.holds for claim in self.claims)

    def act(self, title: str) -> None:
        """Print the heading of the next step."""
        self._acts += 1
        self._show("")
        self._show(self.style.paint(f"{self._acts}  {title}", "strong"))

    def say(self, text: str = "") -> None:
        """Print a line of text."""
        lines = textwrap.wrap(safe(text), self.width - len(INDENT)) or [""]
        self.show_all(lines)

    def show_all(self, lines: Iterable[str]) -> None:
        """Print formatted lines."""
        for line in lines:
            self._show(f"{INDENT}{line}".rstrip())

    def claim(self, text: str, *, holds: bool) -> None:
        """Record the claim `text`, and print it with a mark; `holds` says if the claim is true."""
        self.claims.append(Claim(text, holds))
        marks = ("✓", "✗ NOT SO:") if self.style.is_unicode else ("+", "- NOT SO:")
        mark = self.style.paint(marks[0], "good") if holds else self.style.paint(marks[1], "bad")
        first, *rest = textwrap.wrap(safe(text), self.width - len(INDENT) - 2)
        self.show_all([f"{mark} {first}", *(f"  {line}" for line in rest)])

    def _show(self, line: str) -> None:
        if self._is_shown:
            show(line, is_flushed=True)
