"""Reject writes that would make a flow's workflow file invalid, before asking for approval.

The flow uses the workflow file as soon as the file is written, so the text that a tool call would
write is checked first. A shell can still write the workflow file; the flow checks the change when
it reads the file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from perdure.engine.flows.files.graph_file import WORKFLOW, drawn_graph
from perdure.engine.flows.files.required_readings import project_folder
from perdure.engine.flows.rules.structure import faults_of_edit
from perdure.errors import ConfigError, InvalidWorkflow, ToolDenied
from perdure.session.flows.run import FlowState
from perdure.session.messages import ToolCallPart
from perdure.tools.approval import Bound, Judge, Ruling
from perdure.tools.paths.project_files import text_inside


def guard_workflow(judge: Judge, state: Callable[[], FlowState | None]) -> Judge:
    """Wrap `judge` to reject writes that would break the workflow of the flow in `state`."""

    def looked_at(call: ToolCallPart, granted: frozenset[str], bound: Bound | None) -> Ruling:
        now = state()
        text = None if now is None else _left_by(call, now)
        faults = () if now is None or text is None else _faults(now, text)
        if not faults:
            return judge(call, granted, bound)
        told = f"{call.name}: the flow could not continue with that {WORKFLOW}: {'; '.join(faults)}"
        return Ruling("refuse", told, error_code=ToolDenied.code)

    return looked_at


def _left_by(call: ToolCallPart, state: FlowState) -> str | None:
    """Return the text of the workflow file after `call`; None if `call` does not write the file."""
    named, target = call.args.get("path"), Path(state.run.record_folder_path, WORKFLOW)
    if not isinstance(named, str) or call.name not in ("write_file", "edit_file"):
        return None
    try:
        if Path(state.run.workspace_root, named).resolve() != target.resolve():
            return None
        before = text_inside(target.parent, WORKFLOW, record=target.parent)
    except (ConfigError, OSError, ValueError):
        return None  # the tool itself reports the error
    new = call.args.get("content" if call.name == "write_file" else "new_text")
    old = call.args.get("old_text")
    if not isinstance(new, str):
        return None
    if call.name == "edit_file":
        return before.replace(old, new) if isinstance(old, str) and old in before else None
    return before + new if call.args.get("append") is True else new


def _faults(state: FlowState, text: str) -> tuple[str, ...]:
    run = state.run
    try:
        project = project_folder(Path(run.workspace_root), run.project_namespace)
        graph = drawn_graph(text, WORKFLOW, project)
    except InvalidWorkflow as error:
        return error.faults
    except (ConfigError, UnicodeDecodeError):
        return ()  # the error is in the project's own file, which this call does not change
    return tuple(faults_of_edit(run, state.graph, graph))
