"""The components of an agent of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.apps.wiring import builtin_tools, chat_agent, models, scenario_in
from perdure.errors import ConfigError
from perdure.tools.decorator import tool
from perdure.tools.permissions import Permissions


def test_tool_that_does_more_than_read_needs_approval() -> None:
    everything = Permissions(
        allowed_commands=("ls",), allowed_domains=("a.com",), search_endpoint="https://a.com"
    )
    for spec in builtin_tools(everything):
        assert spec.effect == "read" or spec.action is not None


def test_agent_without_permissions_has_no_command_or_network_tools() -> None:
    names = {spec.name for spec in builtin_tools(Permissions())}
    assert names.isdisjoint({"run_command", "http_request", "web_search"})
    allowed = chat_agent(permissions=Permissions(allowed_command_globs=("ls *",)))
    assert "run_command" in allowed.registry.names


def test_default_chat_agent_is_offline() -> None:
    assert chat_agent().model == "scripted:echo"
    assert chat_agent("openai:x").model == "openai:x"


def test_chat_agent_can_get_additional_tools() -> None:
    @tool(effect="write")
    def note(text: str) -> str:
        """Note it."""
        return text

    assert chat_agent(tools=[note]).registry.names[-1] == "note"


async def test_scripted_scenario_replaces_all_models(tmp_path: Path) -> None:
    file = tmp_path / "trip.yaml"
    file.write_text("sequence:\n  - text: Hello\n", encoding="utf-8")
    router = models(scenario_in(file))
    assert router.providers == ("scripted",)
    await router.aclose()


def test_missing_scenario_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no scenario"):
        scenario_in(tmp_path / "none.yaml")


def test_missing_provider_setup_is_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        models().client_for("openai:gpt")
