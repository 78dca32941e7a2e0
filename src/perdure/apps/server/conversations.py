"""The conversations of a server: messages start turns, or are queued while one runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator
from weakref import WeakValueDictionary

from perdure.apps.server.access.caller import Caller
from perdure.apps.server.inputs import NewMessage, NewSession
from perdure.apps.server.problems import Problem
from perdure.apps.server.values import Sent
from perdure.client.agents.chat import Chat
from perdure.client.agents.runtime import Runtime
from perdure.errors import LeaseHeld, SessionExists, SessionNotFound, TurnOpen

_KEPT = 256
"""Chats without a running turn that are kept open."""

_log = logging.getLogger(__name__)


class Conversations:
    """The chats of a runtime by session. Calls for one session follow each other."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._chats: OrderedDict[str, Chat] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def send(self, caller: Caller, new: NewMessage) -> Sent:
        """Send a message; the turn runs on in the server, whatever the caller does.

        Durable: when this returns. Raises: Problem 409 for a running turn if `new` says so;
        Erased; ConfigError for an unknown agent; the errors of `Runtime.start`.
        """
        caller.require("write")
        if new.session_id is None:
            return await self._begin(caller, new)
        async with self._in_turn(new.session_id):
            try:
                await caller.session(new.session_id, "write")
            except SessionNotFound:
                with contextlib.suppress(SessionExists):  # another server made it meanwhile
                    return await self._begin(caller, new)
                await caller.session(new.session_id, "write")
            return await self._go_on(new.session_id, new)

    async def create(self, caller: Caller, new: NewSession) -> Chat:
        """Create a session. Durable: when this returns. Raises: as `send`; SessionExists."""
        chat = await self.runtime.start(
            self.agent_for(caller, new.agent),
            id=new.id,
            title=new.title,
            subject=caller.principal.subject or new.subject,
            metadata=new.metadata,
        )
        self._keep(chat)
        return chat

    async def continue_turn(self, session: str) -> Chat:
        """Return the chat of `session`, whose open turn goes on if no process runs it."""
        store = self.runtime.host.store
        found = await store.recent(1, scope="all", status="interrupted", id_prefix=session)
        if any(info.id == session for info in found) and self.running(session) is None:
            self._chats.pop(session, None)
        return await self.chat(session)

    async def chat(self, session: str, agent: str | None = None) -> Chat:
        """Return the open chat of `session`; one that is not open is resumed.

        An interrupted turn goes on. Raises: as `Runtime.resume`.
        """
        chat = self._chats.get(session)
        if chat is None or chat.status == "closed" or agent is not None:
            chat = await self.runtime.resume(session, agent)
        self._keep(chat)
        return chat

    def running(self, session: str) -> Chat | None:
        """Return the chat whose turn runs in this server, None if none does."""
        chat = self._chats.get(session)
        return chat if chat is not None and chat.is_running else None

    @contextlib.asynccontextmanager
    async def _in_turn(self, session: str) -> AsyncGenerator[None]:
        lock = self._locks.get(session)
        if lock is None:
            self._locks[session] = lock = asyncio.Lock()
        async with lock:
            yield

    async def _begin(self, caller: Caller, new: NewMessage) -> Sent:
        agent = self.agent_for(caller, new.agent)
        chat = await self.runtime.start(
            agent,
            id=new.session_id,
            title=new.title,
            subject=caller.principal.subject or new.subject,
        )
        self._keep(chat)
        await chat.send(new.text).started()
        return Sent(session_id=chat.id, status="started", is_new=True)

    async def _go_on(self, session: str, new: NewMessage) -> Sent:
        chat = await self.chat(session)
        if not chat.is_running:
            try:
                await chat.send(new.text).started()
            except LeaseHeld:
                _log.debug("a turn of %s runs in another process", session)
            except TurnOpen:
                chat = await self.continue_turn(session)
            else:
                return Sent(session_id=session, status="started", is_new=False)
        if new.if_running == "reject":
            raise Problem(409, "turn_running", "a turn of this session runs")
        entry = await chat.steer(new.text)
        return Sent(session_id=session, status="queued", is_new=False, entry_id=entry.id)

    def agent_for(self, caller: Caller, named: str | None) -> str:
        """Return the agent for a new session.

        Raises: Problem 422 when it is not named and there are several; Problem 403.
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
