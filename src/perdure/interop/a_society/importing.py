"""A-Society's folder of a flow as streams: one commit, all or nothing.

The flow's log begins with where it stood; each role's session has its messages, for the model, and
then what it was called and looked like there. What ran there is nobody's turn here: when the flow
is run, a person is asked about it.
"""

from __future__ import annotations

import msgspec

from perdure.interop.a_society.folder import FORMAT, FlowFolder, RoleFiles, messages_of
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import Sibling
from perdure.session.flows.graph import Graph
from perdure.session.flows.kinds import FlowImported
from perdure.session.flows.role_session import RoleSession
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.notes import NodeEntered, RoleImported, SessionStarted
from perdure.stores.protocol import Commit, SessionStore, Write


async def import_flow(
    store: SessionStore,
    folder: FlowFolder,
    graph: Graph,
    at: int,
    improvement: Graph | None = None,
) -> StreamId:
    """Append the flow in `folder`, whose workflow is `graph`; its id.

    `improvement` is the order in which its roles look back, where they had begun to.

    Durable: when this returns. Units: `at` is Unix milliseconds. Raises: SessionExists when it is
    there already.
    """
    id = StreamId(folder.run["flowId"])
    sessions = {role.role: StreamId(f"{id}__{role.role}") for role in folder.roles}
    imported = FlowImported(folder.run, graph, sessions, improvement)
    header = StreamHeader(id, at, kind="flow", origin="import", title=graph.name)
    flow = Write(stream=id, create=header, entries=(new_side(imported),), is_received=True)
    roles = [_role(id, role, graph, at) for role in folder.roles]
    await store.commit(Commit(writes=(flow, *roles), at=at))
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
    node: str | None = files.session.get("currentNodeId")
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


def _exchanges(files: RoleFiles) -> int:
    context = msgspec.convert(files.session, RoleSession).current_node_context
    return 0 if context is None else len(context.exchanges)
