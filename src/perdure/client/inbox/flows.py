"""List what flows wait for as questions in the inbox, and answer these questions.

An answer has the same effect as a flow command: it is one entry in the flow's log, checked against
the newest state.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from perdure.client.inbox.staged_handoff import require_as_staged
from perdure.client.reads import OpenQuestion
from perdure.engine.flows.journal import Journal
from perdure.engine.flows.lost_roles import lost_roles
from perdure.engine.flows.rules import people
from perdure.engine.flows.rules.answers import apply_answer, settled_by
from perdure.engine.flows.rules.flow_waits import FlowWait, waits_in
from perdure.errors import AlreadyAnswered, FlowRefusal, HeadConflict, SessionError, SessionNotFound
from perdure.session.clock import Clock
from perdure.session.codec import body_of, new_side
from perdure.session.entries import Entry
from perdure.session.flows.kinds import FlowCompleted, HandoffMade, HumanReplied
from perdure.session.flows.run import FlowState
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import MESSAGE
from perdure.session.notes import Question
from perdure.stores.session_store import SessionStore, append_to


async def questions(
    store: SessionStore, clock: Clock, notes: Sequence[Entry]
) -> list[OpenQuestion]:
    """Return what the namespace's flows wait for; flows that cannot be opened are omitted.

    Shape: `notes` contains the side entries of the namespace whose kind is in `FLOW_KINDS`.
    """
    over = {note.stream for note in notes if note.kind == FlowCompleted.kind}
    flows = dict.fromkeys(note.stream for note in notes if note.stream not in over)
    found: list[OpenQuestion] = []
    for flow in flows:
        try:
            state = await Journal(store, flow, clock).state()
        except (SessionError, SessionNotFound):  # `perdure flow list` reports it with the reason
            continue
        waits = waits_in(state, await lost_roles(store, state))
        found += [await _question(store, state, waiting) for waiting in waits]
    return found


async def _question(store: SessionStore, state: FlowState, waiting: FlowWait) -> OpenQuestion:
    assert waiting.question is not None
    flow, text = state.run.flow_id, waiting.text
    if waiting.topic == "prompt-human" and waiting.role in state.sessions:
        words = await _last_words(store, state.sessions[waiting.role])
        text = f"{text}: {words}" if words else text
    asked = Question(waiting.topic, text, waiting.choices)
    return OpenQuestion(waiting.question, waiting.asked_at, None, asked, flow, waiting.target)


async def _last_words(store: SessionStore, session: StreamId) -> str:
    """Return the role's newest answer in `session`, without the signal block at its end."""
    leaf = (await store.state(session)).leaf
    for entry in reversed(await store.branch(session, leaf, limit=8, kind=MESSAGE)):
        if (message := entry.message) is None:
            continue
        if message.role == "assistant":
            return message.text.partition("```handoff")[0].strip()
    return ""


async def answer_question(
    store: SessionStore,
    clock: Clock,
    flow: StreamId,
    question: EntryId,
    answer: str,
    *,
    by: str,
    note: str | None,
) -> Entry:
    """Answer the question with the id `question`, for which `flow` waits.

    Shape: the result is the appended entry, or the earlier entry if `by` gave the same answer
    before.
    Durable: all changes are stored when this returns. Raises: AlreadyAnswered if another answer was
    given before; FlowRefusal if the flow does not wait for the answer; InvalidEntry if the answer
    is not valid.
    """
    journal = Journal(store, flow, clock)
    while True:
        state = await journal.state()
        if all(waiting.question != question for waiting in waits_in(state)):
            return await _settled(store, journal, question, answer, by)
        body = apply_answer(state, question, answer, by, note)
        if isinstance(body, HumanReplied):
            people.reply(state, answer, by, body.target, await lost_roles(store, state))
        if isinstance(body, HandoffMade):
            await require_as_staged(store, journal, clock, body.node)
        with suppress(HeadConflict):
            new, at = new_side(body), clock.now_ms()
            return (await append_to(store, flow, new, at=at, expected_head=state.head))[0]


async def _settled(
    store: SessionStore, journal: Journal, question: EntryId, answer: str, by: str
) -> Entry:
    """Return the entry of the earlier answer, if `by` gave the same `answer`.

    Raises: the errors of `answer_question`.
    """
    log = [(entry, body_of(entry)) for entry in await store.entries(journal.flow)]
    settled = settled_by(await journal.state(), question, log)
    if settled.choice is None:
        told = f"{question} needs no answer any more: a handoff came instead"
        raise FlowRefusal(journal.flow, told)
    if (settled.choice, settled.by) == (answer, by):
        return settled.entry
    raise AlreadyAnswered(question, settled.choice, settled.by or "somebody")
