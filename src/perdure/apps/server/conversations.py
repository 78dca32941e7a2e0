"""The conversations of a server: messages start turns, or are queued while a turn runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from weakref import WeakValueDictionary

import msgspec

from perdure.apps.server.access.caller import Caller
from perdure.apps.server.inputs import NewMessage, NewSession
from perdure.apps.server.problems import Problem
from perdure.apps.server.values import Sent
from perdure.apps.session_rows import agent_of
from perdure.client.agents.chat import Chat, steer_open
from perdure.client.agents.runtime import Runtime
from perdure.client.session import Session
from perdure.errors import (
    InvalidTransition,
    LeaseHeld,
    SessionExists,
    SessionNotFound,
    TurnOpen,
)
from perdure.session.codec import readable
from perdure.session.entries import Entry
from perdure.session.kinds import MESSAGE
from perdure.session.media.inline import InlineMedia
from perdure.session.messages import InFlightMessage, MediaPart, Message, TextPart
from perdure.session.notes import Queued

_KEPT = 256
"""Maximum number of open chats; beyond it, chats without a running turn are dropped."""

_TRY_AGAIN_S = 0.02
_TRIES = 1_500
"""Attempts (30 s in all) to send a message whose session can neither start nor steer a turn."""

_log = logging.getLogger(__name__)


class Conversations:
    """The chats of a runtime, one per session. Calls for the same session run one after another."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._chats: OrderedDict[str, Chat] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def send(self, caller: Caller, new: NewMessage) -> Sent:
        """Send a message; the turn runs in the server, even if the caller disconnects.

        Durable: the change is stored when this call returns. Raises: Problem 409 if a turn runs and
        `new.if_running` is "reject".
        Raises: Erased if the session was erased; ConfigError if the agent is unknown; the errors of
        `Runtime.start`.
        """
        caller.require("write")
        caller.subject_or(new.subject)
        named = new.session_id or caller.principal.visit
        id = named or (None if caller.keyed is None else caller.keyed.session_id)
        if id is None:
            return await self._begin(caller, new)
        new = msgspec.structs.replace(new, session_id=id)
        async with self._lock(id):
            try:
                session = await caller.session(id, "write", is_repeatable=True)
            except SessionNotFound:
                caller.require_new(named)
                with contextlib.suppress(SessionExists):  # another server made it meanwhile
                    return await self._begin(caller, new)
                session = await caller.session(id, "write", is_repeatable=True)
            if caller.keyed is not None and caller.keyed.unknown_since is not None:
                sent = await _sent_after(session, caller.keyed.unknown_since, new)
                if sent is not None:
                    return sent
            return await self._go_on(caller, session, new)

    async def create(self, caller: Caller, new: NewSession) -> Chat:
        """Create a session.

        Durable: the change is stored when this call returns. Raises: the errors of `send`.
        Raises: SessionExists if another session has the requested id.
        """
        made = new.id is None and caller.keyed
        id = made.session_id if made else new.id
        try:
            chat = await self.runtime.start(
                self.agent_for(caller, new.agent),
                id=id,
                title=new.title,
                subject=caller.subject_or(new.subject),
                metadata=new.metadata,
            )
        except SessionExists:
            if id is None or caller.keyed is None:
                raise
            with contextlib.suppress(SessionNotFound):
                await caller.session(id, "write", is_repeatable=True)
            if not made and caller.keyed.unknown_since is None:
                raise
            return await self.chat(id)
        await caller.claim(chat.session)
        self._keep(chat)
        return chat

    async def continue_turn(self, session: str) -> Chat:
        """Return the chat of `session`; if no process runs the session's open turn, run it."""
        store = self.runtime.host.store
        found = await store.recent(None, scope="all", status="interrupted", id_prefix=session)
        if any(info.id == session for info in found) and self.running(session) is None:
            self._chats.pop(session, None)
        return await self.chat(session)

    async def chat(self, session: str, agent: str | None = None) -> Chat:
        """Return the chat of `session`, and resume the session if it is not open.

        If the session has an interrupted turn, the turn continues.
        Raises: the errors of `Runtime.resume`.
        """
        chat = self._chats.get(session)
        if chat is None or chat.status == "closed" or agent is not None:
            chat = await self.runtime.resume(session, agent)
        self._keep(chat)
        return chat

    async def steer(self, session: str, text: str) -> Entry:
        """Add a message to the running turn, which can run in another process.

        If the open turn was interrupted, it continues. Raises: InvalidTransition if no turn is
        open.
        """
        async with self._lock(session):
            entry = await self._steer(await self.continue_turn(session), text)
        if entry is None:
            raise InvalidTransition("idle", "steer")
        return entry

    async def cancel(self, session: Session) -> None:
        """End the open turn, but not the session.

        Does nothing if no turn is open.

        Raises: LeaseHeld if another process runs the turn.
        """
        state = await self.runtime.host.store.backend.state(session.id)
        is_running = self.running(session.id) is not None
        if not is_running and state.open_turn is None:
            return
        if not is_running:
            self._chats.pop(session.id, None)  # its turn is an older one
        chat = await self.chat(session.id)
        if chat.turn is not None and chat.turn.held is not None:
            raise chat.turn.held
        await chat.cancel()

    def running(self, session: str) -> Chat | None:
        """Return the chat whose turn runs in this server; None if no turn runs."""
        chat = self._chats.get(session)
        return chat if chat is not None and chat.is_running else None

    def _lock(self, session: str) -> asyncio.Lock:
        return self._locks.setdefault(session, asyncio.Lock())

    async def _begin(self, caller: Caller, new: NewMessage) -> Sent:
        said, agent = new.said(), self.agent_for(caller, new.agent)
        host = self.runtime.host
        async with host.runner.room(host.store.backend):  # a message without room makes no session
            chat = await self.runtime.start(
                agent,
                id=new.session_id,
                title=new.title,
                subject=caller.subject_or(new.subject),
                metadata=caller.mark,
            )
            self._keep(chat)
            await caller.claim(chat.session, is_repeatable=True)
            await chat.send(said).started()
        return Sent(session_id=chat.id, status="started", is_new=True)

    async def _go_on(self, caller: Caller, opened: Session, new: NewMessage) -> Sent:
        session, said = opened.id, new.said()
        agent = None
        if await agent_of(self.runtime.host.store, session) is None:  # such as an imported session
            agent = self.agent_for(caller, new.agent)
        for _ in range(_TRIES):
            chat, agent = await self.chat(session, agent), None
            if not chat.is_running:
                try:
                    await chat.send(said).started()
                except LeaseHeld:
                    _log.debug("another process works in %s", session)
                except TurnOpen:
                    chat = await self.continue_turn(session)
                else:
                    return Sent(session_id=session, status="started", is_new=False)
            if new.if_running == "reject":
                break
            entry = await self._steer(chat, said)
            if entry is not None:
                return Sent(session_id=session, status="queued", is_new=False, entry_id=entry.id)
            await asyncio.sleep(_TRY_AGAIN_S)
        raise Problem(409, "turn_running", "a turn or a compaction of this session runs")

    async def _steer(self, chat: Chat, said: str | Message | InFlightMessage) -> Entry | None:
        return await steer_open(self.runtime.host.store.backend, chat, said)

    def agent_for(self, caller: Caller, named: str | None) -> str:
        """Return the agent for a new session.

        Raises: Problem 422 if no agent is named and the server has several; Problem 403 if the
        caller may not use the agent.
        """
        agents = sorted(self.runtime.host.agents)
        agent = named or caller.principal.agent or (agents[0] if len(agents) == 1 else None)
        if agent is None:
            known = ", ".join(agents) or "none"
            raise Problem(422, "agent_missing", f"name an agent; this server has: {known}")
        caller.require_agent(agent)
        return agent

    def _keep(self, chat: Chat) -> None:
        self._chats[chat.id] = chat
        self._chats.move_to_end(chat.id)
        idle = [id for id, each in self._chats.items() if not each.is_running]
        for id in idle[: max(len(self._chats) - _KEPT, 0)]:
            del self._chats[id]


async def _sent_after(session: Session, seq: int, new: NewMessage) -> Sent | None:
    """Return the message `new` from the entries after `seq`; None if it was not stored."""
    wanted = _texts(new.said())
    async for entry in session.entries(seq):
        message, status = entry.message, "started"
        if isinstance(queued := readable(entry), Queued):
            status = "queued"
            if queued.entry_kind == MESSAGE:
                message = msgspec.json.decode(queued.entry_body, type=Message)
        if message is not None and message.role == "user" and _texts(message) == wanted:
            return Sent(session_id=session.id, status=status, is_new=False, entry_id=entry.id)
    return None


def _texts(message: Message | InFlightMessage) -> list[str]:
    """Return the texts of `message`, and the handles of its media."""
    return [
        part.text if isinstance(part, TextPart) else part.handle
        for part in message.parts
        if isinstance(part, TextPart | MediaPart | InlineMedia)
    ]
