"""The workspace of a chat: the session's workspace, changed by messages and other handles."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from perdure.client.agents.agent import Agent
from perdure.client.conversation.agent_binding import Binding
from perdure.client.conversation.authority import authority_of
from perdure.client.conversation.workspace import (
    Shown,
    Workspace,
    kept_workspace,
    moved_prompt,
    with_shown,
)
from perdure.engine.turns.lease import led_by_other
from perdure.engine.turns.session_turns import SessionTurns
from perdure.errors import HeadConflict, WrongArgument
from perdure.session.codec import new_side
from perdure.session.notes import WorkspaceChanged
from perdure.stores.session_store import append_to

Staged = Callable[[Workspace, str | None], SessionTurns]
"""Returns the object that runs turns in the given workspace, with the given instructions."""

Record = Callable[[], Awaitable[None]]
"""Calls `ChatWorkspace.record`, which records the workspace changes that messages made."""


class ChatWorkspace:
    """The workspace of a chat's turns. `place` is the workspace, restricted to the chat's scope.

    Before each turn, the session's workspace is read again if another handle has appended to the
    session. Changes by messages that are sent during a turn are recorded before the next turn.
    `kept` is the workspace that the session has after the entry with seq `seen`.
    """

    def __init__(
        self, kept: Workspace, agent: Agent, running: SessionTurns, staged: Staged, seen: int
    ) -> None:
        self._agent = agent
        self._running = running
        self._staged = staged
        self._seen = seen
        self._kept = kept
        self._prompt = running.terms.settings.system
        self._unrecorded: list[Shown] = []
        self.place = self._narrowed(kept)

    def show(self, shown: Shown, *, is_later: bool, key: str | None) -> Record:
        """Apply `shown` to the workspace from the next turn on.

        Returns a function that records `shown`.

        If the message has a `key`, only the returned function applies the change, because a
        repeated message must not change the workspace again.
        Raises: WrongArgument if the change belongs to a message that will be sent later.
        """
        if shown and is_later:
            raise WrongArgument(
                "a message with at= cannot change the workspace: send active_file, selection and "
                "variables with a message of now",
                argument="at",
            )
        if key is not None:
            return partial(self.record, shown)
        if shown:
            self._unrecorded.append(shown)
            self.place = self._narrowed(self._current_workspace())
        return self.record

    def take_back(self, shown: Shown) -> None:
        """Undo `show` for a message that was rejected, unless `shown` was already recorded."""
        if any(each is shown for each in self._unrecorded):
            self._unrecorded = [each for each in self._unrecorded if each is not shown]
            self._adopt()

    async def record(self, shown: Shown | None = None) -> None:
        """Record changes made by messages, unless a turn is open or another process has the lease.

        `shown` is the change that a message with a key made. Durable: all changes are stored when
        this returns.
        """
        environment = self._running.environment
        claim = environment.claim
        if shown and shown not in self._unrecorded:
            self._unrecorded.append(shown)
        while self._unrecorded:
            state = await environment.store.state(environment.stream)
            await self.follow(state.head)
            if state.open_turn is not None or led_by_other(claim, state) is not None:
                self._adopt()
                return
            change = self._change()
            if change is None:
                self._adopt()
                self._unrecorded.clear()
                return
            store, at, head = environment.store, environment.clock.now_ms(), state.head
            try:
                done = await append_to(
                    store, environment.stream, new_side(change), at=at, expected_head=head
                )
            except HeadConflict:
                continue
            self._adopt()
            self._seen = done[-1].seq
            place = self._current_workspace()
            self._kept, self._prompt = place, self._prompt_in(place)
            self._unrecorded.clear()

    async def follow(self, head: int) -> None:
        """Use the workspace that the session has after its newest entry, whose seq is `head`."""
        if head <= self._seen:
            return
        store, stream = self._running.environment.store, self._running.environment.stream
        known = await authority_of(store, stream)
        self._seen = head
        if known.bound is not None and known.withheld is None:
            self._move(known.bound)

    # ------------------------------------------------------------ inside

    def _move(self, bound: Binding) -> None:
        kept = kept_workspace(bound.workspace)
        if kept != self._kept:
            self._kept, self._prompt = kept, bound.system_prompt
            self._adopt()

    def _adopt(self) -> None:
        """Run later turns in the session's workspace, with the changes that messages made."""
        self.place = self._narrowed(self._current_workspace())
        self._running.adopt(self._staged(self.place, self._prompt_in(self.place)))

    def _current_workspace(self) -> Workspace:
        place = self._kept
        for shown in self._unrecorded:
            place = with_shown(place, shown)
        return place

    def _prompt_in(self, place: Workspace) -> str | None:
        where = f"the instructions of agent {self._agent.id!r}"
        return moved_prompt(self._agent.instructions, where, self._prompt, self._kept, place)

    def _change(self) -> WorkspaceChanged | None:
        place = self._current_workspace()
        if place == self._kept:
            return None
        prompt = self._prompt_in(place)
        told = msgspec.UNSET if prompt == self._prompt else prompt
        return WorkspaceChanged(msgspec.to_builtins(place), told)

    def _narrowed(self, place: Workspace) -> Workspace:
        return msgspec.structs.replace(place, scope=self._agent.permissions.scope)
