"""Requests for flows: programs append a request, and workers run the flow until it is completed.

A request is open until a ``flow_request_closed`` refers to it. A later request for the same flow
replaces an earlier one.
"""

from __future__ import annotations

from perdure.session.codec import body_of, new_side
from perdure.session.entries import Entry
from perdure.session.flows.kinds import FlowRequestClosed, FlowRequested
from perdure.session.ids import EntryId, StreamId, entry_id
from perdure.session.memory.open_entries import unclosed
from perdure.stores.protocol import LogReader
from perdure.stores.session_store import SessionStore, append_to

COMPLETED = "completed"
"""The code of a request whose flow is completed."""

REPLACED = "replaced"
"""The code of a request that was replaced by a later request."""

_KINDS = (FlowRequested.kind, FlowRequestClosed.kind)


async def open_requests(log: LogReader, flow: StreamId) -> list[Entry]:
    """Return the open requests of `flow`, oldest first.

    Raises: SessionNotFound if the flow does not exist.
    """
    return unclosed(await log.notes(flow, _KINDS), FlowRequested.kind)


async def store_flow_request(
    store: SessionStore, flow: StreamId, wanted: FlowRequested, at: int
) -> int:
    """Store the request `wanted`, unless an equal request is open; return the seq of the request.

    Durable: the request is durable when the call returns.
    Units: `at` is Unix milliseconds.
    """
    found = await open_requests(store, flow)
    if found and body_of(found[-1]) == wanted:
        return found[-1].seq
    replaced = (new_side(FlowRequestClosed(REPLACED), each.id) for each in found)
    appended = await append_to(store, flow, *replaced, new_side(wanted), at=at)
    return appended[-1].seq


async def close_flow_request(
    store: SessionStore, about: EntryId, flow: StreamId, closed: FlowRequestClosed, at: int
) -> None:
    """Close the request with the id `about`. Units: `at` is Unix milliseconds."""
    await append_to(store, flow, new_side(closed, about), at=at)


async def end_of_request(log: LogReader, flow: StreamId, request: int) -> FlowRequestClosed | None:
    """Return how the request with seq `request` ended; None while the request is open."""
    about = entry_id(flow, request)
    for entry in await log.entries(flow, after=request, kind=FlowRequestClosed.kind):
        body = body_of(entry)
        if entry.about == about and isinstance(body, FlowRequestClosed):
            return body
    return None
