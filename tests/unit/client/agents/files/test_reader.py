from pathlib import Path

import pytest

from perdure.bounds.limits import InputLimits
from perdure.client.agents.agent import Agent, Fallback
from perdure.client.agents.files.reader import agent_in, agent_of_text
from perdure.client.conversation.workspace import Workspace
from perdure.context.build import History
from perdure.engine.turns.config import CompactionSettings, Limits
from perdure.errors import ConfigError, InvalidAgentFile
from perdure.models.retry import RetryPolicy
from perdure.tools.mcp.servers import McpServer
from perdure.tools.permissions import Permissions
from tests.fakes.samples import case

HEAD = "id: helper\nmodel: scripted:echo\nsystem_prompt: You help.\n"


def faults_of(text: str) -> tuple[str, ...]:
    with pytest.raises(InvalidAgentFile) as caught:
        agent_of_text(text)
    return caught.value.faults


def test_agent_keys_of_a_workflow_document_become_agent_settings() -> None:
    agent = agent_of_text(
        "id: helper\nname: The helper\ndescription: It helps.\nmodel: gemini-x\nprovider: gemini\n"
        "system_prompt: You help.\ntemperature: 0.5\nmax_tokens: 900\nreasoning_effort: max\n"
        "tools: [read_file]\nmemory: none\n"
        "retry: {max: 2, backoff: linear, backoff_ms: 250}\n"
        "fallback_chain:\n  - {model: m, provider: openai, max_attempts: 2}\n"
    )
    assert agent == Agent(
        "helper",
        name="The helper",
        description="It helps.",
        model="google:gemini-x",
        instructions="You help.",
        temperature=0.5,
        max_output_tokens=900,
        thinking_level="max",
        tools=["read_file"],
        compaction=CompactionSettings(is_enabled=False),
        retry=RetryPolicy(max_attempts=2, first_wait_s=0.25, growth="linear"),
        fallbacks=[Fallback("openai:m", 2)],
    )


def test_agent_keys_specific_to_perdure_are_read() -> None:
    history: History = "text_only"
    agent = agent_of_text(
        HEAD + "budget: {max_cost_microcents: 5, on_exceed: fail}\nlimits: {max_turns: 3}\n"
        "permissions: {scope: sandboxed, allowed_commands: [pytest -q], approval: plan}\n"
        "compaction: {keep_recent_tokens: 10}\ndelegation: {max_agents: 2, max_depth: 0}\n"
        "on_interrupt: continue\nqueue_mode: all\nrestart_on_cut: true\nhistory: text_only\n"
        "on_pasted: refuse\nquestion_expires_s: 3600\n"
    )
    assert agent == Agent(
        "helper",
        model="scripted:echo",
        instructions="You help.",
        max_cost_microcents=5,
        on_exceed="fail",
        limits=Limits(max_turns=3),
        permissions=Permissions(
            scope="sandboxed", allowed_commands=("pytest -q",), approval="plan"
        ),
        compaction=CompactionSettings(keep_recent_tokens=10),
        max_agents=2,
        max_depth=0,
        on_interrupt="continue",
        queue_mode="all",
        restart_on_cut=True,
        history=history,
        on_pasted="refuse",
        question_expires_s=3600,
    )


def test_model_without_a_provider_is_rejected() -> None:
    for key in ("", "provider:\n"):
        with pytest.raises(InvalidAgentFile, match="'ls' names no provider"):
            agent_of_text(f"id: t\nmodel: ls\nsystem_prompt: x\n{key}")


