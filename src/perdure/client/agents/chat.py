"""A session with an agent: send messages, steer, abort, compact, branch, end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any, Generic, Literal

import msgspec

from perdure.client.agents.agent import Agent
from perdure.client.agents.chat_workspace import ChatWorkspace
from perdure.client.agents.delegation.questions import asked_below
from perdure.client.agents.message_secrets import Said, message_of, screen_message
from perdure.client.agents.runners import NewTurn
from perdure.client.agents.runtime_services import Host
from perdure.client.agents.session_usage import note_when
from perdure.client.agents.turn import Turn, TurnWork, Waits, WhileWaiting
from perdure.client.conversation.abandonment import abandon_invoked
from perdure.client.conversation.append import ExpectedLeaf, prepare_input
from perdure.client.conversation.call_order import CallOrder, Written, wait_for_call
from perdure.client.conversation.workspace import Selection, Shown, Workspace
from perdure.client.reads import EntryRef, OpenQuestion
from perdure.client.requests.schedule import due_at_of
from perdure.client.session import Session
from perdure.engine.summaries import compact, summarise_branch
from perdure.engine.turns.environment import Environment
from perdure.engine.turns.lease import led_elsewhere, led_here
from perdure.engine.turns.recovery import spent_in
from perdure.engine.turns.session_turns import SessionTurns, Signals
from perdure.engine.turns.state import TurnState
from perdure.errors import (
    HeadConflict,
    InvalidTransition,
    LeafConflict,
    LeaseHeld,
    PerdureError,
    QueueFull,
    SecretPasted,
)
from perdure.models.catalogue import require_model_name
from perdure.models.protocol import ThinkingLevel
from perdure.secrets.pasted_keys import PastePolicy
from perdure.session.argument_checks import takes_all_declared
from perdure.session.codec import encode
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, IdempotencyKey, StreamId
from perdure.session.kinds import MESSAGE, ModelChange, ThinkingChange
from perdure.session.ledger import Priority, Spending
from perdure.session.messages import InFlightMessage, Message
from perdure.session.notes import PROGRAM, Queued, SessionCancelled
from perdure.stores.protocol import LogReader
from perdure.tools.builtin.delegation import INVOKE_AGENT
from perdure.tools.output import OutputT, output_of

ChatStatus = Literal["idle", "running", "closed"]


@takes_all_declared
class Chat(Generic[OutputT]):
    """One session with its agent. `Runtime.start` and `Runtime.resume` create a chat.

    One turn runs at a time. `turn` is the newest turn of this handle, None before the first turn.
    """

    def __init__(
        self,
        session: Session,
        agent: Agent[OutputT],
        place: ChatWorkspace,
        running: SessionTurns,
        turns: set[Turn[Any]],
        *,
        host: Host,
        order: CallOrder | None = None,
    ) -> None:
        self.session = session
        self.agent = agent
        self.turn: Turn[OutputT] | None = None
        self._place, self._running = place, running
        self._turns, self._host = turns, host
        self._order = order or CallOrder()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Chat {self.id!r} agent={self.agent.id!r} {self.status}>"

    @property
    def id(self) -> StreamId:
        """The session's id."""
        return self.session.id

    @property
    def workspace(self) -> Workspace:
        """The current workspace, including changes made by `send`."""
        return self._place.place

    @property
    def is_running(self) -> bool:
        """Whether a turn of this handle is running."""
        return self.turn is not None and self.turn.is_running

    @property
    def status(self) -> ChatStatus:
        """The state of this handle; ``closed`` after `cancel` or `end`."""
        return "closed" if self._is_closed else "running" if self.is_running else "idle"

    def send(
        self,
        said: Said | InFlightMessage,
        *,
        active_file: str | None = None,
        selection: Selection | None = None,
        variables: Mapping[str, str] | None = None,
        at: datetime | int | None = None,
        priority: Priority = "normal",
        while_waiting: WhileWaiting = "wait",
        idempotency_key: IdempotencyKey | None = None,
    ) -> Turn[OutputT]:
        """Send a message and start the turn that answers it.

        The turn runs in the session's folder, even if another handle changed it. From this message
        on, `active_file`, `selection` and `variables` change the workspace. ``{{ctx.name}}`` in the
        instructions and tool descriptions gets the new values. A file without a selection clears
        the old selection. The file "" clears the active file. If only a selection is given, its
        file becomes active. With `at` (time or Unix milliseconds), the message waits in the log
        until that time. `Turn.stored` returns when the message is stored. Among turns that wait for
        workers, those with a higher `priority` begin first; turns of one session stay in order.
        With `while_waiting` "raise", awaiting or iterating the turn raises Waiting when the turn
        waits for a person: answer the question, and await the turn again. With `idempotency_key`,
        the message waits in the log while the session has another turn. A repeated call, even by
        another process, follows the first call's turn. Raises: InvalidTransition if the handle is
        closed, or runs a turn (use `steer` or `follow_up`); LeaseHeld if `turn` runs in another
        process (`Turn.held`). The turn raises LeaseHeld if another process has begun a turn;
        TurnOpen if a turn was interrupted (`Runtime.resume` continues it); QueueFull, before any
        write, if too many turns wait for workers; TurnFailed. The call raises WrongArgument for an
        empty message, a selection outside `active_file`, or the variable ``working_dir``;
        SecretPasted if a variable contains a credential, or if the agent refuses a credential in
        the message. For a message over 64 kB, the turn raises SecretPasted.
        """
        due_at = None if at is None else due_at_of(at)
        is_later = due_at is not None or idempotency_key is not None
        _require_idle(self, self._host, "send", is_later=is_later)
        durable, contents = prepare_input(said)
        policy = self.agent.on_pasted
        message = message_of(durable, policy)
        place, shown = self._place, Shown(active_file, selection, variables or {})
        record = place.show(shown, is_later=due_at is not None, key=idempotency_key)

        async def new_turn(signals: Signals) -> TurnState:
            whole = await screen_message(message, policy)
            on = (place.follow, record)
            new = NewTurn(whole, contents, *on, due_at, priority, idempotency_key)
            return await self._host.runner.new_turn(self._running, new, signals)

        work = partial(_unless_rejected, new_turn, partial(place.take_back, shown))
        return self._turn(work, while_waiting, is_later=is_later, is_due=due_at is None)

    def recover(self, turn: int | None = None) -> Turn[OutputT]:
        """Resume the interrupted turn.

        If another process runs the turn, the returned turn follows that process (see `Turn.held`).
        If `turn` (a seq) is given, its reply is returned even if the turn has ended meanwhile.
        Raises: the errors of `send`; the turn raises InvalidTransition if no turn is open.
        """
        _require_idle(self, self._host, "recover")
        return self._turn(partial(self._recover, turn))

    async def steer(
        self, said: Said | InFlightMessage, *, expected_head: int | None = None
    ) -> Entry:
        """Add a message to the running turn; the model gets the message with the next call.

        If the turn has just ended, the message becomes an ordinary message. Messages are stored in
        the order of the calls, even if `send` has not stored its message yet. Raises: HeadConflict
        if the head is no longer `expected_head`; WrongArgument for an empty message.
        """
        async with _screened(self._order, said, self.agent.on_pasted) as (message, contents):
            appended = await self.session.append_many(
                [message], contents=contents, expected_head=expected_head
            )
            return appended[0]

    async def follow_up(self, said: Said | InFlightMessage) -> Entry:
        """Queue a message that the running turn answers before it ends.

        Durable: everything is stored on return. Raises: InvalidTransition if no turn is open;
        WrongArgument if the message has neither text nor media.
        """
        async with _screened(self._order, said, self.agent.on_pasted) as (message, contents):
            body = Queued(MESSAGE, msgspec.Raw(encode(message)), mode="follow_up")
            queued = await note_when(self._running.environment, body, contents, is_open=True)
        if queued is None:
            raise InvalidTransition("idle", "follow_up")
        return queued

    async def abort(self) -> None:
        """Abort the running turn; its messages remain stored. Does nothing if no turn is running.

        A closed handle does not abort a turn that another chat runs.
        Raises: LeaseHeld if another process runs the turn, because only that process can abort it.
        """
        await _abort(self, self._running.environment, None if self._is_closed else self._follow)

    async def cancel(self) -> None:
        """End the running turn and close this handle; the session can be resumed.

        Durable: observers get the stored event ``session:cancelled``, and no event after it. A
        second call does nothing.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if self.turn is not None and self.turn.held is not None:
            await self.turn.stop()  # only followed here
        elif self.turn is not None and self.turn.is_running:
            self.turn.cancel()
            await _ended(self.turn, self.agent, self._running.environment)
        if self.turn is None or not self.turn.is_cancelled:
            await note_when(self._running.environment, SessionCancelled(), is_open=False)

    async def suspend(self) -> None:
        """Stop running the turn here; it stays open and `Runtime.resume` continues it."""
        if self.turn is not None and self.turn.is_running:
            await self.turn.stop()

    async def end(self, reason: str | None = None) -> None:
        """Abort the open turn and close the session; a later turn opens the session again.

        A suspended turn is aborted, too. Raises: LeaseHeld if another process runs the turn.
        """
        was_closed, self._is_closed = self._is_closed, True
        try:
            await _abort(self, self._running.environment, self._follow)
            await self.session.abandon_turn()
            await self.session.end(reason)
        except PerdureError:  # refused
            self._is_closed = was_closed
            raise
        self._running.environment.on_session_end()

    async def spent(self) -> Spending:
        """Return the model usage of the session, from the calls in its own log."""
        return await spent_in(self._running.environment.store, self.id)

    async def questions(self) -> list[OpenQuestion]:
        """List the open questions of the chat and of the agents it invoked, oldest first.

        Use `Store.answer` to answer a question, even if it belongs to another session.
        """
        environment = self._running.environment
        below = await asked_below(environment.store, self.id, environment.clock.now_ms())
        found = [*await self.session.questions(), *(asked.question for asked in below)]
        return sorted((q for q in found if q.question.topic != PROGRAM), key=lambda q: q.at)

    async def set_model(self, model: str) -> Entry:
        """Use another model (``provider:name``) from the next turn on, on this branch.

        Raises: WrongArgument for a model without a provider; ConfigError for an unknown provider.
        """
        _require_model(self._running.environment, model)
        return await self.session.append(ModelChange(model))

    async def set_thinking_level(self, level: ThinkingLevel) -> Entry:
        """Use another thinking level from the next turn on, on this branch."""
        return await self.session.append(ThinkingChange(level))

    async def compact(
        self, focus: str | None = None, expected_head: int | None = None
    ) -> Entry | None:
        """Summarise older messages; `focus` names details that the summary must contain.

        Returns None if there are no messages to summarise. Raises: HeadConflict if the head is not
        `expected_head` before the model call; InvalidTransition; TurnOpen; LeaseHeld; TurnFailed.
        """
        _require_idle(self, self._host, "compact")
        its = self._running
        return await compact(its.environment, its.terms, focus, expected_head=expected_head)

    async def branch(
        self,
        entry: EntryRef | None,
        *,
        with_summary: bool = False,
        focus: str | None = None,
        expected_leaf: ExpectedLeaf = msgspec.UNSET,
    ) -> Entry | None:
        """Continue from `entry` (None: from the beginning); see `Session.branch`.

        With `with_summary`, the model summarises abandoned messages; for `focus`, see `compact`.
        Returns None if `entry` is the leaf. Raises: the errors of `compact` and `Session.branch`.
        """
        _require_idle(self, self._host, "branch")
        if not with_summary:
            return await self.session.branch(entry, expected_leaf=expected_leaf)
        return await branch_summarised(self._running, self.session, entry, focus, expected_leaf)

    def _follow(self) -> Turn[OutputT]:
        return self._turn(partial(self._recover, None))

    async def _recover(self, turn: int | None, signals: Signals) -> TurnState:
        await self._place.follow(await self._head())
        return await self._host.runner.lost_turn(self._running, signals, turn)

    def _turn(
        self,
        work: TurnWork,
        while_waiting: WhileWaiting = "wait",
        *,
        is_later: bool = False,
        is_due: bool = True,
    ) -> Turn[OutputT]:
        signals, waits = Signals(), self._running.environment.person_waits
        turn: Turn[OutputT] = Turn(
            work if is_later else _in_order(work, self._order.take(signals.begun)),
            self.session.watch,
            self._turns,
            Waits(self.id, waits, self.questions, self._head),
            signals,
            while_waiting=while_waiting,
            output=output_of(self.agent.output),
            is_scheduled=not is_due,
        )
        signals.on_begin = partial(setattr, self, "turn", turn)  # of a later one, not before
        self.turn = self.turn if is_later else turn
        return turn

    async def _head(self) -> int:
        return (await self._running.environment.store.state(self.id)).head


async def _is_led_beside(environment: Environment) -> bool:
    """Whether another chat in this process runs a turn of the session.

    Raises: LeaseHeld if another process runs a turn.
    """
    held = await led_elsewhere(environment.claim)
    if held is not None:
        raise held
    leader = led_here(environment.claim)
    return leader is not None and leader.can_stop(environment.claim)


def _require_model(environment: Environment, model: str) -> None:
    """Raises: WrongArgument for a model without a provider; ConfigError for an unknown provider."""
    require_model_name(model)
    if environment.router is not None:
        environment.router.provider_of(model)


def _require_idle(chat: Chat, host: Host, wanted: str, *, is_later: bool = False) -> None:
    host.require_open(wanted)
    if not is_later and chat.turn is not None and chat.turn.held is not None:
        raise chat.turn.held
    if chat.status != "idle" and not (is_later and chat.is_running):
        raise InvalidTransition(chat.status, wanted)


async def _unless_rejected(
    work: TurnWork, take_back: Callable[[], None], signals: Signals
) -> TurnState:
    """Run `work`; call `take_back` if the message of `work` is rejected."""
    try:
        return await work(signals)
    except (SecretPasted, LeaseHeld, QueueFull):
        take_back()
        raise


def _in_order(work: TurnWork, before: Written | None) -> TurnWork:
    """Return `work`, delayed until the earlier call `before` has written its entries or failed."""

    async def in_order(signals: Signals) -> TurnState:
        await wait_for_call(before)
        return await work(signals)

    return in_order


async def _ended(turn: Turn, agent: Agent, environment: Environment) -> None:
    """Wait until `turn`, which is ending, has ended; then close the turns of invoked agents."""
    await turn.settled()
    if INVOKE_AGENT in agent.registry.names:
        await abandon_invoked(environment.store, environment.clock, environment.stream)


async def _abort(
    chat: Chat[Any], environment: Environment, follow: Callable[[], Turn[Any]] | None
) -> None:
    """Abort the chat's running turn; with `follow`, also a turn of another chat in this process."""
    if follow is not None and not chat.is_running and await _is_led_beside(environment):
        follow()
    turn = chat.turn
    if turn is None or not turn.is_running:
        return
    if turn.held is not None:
        raise turn.held
    turn.abort()
    await _ended(turn, chat.agent, environment)


