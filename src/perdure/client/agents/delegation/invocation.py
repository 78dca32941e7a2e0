"""Invoke another agent: open one session for it, run its turn to the end, return its answer.

The session's id is computed from the call, so that a call repeated after a crash finds the session
and continues it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Protocol

import msgspec

from perdure.client.agents.agent import Agent, agent_of
from perdure.client.agents.delegation.restriction import child_budget, narrowed_child, resumed_agent
from perdure.client.agents.message_secrets import message_of, screen_message
from perdure.client.conversation.authority import authority_of
from perdure.client.conversation.lineage import (
    child_id,
    delegated_to,
    first_turn,
    invocations_in,
    started_in,
)
from perdure.client.conversation.workspace import Workspace, kept_workspace
from perdure.client.store import Store
from perdure.engine.turns.carried import carried_state
from perdure.engine.turns.config import Budget
from perdure.engine.turns.session_turns import SessionTurns, Signals
from perdure.engine.turns.state import TurnState
from perdure.errors import ConfigError, LeaseHeld, LeaseLost, SessionExists, ToolError, TurnOpen
from perdure.session.codec import new_side
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.ledger import Delegated
from perdure.session.notes import Invocation, SessionStarted
from perdure.stores.protocol import Commit, StreamState, Write
from perdure.stores.session_store import exists
from perdure.tools.builtin.delegation import INVOKE_AGENT
from perdure.tools.registry import ToolRegistry
from perdure.tools.spec import ToolCall, ToolOutput

_WAIT_S = 0.2


class InvocationHost(Protocol):
    """The part of `Host` that invocations use."""

    store: Store
    agents: dict[str, Agent]

    def running(
        self,
        stream: StreamId,
        agent: Agent,
        workspace: Workspace,
        *,
        prompt: str | None,
        budget: Budget | None = None,
        invoked_by: tuple[StreamId, ...] = (),
    ) -> SessionTurns:
        """Return the object that runs a session's turns."""
        ...


class AgentInvoker:
    """Implements `Delegation` for one session: its `agent` can invoke the agents of `host`.

    `budget` is the session's budget; an invoked agent can spend at most the rest of it.
    """

    def __init__(
        self,
        host: InvocationHost,
        stream: StreamId,
        agent: Agent,
        workspace: Workspace,
        *,
        budget: Budget,
        invoked_by: tuple[StreamId, ...] = (),
    ) -> None:
        self._host = host
        self._store = host.store.backend
        self._stream = stream
        self._agent = agent
        self._workspace = workspace
        self._budget = budget
        self._invoked_by = (*invoked_by, stream)

    async def invoke(
        self, call: ToolCall, agent: str, said: str, *, is_aborted: Callable[[], bool]
    ) -> ToolOutput:
        """See `Delegation`."""
        child = await self._child(call.idempotency_key)
        if not await exists(self._store, child):
            await self._open(child, call, agent)
        ended = await self._ended(child, call.tool, said, is_aborted)
        return _child_output(agent, ended, await delegated_to(self._store, child))

    async def find_delegated(self, key: str) -> Delegated | None:
        """See `Delegation`."""
        return await delegated_to(self._store, await self._child(key))

    async def _child(self, key: str) -> StreamId:
        state = await self._store.state(self._stream)
        return child_id(self._stream, state.info.created_at, key)

    # ------------------------------------------------------------ opening

    async def _open(self, child: StreamId, call: ToolCall, named: str) -> None:
        """Open the session `child`, unless another process has already opened it.

        Raises: ToolError if the agent is unknown, a limit is reached, or the budget is spent.
        """
        state = await self._store.state(self._stream)
        agent = await self._narrowed(call.tool, named, state)
        prompt = _filled(call.tool, agent, self._workspace)
        at = self._host.store.outside.clock.now_ms()
        header = StreamHeader(
            id=child,
            created_at=at,
            origin="subagent",
            cwd=self._workspace.working_dir,
            parent=self._stream,
            subject=state.header.subject,
        )
        invoked = Invocation(self._stream, call.id, call.idempotency_key)
        workspace = msgspec.structs.replace(self._workspace, scope=agent.permissions.scope)
        place = msgspec.to_builtins(workspace)
        started = SessionStarted(agent.snapshot(), place, prompt, invoked)
        write = Write(stream=child, create=header, entries=(new_side(started),))
        try:
            await self._store.commit(Commit(writes=(write,), at=at))
        except SessionExists:
            return  # another attempt of this call

    async def _narrowed(self, tool: str, named: str, state: StreamState) -> Agent:
        known = self._host.agents
        if named not in known:
            names = ", ".join(sorted(known)) or "none"
            raise ToolError(tool, f"there is no agent {named!r}; there are: {names}")
        parent = self._agent
        if parent.max_depth < 1:
            raise ToolError(tool, "agents are nested too deep here; do it yourself")
        if await invocations_in(self._store, self._stream) >= parent.max_agents:
            raise ToolError(
                tool, f"this session has invoked its {parent.max_agents} agents; do it yourself"
            )
        child = known[named]
        so_far = await carried_state(self._store, self._stream, state.head)
        limit = max(self._budget.max_cost_microcents, so_far.limit_microcents or 0)
        budget = child_budget(child.budget, self._budget, limit, so_far.spent)
        if budget is None:
            raise ToolError(tool, "nothing is left of what this session may spend")
        return narrowed_child(child, parent, parent.registry, budget)

    # ------------------------------------------------------------ running

    async def _ended(
        self, child: StreamId, tool: str, said: str, is_aborted: Callable[[], bool]
    ) -> TurnState:
        """Start or continue the turn of the session `child`, and return its state after its end."""
        clock = self._host.store.outside.clock
        while (ended := await first_turn(self._store, child)) is None:
            running = await self._running(child, tool)
            state = await self._store.state(child)
            work = running.lost_turn
            if state.open_turn is None:
                message = await screen_message(message_of(said, "warn"), "warn")
                work = partial(running.new_turn, message, ())
            try:
                await _performed(work, is_aborted)
            except (LeaseHeld, LeaseLost, TurnOpen):
                # Another process runs it, or died: the log has the result.
                await clock.sleep(_WAIT_S)
        return ended

    async def _running(self, child: StreamId, tool: str) -> SessionTurns:
        started = await started_in(self._store, child)
        if started is None or started.agent is None:
            raise ToolError(tool, "the session of the agent it invoked cannot be read")
        if (await authority_of(self._store, child)).withheld is not None:
            raise ToolError(tool, f"session {child} was not opened by this user's perdure")
        kept = agent_of(started.agent, self._agent.registry)
        agent = msgspec.structs.replace(resumed_agent(kept, self._agent), hooks=None)
        workspace = kept_workspace(started.workspace)
        return self._host.running(
            child,
            agent,
            workspace,
            prompt=started.system_prompt,
            budget=agent.budget,
            invoked_by=self._invoked_by,
        )


