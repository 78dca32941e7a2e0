"""One client for all models: ``provider:name`` selects the client that serves it.

Clients can be given as objects, or as factories. A factory is called at the first use of its
provider, so that a provider's library is loaded only when it is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Protocol, runtime_checkable

from perdure.errors import ConfigError, ModelError, ModelRefused
from perdure.models.catalogue import PROVIDERS
from perdure.models.prices import Pricing
from perdure.models.protocol import Delta, ModelClient, ModelInfo, ModelRequest
from perdure.session.messages import Usage

Factory = Callable[[], ModelClient]
"""Creates a client, or raises a ConfigError that says what is missing (a package, a key)."""


@runtime_checkable
class Closable(Protocol):
    """A client with open connections."""

    async def aclose(self) -> None:
        """Close the connections."""
        ...


@runtime_checkable
class Preparable(Protocol):
    """A client whose first call of a model imports and builds a lot."""

    def prepare(self, model: str) -> None:
        """Load and build what the first call of `model` needs.

        Do not call this in the thread of an event loop.
        """
        ...


class ModelRouter:
    """A `ModelClient` that passes every call to the client of the model's provider.

    `load` creates clients and prepares models inside the context manager that `loading` returns.
    """

    def __init__(
        self,
        clients: Mapping[str, ModelClient],
        *,
        factories: Mapping[str, Factory] | None = None,
        loading: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._clients = dict(clients)
        self._factories = dict(factories or {})
        self._loading = loading
        self._prepared: set[str] = set()

    @property
    def providers(self) -> tuple[str, ...]:
        """The names of the providers, sorted."""
        return tuple(sorted({*self._clients, *self._factories}))

    def provider_of(self, model: str) -> str:
        """Return the provider of `model`; this call loads no library and needs no key.

        Raises: ConfigError if `model` names no provider or an unknown provider; the error lists the
        known providers.
        """
        provider, colon, name = model.partition(":")
        if not colon or not provider or not name:
            raise ConfigError(
                f"{model!r} names no provider; write provider:name, with one of these providers: "
                f"{', '.join(self.providers)}"
            )
        if provider not in self._clients and provider not in self._factories:
            known = PROVIDERS.get(provider)
            hint = "" if known is None else f"; for {provider}: {known.remedy}"
            names = ", ".join(self.providers)
            raise ConfigError(f"unknown model provider {provider!r}; available: {names}{hint}")
        return provider

    def client_for(self, model: str) -> ModelClient:
        """Return the client that serves `model`.

        Raises: the same errors as `provider_of`; ConfigError if the provider is not set up.
        """
        provider = self.provider_of(model)
        client = self._clients.get(provider)
        if client is None:
            client = self._clients.setdefault(provider, self._factories[provider]())
        return client

    async def load(self, models: Iterable[str]) -> None:
        """Create the clients that serve `models`.

        The clients are created in a thread, because loading a library takes seconds. If a provider
        is not set up, `load` raises no error, but each model call that needs the provider fails.
        """
        for model in models:
            if model not in self._prepared:
                self._prepared.add(model)
                with suppress(ConfigError):
                    await asyncio.to_thread(self._prepare, model)

    def _prepare(self, model: str) -> None:
        with self._loading():
            client = self.client_for(model)
            if isinstance(client, Preparable):
                client.prepare(model)

    def info(self, model: str) -> ModelInfo:
        try:
            return self.client_for(model).info(model)
        except ConfigError:
            return ModelInfo(model)

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        try:
            return self.client_for(request.model).stream(request)
        except ConfigError as error:
            # In a turn, a model can be unusable in this way, too: an imported session may name a
            # provider that is not set up here.
            return _failing(ModelRefused(request.model, str(error)))

    def cost_microcents(self, model: str, usage: Usage) -> int | None:
        """Return the cost of `usage` of `model` in its client's price list; None if unknown."""
        try:
            client = self.client_for(model)
        except ConfigError:
            return None
        return client.cost_microcents(model, usage) if isinstance(client, Pricing) else None

    async def renew(self, provider: str) -> None:
        """Create a new client of `provider` at the next call, so that a changed key applies."""
        if provider not in self._factories:
            return
        client = self._clients.pop(provider, None)
        if isinstance(client, Closable):
            await client.aclose()

    async def aclose(self) -> None:
        """Close every client that can be closed, even if it was not created by this router."""
        for client in self._clients.values():
            if isinstance(client, Closable):
                await client.aclose()


async def _failing(error: ModelError) -> AsyncIterator[Delta]:
    nothing: tuple[Delta, ...] = ()
    for delta in nothing:
        yield delta
    raise error