async def steer_open(
    store: LogReader, chat: Chat[Any], said: Said | InFlightMessage
) -> Entry | None:
    """Add a message to the open turn, which will answer it; return None if no turn is open.

    The result can be None even while the chat seems to run, because its turn might have ended, or
    another process might be compacting the session.
    """
    while (state := await store.state(chat.id)).open_turn is not None:
        with suppress(HeadConflict):
            return await chat.steer(said, expected_head=state.head)
    return None


async def branch_summarised(
    running: SessionTurns,
    session: Session,
    entry: EntryRef | None,
    focus: str | None,
    expected_leaf: ExpectedLeaf,
) -> Entry | None:
    """Implement `Chat.branch` with a summary."""
    target = await _id_of(session, entry)
    await session.info()  # refreshes the leaf of the handle
    leaf = session.leaf
    if expected_leaf is not msgspec.UNSET:
        wanted = await _id_of(session, expected_leaf)
        if wanted != leaf:
            raise LeafConflict(session.id, wanted, leaf)
    summary = None
    if leaf != target:
        summary = await summarise_branch(running.environment, running.terms, target, focus)
    if summary is None:
        return await session.branch(target, expected_leaf=leaf)
    return await session.branch_with_summary(target, summary, expected_leaf=leaf)


async def _id_of(session: Session, entry: EntryRef | None) -> EntryId | None:
    return None if entry is None else (await session.path(entry))[-1].id


@asynccontextmanager
async def _screened(
    order: CallOrder, said: Said | InFlightMessage, policy: PastePolicy
) -> AsyncGenerator[tuple[Message, tuple[bytes, ...]]]:
    """Yield the message and its media after the earlier calls have stored their messages or failed.

    Raises: SecretPasted if the message contains a credential and `policy` refuses credentials.
    """
    durable, contents = prepare_input(said)
    message = message_of(durable, policy)
    async with order.place():
        yield await screen_message(message, policy), contents
