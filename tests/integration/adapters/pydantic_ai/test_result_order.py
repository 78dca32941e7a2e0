"""Each result of parallel calls stays with its call, in the order of the calls, despite kills."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelMessage

import perdure
from perdure.adapters.pydantic_ai import PerdureConversationStore
from tests.fakes.forked import run_forked
from tests.fakes.provider_rules import all_problems
from tests.integration.adapters.pydantic_ai.children.side_by_side import (
    IDS,
    agent_of,
    results_in,
    run,
    run_and_die,
)

COMMITS = 1 + 2 * (2 + len(IDS))
"""Commits of the whole run: the session; intent and outcome of two model calls and each tool."""
RESULTS = [(id, f"saw {id}") for id in IDS]
ANSWER = "c0: saw c0 c1: saw c1 c2: saw c2"


async def check_session(store: perdure.Store, id: str) -> None:
    """Check that the context is valid for all providers and has the results in order."""
    session = await store.open(id)
    messages = [each.message for each in (await session.context()).messages]
    assert all_problems(messages) == []
    parts = [part for message in messages for part in message.parts]
    results = [part for part in parts if isinstance(part, perdure.ToolResultPart)]
    assert [(part.call_id, part.text) for part in results] == RESULTS
    assert messages[-1].text == ANSWER


def calls_in(messages: list[ModelMessage]) -> list[str]:
    parts = [part for message in messages for part in message.parts]
    return [part.tool_call_id for part in parts if part.part_kind == "tool-call"]


@pytest.mark.all_only
async def test_tool_results_after_any_kill_are_in_the_order_of_their_calls(tmp_path: Path) -> None:
    done = run_forked(run_and_die, str(tmp_path), COMMITS)
    assert done.out.decode().split() == ["0", *["-9"] * COMMITS], done.err
    for dies_at in range(COMMITS + 1):
        output, messages = await run(tmp_path / str(dies_at), 0)
        assert output == ANSWER
        assert calls_in(messages) == list(IDS)
        assert results_in(messages) == RESULTS
        async with perdure.open(f"sqlite:///{tmp_path / str(dies_at) / 's.db'}") as store:
            assert (await store.verify()).is_ok
            await check_session(store, "pai-run:job")


async def test_results_in_a_saved_conversation_are_loaded_in_their_order(
    store_address: str,
) -> None:
    async with perdure.open(store_address) as store:
        agent = agent_of(ends_in_reverse=True)
        conversation = Conversation(conversation_id="c")
        await PerdureConversationStore(store).save(
            await agent.run("go", conversation=conversation), scope="ana"
        )
    async with perdure.open(store_address) as store:
        loaded = await PerdureConversationStore(store).load("c")
        assert loaded is not None
        assert calls_in(loaded.messages) == list(IDS)
        assert results_in(loaded.messages) == RESULTS
        await check_session(store, "pai:c")
        await agent.run("again", conversation=loaded)
        assert results_in(loaded.messages) == RESULTS
