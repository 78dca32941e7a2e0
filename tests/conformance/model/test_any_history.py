"""Every wire format turns any log into a request that its service accepts."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.context.build import build_context
from perdure.models.protocol import ModelRequest, ThinkingLevel
from perdure.session.messages import Message, user
from tests.fakes.model_backends import HTTP_BACKENDS
from tests.fakes.plans import Plan
from tests.fakes.random_logs import PICTURE, random_logs
from tests.fakes.tree_log import TreeLog

FORMATS = ("openai-compatible", "openai-responses", "anthropic", "google")
LEAVES = 4
LEVELS: tuple[ThinkingLevel, ...] = ("off", "high")


def histories(log: TreeLog) -> list[tuple[Message, ...]]:
    """Return the messages of each request in which the user continues from a recent entry."""
    found: list[tuple[Message, ...]] = []
    for leaf in list(log.by_id)[-LEAVES:]:
        prompted = TreeLog("prompted", origin=log)
        prompted.undone = log.undone
        prompted.append(user("go on"), parent=leaf)
        context = build_context(prompted.window())
        found.append(tuple(each.message for each in context.messages))
    return found


async def refused(name: str, log: TreeLog, level: ThinkingLevel) -> list[list[str]]:
    """Return the service's errors for the requests made from `log`."""
    async with HTTP_BACKENDS[name]() as backend:
        client = backend.client(Plan(text="yes"))
        media = {PICTURE.handle: b"\x89PNG"}
        for messages in histories(log):
            request = ModelRequest(backend.model, messages, thinking_level=level, media=media)
            async for _ in client.stream(request):
                pass
        return backend.server.refused


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=max(2, settings().max_examples // 16), deadline=None)
@given(log=random_logs(), level=st.sampled_from(LEVELS))
def test_providers_accept_requests_built_from_any_log(
    name: str, log: TreeLog, level: ThinkingLevel
) -> None:
    assert asyncio.run(refused(name, log, level)) == []
