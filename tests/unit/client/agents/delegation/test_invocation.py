"""Agents that invoke agents, in real sessions on a scripted model."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.agents.session_usage import standing_of
from perdure.client.conversation.lineage import children_of
from perdure.client.reads import OpenQuestion
from perdure.errors import TurnFailed
from perdure.session.ids import StreamId
from perdure.session.ledger import ModelFinished, ToolFinished, TurnFinished
from perdure.session.notes import Question, SessionStarted
from perdure.tools.permissions import Permissions
from tests.fakes.players import USED, Act, Hold, Theatre, asks, words

PER_CALL = USED.total_tokens


def invokes(agent: str = "scout", said: str = "look around") -> Act:
    return asks("invoke_agent", json=json.dumps({"agent": agent, "input": said}))


def lead(**settings: Any) -> Agent:
    tools = settings.pop("tools", ("invoke_agent",))
    return Agent("lead", model="p:main", tools=tools, **settings)


def scout(**settings: Any) -> Agent:
    return Agent("scout", model="p:scout", description="Looks.", **settings)


async def only_child(theatre: Theatre, of: str = "s") -> StreamId:
    (child,) = await children_of(theatre.memory, StreamId(of))
    return child.info.id


def result(theatre: Theatre) -> str:
    """Return the result that the parent's model got from its tool."""
    last = [r for r in theatre.players.requests if r.model == "p:main"][-1].messages[-1]
    return str(getattr(last.parts[0], "text", ""))


async def run(theatre: Theatre, runtime: Runtime, said: str = "go") -> str:
    chat = await runtime.start("lead", id="s")
    return (await chat.send(said)).text


async def test_invoked_agent_answers_in_a_separate_session() -> None:
    theatre = Theatre(main=[invokes(), words("so it is")], scout=[words("all quiet")])
    assert await run(theatre, theatre.runtime(lead(), scout())) == "so it is"
    assert result(theatre) == "all quiet"
    child = await only_child(theatre)
    state = await theatre.memory.state(child)
    assert (state.info.origin, state.info.parent) == ("subagent", "s")
    (started,) = await theatre.bodies(SessionStarted, child)
    assert started.invoked_by is not None
    assert (started.invoked_by.session, started.invoked_by.call_id) == ("s", "invoke_agent-0")
    (finished,) = await theatre.bodies(ToolFinished)
    assert finished.delegated is not None
    assert finished.delegated.session == child


async def test_description_of_the_invoke_tool_lists_available_agents() -> None:
    theatre = Theatre(main=[words("ok")])
    await run(theatre, theatre.runtime(lead(), scout()))
    (tool,) = theatre.players.requests[0].tools
    assert "- scout: Looks." in tool.description


async def test_spending_of_an_invoked_agent_counts_in_the_total_of_its_parent() -> None:
    theatre = Theatre(main=[invokes(), words("ok")], scout=[words("a")])
    runtime = theatre.runtime(lead(), scout())
    await run(theatre, runtime)
    standing = await standing_of(theatre.store, "s")
    assert standing.spent.cost_microcents == 3 * PER_CALL
    last = (await theatre.bodies(ModelFinished))[-1]
    assert last.spent is not None
    assert last.spent.cost_microcents == 3 * PER_CALL


async def test_child_gets_at_most_the_remaining_budget_of_its_parent() -> None:
    theatre = Theatre(main=[invokes(), words("ok")], scout=[words("a")])
    parent = lead(max_cost_microcents=20_000, on_exceed="fail")
    await run(theatre, theatre.runtime(parent, scout(max_cost_microcents=90_000)))
    (started,) = await theatre.bodies(SessionStarted, await only_child(theatre))
    assert started.agent is not None
    assert started.agent["max_cost_microcents"] == 20_000 - PER_CALL
    assert started.agent["on_exceed"] == "fail"


async def test_lower_budget_of_an_invoked_agent_is_not_raised() -> None:
    theatre = Theatre(main=[invokes(), words("ok")], scout=[words("a")])
    parent = lead(max_cost_microcents=20_000, on_exceed="fail")
    await run(theatre, theatre.runtime(parent, scout(max_cost_microcents=9_000)))
    (started,) = await theatre.bodies(SessionStarted, await only_child(theatre))
    assert started.agent is not None
    assert started.agent["max_cost_microcents"] == 9_000


async def test_invoked_agent_over_its_budget_returns_no_answer() -> None:
    theatre = Theatre(main=[invokes(), words("then not")])
    parent = lead(max_cost_microcents=20_000, on_exceed="fail")
    await run(theatre, theatre.runtime(parent, scout(max_cost_microcents=10, on_exceed="fail")))
    assert "scout gave no answer" in result(theatre)
    assert theatre.players.called == ["main", "main"]


async def test_invoked_agent_gets_no_tool_or_permission_that_its_parent_lacks() -> None:
    theatre = Theatre(main=[invokes(), words("ok")], scout=[words("a")])
    parent = lead(
        tools=("invoke_agent", "read_file"),
        permissions=Permissions(scope="sandboxed", approval="plan", allowed_commands=("ls",)),
    )
    child = scout(
        tools=("read_file", "write_file"),
        permissions=Permissions(scope="full", approval="auto", allowed_commands=("ls", "rm x")),
    )
    await run(theatre, theatre.runtime(parent, child))
    (started,) = await theatre.bodies(SessionStarted, await only_child(theatre))
    snapshot: Any = started.agent
    assert [tool["name"] for tool in snapshot["tools"]] == ["read_file"]
    assert snapshot["permissions"] == {"approval": "plan", "allowed_commands": ["ls"]}
    assert msgspec.convert(snapshot["permissions"], Permissions).scope == "sandboxed"


