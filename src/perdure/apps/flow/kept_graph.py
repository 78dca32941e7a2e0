"""Why a flow keeps its graph although its record's workflow file draws another one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import safe
from perdure.engine.flows.files.graph_file import WORKFLOW, GraphFile
from perdure.engine.flows.files.required_readings import project_folder
from perdure.errors import ConfigError
from perdure.session.flows.run import FlowState


async def graph_faults(state: FlowState) -> tuple[str, ...]:
    """Why the workflow file is not used; empty when it is, or when it does not count now."""
    run = state.run
    is_fixed = state.document is not None or run.status != "running"
    if is_fixed or not state.is_place_in_force:
        return ()
    record = Path(run.record_folder_path)

    def look() -> tuple[str, ...]:
        if not (record / WORKFLOW).is_file():
            return ()
        project = project_folder(Path(run.workspace_root), run.project_namespace)
        return GraphFile(record, project).change(state).faults

    try:
        return await asyncio.to_thread(look)
    except (ConfigError, OSError):
        return ()  # who runs the flow is told


def graph_fault_lines(faults: Sequence[str], style: Style) -> Iterator[str]:
    """The lines that report `faults` of the workflow file."""
    if faults:
        yield ""
        yield style.paint(f"The flow keeps its graph; {WORKFLOW} of its record:", "warning")
        yield from (style.paint(f"  {safe(fault)}", "warning") for fault in faults)
