"""The output schema is only in requests to the providers' own servers."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from perdure.errors import ModelError
from perdure.models.protocol import ModelRequest, ToolDeclaration
from perdure.models.providers.anthropic_messages import AnthropicMessages
from perdure.models.providers.call import WireClient
from perdure.models.providers.google_generative import GoogleGenerative
from perdure.models.providers.openai_compatible import OpenAICompatible
from perdure.models.providers.openai_responses import OpenAIResponses
from perdure.session.messages import user

SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "additionalProperties": False,
    "required": ["city"],
}
TOOL = ToolDeclaration("look", "Looks.", {"type": "object", "properties": {}})


class Unreachable(httpx2.AsyncBaseTransport):
    """A client that stores the bodies of requests and sends none."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.bodies.append(json.loads(await request.aread()))
        raise httpx2.ConnectError("there is no network")


async def body_sent(
    kind: type[WireClient], model: str, base_url: str | None = None, *tools: ToolDeclaration
) -> Any:
    transport = Unreachable()
    client = kind(base_url=base_url, api_key="none", transport=transport)
    request = ModelRequest(model, (user("x"),), tools=tools, output_schema=SCHEMA)
    with pytest.raises(ModelError):
        async for _ in client.stream(request):
            pass
    await client.aclose()
    (body,) = transport.bodies
    return body


async def test_both_openai_clients_send_the_output_schema() -> None:
    body = await body_sent(OpenAICompatible, "openai:gpt-5")
    assert body["response_format"]["json_schema"]["schema"] == SCHEMA
    body = await body_sent(OpenAIResponses, "openai-responses:gpt-5", None, TOOL)
    assert body["text"]["format"]["schema"] == SCHEMA
    assert len(body["tools"]) == 1


async def test_anthropic_gets_schema_only_for_models_that_support_it() -> None:
    body = await body_sent(AnthropicMessages, "anthropic:claude-opus-4-6", None, TOOL)
    assert body["output_config"]["format"]["schema"] == SCHEMA
    assert "output_config" not in await body_sent(AnthropicMessages, "anthropic:claude-3-haiku")


async def test_google_gets_no_schema_if_the_model_rejects_a_schema_with_tools() -> None:
    model = "google:gemini-2.5-flash"
    body = await body_sent(GoogleGenerative, model)
    assert body["generationConfig"]["responseJsonSchema"]["required"] == ["city"]
    assert "responseJsonSchema" not in str(await body_sent(GoogleGenerative, model, None, TOOL))
    body = await body_sent(GoogleGenerative, "google:gemini-3-pro-preview", None, TOOL)
    assert body["generationConfig"]["responseJsonSchema"]["required"] == ["city"]


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        (OpenAICompatible, "ollama:gpt-5"),
        (OpenAIResponses, "proxy:gpt-5"),
        (AnthropicMessages, "proxy:claude-opus-4-6"),
        (GoogleGenerative, "proxy:gemini-2.5-flash"),
    ],
)
async def test_server_without_schema_support_receives_no_schema(
    kind: type[WireClient], model: str
) -> None:
    assert "additionalProperties" not in str(await body_sent(kind, model, "http://127.0.0.1:9"))
