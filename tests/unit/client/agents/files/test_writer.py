from typing import get_args

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from perdure.client.agents.agent import Agent, Fallback
from perdure.client.agents.files.reader import agent_of_text
from perdure.client.agents.files.writer import agent_text
from perdure.engine.turns.config import CompactionSettings, Limits, OnExceed
from perdure.errors import ConfigError
from perdure.models.protocol import ThinkingLevel
from perdure.models.retry import RetryPolicy
from perdure.secrets.pasted_keys import credentials_in
from perdure.session.ledger import InterruptPolicy
from perdure.tools.mcp.servers import McpServer
from perdure.tools.permissions import SCOPES, Permissions

words = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Zs")), max_size=40)
agents = st.builds(
    Agent,
    id=st.from_regex(r"[a-z0-9]+(-[a-z0-9]+)*", fullmatch=True).filter(lambda id: len(id) <= 100),
    name=st.none() | words.filter(bool),
    model=st.sampled_from(["scripted:echo", "openai:gpt", "ollama:qwen:7b"]),
    instructions=words | st.sampled_from(["a\nb\n", "#no", "- x", "yes", "a: b", "\ttab", " s "]),
    thinking_level=st.sampled_from(get_args(ThinkingLevel)),
    temperature=st.none() | st.floats(0, 2),
    max_output_tokens=st.none() | st.integers(1, 10**6),
    tools=st.sets(st.sampled_from(["read_file", "write_file", "git_status"])),
    fallbacks=st.lists(
        st.builds(Fallback, st.sampled_from(["openai:a", "google:b"]), st.integers(1, 5)),
        max_size=2,
    ),
    retry=st.none()
    | st.builds(
        RetryPolicy,
        max_attempts=st.integers(1, 9),
        first_wait_s=st.integers(0, 10**5).map(lambda ms: ms / 1000),
        growth=st.sampled_from(["exponential", "linear"]),
    ),
    limits=st.builds(Limits, max_turns=st.integers(1, 99)),
    compaction=st.builds(CompactionSettings, is_enabled=st.booleans()),
    max_cost_microcents=st.integers(0, 10**12),
    on_exceed=st.sampled_from(get_args(OnExceed)),
    on_interrupt=st.sampled_from(get_args(InterruptPolicy)),
    permissions=st.builds(
        Permissions,
        scope=st.sampled_from(SCOPES),
        allowed_commands=st.sampled_from([(), ("pytest -q",), ("git status", "ls")]),
    ),
    mcp_servers=st.sampled_from(
        [(), ("weather",), (McpServer(name="f", command="mcp-f", args=("-x",), timeout_s=3.0),)]
    ),
    max_agents=st.integers(1, 20),
    max_depth=st.integers(0, 5),
    question_expires_s=st.sampled_from([None, 0.5, 2_592_000.0]),
    first_byte_timeout_s=st.sampled_from([None, 0.5, 120.0]),
    stream_idle_timeout_s=st.sampled_from([None, 1.5, 86_400.0]),
)


@pytest.mark.full_only
@given(agents)
@settings(max_examples=max(12, settings().max_examples // 4), deadline=None)
def test_agent_file_written_and_read_back_has_same_agent_and_bytes(agent: Agent) -> None:
    try:
        text = agent_text(agent)
    except ConfigError:  # an id of random letters sometimes looks like a key
        assert any(credentials_in(agent.id))
        reject()
    assert agent_of_text(text) == agent
    assert agent_text(agent_of_text(text)) == text


def test_agent_text_with_a_credential_is_rejected() -> None:
    agent = Agent("sk-0-0-0-0-0-0-0-0-0-00", model="scripted:echo")
    with pytest.raises(ConfigError, match=r"a credential \(openai-key\)") as refused:
        agent_text(agent)
    assert agent.id not in str(refused.value)


def test_agent_with_a_function_as_tool_cannot_be_written_to_a_file() -> None:
    def own(x: int) -> str:
        """Do it."""
        return str(x)

    with pytest.raises(ConfigError, match="own"):
        agent_text(Agent("a", model="scripted:echo", tools=[own]))
