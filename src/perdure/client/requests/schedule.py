"""Scheduled messages: requests for turns that are not due yet, or that have not begun."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from perdure.bounds.limits import require_within
from perdure.bounds.short_repr import ShortRepr
from perdure.client.clock import Outside
from perdure.client.conversation.abandonment import claim_of
from perdure.client.conversation.authority import authority_of
from perdure.client.conversation.role_sessions import require_no_role
from perdure.engine.turns.requests import STOPPED, refuse_request, requested_stop
from perdure.errors import Erased, LeaseHeld, LeaseLost, SessionNotFound, WrongArgument
from perdure.session.argument_checks import takes_all_declared
from perdure.session.clock import LAST_MS, ms_of
from perdure.session.codec import body_of, new_side
from perdure.session.ids import EntryId, StreamId, entry_place
from perdure.session.ledger import TurnRequested, TurnStopRequested
from perdure.session.messages import Message, user
from perdure.stores.session_store import SessionStore, append_to


class ScheduledMessage(ShortRepr, frozen=True):
    """A message that has not been sent yet. Units: `due_at` is Unix milliseconds."""

    id: EntryId
    session: StreamId
    due_at: int
    message: Message


def due_at_of(at: datetime | int) -> int:
    """Return when a message is due, in Unix milliseconds. Raises: WrongArgument."""
    due_at = ms_of(at) if isinstance(at, datetime) else at
    if not 0 <= due_at <= LAST_MS:
        raise WrongArgument(
            f"at={at!r} is not a time from 1970 to 9999 in Unix milliseconds: give a datetime",
            argument="at",
        )
    return due_at


async def scheduled_in(store: SessionStore) -> list[ScheduledMessage]:
    """Return the scheduled messages of the namespace, the earliest first."""
    found = [
        ScheduledMessage(entry.id, entry.stream, body.due_at, body.message)
        for entry in await store.open_of_all(TurnRequested.kind)
        if isinstance(body := body_of(entry), TurnRequested) and body.due_at is not None
    ]
    return sorted(found, key=lambda each: (each.due_at, entry_place(each.id)))


@takes_all_declared
class Schedule:
    """The messages of a namespace that will be sent later. `Store.schedule` makes it."""

    def __init__(self, store: SessionStore, outside: Outside) -> None:
        self._store = store
        self._outside = outside

    def __repr__(self) -> str:
        return f"<Schedule of {self._store.namespace!r}>"

    async def list(self, session: str | None = None) -> list[ScheduledMessage]:
        """List the messages, of all processes, that have not been sent yet, the earliest first.

        A cancelled message is not listed, even if another process has not closed it yet.
        """
        found = [
            each for each in await scheduled_in(self._store) if session in (None, each.session)
        ]
        return [each for each in found if not await self._is_cancelled(each)]

    async def add(self, session: str, text: str, *, at: datetime | int) -> ScheduledMessage:
        """Schedule `text` for `session` at the time `at` (a datetime, or Unix milliseconds).

        A process that has the agent of the session sends the message: a worker, a server, or a
        program with a Scheduler. The agent's settings decide what happens to a credential in the
        message when it is sent.
        Durable: all changes are stored when this returns.
        Raises: SessionNotFound if the session does not exist; LimitExceeded if the text is too
        long. Raises WrongArgument if the session has no agent that is in force on this machine, for
        example after an import. Raises FlowRefusal if the session belongs to a role of a flow that
        is not completed.
        """
        due_at = due_at_of(at)
        require_within("message_bytes", len(text.encode(errors="replace")), "the message")
        clock, stream = self._outside.clock, StreamId(session)
        header = (await self._store.state(stream)).header
        await require_no_role(self._store, clock, header, "resume")
        known = await authority_of(self._store, stream)
        if known.bound is None or known.withheld is not None:
            raise WrongArgument(
                f"session {session} has no agent that is in force here and could answer: continue "
                "it once with Runtime.resume",
                argument="session",
            )
        message = user(text)
        new = new_side(TurnRequested(message, due_at))
        (entry,) = await append_to(self._store, stream, new, at=clock.now_ms())
        return ScheduledMessage(entry.id, stream, due_at, message)

    async def cancel(self, message: str) -> None:
        """Cancel the scheduled message with the id `message`, so that it is never sent.

        Durable: all changes are stored when this returns.
        Raises: WrongArgument if no waiting message has the id `message`.
        """
        if message not in [each.id for each in await self.list()]:
            raise WrongArgument(
                f"{message!r} is not a scheduled message: it was sent or cancelled, or never "
                "scheduled; Schedule.list returns those that wait",
                argument="message",
            )
        stream, seq = entry_place(EntryId(message))
        clock = self._outside.clock
        new = new_side(TurnStopRequested(), EntryId(message))
        await append_to(self._store, stream, new, at=clock.now_ms())
        claim = claim_of(self._store, clock, stream)
        with suppress(LeaseHeld, LeaseLost):  # a process that begins it sees that it was stopped
            await refuse_request(claim, seq, *STOPPED)

    async def _is_cancelled(self, message: ScheduledMessage) -> bool:
        seq = entry_place(message.id)[1]
        try:
            return await requested_stop(self._store, message.session, seq, seq) is not None
        except (SessionNotFound, Erased):
            return True
