"""Which agent a new chat is with: as typed, else as configured, else the one of every chat."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from perdure.apps.chat.session import Cast
from perdure.apps.cli.exits import UsageMistake
from perdure.apps.settings.agents import agents_here, chosen_agent, invocable, is_file_name
from perdure.apps.settings.layers import Configuration
from perdure.apps.settings.servers import servers_of
from perdure.apps.terminal.output import remark
from perdure.apps.wiring import chat_agent
from perdure.client.agents.agent import Agent
from perdure.engine.turns.config import CompactionSettings, Limits
from perdure.tools.permissions import Permissions

AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="AGENT",
        help="The agent: its file or its id (`perdure agents list`).",
    ),
]


def cast_for(
    named: str | None,
    configuration: Configuration,
    environment: Mapping[str, str],
    allowed: Permissions,
    *,
    is_permitting: bool,
) -> Cast:
    """The agent `named`, else the configured one, else that of every chat; and the others here.

    `allowed` is what the person lets it do; `is_permitting` that they said so on the command line.
    Raises: ConfigError, InvalidAgentFile; UsageMistake where the file says what it may do.
    """
    wanted: str | None = named or configuration.value("chat.agent")
    found = agents_here(Path(), environment)
    if wanted is None:
        agent = _default(configuration, allowed)
    else:
        chosen = chosen_agent(wanted, found, allowed)
        if is_permitting and (is_file_name(wanted) or chosen.is_own):
            raise UsageMistake(
                f"what {chosen.agent.id} may do stands in {chosen.file}; leave out --approve, "
                "--allow-command, --allow-domain and --scope"
            )
        for note in chosen.notes:
            remark(note)
        agent = chosen.agent
    others, servers = invocable(found, allowed, agent), servers_of(configuration)
    lowered = frozenset(filed.id for filed in found if filed.place == "project")
    has_model = wanted is not None or configuration.model is not None
    return Cast(agent, others, configuration.prices, servers, lowered, is_model_named=has_model)


def _default(configuration: Configuration, allowed: Permissions) -> Agent:
    return chat_agent(
        configuration.model,
        permissions=allowed,
        thinking_level=configuration.value("chat.thinking_level"),
        limits=Limits(max_turns=configuration.value("chat.turn_cap")),
        **configuration.budget,
        mcp_servers=configuration.value("chat.mcp_servers"),
        **configuration.timeouts,
        compaction=CompactionSettings(
            is_enabled=configuration.value("chat.auto_compact"),
            trigger=configuration.value("chat.compact_threshold"),
            max_messages=configuration.value("chat.max_messages") or None,
        ),
    )
