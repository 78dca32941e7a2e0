"""``perdure import --format a-society``: the flows in folders as A-Society has them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from perdure.apps.cli.exits import DONE, FAILED, NothingToImport, exit_code_of
from perdure.apps.opening import writable_store
from perdure.apps.terminal.output import counted, remark, show, show_error, show_json
from perdure.apps.terminal.text import safe
from perdure.client.store import Store
from perdure.engine.flows.files.drawing import drawn_graph
from perdure.engine.flows.files.readings import project_folder
from perdure.engine.flows.rules.improvement import order_by_graph, order_in_parallel
from perdure.errors import FormatError, PerdureError
from perdure.interop.a_society.folder import (
    FORMAT,
    FlowFolder,
    flow_folders,
    flow_id_in,
    read_folder,
    record_folders,
)
from perdure.interop.a_society.importing import import_flow
from perdure.interop.a_society.record import RECORD, WORKFLOW
from perdure.session.flows.graph import Graph
from perdure.session.flows.run import FlowRun
from perdure.tools.paths.project_files import text_inside
from perdure.workflow.reading import is_document


class FolderOutcome(msgspec.Struct, frozen=True):
    """What became of a folder; without `error` its flow is in the store."""

    folder: Path
    flow: str
    roles: int = 0
    error: PerdureError | None = None
    left_out: tuple[str, ...] = ()


async def imported(
    paths: Sequence[Path], store: str | None, namespace: str, *, as_json: bool
) -> int:
    """Import every flow below `paths`; the exit code. Those that cannot be opened are named."""
    folders = [folder for path in paths for folder in flow_folders(path)]
    if not folders:
        raise NothingToImport(paths, "flow.json, nor up to two folders further down,")
    async with writable_store(store, namespace) as opened:
        outcomes = [await import_folder(opened, folder) for folder in folders]
    for outcome in outcomes:
        _tell(outcome, as_json=as_json)
    failures = [outcome.error for outcome in outcomes if outcome.error is not None]
    if not failures:
        return DONE
    return exit_code_of(failures[0]) if len(outcomes) == 1 else FAILED


async def import_folder(store: Store, folder: Path) -> FolderOutcome:
    """Import the flow in `folder`; what cannot be imported is an error of the outcome."""
    try:
        read = read_folder(folder)
        graph = _graph(folder, read)
        at, order = store.outside.clock.now_ms(), _order(read, graph)
        flow = await import_flow(store.backend, read, graph, at, order)
    except PerdureError as error:
        return FolderOutcome(folder, flow_id_in(folder), error=error)
    return FolderOutcome(
        folder, flow, len(read.roles), left_out=tuple(read.record.left_out.values())
    )


def _order(read: FlowFolder, graph: Graph) -> Graph | None:
    """In which order the roles look back, where they had begun to: it follows from the graph."""
    phase = msgspec.convert(read.run, FlowRun).improvement_phase
    if phase is None or phase.mode is None or phase.mode == "none":
        return None
    return order_by_graph(graph) if phase.mode == "graph-based" else order_in_parallel(graph)


def _graph(folder: Path, read: FlowFolder) -> Graph:
    """The flow's workflow, as its record draws it."""
    project = project_folder(Path(read.run["workspaceRoot"]), read.run["projectNamespace"])
    if read.record_folder is None or not (read.record_folder / WORKFLOW).is_file():
        tried = [str(each / WORKFLOW) for each in record_folders(folder, read.run)]
        told = f"there is no {' nor '.join(tried or [str(folder / RECORD / WORKFLOW)])}"
        raise FormatError(str(folder), f"its workflow is missing: {told}")
    text = text_inside(read.record_folder, WORKFLOW, record=read.record_folder)
    place = read.record_folder / WORKFLOW
    if is_document(text):
        raise FormatError(
            str(folder),
            f"its flow ran the workflow document {place}, and what that worked with is "
            f"not in the folder; begin it anew with `perdure flow run {place}`",
        )
    return drawn_graph(text, str(place), project)


def _tell(outcome: FolderOutcome, *, as_json: bool) -> None:
    error = outcome.error
    if as_json:
        told: dict[str, object] = {
            "flow": outcome.flow,
            "format": FORMAT,
            "folder": str(outcome.folder),
            "openable": error is None or error.code != "format_error",
        }
        show_json(told if error is None else {**told, "error": str(error)})
    elif error is None:
        show(f"{outcome.flow}  {counted(outcome.roles, 'role')}  from {outcome.folder}")
        for reason in outcome.left_out:
            remark(f"not imported: {safe(reason)}")
    else:
        show_error(error, as_json=False)
