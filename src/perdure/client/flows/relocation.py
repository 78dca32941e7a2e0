"""Move a flow with its record folder to another workspace.

An imported flow contains the files of its record folder. The files of an imported record folder are
written when the flow is first bound to a workspace that lacks them, and only below
``.perdure/records``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from perdure.client.flows.locations import (
    belongs_to,
    default_record,
    record_in,
    relocation_bodies,
    write_record,
)
from perdure.engine.flows.documents.document_flow import workflow_text_of
from perdure.engine.flows.files.graph_file import WORKFLOW, drawn_graph
from perdure.engine.flows.files.required_readings import project_folder
from perdure.engine.flows.files.runtime_files import RECORD_FILE
from perdure.engine.flows.journal import Journal
from perdure.errors import ConfigError, EntryNotFound, FlowRefusal, InvalidWorkflow, ToolError
from perdure.session.flows.run import FlowState
from perdure.session.ids import blob_hash, stream_id
from perdure.stores.session_store import SessionStore
from perdure.tools.builtin.edits import replace
from perdure.tools.paths.jail import Jail
from perdure.tools.paths.own_places import floors_of
from perdure.tools.paths.project_files import is_there, require_writable, text_inside

FINDINGS = "findings"
"""The folder inside a record folder in which roles write findings; their tools cannot create it."""


async def relocate(store: SessionStore, journal: Journal, workspace: Path) -> None:
    """Bind the flow of `journal` to `workspace`; restore a missing imported record folder.

    Durable: all changes are stored when this returns. After a crash, a second call completes the
    first.
    Raises: FlowRefusal when there is no record folder; ConfigError when the folder cannot be
    written; ValueError for a flow id that is not a valid folder name.
    """
    state = await journal.state()
    record = record_in(state, workspace)
    if state.imported_record and not state.is_place_in_force:
        if await asyncio.to_thread(_is_whole, state, workspace, record):
            await asyncio.to_thread(_own, state, record)
        else:
            contents = await _contents(store, state)
            record = await asyncio.to_thread(_restored, state, workspace, contents)
        await asyncio.to_thread((record / FINDINGS).mkdir, exist_ok=True)
    await journal.append(lambda now: relocation_bodies(now, workspace, record))


async def _contents(store: SessionStore, state: FlowState) -> dict[str, bytes]:
    """Return the files of the imported record.

    Raises: FlowRefusal when one of the files was erased.
    """
    found: dict[str, bytes] = {}
    for path, digest in state.imported_record.items():
        try:
            found[path] = await store.blob(digest)
        except EntryNotFound:
            why = f"{path} of its record is not in the store any more; import the flow again"
            raise FlowRefusal(state.run.flow_id, why) from None
    return found


def _is_whole(state: FlowState, workspace: Path, record: Path) -> bool:
    """Whether the folder `record` belongs to this flow, by its mark or by its content.

    A path in an imported flow does not prove that the folder belongs to the flow, because an import
    could name any folder of the workspace.
    """
    flow = stream_id(state.run.flow_id)
    try:
        require_writable(workspace, record)
        if record.is_dir() and belongs_to(flow, record):
            return True
        if not all(is_there(record, path) for path in (WORKFLOW, *state.imported_record)):
            return False
        text = text_inside(record, WORKFLOW, record=record)
        if record == default_record(workspace, flow):  # left by a deleted flow
            project = project_folder(workspace, state.run.project_namespace)
            return drawn_graph(text, WORKFLOW, project) == state.graph
    except (ConfigError, InvalidWorkflow, UnicodeDecodeError):
        return False
    is_imported = blob_hash(text.encode()) == state.imported_record.get(WORKFLOW)
    return is_imported and is_there(record, RECORD_FILE)


def _own(state: FlowState, record: Path) -> None:
    """Mark the folder `record`, which is complete, as the record folder of this flow.

    Blocks the thread.
    Raises: ConfigError.
    """
    flow = stream_id(state.run.flow_id)
    if not belongs_to(flow, record):
        write_record(flow, record, text_inside(record, WORKFLOW, record=record))


def _restored(state: FlowState, workspace: Path, contents: Mapping[str, bytes]) -> Path:
    """Write missing files of the imported record to `workspace`; return the record folder."""
    flow = state.run.flow_id
    if not workspace.is_dir():
        raise FlowRefusal(flow, f"there is no folder {workspace}; name the workspace of the flow")
    record = default_record(workspace, stream_id(flow))
    require_writable(workspace, record)
    if not (is_there(record, WORKFLOW) and belongs_to(flow, record)):
        text = workflow_text_of(state)
        if is_there(record, WORKFLOW) and text_inside(record, WORKFLOW, record=record) != text:
            why = f"{record} has another workflow, of an earlier flow; move it away, then repeat"
            raise ConfigError(why)
        write_record(flow, record, text)
    jail = Jail(record, "import", floors=floors_of(os.environ, record=record))
    for path, content in contents.items():
        if is_there(record, path):
            continue
        try:
            with jail.place(path, makes_parents=True) as place:
                replace(place, content, None)
        except (ToolError, OSError) as error:
            why = error.reason if isinstance(error, ToolError) else error.strerror
            raise ConfigError(f"{record / path} cannot be written: {why}") from None
    return record
