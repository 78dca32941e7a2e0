"""What ``perdure flow init`` writes into a project: a workflow that runs, and its documents.

The texts are data of the package. What is there already is never replaced.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Literal

import msgspec

from perdure.session.flows.graph import FlowNode, Graph
from perdure.stores.maintenance.atomic_file import write_new

Mode = Literal["greenfield", "takeover"]

FILES: tuple[tuple[str, str], ...] = (
    ("workflow.yaml", "workflow.yaml"),
    ("scenario.yaml", "scenario.yaml"),
    ("index.yaml", "a-docs/index.yaml"),
    ("conventions.md", "a-docs/conventions.md"),
    ("required-readings.yaml", "a-docs/roles/owner/required-readings.yaml"),
    ("owner.md", "a-docs/roles/owner/main.md"),
    ("developer.md", "a-docs/roles/developer/main.md"),
    ("reviewer.md", "a-docs/roles/reviewer/main.md"),
)
"""Template -> its place in the project."""

_LAID_OUT = (
    "Write what you agreed on into a-docs: conventions.md, the index, and of each role that is "
    "needed main.md and required-readings.yaml."
)
_CLOSED = (
    "Write a workflow.yaml for the project's usual work, and a summary of it all into the record "
    "folder; then close the work."
)
_WORK: dict[Mode, tuple[str, ...]] = {
    "greenfield": (
        "The project is new. Ask the person what it is to become.",
        _LAID_OUT,
        _CLOSED,
    ),
    "takeover": (
        "The project exists, and its documents were just laid out. Read it before you write.",
        "Ask the person where its files do not say how it works.",
        _LAID_OUT,
        _CLOSED,
    ),
}


class Made(msgspec.Struct, frozen=True):
    """A file of the scaffold. `is_new`: it was written now; else it was there, and was kept."""

    path: str
    is_new: bool


def scaffold(folder: Path) -> tuple[Made, ...]:
    """Write what is not there yet. Raises: OSError."""
    templates = files("perdure") / "data" / "flows" / "scaffold"
    made: list[Made] = []
    for template, path in FILES:
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        made.append(Made(path, write_new(place, (templates / template).read_text("utf-8"))))
    return tuple(made)


def initialization(mode: Mode) -> Graph:
    """The workflow of the flow that begins a project: the owner alone."""
    node = FlowNode("owner-intake", "owner", _WORK[mode])
    return Graph(f"Initialization ({mode})", (node,))
