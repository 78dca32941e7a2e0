"""The models a program can use without setting anything up in code: by provider, loaded lazily."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from perdure.errors import ConfigError
from perdure.models.protocol import ModelClient
from perdure.models.routing import REMEDIES, ModelRouter
from perdure.session.clock import Clock

_SCRIPTED = "perdure.models.scripted"
_OPENAI = "perdure.models.providers.openai_compatible"


def default_models(environment: Mapping[str, str], clock: Clock) -> ModelRouter:
    """A client of all models that `environment` gives access to.

    ``scripted:`` works offline; ``openai:`` needs ``OPENAI_API_KEY``, or ``OPENAI_BASE_URL`` for
    another server that speaks its protocol. A provider's library is loaded at its first call.
    """

    def scripted() -> ModelClient:
        return importlib.import_module(_SCRIPTED).ScriptedModel(clock=clock)

    def openai() -> ModelClient:
        return _openai(environment)

    return ModelRouter({}, factories={"scripted": scripted, "openai": openai})


def _openai(environment: Mapping[str, str]) -> ModelClient:
    key, base_url = environment.get("OPENAI_API_KEY"), environment.get("OPENAI_BASE_URL")
    if not key and not base_url:
        raise ConfigError(f"openai models are not set up: {REMEDIES['openai']}")
    try:
        module = importlib.import_module(_OPENAI)
    except ImportError as error:
        raise ConfigError(f"openai models need a package: {REMEDIES['openai']}") from error
    return module.OpenAICompatible(base_url=base_url, api_key=key)
