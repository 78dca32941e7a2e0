"""``perdure import --format a-society``: import the flows in folders of A-Society."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from perdure.apps.cli.exits import DONE, FAILED, NothingToImport, exit_code_of
from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.terminal.advice import message_of
from perdure.apps.terminal.output import count_of, remark, show, show_failure, show_json
from perdure.apps.terminal.text import safe
from perdure.client.conversation.role_sessions import require_no_role_id
from perdure.client.erase import free_flow_ids, session_exists_error
from perdure.client.store import Store
from perdure.engine.flows.files.graph_file import CANONICAL, drawn_graph
from perdure.engine.flows.files.required_readings import project_folder
from perdure.engine.flows.rules.improvement import order_by_graph, order_in_parallel
from perdure.errors import FormatError, InvalidWorkflow, PerdureError, SessionExists, Unsupported
from perdure.interop.a_society.folder import (
    FORMAT,
    FlowFolder,
    Readable,
    flow_folders,
    flow_id_in,
    read_folder,
)
from perdure.interop.a_society.imports import import_flow
from perdure.interop.a_society.record import RECORD, WORKFLOW
from perdure.session.flows.graph import Graph
from perdure.session.flows.run import FlowRun
from perdure.session.ids import StreamId
from perdure.tools.paths.project_files import text_inside
from perdure.workflow.reader import is_document


class FolderOutcome(msgspec.Struct, frozen=True):
    """The result for one folder; if `error` is None, the flow of the folder is in the store.

    `is_erased` means that the flow was erased before, and nothing was imported.
    """

    folder: Path
    flow: str
    roles: int = 0
    error: PerdureError | None = None
    left_out: tuple[str, ...] = ()
    is_erased: bool = False


async def import_flows(
    paths: Sequence[Path],
    common: CommonOptions,
    *,
    workspace: Path | None = None,
    again: bool = False,
) -> int:
    """Import every flow below `paths`, report failures, and return the exit code."""
    folders = [
        (folder, Readable(path, workspace)) for path in paths for folder in flow_folders(path)
    ]
    if not folders:
        raise NothingToImport(paths, "flow.json, up to two folders further down,")
    async with common.writable_store() as opened:
        if not opened.backend.capabilities.multi_stream_commit:
            raise Unsupported("flows", opened.backend.address.partition(":")[0])
        outcomes = [
            await import_folder(opened, folder, readable, again=again)
            for folder, readable in folders
        ]
    for outcome in outcomes:
        _tell(outcome, as_json=common.as_json)
    failures = [outcome.error for outcome in outcomes if outcome.error is not None]
    if not failures:
        return DONE
    return exit_code_of(failures[0]) if len(outcomes) == 1 else FAILED


async def import_folder(
    store: Store, folder: Path, readable: Readable | None = None, *, again: bool = False
) -> FolderOutcome:
    """Import the flow in `folder`; if that fails, the outcome contains the `error`.

    If `readable` is given, only files that it accepts are read. A flow that was erased is imported
    again only if `again` is set; the flow then keeps its id.
    """
    try:
        read = await asyncio.to_thread(read_folder, folder, readable)
        graph = await asyncio.to_thread(_graph, folder, read)
        id = StreamId(read.run["flowId"])
        await require_no_role_id(store.backend, store.outside.clock, id)
        sessions = [StreamId(f"{id}__{role.role}") for role in read.roles]
        epochs = await free_flow_ids(store.backend, id, sessions, is_reused=again)
        if epochs is None:
            return FolderOutcome(folder, id, is_erased=True)
        at, order = store.outside.clock.now_ms(), _order(read, graph)
        flow = await import_flow(store.backend, read, graph, at, order, above=epochs)
    except SessionExists as error:
        why = await session_exists_error(store.backend, StreamId(error.stream))
        return FolderOutcome(folder, flow_id_in(folder), error=why)
    except PerdureError as error:
        return FolderOutcome(folder, flow_id_in(folder), error=error)
    return FolderOutcome(
        folder, flow, len(read.roles), left_out=tuple(read.record.left_out.values())
    )


def _order(read: FlowFolder, graph: Graph) -> Graph | None:
    """Return the order in which roles review the flow; None if the review has not begun.

    The order is computed from `graph`.
    """
    phase = msgspec.convert(read.run, FlowRun).improvement_phase
    if phase is None or phase.mode is None or phase.mode == "none":
        return None
    return order_by_graph(graph) if phase.mode == "graph-based" else order_in_parallel(graph)


def _graph(folder: Path, read: FlowFolder) -> Graph:
    """Return the workflow in the record of the flow. Blocks.

    If perdure is allowed to read the workspace of the project, the workflow is merged with the
    canonical workflow of the project.
    """
    if read.record_folder is None or not (read.record_folder / WORKFLOW).is_file():
        raise FormatError(
            str(folder),
            f"its workflow is missing: there is no {folder / RECORD / WORKFLOW}; if its record is "
            f"in its workspace, name that with `--workspace DIR`",
        )
    text = text_inside(read.record_folder, WORKFLOW, record=read.record_folder)
    place = read.record_folder / WORKFLOW
    if is_document(text):
        raise FormatError(
            str(folder),
            f"the flow ran the workflow document {place}, whose agents and inputs are not in the "
            f"folder; start the document again with `perdure flow run {place}`",
        )
    if read.workspace is not None:
        project = project_folder(read.workspace, read.run["projectNamespace"])
        return drawn_graph(text, str(place), project)
    try:
        return drawn_graph(text, str(place), None)
    except InvalidWorkflow as error:
        hint = f"if {CANONICAL} of its project says the rest, name its workspace: --workspace DIR"
        raise InvalidWorkflow(str(place), (*error.faults, hint)) from None


def _tell(outcome: FolderOutcome, *, as_json: bool) -> None:
    error = outcome.error
    if as_json:
        told: dict[str, object] = {
            "flow": outcome.flow,
            "format": FORMAT,
            "folder": str(outcome.folder),
            "openable": error is None or error.code != "format_error",
            "erased": outcome.is_erased,
        }
        show_json(told if error is None else {**told, "error": _message(outcome, error)})
    elif outcome.is_erased:
        show(f"{outcome.flow}  nothing new  from {outcome.folder}")
        remark(f"flow {safe(outcome.flow)} was erased; nothing was imported")
        remark("`perdure import --again` imports it under its own id")
    elif error is None:
        show(f"{outcome.flow}  {count_of(outcome.roles, 'role')}  from {outcome.folder}")
        for reason in outcome.left_out:
            remark(f"not imported: {safe(reason)}")
    else:
        show_failure(error.code, _message(outcome, error), as_json=False)


def _message(outcome: FolderOutcome, error: PerdureError) -> str:
    """Return the message of `error`, with the folder it concerns."""
    if isinstance(error, SessionExists):
        return f"{outcome.folder}: {_why_taken(safe(outcome.flow), error)}"
    place = str(outcome.folder)
    told = message_of(error)
    return told if told.startswith(place) else f"{place}: {told}"


def _why_taken(flow: str, error: SessionExists) -> str:
    """Explain why the ids of `flow` are in use, and what the user can do."""
    session, elsewhere = safe(error.stream), "import the flow into another store: --store ADDRESS"
    if session == flow and not error.is_erased:
        return f"flow {flow!r} is in this store already; `perdure flow show {flow}` prints it"
    if not error.is_erased:
        return f"another session has the id {session!r} of a session of the flow; {elsewhere}"
    return (
        f"nothing was imported: its session {session!r} was erased, but a fork was made of it, so "
        f"the id cannot be used again, even after that fork is erased; {elsewhere}"
    )
