"""The stream that a question's id names, and the kinds of entries that flows ask with."""

from __future__ import annotations

from perdure.session.flows.kinds import FlowCompleted, FlowImported, FlowStarted
from perdure.session.ids import StreamId, entry_place

FLOW_KINDS = (FlowStarted.kind, FlowImported.kind, FlowCompleted.kind)
"""Kinds by which the flows of a namespace are found, and those that ask nothing any more."""


def stream_asking(question: str) -> StreamId | None:
    """Return the stream of the whole entry id `question`; None if it is not one."""
    head, _, rest = question.rpartition("/")
    try:
        return entry_place(f"{head}/{rest.partition(':')[0]}")[0]
    except ValueError:
        return None
