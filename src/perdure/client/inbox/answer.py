"""Answer a session's question: the first answer counts, if it arrives before the turn ends."""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Any

from perdure.client.conversation.append import SessionWriter
from perdure.client.conversation.authority import authority_of, is_in_force
from perdure.client.reads import EntryRef
from perdure.errors import AlreadyAnswered, HeadConflict, InvalidEntry, QuestionClosed
from perdure.session.clock import Clock
from perdure.session.codec import body_of, new_side
from perdure.session.entries import Entry
from perdure.session.ids import EntryId
from perdure.session.notes import ALLOW_FLOW, PROGRAM, Answer, Question, QuestionWithdrawn
from perdure.stores.session_store import SessionStore, append_to

_BLANK = "the answer is a text that is not blank"
_WITHDRAWN = "the program that asked it has withdrawn it"
_FOREIGN = "it was not asked in this store, and no program here waits for the answer"


async def answer_in(writer: SessionWriter, question: EntryRef, answer: Answer) -> Entry:
    """Implement `Session.answer`."""
    asking = await writer.reader.entry(question)
    body = body_of(asking)
    if not isinstance(body, Question) or asking.stream != writer.reader.id:
        reason = f"{asking.id} is not a question of this session"
        raise InvalidEntry(reason, told=reason)
    if not body.choices and not answer.choice.strip():
        raise InvalidEntry(_BLANK, told=_BLANK)
    if body.choices and answer.choice not in body.choices:
        reason = f"{answer.choice!r} is none of the answers {', '.join(body.choices)}"
        raise InvalidEntry(reason, told=reason)
    given = await answer_question(writer.store, writer.outside.clock, asking, body, answer)
    await writer.reader.look()
    return given


async def answer_question(
    store: SessionStore, clock: Clock, asking: Entry, question: Question, answer: Answer
) -> Entry:
    """Append `answer` to the question in the entry `asking`, if the question is open.

    Shape: the result is the answer's entry, or the earlier entry if the same answer was given
    before.
    Durable: all changes are stored when this returns. Raises: AlreadyAnswered, QuestionClosed.
    """
    new = new_side(answer, asking.id)
    while True:
        # Read before the notes: a question closed after this moves the head, and is seen.
        state = await store.state(asking.stream)
        closing = await closing_of(store, asking)
        if closing is not None:
            return _same(closing, asking.id, question, answer)
        if not await _is_acted_on(store, asking, question):
            told = _FOREIGN if question.topic == PROGRAM else None
            raise QuestionClosed(asking.id, "interrupted", told=told)
        at = clock.now_ms()
        if question.is_expired(at):
            raise QuestionClosed(asking.id, "expired")
        flow, head = state.header.parent, state.head
        with suppress(HeadConflict):
            if answer.choice == ALLOW_FLOW and flow is not None:
                # By name: only an answer in a flow loads the rules of flows.
                granting: Any = importlib.import_module("perdure.client.inbox.grants")
                asked = (asking.stream, question)
                return await granting.allow_for_flow(
                    store, clock, flow, asked, new, by=answer.by, expected_head=head
                )
            return (await append_to(store, asking.stream, new, at=at, expected_head=head))[0]


async def _is_acted_on(store: SessionStore, asking: Entry, question: Question) -> bool:
    """Whether the turn or program that asks is in force, so that an answer has an effect."""
    if question.topic == PROGRAM:
        return await is_in_force(store, asking)
    return (await authority_of(store, asking.stream)).turn is None


async def closing_of(store: SessionStore, asking: Entry) -> Entry | None:
    """Return the first entry that closed the question, read from the log, not the inbox index."""
    notes = await store.notes(asking.stream, (Answer.kind, QuestionWithdrawn.kind))
    return next((entry for entry in notes if entry.about == asking.id), None)


def _same(first: Entry, id: EntryId, question: Question, given: Answer) -> Entry:
    """Return the entry `first`, which closed the question `id`, if it has the answer `given`.

    Raises: AlreadyAnswered, QuestionClosed.
    """
    body = body_of(first)
    if isinstance(body, QuestionWithdrawn):
        told = _WITHDRAWN if question.topic == PROGRAM else None
        raise QuestionClosed(id, body.reason, told=told)
    if isinstance(body, Answer) and body != given:
        raise AlreadyAnswered(id, body.choice, body.by)
    return first
