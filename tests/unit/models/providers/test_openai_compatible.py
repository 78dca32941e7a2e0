"""Construction and properties of the client. Model calls are tested in tests/conformance."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from perdure.errors import ConfigError
from perdure.models.protocol import ModelInfo, ModelRequest, ThinkingLevel
from perdure.models.providers.openai_compatible import OpenAICompatible
from perdure.models.router import ModelRouter
from perdure.session.messages import user
from tests.fakes.openai_server import openai_server


@pytest.fixture
async def client() -> AsyncIterator[OpenAICompatible]:
    made = OpenAICompatible(api_key="sk-none")
    yield made
    await made.aclose()


@pytest.mark.parametrize("url", [None, "https://api.openai.com/v1", "https://api.openai.com/v1/"])
def test_openai_needs_a_key(url: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    # Only the caller reads the environment: a key found there would be sent unexpectedly.
    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-the-environment")
    with pytest.raises(ConfigError, match="set OPENAI_API_KEY"):
        OpenAICompatible(base_url=url)


async def test_private_server_needs_no_key() -> None:
    await OpenAICompatible(base_url="http://127.0.0.1:9/v1").aclose()


async def test_known_models_have_context_windows(client: OpenAICompatible) -> None:
    assert client.info("openai:gpt-4o") == ModelInfo("openai:gpt-4o", 128_000)
    assert client.info("openai:nobody-knows") == ModelInfo("openai:nobody-knows")


async def test_context_window_can_be_set() -> None:
    client = OpenAICompatible(base_url="http://127.0.0.1:9/v1", context_window=32_000)
    assert client.info("openai:my-model").context_window == 32_000
    await client.aclose()


@pytest.mark.parametrize(
    ("model", "level", "is_kept"),
    [
        ("gpt-4o", "off", True),
        ("gpt-5", "off", False),
        ("gpt-5", "high", False),
        ("gpt-5.1", "off", True),
        ("gpt-5.1", "low", False),
        ("nobody-knows", "high", True),
    ],
)
async def test_request_to_reasoning_model_has_no_temperature(
    model: str, level: ThinkingLevel, is_kept: bool
) -> None:
    async with openai_server() as server:
        client = OpenAICompatible(base_url=server.url, api_key="sk-none")
        request = ModelRequest(
            f"openai:{model}", (user("x"),), temperature=0.5, thinking_level=level
        )
        async for _ in client.stream(request):
            pass
        await client.aclose()
    assert ("temperature" in server.requests[0].body) is is_kept


async def test_router_creates_client_on_first_use() -> None:
    router = ModelRouter(
        {}, factories={"openai": lambda: OpenAICompatible(base_url="http://127.0.0.1:9/v1")}
    )
    assert isinstance(router.client_for("openai:x"), OpenAICompatible)
    await router.aclose()
