"""Agents as values: snapshots, narrowing, prompts."""

from __future__ import annotations

import pytest

from perdure.client.agents.agent import Agent, Workspace, agent_of
from perdure.engine.turns.config import Limits
from perdure.errors import ConfigError
from perdure.session.codec import encode
from perdure.tools.declare import tool
from perdure.tools.registry import ToolRegistry


@tool(effect="read")
async def look(where: str) -> str:
    """Look somewhere."""
    return where


AGENT = Agent(
    "a",
    model="scripted:echo",
    instructions="Look.",
    tools=[look],
    on_interrupt="continue",
    limits=Limits(max_turns=3),
    temperature=0.5,
)


def test_a_snapshot_gives_the_same_agent_back() -> None:
    assert agent_of(AGENT.snapshot(), AGENT.registry) == AGENT


def test_a_snapshot_is_plain_json() -> None:
    assert b'"schema_hash"' in encode(AGENT.snapshot())


def test_fields_of_later_versions_are_left_out() -> None:
    assert agent_of({**AGENT.snapshot(), "mood": "good"}, AGENT.registry) == AGENT


def test_a_snapshot_that_cannot_be_read_says_so() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        agent_of({"id": "a", "limits": 7}, ToolRegistry())


def test_plain_functions_become_tools() -> None:
    async def leap(how_far: int) -> str:
        """Leap."""
        return str(how_far)

    assert Agent("a", tools=[leap]).registry.names == ("leap",)


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="look"):
        Agent("a", tools=[look, look])


def test_variables_are_filled_once() -> None:
    agent = Agent("a", instructions="{{ctx.x}} and {{ ctx.x }}, not {{other}}")
    prompt = agent.system_prompt(Workspace(variables={"x": "{{ctx.x}}"}))
    assert prompt == "{{ctx.x}} and {{ctx.x}}, not {{other}}"


def test_no_instructions_are_no_prompt() -> None:
    assert Agent("a").system_prompt(Workspace()) is None
