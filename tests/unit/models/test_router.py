"""The router finds the client for the provider of a model, or reports the missing setup."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager

import pytest

from perdure.errors import ConfigError, ModelRefused
from perdure.models.protocol import Delta, ModelInfo, ModelRequest, StreamEnd, TextDelta
from perdure.models.router import ModelRouter
from perdure.session.messages import Usage, user


class NamedClient:
    """A client that answers with its own name and the name of the model."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_closed = False

    def info(self, model: str) -> ModelInfo:
        return ModelInfo(model, context_window=len(self.name))

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        yield TextDelta(f"{self.name} for {request.model}")
        yield StreamEnd("stop")

    async def aclose(self) -> None:
        self.is_closed = True


async def said(router: ModelRouter, model: str) -> str:
    request = ModelRequest(model, (user("x"),))
    deltas = [delta async for delta in router.stream(request)]
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


async def test_router_selects_the_client_by_the_model_prefix() -> None:
    router = ModelRouter({"a": NamedClient("first"), "b": NamedClient("second")})
    assert await said(router, "a:x") == "first for a:x"
    assert await said(router, "b:vendor/model:tag") == "second for b:vendor/model:tag"
    assert router.info("b:x").context_window == 6


async def test_client_factory_is_called_once_on_first_use() -> None:
    made: list[NamedClient] = []

    def factory() -> NamedClient:
        made.append(NamedClient("late"))
        return made[-1]

    router = ModelRouter({"a": NamedClient("ready")}, factories={"b": factory})
    assert router.providers == ("a", "b")
    await said(router, "a:x")
    assert made == []
    await said(router, "b:x")
    await said(router, "b:y")
    assert len(made) == 1


@pytest.mark.parametrize("model", ["gpt-5", "", ":x", "openai:", ":"])
def test_name_without_provider_is_rejected(model: str) -> None:
    with pytest.raises(ConfigError, match=r"provider:name.*scripted"):
        ModelRouter({"scripted": NamedClient("s")}).client_for(model)


def test_unknown_provider_error_lists_known_providers() -> None:
    router = ModelRouter({"scripted": NamedClient("s"), "mine": NamedClient("m")})
    with pytest.raises(
        ConfigError, match=r"unknown model provider 'nobody'; available: mine, scripted$"
    ):
        router.client_for("nobody:x")


def test_provider_of_a_model_is_found_without_loading_a_client() -> None:
    def factory() -> NamedClient:
        raise AssertionError("it is not asked for")

    assert ModelRouter({}, factories={"b": factory}).provider_of("b:vendor/model:tag") == "b"


def test_missing_setup_of_provider_is_explained() -> None:
    with pytest.raises(ConfigError, match=r"perdure\[openai\].*OPENAI_API_KEY"):
        ModelRouter({"scripted": NamedClient("s")}).client_for("openai:gpt-5")


async def test_unusable_model_raises_model_refused() -> None:
    def factory() -> NamedClient:
        raise ConfigError("set SOME_KEY")

    router = ModelRouter({}, factories={"b": factory})
    with pytest.raises(ModelRefused, match=r"^b:x: set SOME_KEY$"):
        await said(router, "b:x")
    with pytest.raises(ModelRefused, match=r"^anthropic:x: unknown model provider"):
        await said(router, "anthropic:x")
    assert router.info("b:x") == ModelInfo("b:x")


async def test_closing_the_router_closes_the_clients_in_use() -> None:
    unused: list[NamedClient] = []
    clients = {"a": NamedClient("a"), "b": NamedClient("b")}
    router = ModelRouter(
        {"a": clients["a"]},
        factories={
            "b": lambda: clients["b"],
            "c": lambda: unused.append(NamedClient("c")) or unused[0],
        },
    )
    await said(router, "b:x")
    await router.aclose()
    assert clients["a"].is_closed
    assert clients["b"].is_closed
    assert unused == []


class PricedClient(NamedClient):
    """A client whose tokens cost one micro-cent each."""

    def cost_microcents(self, model: str, usage: Usage) -> int | None:
        return usage.total_tokens


async def test_prices_come_from_client_of_model_or_are_unknown() -> None:
    router = ModelRouter({"a": PricedClient("one"), "b": NamedClient("two")})
    assert router.cost_microcents("a:x", Usage(3, 4)) == 7
    assert router.cost_microcents("b:x", Usage(3, 4)) is None
    assert router.cost_microcents("nowhere:x", Usage(3, 4)) is None


async def test_renewing_a_provider_replaces_and_closes_its_client() -> None:
    made: list[NamedClient] = []

    def factory() -> NamedClient:
        made.append(NamedClient(f"key {len(made)}"))
        return made[-1]

    router = ModelRouter({"a": NamedClient("given")}, factories={"b": factory})
    assert await said(router, "b:x") == "key 0 for b:x"
    await router.renew("b")
    assert made[0].is_closed
    assert await said(router, "b:x") == "key 1 for b:x"
    await router.renew("a")
    assert await said(router, "a:x") == "given for a:x"


async def test_client_is_loaded_once_on_another_thread() -> None:
    made: list[threading.Thread] = []

    def factory() -> NamedClient:
        made.append(threading.current_thread())
        return NamedClient("made")

    def missing() -> NamedClient:
        raise ConfigError("no key")

    router = ModelRouter({}, factories={"a": factory, "b": missing})
    await router.load(["a:x", "b:x", "nowhere:x", "a:y"])
    await router.load(["a:x"])
    assert len(made) == 1
    assert made[0] is not threading.main_thread()
    assert await said(router, "a:x") == "made for a:x"


async def test_model_client_is_prepared_while_loading() -> None:
    seen: list[str] = []

    class Prepared(NamedClient):
        def prepare(self, model: str) -> None:
            seen.append(f"prepare {model}")

    @contextmanager
    def loading() -> Generator[None]:
        seen.append("begin")
        yield
        seen.append("end")

    router = ModelRouter({}, factories={"a": lambda: Prepared("made")}, loading=loading)
    await router.load(["a:x", "a:x"])
    assert seen == ["begin", "prepare a:x", "end"]
