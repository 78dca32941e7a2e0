"""Delete a flow: its log, its sessions and, if requested, its record folder.

Nothing is deleted while a role runs. The flow's own log is deleted last; so if a kill interrupts
the call, a second call deletes the rest.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from perdure.bounds.short_repr import ShortRepr
from perdure.client.conversation.abandonment import claim_of
from perdure.client.flows.locations import release_record
from perdure.client.store import Store
from perdure.engine.flows.files.graph_file import WORKFLOW
from perdure.engine.turns.lease import leading
from perdure.errors import Erased, FlowRefusal, LeaseHeld, SessionNotFound
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId


class DeletedFlow(ShortRepr, frozen=True):
    """A deleted flow.

    `sessions` are the sessions deleted with the flow; `record` is the folder of its artifacts.
    """

    flow: StreamId
    sessions: tuple[StreamId, ...]
    record: str
    is_record_left: bool


async def delete_flow(
    store: Store, state: FlowState, by: str | None, others: Iterable[FlowState] | None
) -> DeletedFlow:
    """Delete the flow with the state `state`; delete its record folder, too, if `others` is given.

    Shape: `others` are all flows of the store; no flow except the deleted one is allowed to use the
    record folder.
    Durable: all changes are stored when this returns.
    Raises: FlowRefusal while a role runs, and when the record folder cannot be deleted, for example
    because it contains the workspace or files of another flow. If FlowRefusal is raised, no session
    is deleted.
    """
    flow = state.run.flow_id
    chose = {id: role for role, ids in state.selectors.items() for id in ids}
    named = {id: role for role, id in state.sessions.items()} | chose
    sessions = {id: role for id, role in named.items() if await _is_its_own(store, id, flow)}
    for session, role in sessions.items():
        if await _is_led(store, session):
            told = f"{role} is at work; Flow.stop ends that"
            raise FlowRefusal(flow, told, role=role)
    folder = Path(state.run.record_folder_path)
    if others is not None:
        await asyncio.to_thread(_removed, folder, state, list(others))
    for session in (*sessions, flow):
        # It may have been erased before, or by a process that died at this point.
        with suppress(SessionNotFound, Erased):
            await store.erase(session, forks="keep", by=by)
    if state.is_place_in_force:
        await asyncio.to_thread(release_record, flow, folder)
    is_left = await asyncio.to_thread(folder.exists)
    return DeletedFlow(flow, tuple(sessions), str(folder), is_left)


async def _is_its_own(store: Store, session: StreamId, flow: str) -> bool:
    """Whether `session` belongs to a role of `flow`; an unrelated session can have the same id."""
    try:
        header = (await store.backend.state(session)).header
    except SessionNotFound:
        return False
    return header.origin == "role" and header.parent == flow


async def _is_led(store: Store, session: StreamId) -> bool:
    """Whether a live process runs a turn in `session`."""
    try:
        async with leading(claim_of(store.backend, store.outside.clock, session)):
            return False
    except LeaseHeld:
        return True
    except (SessionNotFound, Erased):
        return False


def _removed(folder: Path, state: FlowState, others: list[FlowState]) -> None:
    """Delete the record folder of the flow with the state `state`. Blocks the thread.

    Raises: FlowRefusal.
    """
    why = _why_it_stays(folder, state, others)
    try:
        if why is None and folder.is_dir():
            _remove_all(folder)
    except OSError as error:
        why = str(error)
    if why is not None:
        told = f'its record folder {folder} cannot be removed: {why}; delete it with record="keep"'
        raise FlowRefusal(state.run.flow_id, told)


def _remove_all(folder: Path) -> None:
    """Delete `folder`; delete the workflow file last, so that a killed call can be repeated."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != WORKFLOW:
            path.unlink()
    shutil.rmtree(folder)


def _why_it_stays(folder: Path, state: FlowState, others: list[FlowState]) -> str | None:
    """Return why the record folder must not be deleted; None if it can be deleted or is missing."""
    if not state.is_place_in_force:
        return "it came with the flow and is not in force"
    if folder.is_symlink():
        return "it is a link"
    if not folder.exists():
        return None
    place = folder.resolve()
    if Path(state.run.workspace_root).resolve().is_relative_to(place):
        return "the flow's workspace is in it"
    if not (folder / WORKFLOW).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        return f"there is no {WORKFLOW} in it, so it may be something else by now"
    for other in others:
        theirs = Path(other.run.record_folder_path).resolve()
        is_shared = theirs.is_relative_to(place) or place.is_relative_to(theirs)
        if other.run.flow_id != state.run.flow_id and is_shared:
            return f"the flow {other.run.flow_id} has its files there, too"
    return None
