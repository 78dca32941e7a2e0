"""A session with an agent: send messages, steer, abort, compact, end."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from perdure.client.agents.idle_session import IdleSession
from perdure.client.agents.message_secrets import Said, message_of, screen_message
from perdure.client.agents.session_usage import note_if_idle
from perdure.client.agents.turn import Turn, TurnWork, Waits, WhileWaiting
from perdure.client.conversation.abandonment import abandon_invoked
from perdure.client.conversation.append import prepare_input
from perdure.client.conversation.call_order import wait_for_call
from perdure.client.conversation.workspace import Selection, Shown
from perdure.engine.turns.session_turns import Signals
from perdure.engine.turns.state import TurnState
from perdure.errors import HeadConflict, InvalidTransition, LeaseHeld, SecretPasted
from perdure.session.argument_checks import takes_all_declared
from perdure.session.codec import encode, new_side
from perdure.session.entries import Entry
from perdure.session.kinds import MESSAGE
from perdure.session.messages import InFlightMessage
from perdure.session.notes import Queued, SessionCancelled
from perdure.stores.protocol import Commit, Write
from perdure.tools.builtin.delegation import INVOKE_AGENT


@takes_all_declared
class Chat(IdleSession):
    """One session with its agent. Made by `Runtime.start` and `Runtime.resume`.

    One turn runs at a time. `turn` is the newest turn of this handle, None before the first.
    """

    def send(
        self,
        said: Said | InFlightMessage,
        *,
        active_file: str | None = None,
        selection: Selection | None = None,
        variables: Mapping[str, str] | None = None,
        while_waiting: WhileWaiting = "wait",
    ) -> Turn:
        """Send a message and start the turn that answers it.

        The turn runs in the session's folder, also if another handle has moved it.
        `active_file`, `selection` and `variables` change the session's workspace from this message
        on, and the values of ``{{ctx.name}}`` in the instructions and tool descriptions.
        A file without a selection clears the selection; the file "" clears the file. A selection
        alone makes its file the active one.
        With `while_waiting` "raise", awaiting or iterating the turn raises Waiting as soon as
        it waits for a person. The turn stays open: answer its question, then await it again.
        Raises: InvalidTransition while a turn of this handle runs (use `steer` or `follow_up`), or
        after it was closed. The turn raises later errors: LeaseHeld when another process runs a
        turn here, TurnOpen when one was interrupted (`Runtime.resume` continues it), TurnFailed.
        SecretPasted for a credential in a variable, or in the message if the agent refuses them
        (the turn raises it for messages over 64 kB). WrongArgument for a selection in another file
        than `active_file`, and for a variable with a reserved name (``working_dir``).
        """
        self._require_idle("send")
        durable, contents = prepare_input(said)
        policy = self.agent.on_pasted
        message = message_of(durable, policy)
        shown = Shown(active_file, selection, variables or {})
        self._place.show(shown)

        async def work(signals: Signals) -> TurnState:
            try:
                whole = await screen_message(message, policy)
            except SecretPasted:
                self._place.take_back(shown)
                raise
            await self._place.record()
            try:
                return await self._running.new_turn(whole, contents, signals, self._place.follow)
            except LeaseHeld:
                self._place.take_back(shown)
                raise

        self.turn = self._turn(work, while_waiting)
        return self.turn

    def recover(self) -> Turn:
        """Resume the interrupted turn.

        Raises: as `send`; the turn raises InvalidTransition when no turn is open.
        """
        self._require_idle("recover")

        async def work(signals: Signals) -> TurnState:
            state = await self._running.environment.store.state(self.id)
            await self._place.follow(state.head)
            return await self._running.lost_turn(signals)

        self.turn = self._turn(work)
        return self.turn

    async def steer(self, said: Said | InFlightMessage) -> Entry:
        """Add a message to the running turn; the model gets it with its next call.

        If the turn has just ended, it becomes an ordinary message. Messages are stored in the
        order of the calls, also while `send` has not stored its own yet.
        """
        durable, contents = prepare_input(said)
        policy = self.agent.on_pasted
        message = message_of(durable, policy)
        async with self._order.place():
            message = await screen_message(message, policy)
            return (await self.session.append_many([message], contents=contents))[0]

    async def follow_up(self, said: Said | InFlightMessage) -> Entry:
        """Queue a message that the running turn answers before it ends.

        Durable: when this returns. Raises: InvalidTransition when no turn is open.
        """
        durable, contents = prepare_input(said)
        policy = self.agent.on_pasted
        message = message_of(durable, policy)
        async with self._order.place():
            message = await screen_message(message, policy)
            body = Queued(MESSAGE, msgspec.Raw(encode(message)), mode="follow_up")
            return await self._queued(body, contents)

    async def abort(self) -> None:
        """Abort the running turn; its messages so far stay. No effect without a running turn."""
        if self.turn is None or not self.turn.is_running:
            return
        self.turn.abort()
        await self._ended(self.turn)

    async def cancel(self) -> None:
        """End the running turn and close this handle; the session can be resumed.

        Durable: observers get ``session:cancelled``, and no later event of a turn that ran.
        A second call does nothing.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if self.turn is not None and self.turn.is_running:
            self.turn.cancel()
            await self._ended(self.turn)
        if self.turn is None or not self.turn.is_cancelled:
            await note_if_idle(self._running.environment, SessionCancelled())

    async def suspend(self) -> None:
        """Stop running the turn here; it stays open and `Runtime.resume` continues it."""
        if self.turn is not None and self.turn.is_running:
            await self.turn.stop()

    async def end(self, reason: str | None = None) -> None:
        """Abort the open turn and close the session; its next turn opens it again.

        A turn that was suspended is aborted too. Raises: LeaseHeld while another process runs it.
        """
        self._is_closed = True
        await self.abort()
        await self.session.abandon_turn()
        await self.session.end(reason)

    # ------------------------------------------------------------ inside

    def _turn(self, work: TurnWork, while_waiting: WhileWaiting = "wait") -> Turn:
        signals, environment = Signals(), self._running.environment

        async def head() -> int:
            return (await environment.store.state(self.id)).head

        before = self._order.take(signals.begun)

        async def in_order(signals: Signals) -> TurnState:
            await wait_for_call(before)
            return await work(signals)

        waits = Waits(self.id, environment.person_waits, self.questions, head)
        watch = self.session.watch
        return Turn(in_order, watch, self._turns, waits, signals, while_waiting=while_waiting)

    async def _queued(self, body: Queued, contents: tuple[bytes, ...]) -> Entry:
        environment = self._running.environment
        while True:
            state = await environment.store.state(self.id)
            if state.open_turn is None:
                raise InvalidTransition("idle", "follow_up")
            write = Write(stream=self.id, entries=(new_side(body),), expected_head=state.head)
            commit = Commit(writes=(write,), at=environment.clock.now_ms(), blobs=contents)
            try:
                done = await environment.store.commit(commit)
            except HeadConflict:
                continue
            return done.entries[0][0]

    async def _ended(self, turn: Turn) -> None:
        """Wait until `turn`, which is ending, and the agents it invoked have ended."""
        await turn.settled()
        if INVOKE_AGENT in self.agent.registry.names:
            environment = self._running.environment
            await abandon_invoked(environment.store, environment.clock, self.id)
