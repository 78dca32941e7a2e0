"""The runtime: start and resume sessions under agents, and run their turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Self

import msgspec
from msgspec import Meta

from perdure.client.agents.agent import Agent
from perdure.client.agents.bindings import Bindings
from perdure.client.agents.chat import Chat
from perdure.client.agents.chats import Chats
from perdure.client.agents.missing_await import explains_missing_async, explains_missing_await
from perdure.client.agents.notices import OnQuestion
from perdure.client.agents.runners import EmbeddedRunner, RunnerName, runner_of
from perdure.client.agents.runtime_services import Host
from perdure.client.agents.session_usage import end_if_idle, ending, expire_or_end
from perdure.client.agents.turn import Turn
from perdure.client.conversation.workspace import Workspace, detect_workspace
from perdure.client.processes import this_process
from perdure.client.records.sessions import sessions_with_open_turn
from perdure.client.session_fields import require_header, title_of
from perdure.client.store import Store, opened
from perdure.engine.hooks.points import HookName, SessionShutdown, SessionStart
from perdure.engine.hooks.registry import Hook, Hooks
from perdure.engine.turns.config import Budget, Limits
from perdure.engine.turns.environment import LEASE_TTL_MS, RenewCredentials
from perdure.engine.turns.lease import Claim, led_by_other, led_here
from perdure.errors import Erased, LeaseHeld, PerdureError, SessionNotFound
from perdure.models.prices import Price
from perdure.models.protocol import ModelClient
from perdure.session.argument_checks import takes_all_declared
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.stores.access.lazy_modules import Later
from perdure.tools.mcp.servers import McpServer
from perdure.tools.output import OutputT
from perdure.tools.permissions import Scope, narrower

if TYPE_CHECKING:
    from perdure.client.conversation import role_sessions
else:
    role_sessions = Later("perdure.client.conversation.role_sessions")


@explains_missing_async
@explains_missing_await("start", "resume")
@takes_all_declared
class Runtime:
    """Runs turns of sessions in one store.

    `agents` can be started by id, and resumed sessions get the tools of these agents. `models` is
    the client for all models (default: all providers, with keys from the environment or the
    keyring). `prices`, by model name (or ``provider:*``), override every price list. `budget`
    replaces the budget of every agent. Each field of `limits` that differs from its default
    replaces this limit of every agent. `renew_credentials` is called for another key if a provider
    rejects the current key, at most one time per turn. Agents can use `mcp_servers` by name; the
    servers stop with the runtime. Sessions without a message for `idle_timeout_s` are closed by
    `end_idle` and when they are resumed. `has_traced_content` adds message texts to traces (None:
    $PERDURE_OTEL_CONTENT). `on_question` is called with each `OpenQuestion` for which a turn here
    waits, and again if the turn is resumed before the answer. The question stays open if
    `on_question` raises. If `runner` is "workers", processes of `perdure worker` run turns and
    flows. If `runner` is None, the runner is $PERDURE_RUNNER, or else "embedded". A closed Runtime
    runs no turn. Leaving the ``async with`` block of a Runtime waits for running turns, but never
    for people: a turn that waits for a person is suspended. If the block raises, all running turns
    are suspended. Another Runtime can resume suspended turns. Raises: ConfigError if two agents
    have the same id, or if `runner` is "workers" and the store is not on PostgreSQL. Raises
    WrongArgument for a bad name in prices or a callback with a wrong signature.
    """

    def __init__(  # noqa: PLR0913 - each is an option of its own, and all are named
        self,
        store: Store,
        agents: Iterable[Agent] = (),
        *,
        models: ModelClient | None = None,
        prices: Mapping[str, Price] | None = None,
        limits: Limits | None = None,
        budget: Budget | None = None,
        renew_credentials: RenewCredentials | None = None,
        mcp_servers: Iterable[McpServer] = (),
        has_traced_content: bool | None = None,
        idle_timeout_s: Annotated[float, Meta(gt=0)] | None = None,
        owner: str | None = None,
        lease_ttl_ms: Annotated[int, Meta(ge=1)] = LEASE_TTL_MS,
        on_question: OnQuestion | None = None,
        runner: RunnerName | None = None,
    ) -> None:
        self.host = Host(
            store,
            agents,
            models=models,
            prices=prices,
            limits=limits,
            budget=budget,
            renew_credentials=renew_credentials,
            mcp_servers=mcp_servers,
            has_traced_content=has_traced_content,
            owner=owner,
            lease_ttl_ms=lease_ttl_ms,
            on_question=on_question,
            runner=runner_of(runner),
        )
        self.host.runner.require(store.backend)
        self._store = store
        self._bindings = Bindings(self.host)
        self._idle_timeout_s = idle_timeout_s
        self._open: dict[str, Hooks] = {}
        self._running: set[Turn] = set()
        self._chats = Chats(self.host, self._running)

    def __repr__(self) -> str:
        return f"<Runtime agents={sorted(self.host.agents)} running={len(self._running)}>"

    async def start(  # noqa: PLR0913 - each is an option of its own, and all are named
        self,
        agent: Agent[OutputT] | str,
        *,
        workspace: Workspace | None = None,
        title: str | None = None,
        id: str | None = None,
        metadata: Mapping[str, object] | None = None,
        subject: str | None = None,
        tools: Iterable[str] | None = None,
        allowed_commands: Iterable[str] | None = None,
        scope: Scope | None = None,
    ) -> Chat[OutputT]:
        """Start a session under `agent`. The session stores a snapshot of the agent.

        `subject` names the person that the session is about or with; `Store.recent` and
        `Store.erase` can select by `subject`. `metadata` is data that only the program uses.
        `tools`, `allowed_commands` and `scope` (or the workspace's scope) restrict the agent's
        tools, commands and the paths of its file tools. Durable: everything is stored on return.
        Raises: ConfigError for an unknown agent, tool or model provider, for more permissions than
        the agent has, or for an undefined ``{{ctx.name}}``. Raises SecretPasted for a credential in
        a variable or in the instructions; McpUnavailable; SessionExists; LimitExceeded for a long
        title. Raises WrongArgument for an invalid id, an empty subject, text with a NUL, or
        metadata that is not JSON.
        """
        self.host.require_open("start")
        require_header(subject=subject, metadata=metadata)
        place = detect_workspace(workspace)
        tools = None if tools is None else tuple(tools)
        whole = await self.host.servers.equip(self.host.agent(agent), place.working_dir, tools)
        bound = whole.restrict(tools, allowed_commands, scope or place.scope)
        place = msgspec.structs.replace(place, scope=bound.permissions.scope)
        outside = self._store.outside
        header = StreamHeader(
            id=outside.stream_id(id),
            created_at=outside.clock.now_ms(),
            cwd=place.working_dir,
            title=title_of(title),
            metadata=dict(metadata) if metadata else None,
            subject=subject,
        )
        prompt = await self._bindings.begin(bound, header, place)
        chat = await self._chats.chat(await self._store.open(header.id), bound, place, prompt)
        await self._opened(chat, is_resumed=False)
        return chat

    async def resume(
        self,
        session: str,
        agent: Agent[OutputT] | str | None = None,
        *,
        workspace: Workspace | None = None,
        tools: Iterable[str] | None = None,
        allowed_commands: Iterable[str] | None = None,
        scope: Scope | None = None,
    ) -> Chat[OutputT]:
        """Continue a session with the agent with which it was started.

        The session's tools are bound again by name and schema. The current agent is `agent`, or
        else the runtime's agent with the id of the session's agent. The limits of the current agent
        apply, unless the runtime sets other limits. The session never gets more permissions than
        the current agent; `tools`, `allowed_commands` and `scope` restrict the session further (see
        `start`). An interrupted turn continues now, as ``chat.turn``; if another process runs the
        turn, it is followed (`Turn.held`). If `workspace` is given, the session permanently moves
        to this workspace, and the file tools and the instructions use the workspace's folder. Each
        variable, file or selection that `workspace` omits stays unchanged. The scope of `workspace`
        can only restrict the agent's scope. Imported sessions have no agent in force; the same is
        true in an untrusted store for sessions that this user's perdure did not write. A session
        without an agent in force needs `agent`, which is recorded and restricted by the stored
        agent; its open turn ends as interrupted, and it runs in `workspace` (default: the current
        folder). Durable: a move to another workspace is stored when this returns. Raises:
        SessionNotFound; ConfigError if no agent is given and none is in force, or if the call asks
        for more permissions than the agent has. Raises McpUnavailable if a needed MCP server does
        not start; TurnOpen for a move while a turn is open; FlowRefusal for the session of a role
        until the flow is completed.
        """
        handle, found = await opened(self._store, StreamId(session))
        if found.header.origin == "role" or found.header.kind == "flow":
            at = self._store.backend, self._store.outside.clock
            await role_sessions.require_no_role(*at, found.header, "resume")
        await end_if_idle(self._store, found, self._idle_timeout_s)
        given = None if agent is None else self.host.agent(agent)
        bound = await self._bindings.in_force(handle.id, given, workspace)
        tier = scope or (None if workspace is None else workspace.scope)

        def narrowed(kept: Agent) -> Agent:
            allowed = scope or (None if tier is None else narrower(tier, kept.permissions.scope))
            return kept.restrict(tools, allowed_commands, allowed)

        chat = await self._chats.resume_chat(handle, bound, given, narrowed)
        await self._opened(chat, is_resumed=True)
        if found.open_turn is not None:
            await _recovered(chat, self.host.claim(handle.id))
        return chat

    async def resume_all(
        self, *, on_error: Callable[[str, PerdureError], None] | None = None
    ) -> list[Chat]:
        """Resume every session with an interrupted turn, newest activity first.

        Each turn continues as ``chat.turn``; a turn that waits for an answer waits again. Sessions
        whose turn runs, in another process or in this runtime, are skipped. Roles of flows and
        invoked agents are skipped, too: their flow or invoker resumes them. `on_error` gets the id
        and the error of a session that cannot be resumed, for example ConfigError if no agent is in
        force; without `on_error`, a warning is logged. Only sessions with an open turn are read.
        """
        return await _resume_interrupted(self, on_error)

    async def grant(self, session: str, agent: Agent | str, *, by: str) -> None:
        """Give a session the permissions and tools of `agent` from the next turn on, and record it.

        Only this call extends a session's permissions; the session's instructions and model stay.
        `by` names the person who decides. Durable: everything is stored on return. Raises:
        SessionNotFound; TurnOpen if a turn is open; ConfigError if `agent` is unknown;
        McpUnavailable if an MCP server does not start.
        """
        await self._bindings.grant((await self._store.open(session)).id, self.host.agent(agent), by)

    def on(self, name: HookName, hook: Hook, *, is_guard: bool | None = None) -> Callable[[], None]:
        """Run `hook` at the point `name` in every session used through this store.

        ``docs/guides/hooks.md`` lists the arguments and answers of each hook.
        Shape: returns a function that removes the hook.
        Raises: ValueError if the point is unknown.
        """
        return self._store.hooks.on(name, hook, is_guard=is_guard)

    async def close(self) -> None:
        """Wait for running turns; suspend turns that wait for a person or are not due yet.

        `resume` continues a suspended turn. If workers run a turn, `close` waits only until the log
        contains the turn's request. `close` also extracts due facts (`MemoryConfig.extractor`).
        """
        runs_here = isinstance(self.host.runner, EmbeddedRunner)
        while running := tuple(self._running):
            if waiting := [turn for turn in running if not runs_here or _has_to_wait(turn)]:
                await _stop_stored(waiting)
            else:
                await _first_of(running, self.host.person_waits.change())
        await self.host.extraction.settle()
        await self._let_go()
        self.host.is_closed = True

    async def suspend(self) -> None:
        """Stop running turns immediately; they stay open in the log and `resume` continues them."""
        await _stop(tuple(self._running))
        await self._let_go()

    async def end_idle(self) -> list[str]:
        """Close the sessions that were idle for more than `idle_timeout_s`; return their ids.

        A session with an open turn is not idle, even if the turn waits for an answer. Sessions that
        were imported, or that had no turn, stay open. Turns with an expired question are closed.
        """
        ended: list[str] = []
        for session in await ending(self._store, self._idle_timeout_s):
            with suppress(SessionNotFound, Erased):  # another process removed it meanwhile
                if await expire_or_end(self._store, session, self._idle_timeout_s):
                    ended.append(session)
        self.host.extraction.wake()
        return ended

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await (self.close() if error is None else self.suspend())
        self.host.is_closed = True

    async def _opened(self, chat: Chat, *, is_resumed: bool) -> None:
        self.host.extraction.follow(chat.agent)
        self._open[chat.id] = hooks = Hooks(self._store.hooks, chat.agent.hooks)
        await hooks.tell(SessionStart(chat.id, chat.agent.id, is_resumed))

    async def _let_go(self) -> None:
        while self._open:
            id, hooks = self._open.popitem()
            await hooks.tell(SessionShutdown(id))
        await self.host.aclose()


async def _recovered(chat: Chat, claim: Claim) -> None:
    """Continue the open turn, or follow it.

    When this returns, it is known whether this process continues the turn or follows it.
    """
    state = await claim.store.state(claim.stream)
    if state.open_turn is None:
        return
    turn = chat.recover(state.open_turn)
    if led_by_other(claim, state) is not None:
        with suppress(PerdureError):  # awaiting the turn raises it
            await turn.started()


def _has_to_wait(turn: Turn) -> bool:
    """Whether `turn` waits for a person, for its start time, or for another process."""
    return turn.is_waiting or turn.is_scheduled or turn.held is not None


async def _stop(turns: Iterable[Turn]) -> None:
    """Stop all `turns` immediately, and wait until they have stopped."""
    await asyncio.gather(*(turn.stop() for turn in turns))


async def _stop_stored(turns: Iterable[Turn]) -> None:
    """Wait until the log contains each turn or its request, then stop `turns`.

    Returns when all turns have stopped.
    """
    for turn in turns:
        with suppress(PerdureError):  # awaiting the turn raises it
            await turn.stored()
    await _stop(turns)


async def _first_of(running: Iterable[Turn], change: asyncio.Future[None]) -> None:
    """Wait until one of the turns has ended, or `change` is done."""
    ends = [asyncio.ensure_future(turn.settled()) for turn in running]
    try:
        await asyncio.wait((change, *ends), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waited in (change, *ends):
            waited.cancel()


_log = logging.getLogger(__name__)


async def _resume_interrupted(
    runtime: Runtime, on_error: Callable[[str, PerdureError], None] | None
) -> list[Chat]:
    """Resume each session with an open turn that no process runs; return the chats.

    When this returns, each turn has started. `on_error` gets the id and the error of a session that
    cannot be resumed; without `on_error`, a warning is logged.
    """
    host = runtime.host
    resumed: list[Chat] = []
    for info, holder in await sessions_with_open_turn(host.store.backend, "listed"):
        if holder is not None and not holder.endswith(this_process()):
            continue
        if holder is not None and led_here(host.claim(StreamId(info.id))) is not None:
            continue
        try:
            chat = await runtime.resume(info.id)
            if chat.turn is None:
                continue  # the turn ended after the list was read
            await chat.turn.started()
            if chat.turn.held is not None:
                await chat.suspend()
                continue
        except LeaseHeld:
            continue
        except PerdureError as error:
            if on_error is not None:
                on_error(info.id, error)
            else:
                _log.warning("session %s was not resumed: %s", info.id, error)
        else:
            resumed.append(chat)
    return resumed
