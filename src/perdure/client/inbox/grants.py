"""Allow calls in a whole flow: change the consent and answer open questions in one commit.

The question of each role is in the role's own session. A change of the consent also answers the
questions about calls that it allows, so no role waits for an allowed call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from perdure.client.inbox.consent import allowing, is_freed
from perdure.client.reads import open_questions
from perdure.engine.flows.journal import Journal
from perdure.errors import HeadConflict, SessionNotFound
from perdure.session.clock import Clock
from perdure.session.codec import new_side
from perdure.session.entries import Entry, NewEntry
from perdure.session.flows.consent import consent_after
from perdure.session.flows.kinds import ConsentChanged
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId
from perdure.session.notes import Answer, Question
from perdure.stores.protocol import Commit, Write
from perdure.stores.session_store import SessionStore

NOTE = "allowed for the flow"
"""The note in the answers that are appended because the consent changed."""


async def change_consent(
    store: SessionStore,
    journal: Journal,
    clock: Clock,
    decide: Callable[[FlowState], Sequence[ConsentChanged]],
) -> FlowState:
    """Append the changes from `decide`, and answer the open questions whose calls are now allowed.

    Durable: all changes are stored when this returns. Raises: any error that `decide` raises; in
    this case, nothing is appended.
    """
    while True:
        state = await journal.state()
        changes = decide(state)
        freed = await _freed(store, state, changes, clock.now_ms())
        writes = (journal.write(state, *changes), *freed)
        with suppress(HeadConflict):
            await store.commit(Commit(writes=writes, at=clock.now_ms()))
            return await journal.state()


async def allow_for_flow(
    store: SessionStore,
    clock: Clock,
    flow: StreamId,
    question: tuple[StreamId, Question],
    answer: NewEntry,
    *,
    by: str,
    expected_head: int,
) -> Entry:
    """Append `answer`, and allow the call of `question` in the whole flow `flow`.

    Shape: `question` consists of the session that asks and its question. `expected_head` is the
    expected head of the asking session. The result is the answer's entry. Durable: all changes are
    stored when this returns.
    Raises: HeadConflict if the head of the asking session, of the flow, or of another session of
    the flow has changed.
    """
    session, asked = question
    journal = Journal(store, flow, clock)
    state = await journal.state()
    change = allowing(asked, state.consent, by)
    at = clock.now_ms()
    freed = await _freed(store, state, (change,), at, but=session)
    own = Write(stream=session, entries=(answer,), expected_head=expected_head)
    writes = (own, journal.write(state, change), *freed)
    return (await store.commit(Commit(writes=writes, at=at))).entries[0][0]


async def _freed(
    store: SessionStore,
    state: FlowState,
    changes: Sequence[ConsentChanged],
    at: int,
    but: StreamId | None = None,
) -> list[Write]:
    """Return answers to those questions of roles whose calls `changes` allow.

    Questions in the session `but` are skipped.
    """
    consent = state.consent
    for change in changes:
        consent = consent_after(consent, change, at)
    writes: list[Write] = []
    for session in state.sessions.values():
        if session == but:
            continue
        try:
            head = (await store.state(session)).head
            own = await store.open_questions(session)
        except SessionNotFound:
            continue  # it was removed, and its question with it
        answers = tuple(
            new_side(Answer("allow", changes[-1].by, NOTE), asked.id)
            for asked in open_questions(own, at)
            if is_freed(asked.question, consent)
        )
        if answers:
            writes.append(Write(stream=session, entries=answers, expected_head=head))
    return writes
