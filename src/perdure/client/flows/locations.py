"""The folders of a flow on this machine: workspace, project, record folder."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from perdure.bounds.files import is_folder
from perdure.engine.flows.files.graph_file import WORKFLOW, GraphFile, drawn_graph
from perdure.engine.flows.files.record import RecordFolder
from perdure.engine.flows.files.required_readings import Library, project_folder
from perdure.engine.flows.files.runtime_files import write_record_file
from perdure.engine.flows.files.skills import SkillShelf
from perdure.engine.flows.files.workflow_text import workflow_text
from perdure.engine.flows.journal import Journal
from perdure.engine.flows.node_turn import FlowContext
from perdure.engine.flows.rules.structure import faults_of
from perdure.errors import ConfigError, FlowRefusal, InvalidWorkflow
from perdure.session.flows.graph import Graph, base_role
from perdure.session.flows.kinds import ConsentMode, FlowStarted, RunSettings, WorkspaceBound
from perdure.session.flows.run import FlowState, RoleConfiguration
from perdure.session.flows.start_arguments import require_session_ids
from perdure.session.ids import StreamId
from perdure.session.notes import SideBody
from perdure.stores.maintenance.file_lock import hold
from perdure.tools.paths.project_files import (
    is_there,
    read_inside,
    read_workflow,
    require_writable,
    text_inside,
)

OWNED_BY = ".flow"
"""The file in a record folder that contains the id of its flow: flows never share a folder."""


@dataclass(frozen=True, slots=True)
class FlowPlace:
    """The folders of one flow, all absolute."""

    workspace: Path
    record: Path
    project: str
    former_record: str
    """See `FlowState.former_record`."""

    def ground(self, journal: Journal) -> tuple[FlowContext, Library]:
        """Return the context that all turns of the flow share, and the readings of its roles."""
        folder = project_folder(self.workspace, self.project)
        library = Library(folder)

        async def checks() -> tuple[str, ...]:
            return await asyncio.to_thread(library.faults)

        record = RecordFolder(self.record, self.workspace, self.former_record)
        whole = RecordFolder(self.workspace, self.workspace)
        return FlowContext(journal, record, whole, checks, GraphFile(self.record, folder)), library


@dataclass(frozen=True, slots=True)
class Begun:
    """A new flow: its id, its absolute folders, its project and its consent.

    `settings` are the stored settings of the program that runs the flow.
    """

    flow: StreamId
    workspace: Path
    record: Path
    project: str
    consent: ConsentMode
    settings: RunSettings | None = None

    def started(self, graph: Graph, start: tuple[str, ...]) -> FlowStarted:
        """Return the first entry of the flow, which runs `graph` from the nodes `start`."""
        workspace, record = str(self.workspace), str(self.record)
        return FlowStarted(self.project, workspace, record, graph, start, self.consent)


def require_workspace(workspace: Path) -> None:
    """Raises: ConfigError if `workspace` is no folder, or if this user cannot access it."""
    try:
        if not is_folder(workspace):
            raise ConfigError(f"there is no folder {workspace}; name the workspace of the flow")
    except PermissionError as error:
        raise ConfigError(
            f"the workspace {workspace} cannot be used: {error.strerror}; check the owner and "
            "permissions of the folder above it"
        ) from error


def begun_record(
    begun: Begun,
    workflow: Graph | str | os.PathLike[str],
    roles: Mapping[str, RoleConfiguration],
) -> Graph:
    """Create the record folder of a new flow, and return the flow's graph. Blocks the thread.

    `roles` are the models, skills and tools chosen for roles.
    Raises: InvalidWorkflow if the workflow has errors. Raises ConfigError if the workflow cannot be
    read, if the record folder belongs to another flow, or if a reading, role or skill is unknown.
    """
    workspace, record = begun.workspace, begun.record
    require_workspace(workspace)
    require_writable(workspace, record)
    text, name = _text_of(workflow)
    folder = project_folder(workspace, begun.project)
    graph = drawn_graph(text, name, folder)
    require_session_ids(begun.flow, graph.roles)
    for role in roles:
        if role not in graph.roles:
            known = ", ".join(graph.roles)
            raise ConfigError(f"the workflow has no role {role!r} to configure; it has: {known}")
    library, shelf = Library(folder), SkillShelf(folder)
    for role in dict.fromkeys(base_role(role) for role in graph.roles):
        library.of_role(role)
        shelf.of_role(role)
    for skill in sorted({skill for chosen in roles.values() for skill in chosen.skills or ()}):
        shelf.skill(skill)
    for node in graph.nodes:
        library.by_name(node.required_readings, f"{name}, node {node.id!r}")
    write_record(begun.flow, record, text)
    write_record_file(record, graph.name, graph.summary)
    return graph


def place_of(state: FlowState) -> FlowPlace:
    """Return the folders of a flow.

    Raises: FlowRefusal when a folder is not on this machine, or its path came with a received flow.
    """
    run = state.run
    workspace, record = Path(run.workspace_root), Path(run.record_folder_path)
    if not state.is_place_in_force:
        raise FlowRefusal(
            run.flow_id,
            f"its folder {workspace} came with the flow and is not in force; name the folder it "
            "works in with Flows.open(workspace=DIR)",
        )
    for folder in (workspace, record):
        if not folder.is_dir():
            raise FlowRefusal(
                run.flow_id,
                f"its folder {folder} is not here; open it with Flows.open(workspace=DIR), where "
                "DIR is where its workspace is now",
            )
    require_writable(workspace, record)
    return FlowPlace(workspace, record, run.project_namespace, state.former_record)


def shelf_of(state: FlowState) -> SkillShelf:
    """Return the skills of a flow's project.

    Raises: FlowRefusal if the project is not on this machine.
    """
    place = place_of(state)
    return SkillShelf(project_folder(place.workspace, place.project))


def is_bound(state: FlowState, workspace: Path) -> bool:
    """Whether `workspace` is already the flow's workspace."""
    return str(workspace) == state.run.workspace_root and state.is_place_in_force