async def _performed(
    work: Callable[[Signals], Coroutine[Any, Any, TurnState]], is_aborted: Callable[[], bool]
) -> None:
    """Run the turn `work`.

    If this call is cancelled, `is_aborted` decides what happens to the turn. If `is_aborted`
    returns True, the turn is aborted. If `is_aborted` returns False, the turn is suspended.
    """
    signals = Signals()
    task = asyncio.ensure_future(work(signals))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        if is_aborted():
            signals.stopping.ask()
        else:
            task.cancel()
        await asyncio.wait((task,))
        raise
    finally:
        if task.done() and not task.cancelled():
            task.exception()
        if signals.begun.done() and not signals.begun.cancelled():
            signals.begun.exception()


def _filled(tool: str, agent: Agent, workspace: Workspace) -> str | None:
    try:
        agent.tools_in(workspace)
        return agent.system_prompt(workspace)
    except ConfigError as error:
        raise ToolError(tool, str(error)) from error


def _child_output(agent: str, ended: TurnState, below: Delegated | None) -> ToolOutput:
    """Return the result of the ended turn of `agent` as the output of the tool that invoked it."""
    finished, answer = ended.finished, ended.answer
    text = "" if answer is None else answer.text
    assert finished is not None
    if finished.end == "stop":
        return ToolOutput(text or f"{agent} ended without an answer", delegated=below)
    if finished.end == "length":
        return ToolOutput(f"{text}\n[the answer of {agent} was cut short]", delegated=below)
    reason = finished.error or f"its turn was {finished.end}"
    return ToolOutput(f"{agent} gave no answer: {reason}", is_error=True, delegated=below)


def with_agent_list(tools: ToolRegistry, agents: Mapping[str, Agent]) -> ToolRegistry:
    """Return `tools`, in which the description of ``invoke_agent`` lists the agents."""
    if INVOKE_AGENT not in tools.names:
        return tools
    listed = "\n".join(
        f"- {id}: {agent.description or agent.name or 'no description'}"
        for id, agent in sorted(agents.items())
    )
    return ToolRegistry(
        tuple(
            msgspec.structs.replace(
                spec, description=f"{spec.description}\n\nAgents:\n{listed or 'none'}"
            )
            if spec.name == INVOKE_AGENT
            else spec
            for spec in tools.tools
        )
    )
