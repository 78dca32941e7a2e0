from __future__ import annotations

from perdure.interop.workflow_export.agents import NO_AGENT, agent_of, agent_slug
from perdure.workflow.reading import AGENT_KEYS


def test_a_snapshot_becomes_an_agent_of_a_file() -> None:
    snapshot = {
        "id": "Mein Helfer",
        "model": "google:gemini-x",
        "instructions": "Be brief.",
        "thinking_level": "xhigh",
        "max_output_tokens": 100,
        "temperature": 0.5,
        "limits": {"max_turns": 3},
        "tools": [{"name": "read", "schema_hash": "ab"}, {"name": "find"}],
    }
    agent = agent_of(snapshot)
    assert agent == {
        "id": "mein-helfer",
        "model": "gemini-x",
        "provider": "gemini",
        "system_prompt": "Be brief.",
        "reasoning_effort": "high",
        "max_tokens": 100,
        "temperature": 0.5,
        "tools": ["read", "find"],
    }
    assert set(agent) <= set(AGENT_KEYS)


def test_a_snapshot_that_says_little_is_enough() -> None:
    agent = agent_of({"name": "x"})
    assert agent == {"id": "x", "name": "x", "model": "", "provider": "", "system_prompt": ""}
    assert agent_slug(None) == agent_slug({}) == NO_AGENT
