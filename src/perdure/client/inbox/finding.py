"""Which question somebody means: by its whole id, or by how that begins."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.client.reading import OpenQuestion
from perdure.errors import AmbiguousId, QuestionNotFound
from perdure.session.flows.kinds import FlowCompleted, FlowImported, FlowStarted
from perdure.session.ids import EntryId, StreamId, entry_place

FLOW_KINDS = (FlowStarted.kind, FlowImported.kind, FlowCompleted.kind)
"""Kinds by which the flows of a namespace are found, and those that ask nothing any more."""


def stream_asking(question: str) -> StreamId | None:
    """The stream of the entry that `question` names whole; None when it names none."""
    head, _, rest = question.rpartition("/")
    try:
        return entry_place(f"{head}/{rest.partition(':')[0]}")[0]
    except ValueError:
        return None


def question_named(question: str, asked: Sequence[OpenQuestion]) -> EntryId:
    """The id that `question` is, or that of the only one of `asked` that begins with it.

    Raises: QuestionNotFound, AmbiguousId.
    """
    if stream_asking(question) is not None:
        return EntryId(question)
    fitting = [each.id for each in asked if each.id.startswith(question)]
    if len(fitting) > 1:
        raise AmbiguousId(question, tuple(fitting))
    if not fitting:
        raise QuestionNotFound(question)
    return fitting[0]