def test_unsupported_key_is_reported_with_its_line() -> None:
    for text, fault in [
        ("temperature: 3\n", "line 4: 3 is more than 2"),
        ("tools: [nothing]\n", "line 4: there is no built-in tool 'nothing'"),
        ("instructions: x\n", "line 4: 'instructions' is unknown here"),
        ("input_schema: {}\n", "line 4: 'input_schema': perdure checks no input"),
        ("output_schema: {}\n", "line 4: 'output_schema': perdure checks no output"),
        ("memory: {type: window}\n", "line 4: memory 'window' needs window_size"),
        ("memory: window\n", "line 4: memory 'window' needs its size"),
        (
            'memory: {embedder: "static:models"}\n',
            "line 4: the folder of the embedder 'static:models' is not",
        ),
        ("memory: {embedder: words}\n", "line 4: 'words' names no embedder"),
        ("memory: {window_size: 4}\n", "line 4: window_size needs memory type 'window'"),
        ("memory:\n  type: none\n  window_size: 4\n", "line 6: window_size needs memory type"),
        ("memory: {type: all}\n", "line 4: 'all' is not one of none, summary, window"),
        (
            "memory: {type: window, window_size: 4}\ncompaction: {max_messages: 5}\n",
            "line 4: window_size and compaction.max_messages disagree",
        ),
        ("retry:\n  max: 2\n  retry_on: [rate_limit]\n", "line 6: 'retry_on': which errors"),
        ("provider: nobody\n", "line 2: there is no provider 'nobody'"),
        ("fallback_chain: [{model: m}]\n", "line 4: 'm' names no provider: write"),
        ("fallback_chain:\n  - {model: a:b}\n  - {model: 'openai:'}\n", "line 6: 'openai:' names"),
        ("tools:\n", "line 4: expected a list"),
        ("mcp_servers:\n  - {name: a, command: x}\n  - a\n", "line 5: agent 'helper' has two MCP"),
        ("permissions:\n  scope: all\n", "line 5: 'all' is not one of"),
        (
            "permissions:\n  command_timeout_s: 900\n",
            "line 5: 900 is more than 120 (command_timeout_s)",
        ),
        ("permissions: {allowed_domains: ['a b']}\n", "line 4: 'a b' is no domain"),
        (
            "permissions:\n  scope: full\n  allowed_commands:\n    - ls\n    - a | b\n",
            "line 8: 'a | b' is no rule for commands",
        ),
        (
            "permissions:\n  scope: full\n  command_env:\n    A: b\n    PATH: /bin\n",
            "line 8: commands may not be given $PATH",
        ),
        (
            "permissions:\n  allowed_domains: [a.org]\n  credentials:\n    b.org: x\n",
            "line 7: there is a credential for b.org, which is no allowed domain",
        ),
        (
            "permissions:\n  scope: full\n  search_endpoint: 'http://10.0.0.1'\n",
            "line 6: search_endpoint cannot be used",
        ),
        (
            "memory: none\ncompaction: {is_enabled: true}\n",
            "line 4: memory and compaction.is_enabled disagree",
        ),
    ]:
        with case((text, fault)):
            assert any(found.startswith(fault) for found in faults_of(HEAD + text)), faults_of(
                HEAD + text
            )


@pytest.mark.parametrize(
    ("memory", "compaction"),
    [
        ("none", CompactionSettings(is_enabled=False)),
        ("{type: none}", CompactionSettings(is_enabled=False)),
        ("summary", CompactionSettings()),
        ("{type: summary}", CompactionSettings()),
        (
            "{type: window, window_size: 40}",
            CompactionSettings(is_enabled=False, max_messages=40),
        ),
    ],
)
def test_memory_setting_is_accepted_as_text_or_as_mapping(
    memory: str, compaction: CompactionSettings
) -> None:
    assert agent_of_text(f"{HEAD}memory: {memory}\n").compaction == compaction


def test_mcp_servers_are_defined_in_full_or_by_name() -> None:
    agent = agent_of_text(
        HEAD + "mcp_servers:\n  - weather\n  - ref: tides\n"
        "  - {name: files, command: mcp-files, args: [--ro], tools_allowlist: [read]}\n"
    )
    files = McpServer(name="files", command="mcp-files", args=("--ro",), tools_allowlist=("read",))
    assert agent.mcp_servers == ("weather", "tides", files)
    text = HEAD + "mcp_servers:\n  - {name: files}\n  - {name: x, url: 'http://10.0.0.1'}\n"
    faults = faults_of(text)
    assert faults[0].startswith("line 5: the MCP server 'files': give it either a command or a url")
    assert faults[1].startswith("line 6: the MCP server 'x': its url cannot be used")


