"""Agents as values: snapshots, restrictions, prompts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest

from perdure.client.agents.agent import Agent, Fallback, agent_of
from perdure.client.conversation.workspace import Workspace
from perdure.engine.turns.config import CompactionSettings, Limits
from perdure.errors import ConfigError, WrongArgument
from perdure.models.catalogue import PROVIDERS
from perdure.models.retry import RetryPolicy
from perdure.session.codec import encode
from perdure.tools.decorator import tool
from perdure.tools.mcp.servers import McpServer
from perdure.tools.permissions import Permissions
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
    fallbacks=["q:other", Fallback("r:third", 2)],
    max_cost_microcents=7,
    permissions=Permissions(allowed_commands=("git status",)),
)


def test_agent_is_restored_unchanged_from_its_snapshot() -> None:
    assert agent_of(AGENT.snapshot(), AGENT.registry) == AGENT


def test_snapshot_is_plain_json() -> None:
    assert b'"schema_hash"' in encode(AGENT.snapshot())


def test_agent_from_snapshot_ignores_fields_of_later_versions() -> None:
    assert agent_of({**AGENT.snapshot(), "mood": "good"}, AGENT.registry) == AGENT


def test_unreadable_snapshot_raises_a_clear_error() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        agent_of({"id": "a", "limits": 7}, ToolRegistry())


def test_plain_functions_become_tools() -> None:
    async def leap(how_far: int) -> str:
        """Leap."""
        return str(how_far)

    assert Agent("a", model="scripted:echo", tools=[leap]).registry.names == ("leap",)


def test_two_tools_with_one_name_are_rejected() -> None:
    with pytest.raises(ConfigError, match="look"):
        Agent("a", model="scripted:echo", tools=[look, look])


def test_placeholders_in_variable_values_are_not_replaced() -> None:
    agent = Agent(
        "a", model="scripted:echo", instructions="{{ctx.x}} and {{ ctx.x }}, not {{other}}"
    )
    prompt = agent.system_prompt(Workspace(variables={"x": "{{ctx.x}}"}))
    assert prompt == "{{ctx.x}} and {{ctx.x}}, not {{other}}"


def test_agent_without_instructions_has_no_prompt() -> None:
    assert Agent("a", model="scripted:echo").system_prompt(Workspace()) is None


def test_model_chain_contains_the_model_and_then_its_fallbacks() -> None:
    assert AGENT.chain == (
        Fallback("scripted:echo"),
        Fallback("q:other"),
        Fallback("r:third", 2),
    )
    assert AGENT.chain[2].retry.max_attempts == 2


def test_model_with_fallbacks_is_tried_once_by_default() -> None:
    assert AGENT.own_retry.max_attempts == 1
    assert Agent("a", model="scripted:echo").own_retry.max_attempts == 3
    often = RetryPolicy(max_attempts=9)
    assert Agent("a", model="scripted:echo", fallbacks=["q:other"], retry=often).own_retry is often


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"model": "gpt-5"}, "'gpt-5' names no provider and model: write provider:name"),
        ({"model": 5}, "takes str as model, not int"),
        ({"fallbacks": ["gpt-5"]}, "'gpt-5' names no provider"),
        ({"temperature": float("nan")}, "from 0 up to 2 or None as temperature, not nan"),
        ({"temperature": 2.5}, r"as temperature, not 2\.5"),
        ({"max_output_tokens": 0}, "from 1 or None as max_output_tokens, not 0"),
        ({"max_cost_microcents": 10**30}, "not one of more than 20 digits"),
        ({"max_agents": -1}, "from 0 as max_agents, not -1"),
        ({"instructions": "a\ud800"}, "as instructions, not text with half of a character pair"),
    ],
)
def test_invalid_agent_values_are_rejected(settings: dict[str, Any], told: str) -> None:
    named: dict[str, Any] = {"model": "scripted:echo", **settings}
    with pytest.raises(WrongArgument, match=told):
        Agent("a", **named)


@pytest.mark.parametrize(
    ("name", "advice"),
    [("instruction", "did you mean 'instructions'?"), ("zzz", "it takes compaction, description")],
)
def test_error_for_an_unknown_agent_parameter_suggests_a_similar_parameter(
    name: str, advice: str
) -> None:
    settings: dict[str, Any] = {name: "Be brief."}
    with pytest.raises(WrongArgument) as caught:
        Agent("a", model="scripted:echo", **settings)
    assert str(caught.value).startswith(f"Agent has no parameter {name!r}; {advice}")
    assert caught.value.argument == name


def test_agent_without_model_is_rejected_with_list_of_choices() -> None:
    with pytest.raises(WrongArgument, match="agent 'helper' needs a model") as refused:
        Agent("helper", instructions="Help.")
    assert refused.value.argument == "model"
    for choice in (*PROVIDERS, "scripted:echo, which works offline"):
        assert choice in str(refused.value)


@pytest.mark.parametrize(
    "made",
    [
        lambda: CompactionSettings(trigger=float("nan")),
        lambda: CompactionSettings(trigger=0),
        lambda: CompactionSettings(keep_recent_tokens=-1),
        lambda: CompactionSettings(summary_tokens=0),
        lambda: CompactionSettings(max_messages=0),
        lambda: Limits(max_turns=2**63),
        lambda: RetryPolicy(cap_s=float("inf")),
        lambda: RetryPolicy(jitter=1.5),
    ],
)
def test_settings_that_a_snapshot_cannot_store_are_rejected(made: Callable[[], object]) -> None:
    with pytest.raises(WrongArgument):
        made()


def test_two_servers_with_one_name_are_rejected() -> None:
    with pytest.raises(ConfigError, match="two MCP servers named 'a'"):
        Agent("x", model="scripted:echo", mcp_servers=[McpServer(name="a", command="true"), "a"])


def test_snapshot_of_a_model_without_a_provider_is_rejected_with_reason() -> None:
    snapshot = {**Agent("a", model="scripted:echo").snapshot(), "model": "gpt-5"}
    with pytest.raises(ConfigError, match="cannot be used any more: 'gpt-5' names no provider"):
        agent_of(snapshot, ToolRegistry(()))


def test_negative_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="max_cost_microcents"):
        Agent("a", model="scripted:echo", max_cost_microcents=-1)


def test_placeholders_in_tool_descriptions_are_replaced() -> None:
    @tool(effect="read", description="Look in {{ctx.place}}.")
    async def seek(where: Annotated[str, "below {{ctx.place}}"]) -> str:
        return where

    agent = Agent("a", model="scripted:echo", tools=[seek])
    filled = agent.tools_in(Workspace(variables={"place": "the {{ctx.place}}"}))
    (declared,) = filled.declarations()
    assert declared.description == "Look in the {{ctx.place}}."
    assert "below the {{ctx.place}}" in str(declared.parameters)
    assert filled.schema_hash("seek") == agent.registry.schema_hash("seek")
    with pytest.raises(ConfigError, match=r"tool 'seek' use {{ctx\.place}}"):
        agent.tools_in(Workspace())


def test_session_permissions_can_be_restricted_and_never_extended() -> None:
    less = AGENT.restrict(allowed_commands=(), scope="sandboxed").permissions
    assert (less.allowed_commands, less.scope) == ((), "sandboxed")
    with pytest.raises(ConfigError, match="wider"):
        AGENT.restrict(scope="full")
    with pytest.raises(ConfigError, match="wider"):
        AGENT.restrict(allowed_commands=["git push"])


@pytest.mark.parametrize("id", ["helper", "a", "a-1", "owner_2", "1"])
def test_kebab_case_and_role_instance_ids_are_valid_agent_ids(id: str) -> None:
    assert Agent(id, model="scripted:echo").id == id


@pytest.mark.parametrize(
    "id", ["", " ", "My Agent!", "Helper", "a_b", "a--b", "-a", "a-", "a/b", "ä", "a\n", "owner_0"]
)
def test_agent_with_an_invalid_id_is_rejected_at_creation(id: str) -> None:
    with pytest.raises(WrongArgument, match="invalid agent id") as refused:
        Agent(id, model="scripted:echo")
    assert refused.value.argument == "id"


def test_agent_without_permissions_is_sandboxed() -> None:
    assert Agent("a", model="scripted:echo").permissions.scope == "sandboxed"


def test_secret_reference_in_instructions_is_not_replaced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent = Agent("helper", model="scripted:echo", instructions="Use {{secrets.KEY}}.")
    assert agent.system_prompt(Workspace()) == "Use {{secrets.KEY}}."
    assert "agent 'helper' contain {{secrets.KEY}}: secrets are never filled in" in caplog.text