async def test_children_of_a_restricted_session_are_also_restricted() -> None:
    theatre = Theatre(main=[invokes(), words("ok")], scout=[words("a")])
    runtime = theatre.runtime(
        lead(tools=("invoke_agent", "read_file", "git_status")),
        scout(tools=("read_file", "git_status")),
    )
    chat = await runtime.start("lead", id="s", tools=["invoke_agent", "git_status"])
    await chat.send("go")
    (started,) = await theatre.bodies(SessionStarted, await only_child(theatre))
    snapshot: Any = started.agent
    assert [tool["name"] for tool in snapshot["tools"]] == ["git_status"]


async def test_unknown_agent_error_lists_the_agents() -> None:
    theatre = Theatre(main=[invokes("nobody"), words("ok")])
    await run(theatre, theatre.runtime(lead(), scout()))
    assert "there is no agent 'nobody'; there are: lead, scout" in result(theatre)


async def test_session_invokes_at_most_the_allowed_number_of_agents() -> None:
    theatre = Theatre(main=[invokes(), invokes(), words("ok")], scout=[words("a"), words("b")])
    await run(theatre, theatre.runtime(lead(max_agents=1), scout()))
    assert "has invoked its 1 agents" in result(theatre)
    assert len(await children_of(theatre.memory, StreamId("s"))) == 1


async def test_invoked_agents_nest_at_most_to_the_limit() -> None:
    deeper = Agent("lead", model="p:main", tools=("invoke_agent",), max_depth=1)
    theatre = Theatre(main=[invokes("lead", "deeper"), words("below"), words("above")])
    await run(theatre, theatre.runtime(deeper))
    assert result(theatre) == "below"
    (below,) = [r for r in theatre.players.requests if r.messages[0].text == "deeper"]
    assert below.tools == ()


async def test_spending_of_grandchildren_counts_in_the_totals_of_all_ancestors() -> None:
    middle = Agent("middle", model="p:middle", tools=("invoke_agent",))
    theatre = Theatre(
        main=[invokes("middle"), words("ok")],
        middle=[invokes("scout"), words("m")],
        scout=[words("s")],
    )
    await run(theatre, theatre.runtime(lead(), middle, scout()))
    assert (await standing_of(theatre.store, "s")).spent.cost_microcents == 5 * PER_CALL
    child = await only_child(theatre)
    assert (await standing_of(theatre.store, child)).spent.cost_microcents == 3 * PER_CALL
    assert len(await children_of(theatre.memory, child)) == 1


async def test_abort_of_a_parent_also_aborts_its_child() -> None:
    hold = Hold()
    theatre = Theatre(main=[invokes()], scout=[asks("nothing"), (hold, *words("never"))])
    chat = await theatre.runtime(lead(), scout()).start("lead", id="s")
    turn = chat.send("go")
    await hold.entered.wait()
    await chat.abort()
    assert (await turn).end == "aborted"
    child = await only_child(theatre)
    assert (await theatre.memory.state(child)).open_turn is None
    assert [body.end for body in await theatre.bodies(TurnFinished, child)] == ["aborted"]
    spent = (await standing_of(theatre.store, "s")).spent.cost_microcents
    assert spent == PER_CALL + (await standing_of(theatre.store, child)).spent.cost_microcents
    assert spent > PER_CALL


async def test_resume_of_a_suspended_parent_continues_the_same_child_session() -> None:
    hold = Hold()
    theatre = Theatre(
        main=[invokes(), words("so it is")],
        scout=[(hold, *words("never")), words("all quiet")],
    )
    chat = await theatre.runtime(lead(), scout()).start("lead", id="s")
    chat.send("go")
    await hold.entered.wait()
    await chat.suspend()
    child = await only_child(theatre)
    assert (await theatre.memory.state(child)).open_turn is not None

    again = await theatre.runtime(lead(), scout()).resume("s")
    assert again.turn is not None
    assert (await again.turn).text == "so it is"
    assert result(theatre) == "all quiet"
    assert await only_child(theatre) == child
    assert (await theatre.memory.state(child)).info.turns == 1
    total = (await standing_of(theatre.store, "s")).spent.cost_microcents
    below = (await standing_of(theatre.store, child)).spent.cost_microcents
    assert total == 2 * PER_CALL + below


async def test_answered_question_of_child_continues_its_turn() -> None:
    theatre = Theatre(
        main=[invokes(), words("done")],
        scout=[asks("write_file", json='{"path": "a", "content": "b"}'), words("not written")],
    )
    tools = ("invoke_agent", "write_file")
    chat = await theatre.runtime(lead(tools=tools), scout(tools=("write_file",))).start(
        "lead", id="s"
    )
    turn = chat.send("go")
    waiting: list[OpenQuestion] = []
    async with asyncio.timeout(60):
        while not waiting:
            await asyncio.sleep(0)  # until the child has asked
            waiting = await theatre.store.questions()
    child = await only_child(theatre)
    assert waiting[0].id.startswith(child)
    assert len(await theatre.bodies(Question, child)) == 1
    await (await theatre.store.open(child)).answer(waiting[0].id, "deny", by="me")
    assert (await turn).text == "done"
    assert result(theatre) == "not written"


async def test_resumed_child_can_spend_only_the_rest_of_the_parent_budget() -> None:
    theatre = Theatre(main=[invokes(), words("ok")], scout=[words("a")])
    parent = lead(max_cost_microcents=9_000, on_exceed="fail")
    runtime = theatre.runtime(parent, scout())
    await run(theatre, runtime)
    child = await runtime.resume(await only_child(theatre))
    assert child.agent.max_cost_microcents == 9_000 - PER_CALL

    async def spend_all() -> None:
        for _ in range(60):
            await child.send("more")

    with pytest.raises(TurnFailed, match="budget_exceeded"):
        await spend_all()
