"""A process that makes its first model call, to the provider in its argument.

The process prints the modules that the call loads, and "full-collection" for each full garbage
collection during the load of the provider."""

from __future__ import annotations

import asyncio
import gc
import os
import sys

import perdure
from perdure.client.agents.providers import default_models
from perdure.models.catalogue import PROVIDERS
from perdure.models.protocol import ModelRequest
from tests.fakes import anthropic_server, google_server, openai_server, responses_server
from tests.fakes.clock import ManualClock
from tests.fakes.model_server import streaming
from tests.fakes.plans import Plan

SERVERS = {
    "openai": (openai_server.openai_server, openai_server.events),
    "openai-responses": (responses_server.responses_server, responses_server.events),
    "anthropic": (anthropic_server.anthropic_server, anthropic_server.events),
    "google": (google_server.google_server, google_server.events),
}


def note_full_collection(phase: str, info: dict[str, int]) -> None:
    if phase == "start" and info["generation"] == 2:
        sys.stdout.write("full-collection ")


async def main(provider: str) -> None:
    serving, events = SERVERS[provider]
    async with serving() as server:
        server.will(streaming(events(Plan(text="some words"))))
        environment = {**os.environ, PROVIDERS[provider].url_variables[0]: server.url}
        models = default_models(environment, ManualClock(), keyring=lambda _: None)
        model = f"{provider}:some-model"
        gc.callbacks.append(note_full_collection)
        await models.load([model])
        gc.callbacks.remove(note_full_collection)
        request = ModelRequest(model, (perdure.user("hello"),))
        before = set(sys.modules)
        deltas = [delta async for delta in models.stream(request)]
        assert any(getattr(delta, "text", "") for delta in deltas)
        assert len(server.requests) == 1  # the rehearsal sent none
        sys.stdout.write(" ".join(sorted(set(sys.modules) - before)))
        await models.aclose()


asyncio.run(main(sys.argv[1]))