def default_record(workspace: Path, flow: StreamId) -> Path:
    """Return the default record folder of `flow`."""
    return workspace / ".perdure" / "records" / flow


def record_in(state: FlowState, workspace: Path) -> Path:
    """Return the record folder in `workspace`, with the same relative path as before.

    The record folder of a received flow is always inside `workspace`.
    """
    record = Path(os.path.normpath(state.run.record_folder_path))
    root = os.path.normpath(state.run.workspace_root)
    if record.is_relative_to(root):
        return workspace / record.relative_to(root)
    return record if state.is_place_in_force else default_record(workspace, state.run.flow_id)


def relocation_bodies(state: FlowState, workspace: Path, record: Path) -> tuple[SideBody, ...]:
    """Return the entries that bind a flow to `workspace`; empty if the flow is already bound to it.

    Raises: FlowRefusal when the record folder is not in `workspace`.
    """
    run = state.run
    if is_bound(state, workspace):
        return ()
    if not record.is_dir():
        raise FlowRefusal(
            run.flow_id, f"there is no record folder {record}; copy it there with the workspace"
        )
    if not state.is_place_in_force and not belongs_to(StreamId(run.flow_id), record):
        raise FlowRefusal(
            run.flow_id,
            f"the record folder {record}, which came with the flow, has no {OWNED_BY} that says "
            f"it is of this flow; copy its own record folder there",
        )
    return (WorkspaceBound(str(workspace), str(record)),)


def _text_of(workflow: Graph | str | os.PathLike[str]) -> tuple[str, str]:
    """Return the text of a workflow file, and the name of the file for error messages."""
    if isinstance(workflow, Graph):
        faults = faults_of(workflow)
        if faults:
            raise InvalidWorkflow(workflow.name, tuple(faults))
        return workflow_text(workflow), workflow.name
    path = Path(workflow)
    return read_workflow(path), path.name


def write_record(flow: StreamId, record: Path, text: str) -> None:
    """Create the record folder of `flow`, with a mark that `flow` owns it. Blocks the thread.

    If the folder already contains an identical workflow, the file is not changed.
    Raises: ConfigError when the folder contains another workflow, or belongs to another flow,
    because that flow's artifacts would be overwritten.
    """
    findings = record / "findings"
    if record.is_symlink() and not record.exists():
        told = f"{record} is a link to {record.readlink()}, which does not exist"
        raise ConfigError(f"{told}; create that folder, or name another record folder")
    try:
        findings.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        told = f"the record folder {record} cannot be created: {error.strerror}"
        raise ConfigError(f"{told}; name another record folder") from error
    if findings.is_symlink():
        raise ConfigError(f"{findings} is a link; name another record folder")
    _is_there(record, text)
    belongs_to(flow, record)  # checked first: another user's file cannot be opened for writing
    # Written atomically: another process may start the same flow now.
    with _own_file(record / OWNED_BY) as owner:
        hold(owner.fileno(), record / OWNED_BY)
        if not belongs_to(flow, record):
            owner.write(flow.encode())
            owner.flush()
        if not _is_there(record, text):
            draft = record / f".{WORKFLOW}.new"
            draft.unlink(missing_ok=True)  # left by a process that died, or a link
            with draft.open("x", encoding="utf-8") as file:
                file.write(text)
            draft.replace(record / WORKFLOW)


def _own_file(path: Path) -> BinaryIO:
    """Open the file `path` of a record folder for appending.

    Raises: ConfigError if the file is a link.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        opened = os.fdopen(os.open(path, flags, 0o666), "ab", buffering=0)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
    found = os.fstat(opened.fileno())
    if found.st_nlink > 1 or not stat.S_ISREG(found.st_mode):
        opened.close()
        raise ConfigError(f"{path} is not a file of its own (a hard link, or no file)")
    return opened


def _is_there(record: Path, text: str) -> bool:
    """Whether the record folder contains a workflow file.

    Raises: ConfigError if the file differs from `text`.
    """
    if not is_there(record, WORKFLOW):
        return False
    if text_inside(record, WORKFLOW, record=record) != text:
        told = f"{record / WORKFLOW} is another flow's"
        raise ConfigError(f"{told}; name another record folder")
    return True


def belongs_to(flow: StreamId, record: Path) -> bool:
    """Whether the record folder is marked for `flow`.

    Raises: ConfigError if the folder is marked for another flow.
    """
    owner = record / OWNED_BY
    if not is_there(record, OWNED_BY):
        return False
    theirs = read_inside(record, OWNED_BY, record=record).decode(errors="replace")
    if theirs not in ("", flow):  # unmarked if a process was killed before it wrote the mark
        told = f"{record} is the record folder of the flow {theirs}; name another one"
        raise ConfigError(f"{told}, or delete {owner} if that flow is gone")
    return theirs == flow


def release_record(flow: StreamId, record: Path) -> None:
    """Remove the mark of the deleted `flow`, so that other flows can use its record folder.

    Blocks the thread.
    """
    owner = record / OWNED_BY
    with suppress(OSError, ConfigError):
        if read_inside(record, OWNED_BY, record=record).decode(errors="replace") == flow:
            owner.unlink()
