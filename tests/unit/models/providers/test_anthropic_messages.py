"""Construction and properties of the client. Model calls are tested in tests/conformance."""

from __future__ import annotations

import pytest

from perdure.errors import ConfigError
from perdure.models.protocol import ModelInfo
from perdure.models.providers.anthropic_messages import AnthropicMessages
from tests.fakes.anthropic_server import anthropic_server
from tests.fakes.wires import KEY, Wire

ELSEWHERE = "http://127.0.0.1:9"


def test_anthropic_client_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    # Only the caller reads the environment: a key found there would be sent unexpectedly.
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-from-the-environment")
    with pytest.raises(ConfigError, match="set ANTHROPIC_API_KEY"):
        AnthropicMessages()


async def test_provider_client_ignores_environment_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token-from-the-environment")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-from-the-environment")
    async with anthropic_server() as server:
        client = AnthropicMessages(base_url=server.url, api_key=KEY)
        await Wire(client, server, "anthropic:claude-haiku-4-5").answer()
        await client.aclose()
    assert "from-the-environment" not in str(server.requests[0].headers)


async def test_known_models_have_context_windows() -> None:
    client = AnthropicMessages(api_key=KEY)
    known = "anthropic:claude-haiku-4-5"
    assert client.info(known) == ModelInfo(known, 200_000)
    assert client.info("anthropic:nobody-knows").context_window is None
    await client.aclose()


async def test_context_window_of_a_custom_server_can_be_set() -> None:
    client = AnthropicMessages(base_url=ELSEWHERE, context_window=32_000)
    assert client.info("anthropic:my-model").context_window == 32_000
    await client.aclose()
