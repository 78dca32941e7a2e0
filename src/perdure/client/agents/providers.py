"""The default models of a program: selected by provider, loaded at first use.

The address, the key and the package of a provider are looked up when its models are first used.
`provider_states` reports the address, the key and the package of every provider without loading any
provider.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from functools import partial
from typing import Literal

import msgspec

from perdure.errors import ConfigError
from perdure.models.catalogue import PROVIDERS, Provider, Wire
from perdure.models.keys import find_key
from perdure.models.protocol import ModelClient
from perdure.models.router import Factory, ModelRouter
from perdure.secrets.vault import Lookup, in_keyring
from perdure.session.clock import Clock
from perdure.stores.access.collector import collector_paused_to_load

_SCRIPTED = "perdure.models.scripted"
_CLIENTS: Mapping[Wire, tuple[str, str]] = {
    "openai_chat": ("perdure.models.providers.openai_compatible", "OpenAICompatible"),
    "openai_responses": ("perdure.models.providers.openai_responses", "OpenAIResponses"),
    "anthropic": ("perdure.models.providers.anthropic_messages", "AnthropicMessages"),
    "google": ("perdure.models.providers.google_generative", "GoogleGenerative"),
}
"""For each wire format: the module and the name of its client."""

Readiness = Literal[
    "configured", "default address", "missing key", "missing package", "unusable key"
]
"""Whether a provider can be used, or why it cannot.

``default address`` means that nothing was configured, so a local server at its usual address is
used. ``unusable key`` means that the key file cannot be read, or that other users can read it.
"""


class ProviderState(msgspec.Struct, frozen=True):
    """How a provider is set up. `key` names the source of the provider's key, or is None."""

    name: str
    title: str
    status: Readiness
    address: str
    key: str | None
    remedy: str


def default_models(
    environment: Mapping[str, str], clock: Clock, *, keyring: Lookup = in_keyring
) -> ModelRouter:
    """Return a client of all models that `environment` and `keyring` give access to.

    ``scripted:`` works offline; all other providers are listed in `models.catalogue`. At the first
    call of a provider, its library is loaded and its key is looked up.
    """

    def scripted() -> ModelClient:
        return importlib.import_module(_SCRIPTED).ScriptedModel(clock=clock, reads_files=True)

    factories: dict[str, Factory] = {
        name: partial(_client, provider, environment, keyring)
        for name, provider in PROVIDERS.items()
    }
    factories["scripted"] = scripted
    return ModelRouter({}, factories=factories, loading=collector_paused_to_load)


def provider_states(
    environment: Mapping[str, str], *, keyring: Lookup = in_keyring
) -> tuple[ProviderState, ...]:
    """Return how every provider is set up, in the order of the catalogue. Makes no request."""
    offline = ProviderState("scripted", "Scripted (offline)", "configured", "offline", None, "")
    found = [state_of(each, environment, keyring=keyring) for each in PROVIDERS.values()]
    return (offline, *found)


def state_of(
    provider: Provider, environment: Mapping[str, str], *, keyring: Lookup = in_keyring
) -> ProviderState:
    """Return how `provider` is set up; the state reports a key file that cannot be used."""
    address = provider.address(environment)
    try:
        key = find_key(provider, environment, keyring)
    except ConfigError as error:
        name, title = provider.name, provider.title
        return ProviderState(name, title, "unusable key", address, None, str(error))
    status: Readiness = "configured"
    if not _is_installed(provider.package):
        status = "missing package"
    elif key is None and provider.wants_key(address):
        status = "missing key"
    elif key is None and address == provider.default_url:
        status = "default address"
    source = key.source if key is not None else None
    remedy = _remedy(provider, status, has_key=key is not None)
    return ProviderState(provider.name, provider.title, status, address, source, remedy)


def _remedy(provider: Provider, status: Readiness, *, has_key: bool = False) -> str:
    if status == "missing package":
        return provider.install if has_key else provider.remedy
    if status == "missing key":
        return f"set {provider.key_variables[0]}, or keep the key in the keyring"
    return ""


def _client(provider: Provider, environment: Mapping[str, str], keyring: Lookup) -> ModelClient:
    address = provider.address(environment)
    key = find_key(provider, environment, keyring)
    if key is None and provider.wants_key(address):
        if not _is_installed(provider.package):
            raise ConfigError(f"{provider.name} models are not set up: {provider.remedy}")
        raise ConfigError(
            f"{provider.name} models are not set up: {_remedy(provider, 'missing key')} "
            f"({provider.url_variables[0]} for another server that speaks its protocol)"
        )
    module, name = _CLIENTS[provider.wire]
    try:
        make = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ConfigError(f"{provider.name} models need a package: {provider.install}") from error
    found = key.value if key else None
    client: ModelClient = make(base_url=address, api_key=found, provider=provider.name)
    return client


def _is_installed(package: str) -> bool:
    """Whether `package` and its library are installed; neither is loaded."""
    for name in ("pydantic_ai", package):
        try:
            if importlib.util.find_spec(name) is None:
                return False
        except ImportError:  # of the package around it
            return False
    return True
