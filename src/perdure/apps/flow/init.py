"""``perdure flow init``: a project that flows can run in, and the flow that begins it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.cli.options import JsonOption, NamespaceOption, StoreOption, run, stored_path
from perdure.apps.flow.options import flows_of
from perdure.apps.flow.scaffold import Mode, initialization, scaffold
from perdure.apps.store_access import NAMESPACE, writable_store
from perdure.apps.terminal.output import show, show_json
from perdure.apps.terminal.text import safe
from perdure.session.flows.run import FeedbackContext


def init(
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
    store: StoreOption = None,
    namespace: NamespaceOption = NAMESPACE,
    as_json: JsonOption = False,
) -> int:
    """Create a project for flows: a workflow, its roles, and their readings.

    Existing files are not changed. The workflow runs offline with the scenario beside it. With
    --greenfield or --takeover a flow begins in which the owner role writes the workflow and roles
    with you.

    Examples:
        perdure flow init  # then: perdure flow run workflow.yaml --scenario scenario.yaml
        perdure flow init --takeover  # then: perdure flow resume ID -m MODEL
    """
    if is_greenfield and is_takeover:
        raise UsageMistake("use only one of --greenfield and --takeover")
    mode: Mode | None = None
    if is_greenfield or is_takeover:
        mode = "greenfield" if is_greenfield else "takeover"

    async def work() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        made = scaffold(folder)
        flow = None if mode is None else await _begin_flow(folder, mode, store, namespace)
        if as_json:
            show_json({"files": [msgspec.to_builtins(each) for each in made], "flow": flow})
            return
        for each in made:
            show(f"{'wrote' if each.is_new else 'kept '}  {safe(str(each.path))}")
        if flow is not None:
            show(f"`perdure flow resume {flow} -m MODEL` sets the project up with you")
        else:
            show("`perdure flow validate workflow.yaml` draws it; to see it run, offline:")
            show(
                "perdure flow run workflow.yaml --scenario scenario.yaml --record record "
                "--consent partial-access"
            )

    return run(work)


async def _begin_flow(folder: Path, mode: Mode, store: str | None, namespace: str) -> str:
    async with writable_store(store, namespace) as opened, flows_of(opened) as flows:
        feedback = FeedbackContext("initialization", mode)
        flow = await flows.start(initialization(mode), workspace=folder, feedback=feedback)
        return flow.id
