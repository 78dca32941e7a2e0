"""What a call does with names no model can have; whole calls are in tests/conformance."""

from __future__ import annotations

import pytest

from perdure.errors import ModelRefused
from perdure.models.protocol import ModelInfo, ModelRequest
from perdure.models.providers.openai_compatible import OpenAICompatible
from perdure.session.messages import user

NAMELESS = "openrouter:no-vendor"


async def test_a_name_that_no_model_can_have_is_refused_and_nothing_is_known_of_it() -> None:
    client = OpenAICompatible(base_url="http://127.0.0.1:9/v1", provider="openrouter")
    assert client.info(NAMELESS) == ModelInfo(NAMELESS)
    with pytest.raises(ModelRefused, match="cannot be sent"):
        await anext(client.stream(ModelRequest(NAMELESS, (user("x"),))))
    await client.aclose()


async def test_a_call_that_nobody_starts_calls_nobody() -> None:
    client = OpenAICompatible(base_url="http://127.0.0.1:9/v1")
    client.stream(ModelRequest("openai:m", (user("x"),)))
    await client.aclose()