def test_all_errors_of_agent_file_are_reported() -> None:
    assert [fault.partition(":")[0] for fault in faults_of("id: A b\nmodel: x\nfoo: 1\n")] == [
        "line 1",
        "line 1",  # without system_prompt
        "line 2",
        "line 3",
    ]
    for text, lines in [
        ("temperature: 3\ntools: [nothing]\n", [4, 5]),
        ("tools:\n  - nothing\n  - read_file\n  - 3\n  - never\n", [5, 7, 8]),
        ("provider: nobody\ntools: [nothing]\nfallback_chain: [{model: m}]\n", [2, 5, 6]),
        ("provider: 3\ntools: [nothing]\n", [4, 5]),
        ("mcp_servers: [a, a]\ntools: [read_file, read_file, nothing]\n", [4, 5, 5]),
        ("memory: none\ncompaction: {is_enabled: true}\ntools: [nothing]\n", [4, 6]),
        (
            "fallback_chain:\n  - {model: m}\n  - {modl: x}\n  - {model: 'openai:'}\n",
            [5, 6, 6, 7],
        ),
        (
            (
                "permissions:\n  allowed_commands:\n    - a | b\n    - ls\n    - c | d\n"
                "  command_env:\n    PATH: /bin\n    A: b\n    HOME: /\n"
                "  search_endpoint: 'http://10.0.0.1'\n"
            ),
            [6, 8, 10, 12, 13],
        ),
        ("permissions:\n  scope: all\n  allowed_commands: [a | b]\ntools: [nothing]\n", [5, 6, 7]),
        ("recurring:\n  - {cron: '* *', message: ' ', timezone: Nowhere}\ntools: [x]\n", [5, 6]),
    ]:
        with case(text):
            found = [
                int(fault.split(":")[0].removeprefix("line ")) for fault in faults_of(HEAD + text)
            ]
            assert found == lines, faults_of(HEAD + text)


def test_agent_file_error_caused_by_another_error_is_not_reported() -> None:
    for text, fault in [
        ("memory: {type: all, window_size: 4}\n", "line 4: 'all' is not one of"),
        (
            "mcp_servers: [{name: a, url: 'http://10.0.0.1'}]\n",
            "line 4: the MCP server 'a': its url",
        ),
        ("mcp_servers: [{name: a, command: 3}]\n", "line 4: expected text"),
        ("compaction: {is_enabled: 3}\nmemory: none\n", "line 4: expected true or false"),
    ]:
        with case(text):
            (found,) = faults_of(HEAD + text)
            assert found.startswith(fault)


def test_number_of_errors_reported_for_one_mapping_is_limited() -> None:
    rules = "".join(f"    - a | {number}\n" for number in range(50))
    assert len(faults_of(f"{HEAD}permissions:\n  allowed_commands:\n{rules}")) == 20


@pytest.mark.parametrize("blank", ['""', '"  "', '" \\n"'])
def test_blank_system_prompt_means_no_instructions(blank: str) -> None:
    agent = agent_of_text(HEAD.replace("You help.", blank))
    assert agent.system_prompt(Workspace()) is None


@pytest.mark.parametrize("text", ["", "- 1\n", "a: [", "just text"])
def test_agent_file_must_be_a_mapping(text: str) -> None:
    assert faults_of(text)


def test_credential_anywhere_in_an_agent_file_is_rejected_but_not_quoted() -> None:
    key = "sk-ant-" + "api03-" + "a" * 90
    for text in (
        HEAD + f"description: {key}\n",
        f"# {key}\n{HEAD}",
        HEAD + f"temperature: {key}\n",
    ):
        faults = faults_of(text)
        assert any("credential" in fault for fault in faults)
        assert key not in "".join(faults)


def test_reference_to_a_secret_is_not_masked() -> None:
    text = HEAD + (
        "permissions:\n  allowed_domains: [api.example.org]\n"
        '  credentials: {api.example.org: "Bearer {{secrets.API}}"}\n'
    )
    assert agent_of_text(text).permissions.credentials == {
        "api.example.org": "Bearer {{secrets.API}}"
    }


def test_agent_file_is_read_or_rejected_with_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "helper.agent.yaml"
    with pytest.raises(ConfigError, match="cannot be read"):
        agent_in(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidAgentFile, match=r"helper\.agent\.yaml:1: it is not UTF-8"):
        agent_in(file)
    file.write_bytes(b"#" * (InputLimits().document_bytes + 1))
    with pytest.raises(ConfigError, match=r"limits.document_bytes"):
        agent_in(file)
    file.write_text(HEAD)
    assert agent_in(file).id == "helper"
