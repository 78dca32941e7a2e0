"""Writes an agent as a file from which an equal agent is read; equal agents give equal bytes."""

from __future__ import annotations

from typing import Literal, cast

import msgspec

from perdure.client.agents.agent import Agent, Fallback
from perdure.client.agents.files.document import (
    SAME_NAMES,
    AgentFile,
    FiledBudget,
    FiledDelegation,
    FiledFallback,
    FiledMemory,
    FiledRetry,
)
from perdure.engine.turns.config import CompactionSettings, Limits, MemoryConfig
from perdure.errors import ConfigError
from perdure.models.retry import RetryPolicy
from perdure.secrets.mask import mask_secrets
from perdure.secrets.pasted_keys import credentials_in
from perdure.session.argument_checks import takes_declared
from perdure.tools.builtin.catalogue import BUILTIN
from perdure.tools.permissions import Permissions
from perdure.yaml.writer import yaml_of


@takes_declared
def agent_text(agent: Agent) -> str:
    """Return `agent` as the text of an agent file.

    Raises: ConfigError for a tool that is not built in, because a file cannot name it. Raises
    ConfigError for text that looks like a credential, because reading the file would reject it.
    """
    own = [spec.name for spec in agent.registry.tools if BUILTIN.get(spec.name) != spec]
    if own:
        raise ConfigError(
            f"the tools {', '.join(own)} are functions of a program; a file only names built-in "
            "ones"
        )
    delegation = FiledDelegation(agent.max_agents, agent.max_depth)
    budget = FiledBudget(agent.max_cost_microcents, agent.on_exceed)
    same = {name: getattr(agent, name) for name in SAME_NAMES}
    filed = AgentFile(
        **same,
        tools=agent.registry.names,
        model=agent.model,
        system_prompt=agent.instructions,
        max_tokens=agent.max_output_tokens,
        reasoning_effort=agent.thinking_level,
        retry=None if agent.retry is None else _retry(agent.retry),
        fallback_chain=tuple(
            FiledFallback(link.model, max_attempts=link.max_attempts)
            for link in cast("tuple[Fallback, ...]", agent.fallbacks)
        ),
        budget=budget if budget != FiledBudget(0) else None,
        limits=agent.limits if agent.limits != Limits() else None,
        permissions=agent.permissions if agent.permissions != Permissions() else None,
        compaction=agent.compaction if agent.compaction != CompactionSettings() else None,
        memory=_memory(agent.memory),
        delegation=delegation if delegation != FiledDelegation() else None,
    )
    text = yaml_of(cast("dict[str, object]", msgspec.to_builtins(filed)))
    _refuse_credentials(text, agent.id)
    return text


def _refuse_credentials(text: str, name: str) -> None:
    kinds = sorted({kind for _, kind in credentials_in(text)})
    if kinds:
        raise ConfigError(
            f"the agent {mask_secrets(name)} holds what looks like a credential "
            f"({', '.join(kinds)}), and an agent file may not; "
            "name a secret instead: {{secrets.NAME}}"
        )


def _memory(memory: MemoryConfig | None) -> Literal["summary"] | FiledMemory:
    if memory is None:
        return "summary"
    if memory.extractor not in (None, "model"):
        raise ConfigError("the extractor is one of a program; a file can only name model")
    if not isinstance(memory.embedder, str | None) or memory.embedder == "program":
        raise ConfigError("the embedder is one of a program; a file can only name one")
    return FiledMemory(**msgspec.structs.asdict(memory))


def _retry(policy: RetryPolicy) -> FiledRetry:
    return FiledRetry(
        policy.max_attempts,
        policy.growth,
        round(policy.first_wait_s * 1000, 6),
        round(policy.cap_s * 1000, 6),
        policy.factor,
        policy.jitter,
    )
