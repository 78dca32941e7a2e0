"""The table of providers: their addresses, and which addresses need a key."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import WrongArgument
from perdure.models.catalogue import (
    ANTHROPIC_URL,
    PROVIDERS,
    is_model_name,
    require_model_name,
)


def test_catalogue_lists_every_provider_under_its_name() -> None:
    assert {name: provider.name for name, provider in PROVIDERS.items()} == {
        name: name for name in PROVIDERS
    }
    assert list(PROVIDERS) == [
        "openai",
        "openai-responses",
        "anthropic",
        "google",
        "openrouter",
        "ollama",
        "vllm",
        "llamacpp",
        "lmstudio",
    ]


def test_provider_address_comes_from_environment_or_default() -> None:
    anthropic, google = PROVIDERS["anthropic"], PROVIDERS["google"]
    assert anthropic.address({}) == ANTHROPIC_URL
    assert anthropic.address({"ANTHROPIC_BASE_URL": " http://proxy:1 "}) == "http://proxy:1"
    assert anthropic.address({"ANTHROPIC_BASE_URL": ""}) == ANTHROPIC_URL
    assert google.address({"GOOGLE_GEMINI_BASE_URL": "http://b"}) == "http://b"


@pytest.mark.parametrize(
    "name", ["openai", "openai-responses", "anthropic", "google", "openrouter"]
)
def test_key_is_required_only_at_the_default_address(name: str) -> None:
    provider = PROVIDERS[name]
    assert provider.wants_key(provider.default_url + "/")
    assert not provider.wants_key("http://localhost:1/v1")


@pytest.mark.parametrize("name", ["ollama", "vllm", "llamacpp", "lmstudio"])
def test_private_servers_need_no_key(name: str) -> None:
    provider = PROVIDERS[name]
    assert provider.default_url.startswith("http://localhost:")
    assert not provider.wants_key(provider.default_url)


def test_remedy_for_a_missing_provider_mentions_its_package_and_its_variable() -> None:
    assert PROVIDERS["google"].remedy == (
        "pip install 'perdure[google]' (from a clone: '.[google]') and set GEMINI_API_KEY "
        "(GEMINI_BASE_URL for another server that speaks its protocol)"
    )
    assert "http://localhost:11434/v1" in PROVIDERS["ollama"].remedy


def test_guide_lists_every_provider_with_its_variables() -> None:
    guide = Path(__file__).resolve().parents[3] / "docs" / "guides" / "models.md"
    text = guide.read_text(encoding="utf-8")
    rows = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}
    for provider in PROVIDERS.values():
        row = rows[provider.name]
        names = (provider.extra, *provider.key_variables, *provider.url_variables)
        assert [name for name in names if f"`{name}`" not in row] == []
        if not provider.needs_key:
            assert provider.default_url in row


@pytest.mark.parametrize("name", ["scripted:echo", "ollama:qwen3:8b", "a:b c", "openrouter:x/y"])
def test_model_name_contains_its_provider(name: str) -> None:
    assert is_model_name(name)
    require_model_name(name)


@pytest.mark.parametrize("name", ["", " ", "gpt-5", "opnai:", ":gpt-5", "a b:c"])
def test_model_name_without_provider_is_rejected_with_remedy(name: str) -> None:
    assert not is_model_name(name)
    with pytest.raises(WrongArgument, match="write provider:name, such as") as refused:
        require_model_name(name, "fallbacks")
    assert refused.value.argument == "fallbacks"


@pytest.mark.parametrize("name", ["openai", "openai:", "openai: "])
def test_error_for_a_missing_model_name_shows_the_expected_form(name: str) -> None:
    assert not is_model_name(name)
    told = f"^{name!r} names a provider, but no model of it: write openai:NAME$"
    with pytest.raises(WrongArgument, match=told) as refused:
        require_model_name(name)
    assert refused.value.argument == "model"
