"""Answering what roles had asked and may now do: once a flow's consent changes."""

from __future__ import annotations

from contextlib import suppress

from perdure.client.agents.agent import agent_of
from perdure.client.agents.hosting import Host
from perdure.client.flows.consent import consent_judge
from perdure.client.session import Session
from perdure.errors import AlreadyAnswered
from perdure.session.codec import body_of
from perdure.session.flows.graph import base_role
from perdure.session.flows.run import FlowState
from perdure.session.messages import ToolCallPart
from perdure.session.notes import Question, SessionStarted
from perdure.tools.registry import ToolRegistry


async def release(host: Host, state: FlowState, by: str) -> None:
    """Allow the open tool calls of all roles that the consent of `state` allows."""
    for role, stream in state.sessions.items():
        session = await host.store.open(stream)
        for asked in await session.questions():
            question = asked.question
            if question.topic != "approval" or question.call_id is None:
                continue
            call = await _call(session, question)
            if call is not None and await _is_allowed(host, state, role, session, call):
                with suppress(AlreadyAnswered):
                    await session.answer(asked.id, "allow", by=by)


async def _call(session: Session, question: Question) -> ToolCallPart | None:
    """The tool call that `question` is about."""
    for message in reversed(await session.messages(last=8)):
        for call in message.tool_calls:
            if call.id == question.call_id:
                return call
    return None


async def _is_allowed(
    host: Host, state: FlowState, role: str, session: Session, call: ToolCallPart
) -> bool:
    notes = await host.store.backend.notes(session.id, (SessionStarted.kind,))
    started = body_of(notes[0]) if notes else None
    agent = host.agents.get(role) or host.agents.get(base_role(role))
    if agent is None or not isinstance(started, SessionStarted):
        return False
    bound = agent_of(started.agent or {}, agent.registry)
    tools = ToolRegistry(bound.registry.tools)
    judge = consent_judge(tools, bound.permissions, lambda: state.run.consent_state)
    return judge(call, frozenset()).decision == "run"
