"""The turn settings of a session, from its agent, its limits and its environment."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.bounds.callbacks import run_plain_callback
from perdure.client.agents.agent import Agent
from perdure.client.clock import Outside
from perdure.context.tokens import unscaled_around
from perdure.engine.turns.config import Budget, Limits, Link, ToolFacts, TurnConfig, WorkingLimit
from perdure.engine.turns.environment import Environment, FrameOf, RequestSettings, WorkingMemory
from perdure.engine.turns.session_turns import Terms
from perdure.memory.injection import SHARE
from perdure.models.prices import Cost
from perdure.models.protocol import ToolDeclaration
from perdure.secrets.mask import log_failure
from perdure.session.messages import Usage
from perdure.stores.access.lazy_modules import Later
from perdure.tools.approval import Judge
from perdure.tools.output import output_of

if TYPE_CHECKING:
    from perdure.client.memory import session_memory
else:
    session_memory = Later("perdure.client.memory.session_memory")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Caps:
    """Turn settings that are not part of the agent: current limits, prices, permissions.

    If `ends_when_denied`, a denied tool call ends the turn.
    """

    limits: Limits
    budget: Budget
    cost: Cost
    judge: Judge
    ends_when_denied: bool = False


@dataclass(frozen=True, slots=True)
class InFlow:
    """Settings of a flow for a role's session: permissions, and the record folder.

    `frame_of` returns the texts before and after a summary of the session.
    """

    judge: Judge
    record: Path | None = None
    frame_of: FrameOf | None = None


def terms_of(agent: Agent, environment: Environment, system: str | None, caps: Caps) -> Terms:
    """Return the turn settings of a session of `agent` with the system prompt `system`."""
    settings = _settings(agent, environment, system)

    def config_of(model: str) -> TurnConfig:
        return _config(agent, environment, caps, model, math.ceil(settings.size))

    models = tuple(link.model for link in agent.chain)
    return Terms(models, config_of, settings, agent.history)


def _settings(agent: Agent, environment: Environment, system: str | None) -> RequestSettings:
    declared = tuple(ToolDeclaration(*tool) for tool in environment.tools.declarations())
    output = output_of(agent.output)
    if output is not None:
        system = "\n\n".join(filter(None, (system, output.instruction)))
    return RequestSettings(
        system=system,
        tools=declared,
        size=unscaled_around(system, declared),
        thinking_level=agent.thinking_level,
        max_output_tokens=agent.max_output_tokens,
        temperature=agent.temperature,
        max_messages=agent.compaction.max_messages,
        memory=_memory(agent, environment),
        output_schema=None if output is None else output.schema,
    )


def _memory(agent: Agent, environment: Environment) -> WorkingMemory | None:
    if agent.memory is None:
        return None
    outside = Outside(environment.clock, environment.random)
    return session_memory.SessionMemory(
        environment.store,
        outside,
        environment.stream,
        agent.memory,
        agent=agent.id,
        working_dir=environment.working_dir,
        on_embedder=environment.on_embedder,
    )


def _working(agent: Agent, around: int) -> WorkingLimit | None:
    """Return the token limit of requests; instructions and tools use `around` tokens of it."""
    limit = None if agent.memory is None else agent.memory.max_working_tokens
    return None if limit is None else WorkingLimit(limit, limit - limit // SHARE - around)


def _config(
    agent: Agent, environment: Environment, caps: Caps, model: str, around: int
) -> TurnConfig:
    def window_tokens(model: str) -> int | None:
        try:
            window: object = run_plain_callback(environment.models.info, model).context_window
        except Exception as error:  # noqa: BLE001 - without it, nothing is compacted beforehand
            told = "the client of %s could not say what it knows of the model"
            log_failure(_log, error, told, model)
            return None
        return window if isinstance(window, int) else None

    output = output_of(agent.output)
    return TurnConfig(
        agent=agent.id,
        model=model,
        tools={
            spec.name: ToolFacts(spec.effect, spec.on_unknown, spec.is_async)
            for spec in environment.tools.tools
        },
        limits=caps.limits,
        retry=agent.own_retry,
        compaction=agent.compaction,
        on_interrupt=agent.on_interrupt,
        queue_mode=agent.queue_mode,
        window_tokens=window_tokens(model),
        fallbacks=tuple(
            Link(link.model, link.retry, window_tokens(link.model))
            for link in agent.chain[1:]
            if link.model != model
        ),
        restart_on_cut=agent.restart_on_cut,
        question_expires_s=agent.question_expires_s,
        budget=caps.budget,
        max_output_tokens=agent.max_output_tokens,
        cost=guarded_cost(caps.cost),
        judge=caps.judge,
        ends_when_denied=caps.ends_when_denied,
        working=_working(agent, around),
        output_problem=None if output is None else output.problem,
    )


def guarded_cost(cost: Cost) -> Cost:
    """Wrap `cost` so that the price is unknown if a price list fails or returns no price."""

    def guarded(model: str, usage: Usage) -> int | None:
        try:
            found: object = run_plain_callback(cost, model, usage)
        except Exception as error:  # noqa: BLE001 - an unknown price counts as over every budget
            log_failure(_log, error, "the price of %s could not be looked up", model)
            return None
        is_price = isinstance(found, int) and not isinstance(found, bool) and found >= 0
        return found if is_price else None

    return guarded
