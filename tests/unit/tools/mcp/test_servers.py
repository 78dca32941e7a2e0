"""MCP server configurations: valid configurations, and those rejected before a server starts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.errors import ConfigError, SecretPasted, WrongArgument
from perdure.tools.mcp.servers import McpServer

HOME = "http://127.0.0.1:8000/mcp"


@pytest.mark.parametrize(
    "settings",
    [
        {"command": "uvx", "args": ("a-server",), "env": {"TOKEN": "{{secrets.TOKEN}}"}},
        {
            "url": "https://a.example/mcp",
            "headers": {"Authorization": "Bearer {{secrets.X}}"},
        },
        {"url": HOME, "allow_local_endpoint": True},
        {"url": "http://box.local:9/mcp", "allow_local_endpoint": True},
        {"url": "https://10.0.0.7/mcp", "allow_local_endpoint": True},
    ],
)
def test_server_needs_command_or_url(settings: dict[str, Any]) -> None:
    server = McpServer(name="a", **settings)
    assert server.is_remote == ("url" in settings)
    assert server.prefix == "mcp_a_"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "either a command or a url"),
        ({"command": "x", "url": "https://a.example/mcp"}, "either a command or a url"),
        ({"command": " "}, "empty"),
        ({"command": "x", "args": ("a\0b",)}, "NUL"),
        ({"command": "x", "env": {"A B": "1"}}, "no environment variable"),
        ({"command": "x", "env": {"API_TOKEN": "hunter22"}}, "refers to a secret"),
        ({"command": "x", "headers": {"A": "b"}}, "for a url"),
        ({"command": "x", "allow_local_endpoint": True}, "for a url"),
        ({"command": "x", "tools_allowlist": ()}, "tools_allowlist is empty"),
        ({"command": "x", "working_dir": " "}, "no folder"),
        ({"url": "https://a.example/mcp", "headers": {"A B": "1"}}, "is no header"),
        ({"url": "https://a.example/mcp", "headers": {"A": "1\r\nB: 2"}}, "is no header"),
        ({"url": "http://a.example/mcp"}, "only https"),
        ({"url": "http://a.example/mcp", "allow_local_endpoint": True}, "only https"),
        ({"url": HOME}, "only https"),
        ({"url": "https://127.0.0.1/mcp"}, "allow_local_endpoint"),
        ({"url": "https://[::1]/mcp"}, "allow_local_endpoint"),
        ({"url": "https://169.254.169.254/mcp"}, "allow_local_endpoint"),
        ({"url": "https://u@a.example/mcp"}, "user name"),
        ({"url": "file:///etc/passwd"}, "cannot be used"),
        ({"url": "https://a.example/mcp", "env": {"A": "b"}}, "for a command"),
        ({"url": "https://a.example/mcp", "headers": {"X-Api-Key": "hunter22"}}, "to a secret"),
    ],
)
def test_invalid_or_unsafe_server_settings_are_rejected(
    settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        McpServer(name="a", **settings)


@pytest.mark.parametrize("seconds", [0, -1, 86_401, float("nan"), float("inf"), 10**400, True])
@pytest.mark.parametrize("setting", ["timeout_s", "connect_timeout_s"])
def test_timeouts_are_positive_and_at_most_a_day(setting: str, seconds: float) -> None:
    settings: dict[str, Any] = {setting: seconds}
    with pytest.raises(WrongArgument, match=f"above 0 up to 86,400 as {setting}"):
        McpServer(name="a", command="x", **settings)


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"command": " "}, "command"),
        ({"command": "x", "env": {"API_TOKEN": "hunter22"}}, "env"),
        ({"command": "x", "args": ("ghp_" + "a1B2" * 10,)}, "args"),
        ({"command": "x", "headers": {"A": "b"}}, "headers"),
        ({"url": "file:///etc/passwd"}, "url"),
        ({"url": "https://a.example/mcp", "working_dir": "x"}, "working_dir"),
    ],
)
def test_error_for_invalid_server_settings_mentions_the_setting(
    settings: dict[str, Any], setting: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        McpServer(name="a", **settings)
    assert refused.value.argument == setting


@pytest.mark.parametrize("name", ["", "-a", "a b", "a" * 33, "ä", "a/b"])
def test_server_name_must_be_short_and_plain(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot name an MCP server"):
        McpServer(name=name, command="x")


def test_pasted_credential_is_rejected_and_not_shown() -> None:
    key = "ghp_" + "a1B2" * 10
    pasted: list[dict[str, Any]] = [
        {"command": "x", "args": (key,)},
        {"command": "x", "env": {"ANYTHING": key}},
        {"url": f"https://a.example/mcp?x={key}"},
        {"url": "https://a.example/mcp", "headers": {"Authorization": f"Bearer {key}"}},
    ]
    for settings in pasted:
        with pytest.raises((SecretPasted, ConfigError)) as refused:
            McpServer(name="a", **settings)
        assert key not in str(refused.value)


def test_mcp_server_keys_in_files_equal_the_field_names() -> None:
    filed = {"name": "a", "command": "x", "args": ["y"], "tools_allowlist": ["t"]}
    assert msgspec.convert(filed, McpServer) == McpServer(
        name="a", command="x", args=("y",), tools_allowlist=("t",)
    )
    with pytest.raises(msgspec.ValidationError, match="comand"):
        msgspec.convert({"name": "a", "comand": "x"}, McpServer)
