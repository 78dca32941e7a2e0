"""Comparison of a followed window with the window that a new read of the log returns."""

from __future__ import annotations

from perdure.context.incremental.conversation import conversation_of
from perdure.context.incremental.prompt import Prompt, prompt_of
from perdure.engine.windows import FollowedWindow, pinned_window
from perdure.session.ids import StreamId
from perdure.stores.protocol import LogReader


async def assert_followed(
    followed: FollowedWindow, log: LogReader, stream: StreamId, budget_tokens: int = 5
) -> None:
    """Check that `followed` gives the same leaf and prompts as a new read of `stream`."""
    leaf = (await log.state(stream)).leaf
    window = await pinned_window(log, stream, leaf)
    assert await followed.settings() == window.state
    read, found = conversation_of(window), await followed.now()
    for budget in (None, budget_tokens):
        asked = prompt_of(read, budget_tokens=budget)
        assert facts(prompt_of(found, budget_tokens=budget)) == facts(asked)
    assert (found.leaf, found.state, found.pins) == (window.leaf, window.state, window.pins)
    assert followed.leaf == window.leaf


def facts(prompt: Prompt) -> tuple[object, ...]:
    """Return the fields of a request that tests compare."""
    return (prompt.messages, prompt.tokens, prompt.dropped, prompt.size, prompt.handles)
