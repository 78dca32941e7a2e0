"""Which models there are without setting anything up in code."""

from __future__ import annotations

import sys

import pytest

from perdure.client.agents.providers import default_models
from perdure.errors import ConfigError
from tests.fakes.clock import ManualClock


def test_the_scripted_model_is_always_there() -> None:
    models = default_models({}, ManualClock())
    assert models.providers == ("openai", "scripted")
    assert type(models.client_for("scripted:echo")).__name__ == "ScriptedModel"


def test_openai_without_a_key_or_a_server_says_what_to_set() -> None:
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        default_models({}, ManualClock()).client_for("openai:gpt-5")


def test_openai_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "perdure.models.providers.openai_compatible", None)
    with pytest.raises(ConfigError, match="pip install"):
        default_models({"OPENAI_API_KEY": "k"}, ManualClock()).client_for("openai:gpt-5")


@pytest.mark.parametrize(
    "settings", [{"OPENAI_API_KEY": "k"}, {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}]
)
def test_openai_needs_a_key_or_a_server(settings: dict[str, str]) -> None:
    client = default_models(settings, ManualClock()).client_for("openai:gpt-5")
    assert type(client).__name__ == "OpenAICompatible"
