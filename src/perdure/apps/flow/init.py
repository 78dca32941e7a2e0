"""``perdure flow init``: create a project for flows, and start its first flow."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.cli.options import stored_path
from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.flow.flow_access import flows_of
from perdure.apps.scaffold import Made, write_templates
from perdure.apps.terminal.output import show, show_json
from perdure.apps.terminal.text import safe
from perdure.session.flows.graph import FlowNode, Graph
from perdure.session.flows.run import FeedbackContext


async def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", parser=stored_path, help="The project.")
    ] = Path(),
    *,
    is_greenfield: Annotated[
        bool, typer.Option("--greenfield", help="Begin a flow that sets up a new project.")
    ] = False,
    is_takeover: Annotated[
        bool, typer.Option("--takeover", help="Begin a flow that analyzes an existing project.")
    ] = False,
    common: CommonOptions,
) -> None:
    """Create a project for flows: a workflow, its roles, and the texts that they must read.

    Existing files are not changed. The workflow runs offline with the scenario in the same folder.
    With --greenfield or --takeover a flow begins in which the owner role writes the workflow and
    roles with you.

    Examples:
        perdure flow init             # prints the command that runs the workflow offline
        perdure flow init --takeover  # then: perdure flow resume ID -m MODEL
    """
    if is_greenfield and is_takeover:
        raise UsageMistake("use only one of --greenfield and --takeover")
    mode: Mode | None = None
    if is_greenfield or is_takeover:
        mode = "greenfield" if is_greenfield else "takeover"

    made = scaffold(folder)
    flow = None if mode is None else await _begin_flow(folder, mode, common)
    if common.as_json:
        show_json({"files": [msgspec.to_builtins(each) for each in made], "flow": flow})
        return
    for each in made:
        show(f"{'wrote' if each.is_new else 'kept '}  {safe(str(each.path))}")
    if flow is not None:
        show(f"`perdure flow resume {flow} -m MODEL` sets the project up with you")
    else:
        if folder.resolve() != Path.cwd():
            show(f"cd {shlex.quote(safe(str(folder)))}")
        show("`perdure flow validate workflow.yaml` draws it; to see it run, offline:")
        show(
            "perdure flow run workflow.yaml --scenario scenario.yaml --record record "
            "--consent partial-access"
        )


async def _begin_flow(folder: Path, mode: Mode, common: CommonOptions) -> str:
    async with common.writable_store() as opened, flows_of(opened) as flows:
        feedback = FeedbackContext("initialization", mode)
        flow = await flows.start(initialization(mode), workspace=folder, feedback=feedback)
        return flow.id


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
"""Maps each template to its path in the project."""

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


def scaffold(folder: Path) -> tuple[Made, ...]:
    """Write the files that are missing; create `folder` if it is missing. Raises: OSError."""
    return write_templates(folder, "flows/scaffold", FILES)


def initialization(mode: Mode) -> Graph:
    """Return the workflow of a project's first flow, which contains only the owner."""
    node = FlowNode("owner-intake", "owner", _WORK[mode])
    return Graph(f"Initialization ({mode})", (node,))
