"""``perdure import --format a-society``: the flows in folders as A-Society has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from perdure.apps.cli.exits import DONE, FAILED, NothingToImport, exit_code_of
from perdure.apps.opening import writable_store
from perdure.apps.terminal.output import counted, show, show_error, show_json
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
)
from perdure.interop.a_society.importing import import_flow
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


async def imported(
    paths: Sequence[Path], store: str | None, namespace: str, *, as_json: bool
) -> int:
    """Import every flow below `paths`; the exit code. Those that cannot be opened are named."""
    folders = [folder for path in paths for folder in flow_folders(path)]
    if not folders:
        raise NothingToImport(paths, "flow.json, nor up to two folders further down,")
    async with writable_store(store, namespace) as opened:
        outcomes = [await _one(opened, folder) for folder in folders]
    for outcome in outcomes:
        _tell(outcome, as_json=as_json)
    failures = [outcome.error for outcome in outcomes if outcome.error is not None]
    if not failures:
        return DONE
    return exit_code_of(failures[0]) if len(outcomes) == 1 else FAILED


async def _one(store: Store, folder: Path) -> FolderOutcome:
    try:
        read = read_folder(folder)
        graph = _graph(folder, read)
        at, order = store.outside.clock.now_ms(), _order(read, graph)
        flow = await import_flow(store.backend, read, graph, at, order)
    except PerdureError as error:
        return FolderOutcome(folder, flow_id_in(folder), error=error)
    return FolderOutcome(folder, flow, len(read.roles))


def _order(read: FlowFolder, graph: Graph) -> Graph | None:
    """In which order the roles look back, where they had begun to: it follows from the graph."""
    phase = msgspec.convert(read.run, FlowRun).improvement_phase
    if phase is None or phase.mode is None or phase.mode == "none":
        return None
    return order_by_graph(graph) if phase.mode == "graph-based" else order_in_parallel(graph)


def _graph(folder: Path, read: FlowFolder) -> Graph:
    """The flow's workflow: from the folder itself, or from its record on this machine."""
    project = project_folder(Path(read.run["workspaceRoot"]), read.run["projectNamespace"])
    for place in _records(folder, read):
        if place.is_file():
            text = text_inside(place.parent, place.name, record=place.parent)
            if is_document(text):
                raise FormatError(
                    str(folder),
                    f"its flow ran the workflow document {place}, and what that worked with is "
                    f"not in the folder; begin it anew with `perdure flow run {place}`",
                )
            return drawn_graph(text, str(place), project)
    tried = " nor ".join(str(place) for place in _records(folder, read))
    raise FormatError(str(folder), f"its workflow is missing: there is no {tried}")


def _records(folder: Path, read: FlowFolder) -> Iterator[Path]:
    """Where the workflow may be: beside the state, or in the record folder of its own workspace.

    A folder that names a workspace it does not lie in was received: what it names is not read.
    """
    yield folder / "record" / "workflow.yaml"
    workspace = Path(read.run["workspaceRoot"]).resolve()
    record = Path(read.run["recordFolderPath"]).resolve()
    if folder.resolve().is_relative_to(workspace) and record.is_relative_to(workspace):
        yield record / "workflow.yaml"


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
    else:
        show_error(error, as_json=False)
