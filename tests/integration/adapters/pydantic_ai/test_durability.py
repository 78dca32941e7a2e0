"""Durable runs: each call runs once despite kills. A failed call follows its policy."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import perdure
from perdure.adapters.pydantic_ai import DurableRun, PerdureDurability
from perdure.adapters.pydantic_ai.runs import OnUnknown, RunTakenOver
from perdure.errors import WrongArgument
from tests.fakes.forked import run_forked
from tests.integration.adapters.pydantic_ai.children import runner

COMMITS = 1 + 2 * 4
"""Commits of the whole run: the session; intent and outcome of two model calls and two tools."""


def times(folder: Path, name: str) -> int:
    file = folder / name
    return len(file.read_text()) if file.exists() else 0


@pytest.mark.full_only
async def test_run_continues_after_kill_at_any_commit(tmp_path: Path) -> None:
    done = run_forked(runner.run_and_die, str(tmp_path), COMMITS)
    assert done.out.decode().split() == ["0", *["-9"] * COMMITS], done.err
    assert await runner.run(tmp_path / "0", 0) == "a b"
    assert [times(tmp_path / "0", name) for name in ("model", "a", "b")] == [2, 1, 1]
    for dies_at in range(1, COMMITS + 1):
        folder = tmp_path / str(dies_at)
        answer = await runner.run(folder, 0)
        assert times(folder, "a") <= 1  # never beyond its policy
        assert times(folder, "b") in (1, 2)
        assert answer == "a b" or (times(folder, "a") <= 1 and "outcome is unknown" in answer)
        assert await runner.run(folder, 0) == answer
        async with perdure.open(f"sqlite:///{folder / 's.db'}") as store:
            assert (await store.verify()).is_ok


def caller(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    last = messages[-1].parts[-1]
    if last.part_kind == "tool-return":
        return ModelResponse(parts=[TextPart(str(last.content))])
    return ModelResponse(parts=[ToolCallPart("send", {}, tool_call_id="c1")])


class Sender:
    """An agent whose tool fails when it is called for the first time."""

    def __init__(self, on_unknown: OnUnknown) -> None:
        self.calls = 0
        self.agent = Agent(
            FunctionModel(caller),
            name="sender",
            output_type=[str, DeferredToolRequests],
            capabilities=[PerdureDurability(on_unknown=on_unknown)],
        )
        self.agent.tool_plain(self.send)

    def send(self) -> str:
        self.calls += 1
        if self.calls == 1:
            raise ConnectionError("the line broke")
        return "sent"


async def test_failed_tool_call_follows_its_policy_when_the_run_continues() -> None:
    async with perdure.open("memory:") as store:
        expected = {"never": "The call failed: ConnectionError: the line broke", "retry": "sent"}
        for policy in ("never", "retry", "ask"):
            sender = Sender(policy)
            with pytest.raises(ConnectionError):
                async with DurableRun(policy, store):
                    await sender.agent.run("Go")
            async with DurableRun(policy, store):
                output = (await sender.agent.run("Go")).output
            assert sender.calls == (2 if policy == "retry" else 1)
            if policy == "ask":
                assert isinstance(output, DeferredToolRequests)
                assert [call.tool_call_id for call in output.approvals] == ["c1"]
            else:
                assert output == expected[policy]


async def test_repeated_run_stores_its_conversation_once() -> None:
    async with perdure.open("memory:") as store:
        sender = Sender("retry")
        sender.calls = 1
        for _ in range(2):
            async with DurableRun("job", store):
                await sender.agent.run("Go")
        session = await store.open("pai-run:job")
        said = [(message.role, message.text) for message in await session.messages()]
        assert said == [("user", "Go"), ("assistant", ""), ("tool", "sent"), ("assistant", "sent")]


async def test_run_stops_with_an_error_if_another_process_continues_it() -> None:
    async with perdure.open("memory:") as store:
        sender = Sender("retry")
        async with DurableRun("job", store):
            session = await store.open("pai-run:job")
            await session.note(perdure.Note("of.another.process"))
            with pytest.raises(RunTakenOver, match="another process continues"):
                await sender.agent.run("Go")
        assert sender.calls == 0


async def test_agent_outside_of_a_durable_run_stores_nothing() -> None:
    async with perdure.open("memory:") as store:
        sender = Sender("never")
        sender.calls = 1
        assert (await sender.agent.run("Go")).output == "sent"
        assert await store.recent(scope="all") == []


def test_unknown_policy_and_empty_id_are_rejected() -> None:
    with pytest.raises(WrongArgument, match="on_unknown"):
        PerdureDurability(on_unknown="maybe")  # pyright: ignore[reportArgumentType] - the test
    with pytest.raises(UserError, match="name"):
        Agent(FunctionModel(caller), capabilities=[PerdureDurability()])
