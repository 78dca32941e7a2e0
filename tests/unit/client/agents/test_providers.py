"""The models that are available without configuration in code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from perdure.client.agents.providers import default_models, provider_states
from perdure.errors import ConfigError
from perdure.models.catalogue import PROVIDERS
from perdure.models.keys import key_file, write_key_file
from perdure.models.router import ModelRouter
from tests.fakes.clock import ManualClock

SECRET = "sk-test-0123456789abcdef"
MODULES = {
    "openai": "openai_compatible",
    "openai-responses": "openai_responses",
    "anthropic": "anthropic_messages",
    "google": "google_generative",
}
CLIENTS = {
    "openai": "OpenAICompatible",
    "openai-responses": "OpenAIResponses",
    "anthropic": "AnthropicMessages",
    "google": "GoogleGenerative",
    "openrouter": "OpenAICompatible",
}
KEYS = {
    "openai": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "google": "GEMINI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
}


def nothing(name: str) -> None:
    """A keyring without keys."""


def models(environment: dict[str, str] | None = None) -> ModelRouter:
    return default_models(environment or {}, ManualClock(), keyring=nothing)


def test_scripted_model_is_always_available() -> None:
    router = models()
    assert router.providers == tuple(sorted({"scripted", *PROVIDERS}))
    assert type(router.client_for("scripted:echo")).__name__ == "ScriptedModel"


@pytest.mark.parametrize("provider", KEYS)
async def test_error_for_a_provider_without_a_key_mentions_the_variable_to_set(
    provider: str,
) -> None:
    with pytest.raises(ConfigError, match=KEYS[provider]):
        models().client_for(f"{provider}:a/b")


@pytest.mark.parametrize("provider", KEYS)
async def test_key_in_the_environment_is_sufficient_for_a_provider(provider: str) -> None:
    router = models({KEYS[provider]: SECRET})
    client = router.client_for(f"{provider}:a/b")
    assert type(client).__name__ == CLIENTS[provider]
    assert SECRET not in repr(client)
    await router.aclose()


async def test_key_in_the_keyring_is_sufficient_for_a_provider() -> None:
    router = default_models({}, ManualClock(), keyring={"anthropic": SECRET}.get)
    assert type(router.client_for("anthropic:x")).__name__ == "AnthropicMessages"
    await router.aclose()


@pytest.mark.parametrize("provider", KEYS)
async def test_private_server_address_needs_no_key(provider: str) -> None:
    variable = PROVIDERS[provider].url_variables[0]
    router = models({variable: "http://127.0.0.1:1/v1"})
    assert type(router.client_for(f"{provider}:a/b")).__name__ == CLIENTS[provider]
    await router.aclose()


@pytest.mark.parametrize("provider", ["ollama", "vllm", "llamacpp", "lmstudio"])
async def test_local_servers_are_available_without_configuration(provider: str) -> None:
    router = models()
    assert type(router.client_for(f"{provider}:x")).__name__ == "OpenAICompatible"
    await router.aclose()


@pytest.mark.parametrize("provider", MODULES)
def test_missing_package_is_reported_with_its_extra(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, f"perdure.models.providers.{MODULES[provider]}", None)
    with pytest.raises(ConfigError, match=r"pip install 'perdure\[") as refused:
        models({KEYS[provider]: SECRET}).client_for(f"{provider}:x")
    assert KEYS[provider] not in str(refused.value)  # it is set


def test_list_of_provider_states_has_available_and_missing_providers() -> None:
    environment = {"OPENAI_API_KEY": SECRET, "OLLAMA_BASE_URL": "http://big:1/v1"}
    keyring = {"anthropic": SECRET}.get
    found = {state.name: state for state in provider_states(environment, keyring=keyring)}
    assert list(found) == ["scripted", *PROVIDERS]
    assert (found["openai"].status, found["openai"].key) == ("configured", "OPENAI_API_KEY")
    assert (found["anthropic"].status, found["anthropic"].key) == ("configured", "keyring")
    assert (found["google"].status, found["google"].key) == ("missing key", None)
    assert found["google"].remedy == "set GEMINI_API_KEY, or keep the key in the keyring"
    assert (found["ollama"].status, found["ollama"].address) == ("configured", "http://big:1/v1")
    assert found["vllm"].status == "default address"
    assert SECRET not in repr(found)


@pytest.mark.skipif(sys.platform == "win32", reason="files have no mode there")
def test_key_file_that_other_users_can_read_is_not_used(tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path), "OPENAI_API_KEY": SECRET}
    file = key_file(PROVIDERS["google"], environment)
    write_key_file(file, SECRET)
    file.chmod(0o640)
    found = {state.name: state for state in provider_states(environment, keyring=nothing)}
    assert (found["google"].status, found["google"].key) == ("unusable key", None)
    assert f"chmod 600 {file}" in found["google"].remedy
    assert found["openai"].status == "configured"
    assert SECRET not in repr(found)


def test_missing_package_is_reported_before_a_missing_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType] - any name
    offline, *states = provider_states({}, keyring=nothing)
    assert offline.status == "configured"
    assert {state.status for state in states} == {"missing package"}
    assert "pip install 'perdure[anthropic]'" in states[2].remedy
    assert "set ANTHROPIC_API_KEY" in states[2].remedy
    _, _, _, anthropic, *_ = provider_states({"ANTHROPIC_API_KEY": SECRET}, keyring=nothing)
    assert anthropic.remedy == PROVIDERS["anthropic"].install


def test_reading_provider_states_loads_no_provider_library() -> None:
    program = (
        "import sys; from perdure.client.agents.providers import provider_states;"
        "provider_states({}, keyring=lambda name: None); print(*sys.modules)"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(output.stdout.split())
    assert not loaded & {"pydantic_ai", "openai", "anthropic", "google.genai", "httpx2", "keyring"}
