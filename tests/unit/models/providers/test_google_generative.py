"""Construction and properties of the client. Model calls are tested in tests/conformance."""

from __future__ import annotations

import pytest

from perdure.errors import ConfigError
from perdure.models.protocol import ModelInfo
from perdure.models.providers.google_generative import GoogleGenerative
from tests.fakes.google_server import MODEL, google_server
from tests.fakes.wires import KEY, Wire


def test_google_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    # Only the caller reads the environment: a key found there would be sent unexpectedly.
    monkeypatch.setenv("GOOGLE_API_KEY", "from-the-environment")
    with pytest.raises(ConfigError, match="set GEMINI_API_KEY"):
        GoogleGenerative()


async def test_provider_client_ignores_environment_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "from-the-environment")
    monkeypatch.setenv("GEMINI_API_KEY", "from-the-environment")
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:9/from-the-environment")
    async with google_server() as server:
        client = GoogleGenerative(base_url=server.url, api_key=KEY)
        await Wire(client, server, MODEL).answer()
        await client.aclose()
    assert server.requests[0].headers["x-goog-api-key"] == KEY
    assert "from-the-environment" not in str(server.requests[0])


async def test_known_models_have_context_windows() -> None:
    client = GoogleGenerative(api_key=KEY)
    assert client.info("google:gemini-2.5-flash").context_window in (1_000_000, 1_048_576)
    assert client.info("google:nobody-knows") == ModelInfo("google:nobody-knows")
    await client.aclose()


async def test_context_window_of_a_custom_server_can_be_set() -> None:
    client = GoogleGenerative(base_url="http://127.0.0.1:9", context_window=32_000)
    assert client.info("google:my-model").context_window == 32_000
    await client.aclose()


async def test_connect_timeout_is_not_changed_by_the_stream_idle_timeout() -> None:
    async with google_server() as server:
        client = GoogleGenerative(
            base_url=server.url, api_key=KEY, connect_timeout_s=60.5, stream_idle_timeout_s=500.0
        )
        limits: list[object] = []

        async def look(request: object) -> None:
            limits.append(dict(vars(request)["extensions"]["timeout"]))

        client._http.event_hooks["request"].append(look)  # pyright: ignore[reportPrivateUsage] - what is sent cannot be seen from outside
        await Wire(client, server, MODEL).answer()
        await client.aclose()
    assert limits == [{"connect": 60.5, "read": 60.0, "write": 600.0, "pool": 600.0}]
