from __future__ import annotations

import msgspec
import pytest

from perdure.client.agents.agent import Agent, AgentSettings, Fallback
from perdure.client.agents.files.document import AgentFile
from perdure.client.agents.files.reader import agent_of_text
from perdure.engine.turns.config import CompactionSettings, Limits
from perdure.interop.reports import Dialect
from perdure.interop.workflow_export.agents import DEFAULTS, NO_AGENT, agent_of, agent_slug
from perdure.models.retry import RetryPolicy
from perdure.tools.permissions import Permissions
from perdure.workflow.reader import AGENT_KEYS
from perdure.yaml.writer import yaml_of

WHOLE = Agent(
    "helper",
    name="Helper",
    description="Helps.",
    model="google:gemini-x",
    instructions="Be brief.",
    thinking_level="xhigh",
    max_output_tokens=100,
    temperature=0.5,
    tools=("read_file",),
    fallbacks=("openai:gpt-5", Fallback("anthropic:claude", 2)),
    retry=RetryPolicy(4, 1.5, 3.0, 20.0, 0.1, "linear"),
    max_cost_microcents=100_000_000,
    on_exceed="fail",
    limits=Limits(max_turns=3),
    compaction=CompactionSettings(keep_recent_tokens=5_000),
    on_interrupt="continue",
    queue_mode="all",
    restart_on_cut=True,
    history="text_only",
    on_pasted="refuse",
    max_agents=2,
    question_expires_s=60.0,
    first_byte_timeout_s=5.0,
    stream_idle_timeout_s=6.0,
)


def stored(agent: Agent) -> dict[str, object]:
    """Return the snapshot of `agent` as read from a log."""
    return msgspec.json.decode(msgspec.json.encode(agent.snapshot()))


def test_agent_with_every_setting_is_exported_and_read_back_unchanged() -> None:
    exported = agent_of(stored(WHOLE))
    assert exported.lost == ()
    assert set(exported.definition) <= set(AGENT_KEYS)
    assert agent_of_text(yaml_of(exported.definition)) == WHOLE


def test_agent_settings_that_cannot_be_exported_are_reported() -> None:
    agent = msgspec.structs.replace(
        WHOLE, permissions=Permissions(scope="full"), mcp_servers=("maps",)
    )
    snapshot = {**stored(agent), "mcp_servers": [{"name": "maps"}], "later": 1}
    assert agent_of(snapshot).lost == ("permissions", "mcp_servers", "later")


def test_relavium_export_reports_each_unsupported_setting() -> None:
    exported = agent_of(stored(WHOLE), "relavium")
    assert exported.lost == (
        *("limits", "compaction", "on_interrupt", "queue_mode", "restart_on_cut", "history"),
        *("on_pasted", "question_expires_s", "first_byte_timeout_s", "stream_idle_timeout_s"),
        *("budget", "delegation"),
        *("reasoning_effort 'xhigh' (written as 'high')",),
        *("retry.cap_ms", "retry.factor", "retry.jitter"),
    )
    assert exported.definition == {
        "id": "helper",
        "name": "Helper",
        "description": "Helps.",
        "model": "gemini-x",
        "provider": "gemini",
        "system_prompt": "Be brief.",
        "temperature": 0.5,
        "max_tokens": 100,
        "reasoning_effort": "high",
        "tools": ["read_file"],
        "retry": {"max": 4, "backoff": "linear", "backoff_ms": 1500.0},
        "fallback_chain": [
            {"model": "gpt-5", "provider": "openai", "max_attempts": 1},
            {"model": "claude", "provider": "anthropic", "max_attempts": 2},
        ],
    }


def test_workflow_export_and_agent_class_have_the_same_defaults() -> None:
    snapshot = stored(Agent("plain", model="scripted:echo"))
    for name, value in DEFAULTS.items():
        assert snapshot.get(name, value) == value
    exported = agent_of(snapshot)
    assert exported.lost == ()
    assert set(exported.definition) == {
        *("id", "model", "provider", "system_prompt", "reasoning_effort"),
    }


def test_every_agent_setting_except_permissions_is_exported() -> None:
    missing = set(AgentFile.__struct_fields__) - set(AGENT_KEYS)
    assert missing == {"permissions", "recurring"}  # a session does not store what starts it
    assert "permissions" in AgentSettings.__struct_fields__
    assert "recurring" not in AgentSettings.__struct_fields__


def test_invalid_agent_id_is_changed_and_reported() -> None:
    exported = agent_of({"id": "Mein Helfer", "model": "scripted:echo"})
    assert exported.definition["id"] == "mein-helfer"
    assert exported.lost == ("id 'Mein Helfer' (written as 'mein-helfer')",)


def test_agent_without_settings_is_exported_with_empty_fields() -> None:
    agent = agent_of({"name": "x"}).definition
    assert agent == {"id": "x", "name": "x", "model": "", "provider": "", "system_prompt": ""}
    assert agent_slug(None) == agent_slug({}) == NO_AGENT


def test_model_without_provider_is_exported_with_an_empty_provider() -> None:
    agent = agent_of({"id": "x", "model": "gpt-5", "fallbacks": [{"model": "gpt-4"}]}).definition
    assert (agent["model"], agent["provider"]) == ("gpt-5", "")
    assert agent["fallback_chain"] == [{"model": "gpt-4", "provider": "", "max_attempts": 1}]


@pytest.mark.parametrize("dialect", ["perdure", "relavium"])
def test_unreadable_settings_are_reported_and_omitted(dialect: Dialect) -> None:
    nested: object = "x"
    for _ in range(200):
        nested = {"a": nested}
    hostile: dict[str, object] = {
        "id": "x",
        "model": ["m"],
        "instructions": {"a": 1},
        "fallbacks": [{"model": 7}],
        "retry": {"max_attempts": "many"},
        "limits": nested,
        "compaction": [nested],
        "tools": nested,
        "max_cost_microcents": nested,
    }
    exported = agent_of(hostile, dialect)
    assert set(exported.definition) == {"id", "model", "provider", "system_prompt"}
    assert {"limits", "retry", "fallback_chain", "budget", "tools"} <= set(exported.lost)
    yaml_of(exported.definition)
