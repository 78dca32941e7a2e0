"""Permissions of an agent's tools."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.errors import ConfigError, WrongArgument
from perdure.tools.permissions import Permissions

KEY = "sk-ant-" + "a1b2c3d4" * 5


def test_permissions_allow_no_access_by_default() -> None:
    nothing = Permissions()
    assert not nothing.allowed_commands
    assert not nothing.allowed_domains
    assert nothing.approval == "ask"


def test_permissions_are_read_back_unchanged_from_json() -> None:
    given = Permissions(
        allowed_domains=("API.Example.com.",), credentials={"api.example.com": "{{secrets.A}}"}
    )
    assert given.allowed_domains == ("api.example.com",)
    assert msgspec.convert(msgspec.to_builtins(given), Permissions) == given


@pytest.mark.parametrize(
    "wrong",
    [
        {"allowed_commands": ("ls | wc",)},
        {"allowed_commands": ("",)},
        {"allowed_command_globs": ("'",)},
        {"command_env": {"PATH": "/tmp"}},
        {"command_env": {"path": "/tmp"}},
        {"command_env": {"LD_PRELOAD": "x"}},
        {"command_env": {"GIT_SSH_COMMAND": "x"}},
        {"command_env": {"PYTHONPATH": "x"}},
        {"command_env": {"A=B": "x"}},
        {"command_env": {"API": KEY}},
        {"allowed_domains": ("*.example.com",)},
        {"allowed_domains": ("https://example.com",)},
        {"credentials": {"example.com": "{{secrets.A}}"}},
        {"allowed_domains": ("example.com",), "credentials": {"example.com": KEY}},
        {"allowed_domains": ("example.com",), "credentials": {"example.com": "plain"}},
        {"search_endpoint": "http://127.0.0.1:8080/search"},
        {"search_endpoint": "https://user:pw@example.com"},
        {"search_endpoint": "https://example.com", "search_credential": "plain"},
    ],
)
def test_invalid_or_unsafe_permissions_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        Permissions(**wrong)
    assert KEY not in str(refused.value)


def test_command_pattern_in_the_wrong_setting_is_rejected() -> None:
    with pytest.raises(ConfigError, match="put the pattern into allowed_command_globs"):
        Permissions(allowed_commands=("ls **",))
    with pytest.raises(ConfigError) as refused:
        Permissions(allowed_commands=("ls | wc",))
    assert "allowed_command_globs" not in str(refused.value)
    assert Permissions(allowed_commands=("ls '**'",)).allowed_commands == ("ls '**'",)


@pytest.mark.parametrize("seconds", [0, -1, 121, float("nan"), float("inf"), 10**400])
def test_command_timeout_is_positive_and_at_most_two_minutes(seconds: float) -> None:
    with pytest.raises(WrongArgument, match="above 0 up to 120"):
        Permissions(command_timeout_s=seconds)


def test_local_search_engine_is_accepted_if_allowed() -> None:
    endpoint = "http://127.0.0.1:8080/search"
    assert Permissions(search_endpoint=endpoint, is_search_local=True).search_endpoint == endpoint


def test_restriction_to_fewer_permissions_is_accepted() -> None:
    agent = Permissions(
        scope="project",
        allowed_command_globs=("git *",),
        allowed_domains=("a.com", "b.com"),
        credentials={"b.com": "{{secrets.B}}"},
    )
    less = agent.restrict(
        scope="sandboxed", allowed_commands=["git status"], allowed_domains=["a.com"]
    )
    assert less.scope == "sandboxed"
    assert less.allowed_commands == ("git status",)
    assert not less.allowed_command_globs
    assert (less.allowed_domains, less.credentials) == (("a.com",), {})
    assert agent.restrict() == agent


@pytest.mark.parametrize(
    "wider",
    [{"scope": "full"}, {"allowed_commands": ["rm -rf ."]}, {"allowed_domains": ["c.com"]}],
)
def test_restriction_with_additional_permissions_is_rejected(wider: dict[str, Any]) -> None:
    agent = Permissions(allowed_commands=("git status",), allowed_domains=("a.com",))
    with pytest.raises(ConfigError):
        agent.restrict(**wider)
