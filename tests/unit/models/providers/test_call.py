"""Calls with impossible model names. Complete calls are tested in tests/conformance."""

from __future__ import annotations

import pytest

from perdure.errors import ModelRefused
from perdure.models.protocol import ModelInfo, ModelRequest
from perdure.models.providers.openai_compatible import OpenAICompatible
from perdure.session.messages import user

NAMELESS = "openrouter:no-vendor"


async def test_call_with_an_invalid_model_name_is_rejected() -> None:
    client = OpenAICompatible(base_url="http://127.0.0.1:9/v1", provider="openrouter")
    assert client.info(NAMELESS) == ModelInfo(NAMELESS)
    with pytest.raises(ModelRefused, match="cannot be sent"):
        await anext(client.stream(ModelRequest(NAMELESS, (user("x"),))))
    await client.aclose()


async def test_unstarted_call_sends_no_request() -> None:
    client = OpenAICompatible(base_url="http://127.0.0.1:9/v1")
    client.stream(ModelRequest("openai:m", (user("x"),)))
    await client.aclose()
