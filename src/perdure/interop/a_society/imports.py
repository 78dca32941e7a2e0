"""Import A-Society's folder of a flow as streams, in one commit: all of it or nothing.

The log of the imported flow begins with the flow's state. Each role's session contains the role's
messages for the model, followed by the content of the role's files. A node that was running is
started again when the imported flow runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from perdure.interop.a_society.folder import FORMAT, FlowFolder, RoleFiles, messages_of
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import Sibling
from perdure.session.flows.graph import Graph
from perdure.session.flows.kinds import FlowImported
from perdure.session.flows.role_session import RoleSession
from perdure.session.ids import StreamId, blob_hash
from perdure.session.info import StreamHeader
from perdure.session.notes import NodeEntered, RoleImported, SessionStarted
from perdure.stores.protocol import Commit, Write
from perdure.stores.session_store import SessionStore


async def import_flow(
    store: SessionStore,
    folder: FlowFolder,
    graph: Graph,
    at: int,
    improvement: Graph | None = None,
    *,
    above: Mapping[StreamId, int] = MappingProxyType({}),
) -> StreamId:
    """Append the flow in `folder`, whose workflow is `graph`, and return its id.

    If the review of the flow had already begun, `improvement` is the order in which the roles
    review the flow. If an erased stream had the id of a new stream, `above` maps this id to the
    epoch of the erased stream. The leases of the new stream get higher epochs than the erased
    stream had.

    Durable: the flow is stored when the call returns. Units: `at` is Unix milliseconds. Raises:
    SessionExists if the flow is already in the store.
    """
    id = StreamId(folder.run["flowId"])
    sessions = {role.role: StreamId(f"{id}__{role.role}") for role in folder.roles}
    record = {path: blob_hash(content) for path, content in folder.record.files.items()}
    at_node = {role.role: node for role in folder.roles if (node := _node_of(role)) is not None}
    imported = FlowImported(folder.run, graph, sessions, improvement, record, at_node)
    header = StreamHeader(id, at, kind="flow", origin="import", title=graph.name)
    flow = Write(stream=id, create=header, entries=(new_side(imported),), is_received=True)
    roles = [_role(id, role, graph, at) for role in folder.roles]
    blobs = tuple(folder.record.files.values())
    writes = tuple(
        msgspec.structs.replace(write, above_epoch=above.get(write.stream, 0))
        for write in (flow, *roles)
    )
    await store.commit(Commit(writes=writes, at=at, blobs=blobs))
    return id


def _role(flow: StreamId, files: RoleFiles, graph: Graph, at: int) -> Write:
    stream = StreamId(f"{flow}__{files.role}")
    header = StreamHeader(
        stream,
        at,
        origin="role",
        title=f"{files.role}: {graph.name}",
        parent=flow,
        metadata={"format": FORMAT},
    )
    prompt: str | None = files.session.get("systemPrompt")
    said = [new_tree(message) for message in messages_of(files.session["transcriptHistory"])]
    node = _node_of(files)
    entered = []
    if node is not None and said:
        first = len(said) - min(len(said), _exchanges(files))
        # After the session's start, which is the first entry.
        about = Sibling(1 + min(first, len(said) - 1))
        entered = [new_side(NodeEntered(node, flow), about)]
    return Write(
        is_received=True,
        stream=stream,
        create=header,
        entries=(
            new_side(SessionStarted(system_prompt=prompt)),
            *said,
            *entered,
            new_side(RoleImported(files.session, files.feed)),
        ),
    )


def _node_of(files: RoleFiles) -> str | None:
    """Return the id of the role's current node, according to the role's files."""
    session = msgspec.convert(files.session, RoleSession)
    context = session.current_node_context
    return session.current_node_id or (None if context is None else context.node_id)


def _exchanges(files: RoleFiles) -> int:
    context = msgspec.convert(files.session, RoleSession).current_node_context
    return 0 if context is None else len(context.exchanges)
