"""Move a session to another branch, and fork it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from perdure.client.conversation.append import (
    AppendOptions,
    ExpectedLeaf,
    PreparedWrite,
    SessionWriter,
)
from perdure.client.reads import EntryRef
from perdure.client.session_fields import require_header
from perdure.engine.hooks import points
from perdure.engine.hooks.registry import Hooks
from perdure.errors import HookBlocked, LeafConflict
from perdure.session.codec import new_side
from perdure.session.entries import Entry
from perdure.session.ids import EntryId
from perdure.session.info import ForkPoint, StreamHeader
from perdure.session.kinds import BranchSummary
from perdure.session.notes import LeafMoved
from perdure.stores.access.lazy_modules import Later
from perdure.stores.protocol import Commit, StreamState, Write

if TYPE_CHECKING:
    from perdure.client.conversation import authority, workspace
else:
    authority = Later("perdure.client.conversation.authority")
    workspace = Later("perdure.client.conversation.workspace")


async def branch(
    writer: SessionWriter,
    entry: EntryRef | None,
    told: str | BranchSummary | None,
    expected_leaf: ExpectedLeaf,
    key: str | None,
) -> Entry | None:
    """Continue from `entry`, optionally with the summary `told` of the abandoned branch.

    Shape: the result is None if `entry` is already the leaf and no summary is given.
    Raises: the errors of `Session.branch`.
    """
    reader, hooks = writer.reader, writer.hooks
    state = await reader.look()
    await writer.require_no_role(state, "branch")
    target = None if entry is None else await reader.in_tree(entry)
    expected = await writer.expected_leaf(expected_leaf)
    if told is None and state.leaf == target and key is None:
        if expected is not msgspec.UNSET and expected != state.leaf:
            raise LeafConflict(reader.id, expected, state.leaf)
        return None
    other = await ask_hooks(hooks, points.BeforeTree(reader.id, state.leaf, target))
    if isinstance(other, str) and other.strip():
        told = other
    if told is None:
        new = (new_side(LeafMoved(target)),)
        write = Write(stream=reader.id, entries=new, expected_leaf=expected)
        moved = await writer.commit(PreparedWrite(write), key)
    else:
        summary = BranchSummary(told) if isinstance(told, str) else told
        summary = msgspec.structs.replace(summary, from_id=target)
        options = AppendOptions(parent=target, expected_leaf=expected)
        moved = await writer.append([summary], options, key)
    if moved[0].seq > state.head:  # an older one was returned to a repeated call
        await hooks.tell(points.TreeMoved(reader.id, moved[0]))
    return moved[0]


async def fork(
    writer: SessionWriter, at: EntryRef | None, own: StreamHeader
) -> tuple[StreamState, Mapping[EntryId, EntryId]]:
    """Create the fork with the header `own`; return its state, and a map of entries to copies.

    Raises: the errors of `Session.fork`.
    """
    writer.require_session("a fork")
    reader, store, hooks = writer.reader, writer.store, writer.hooks
    require_header(subject=own.subject, metadata=own.metadata, cwd=own.cwd)
    if own.cwd is not None:
        workspace.require_folder(own.cwd)
    await reader.backing.flush()
    leaf = None if at is None else await reader.in_tree(at)
    await ask_hooks(hooks, points.BeforeFork(reader.id, leaf))
    state = await reader.look()
    header = msgspec.structs.replace(
        own,
        origin=state.header.origin,
        parent=reader.id,
        fork=ForkPoint(
            stream=reader.id,
            leaf=leaf or state.leaf,
            head=state.head,
            scope="tree" if at is None else "path",
        ),
        cwd=own.cwd or state.info.cwd,
        subject=own.subject or state.header.subject,
    )
    entries = await authority.agent_of_fork(store, reader.id, own.cwd)
    write = Write(stream=header.id, create=header, entries=entries)
    made = await reader.backing.commit(Commit(writes=(write,), at=header.created_at))
    state = await store.state(header.id)
    await hooks.tell(points.Forked(reader.id, state.header.id))
    return state, made.copies


async def ask_hooks(hooks: Hooks, point: points.HookPoint) -> object:
    """Run the hooks of `point` and return their answer; None if no hook answers.

    Raises: HookBlocked.
    """
    _, answer = await hooks.ask(point)
    if isinstance(answer, points.Block):
        raise HookBlocked(point.name, answer.reason)
    return answer
