"""Construction and properties of the client. Model calls are tested in tests/conformance."""

from __future__ import annotations

import pytest

from perdure.errors import ConfigError
from perdure.models.protocol import ModelInfo
from perdure.models.providers.openai_responses import OpenAIResponses
from tests.fakes.wires import KEY


def test_openai_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    # Only the caller reads the environment: a key found there would be sent unexpectedly.
    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-the-environment")
    with pytest.raises(ConfigError, match="openai-responses needs a key: set OPENAI_API_KEY"):
        OpenAIResponses()


async def test_known_models_have_context_windows() -> None:
    client = OpenAIResponses(api_key=KEY)
    known = "openai-responses:gpt-4o"
    assert client.info(known) == ModelInfo(known, 128_000)
    await client.aclose()


async def test_context_window_of_a_custom_server_can_be_set() -> None:
    client = OpenAIResponses(base_url="http://127.0.0.1:9/v1", context_window=32_000)
    assert client.info("openai-responses:my-model").context_window == 32_000
    await client.aclose()
