"""Sessions are started and resumed under agents."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.conversation.workspace import Selection, Workspace
from perdure.engine.turns.config import Limits
from perdure.errors import (
    AgentNotFound,
    ConfigError,
    LeaseHeld,
    SessionExists,
    SessionNotFound,
    TurnFailed,
    WrongArgument,
)
from perdure.models.protocol import ModelClient
from perdure.models.router import ModelRouter
from perdure.models.scenario import Hang
from perdure.session.codec import body_of
from perdure.session.ids import StreamId
from perdure.session.messages import assistant, user
from perdure.session.notes import AgentBound, SessionStarted
from perdure.tools.decorator import tool
from perdure.tools.spec import ToolCall
from tests.fakes.chats import MODEL, Stage, calls, says, until


@tool(effect="read")
async def look(where: str) -> str:
    """Look somewhere."""
    return f"nothing in {where}"


async def test_started_session_stores_snapshot_of_its_agent() -> None:
    stage = Stage(says("hi"))
    agent = Agent("a", model=MODEL, instructions="Be {{ctx.how}}.", tools=[look])
    place = Workspace(working_dir="/tmp", variables={"how": "kind, {{ctx.how}}"})
    chat = await stage.runtime().start(agent, workspace=place, title="T", metadata={"k": 1})
    entry = await anext(chat.session.entries())
    body = body_of(entry)
    assert isinstance(body, SessionStarted)
    assert body.system_prompt == "Be kind, {{ctx.how}}."
    assert body.agent is not None
    assert body.agent["id"] == "a"
    assert (await chat.session.info()).title == "T"
    assert (await chat.session.info()).cwd == "/tmp"


async def test_search_and_erasure_of_a_subject_include_forks() -> None:
    stage = Stage()
    runtime = stage.runtime(Agent("a", model=MODEL))
    chat = await runtime.start("a", id="s", subject="ana", metadata={"plan": "pro"})
    await runtime.start("a", id="t", subject="bob", metadata={"plan": "pro"})
    info = await chat.session.info()
    assert (info.subject, info.metadata, info.model) == ("ana", {"plan": "pro"}, MODEL)
    copy = await chat.session.fork(id="f")
    assert (await copy.info()).subject == "ana"
    recent = stage.store.recent
    assert {info.id for info in await recent(subject="ana")} == {"s", "f"}
    assert {info.id for info in await recent(metadata={"plan": "pro"})} == {"s", "t"}
    assert await recent(subject="ana", metadata={"plan": "free"}) == []
    certificate = await stage.store.erase(subject="ana")
    assert {each.session for each in certificate.sessions} == {"s", "f"}
    assert [info.id for info in await recent()] == ["t"]


async def test_start_with_an_undefined_variable_fails_and_stores_no_session() -> None:
    stage = Stage()
    with pytest.raises(ConfigError, match=r"uses? \{\{ctx\.who\}\}"):
        await stage.runtime().start(
            Agent("a", model="scripted:echo", instructions="Greet {{ctx.who}}")
        )
    assert await stage.store.recent() == []


async def test_agent_is_selected_by_id() -> None:
    stage = Stage(says("hi"))
    runtime = stage.runtime(Agent("a", model=MODEL), Agent("b", model=MODEL))
    assert (await runtime.start("b")).agent.id == "b"
    with pytest.raises(AgentNotFound, match="there are: a, b"):
        await runtime.start("c")
    with pytest.raises(ConfigError, match="two agents"):
        stage.runtime(Agent("a", model="scripted:echo"), Agent("a", model="scripted:echo"))


@pytest.mark.parametrize("name", ["on_question", "renew_credentials"])
async def test_runtime_constructor_rejects_a_callback_of_a_wrong_signature(name: str) -> None:
    callback: dict[str, Any] = {name: lambda: None}
    with pytest.raises(
        WrongArgument, match=rf"^{name} takes \(\), but it is called with one"
    ) as no:
        Runtime(Stage().store, **callback)
    assert no.value.argument == name


async def test_session_can_restrict_but_not_extend_permissions_of_its_agent() -> None:
    stage = Stage(says("hi"))
    agent = Agent("a", model=MODEL, tools=[look])
    assert (await stage.runtime().start(agent, tools=[])).agent.registry.names == ()
    with pytest.raises(ConfigError, match="no tool"):
        await stage.runtime().start(agent, tools=["look", "leap"])


async def test_session_id_in_use_is_refused() -> None:
    stage = Stage()
    await stage.chat(id="mine")
    with pytest.raises(SessionExists):
        await stage.chat(id="mine")


async def test_resumed_session_gets_its_agent_and_tools_again() -> None:
    stage = Stage(says("one"), says(calls("look", json='{"where": "the drawer"}')), says("two"))
    agent = Agent("a", model=MODEL, instructions="Look.", tools=[look])
    chat = await stage.runtime(agent).start("a", id="s")
    await chat.send("hi")
    changed = Agent("a", model="scripted:echo", instructions="Leap.", tools=[look])
    again = await stage.runtime(changed).resume("s")
    assert (again.agent.instructions, again.agent.model) == ("Look.", MODEL)
    assert (await again.send("go on")).text == "two"
    assert "nothing in the drawer" in [m.text for m in await again.session.messages()]


async def test_tool_that_changed_since_the_start_is_not_available_after_resume() -> None:
    @tool(name="look", effect="read")
    async def look_twice(here: str, there: str) -> str:
        """Look in two places."""
        return here + there

    stage = Stage(says("one"))
    await stage.runtime().start(Agent("a", model=MODEL, tools=[look]), id="s")
    again = await stage.runtime(Agent("a", model=MODEL, tools=[look_twice])).resume("s")
    assert again.agent.registry.names == ()


async def test_imported_session_requires_an_agent_and_records_it_once() -> None:
    stage = Stage(says("unused"), says("I go on."))
    session = await stage.store.create(id="imported", origin="import")
    await session.append(user("before"), assistant("then"))
    agent = Agent("a", model=MODEL)
    for runtime, known in ((stage.runtime(), "none"), (stage.runtime(agent), "a")):
        with pytest.raises(ConfigError, match="name the agent that answers") as refused:
            await runtime.resume("imported")
        assert str(refused.value).endswith(f"this runtime has: {known}")
    chat = await stage.runtime().resume("imported", agent)
    assert (await chat.send("and now?")).text == "I go on."
    assert (await chat.session.info()).turns == 1
    again = await stage.runtime(agent).resume("imported", agent)
    bound = [e async for e in again.session.entries() if isinstance(body_of(e), AgentBound)]
    assert len(bound) == 1


async def test_imported_session_is_answered_by_model_of_given_agent(tmp_path: Path) -> None:
    stage = Stage(says("one"))
    chat = await stage.chat()
    await chat.send("hi")
    await chat.set_model("scripted:echo")
    await chat.session.export("perdure", tmp_path / "s.jsonl")
    resumed = await stage.runtime(chat.agent).resume("s")
    await resumed.send("go on")
    assert (await resumed.session.messages())[-1].model == "scripted:echo"

    other = Stage(says("unused"), says("three"))
    (report,) = (await other.store.import_files([tmp_path / "s.jsonl"])).reports
    imported = await other.runtime().resume(report.session, chat.agent)
    await imported.send("go on")
    assert (await imported.session.messages())[-1].model == MODEL


async def test_fork_continues_under_the_same_agent() -> None:
    stage = Stage(says("one"), says("two"))
    chat = await stage.chat()
    await chat.send("hi")
    fork = await chat.session.fork()
    forked = await stage.runtime(chat.agent).resume(fork.id)
    assert (await forked.send("and?")).text == "two"
    assert len(await chat.session.messages()) == 2


async def test_unknown_session_is_not_found() -> None:
    with pytest.raises(SessionNotFound):
        await Stage().runtime().resume("nobody")


async def test_interrupted_turn_continues_when_its_session_is_resumed() -> None:
    stage = Stage(says(calls("count")), says("counted"))
    keys: list[str] = []
    entered, leave = asyncio.Event(), asyncio.Event()

    @tool(effect="write", on_unknown="retry")
    async def count(call: ToolCall) -> str:
        """Count."""
        keys.append(f"{call.idempotency_key} {call.attempt}")
        entered.set()
        await leave.wait()
        return "one more"

    chat = await stage.chat([count])
    chat.send("go")
    await entered.wait()
    leave.set()
    await chat.suspend()
    assert (await stage.memory.state(StreamId("s"))).open_turn is not None
    again = await stage.runtime(chat.agent).resume("s")
    assert again.turn is not None
    assert (await again.turn).text == "counted"
    assert [key.split()[1] for key in keys] == ["1", "2"]
    assert len({key.split()[0] for key in keys}) == 1


async def test_other_process_cannot_send_or_abort_during_a_turn() -> None:
    stage = Stage(says(Hang()))
    chat = await stage.chat()
    chat.send("go")

    async def is_open() -> bool:
        return (await stage.memory.state(StreamId("s"))).open_turn is not None

    await until(is_open)
    other = await stage.runtime(chat.agent, owner="there").resume("s")
    assert other.turn is not None
    assert other.turn.held is not None
    with pytest.raises(LeaseHeld, match="here"):
        other.send("more")
    with pytest.raises(LeaseHeld, match="here"):
        await other.abort()
    await chat.abort()
    assert (await other.turn).end == "aborted"


async def test_error_in_the_runtime_block_suspends_running_turns() -> None:
    stage = Stage(says("slowly"), says(Hang()))
    agent = Agent("a", model=MODEL)
    async with stage.runtime(agent) as runtime:
        chat = await runtime.start("a", id="s")
        turn = chat.send("go")
    assert not turn.is_running

    async def fail_in_mid_turn() -> None:
        async with stage.runtime(agent) as runtime:
            (await runtime.resume("s")).send("more")
            await until(lambda: has_open_turn(stage))
            raise RuntimeError("the program's own")

    with pytest.raises(RuntimeError, match="the program's own"):
        await fail_in_mid_turn()
    assert await has_open_turn(stage)


async def test_loading_a_provider_library_does_not_lock_the_session() -> None:
    """Loading a provider's library takes seconds; meanwhile another process can use the session."""
    stage = Stage(says("one"), says("two"))
    is_loaded = threading.Event()

    def factory() -> ModelClient:
        assert is_loaded.wait(60)
        return stage.models

    agent = Agent("helper", model=MODEL)
    models = ModelRouter({}, factories={"scripted": factory})
    chat = await Runtime(stage.store, (agent,), models=models).start(agent)
    turn = chat.send("first")
    await asyncio.sleep(0.05)
    elsewhere = await stage.runtime(agent, owner="there").resume(chat.session.id, agent)
    await elsewhere.send("second")
    is_loaded.set()
    await turn
    said = [message.text for message in await chat.session.messages()]
    assert said == ["second", "one", "first", "two"]


async def has_open_turn(stage: Stage) -> bool:
    return (await stage.memory.state(StreamId("s"))).open_turn is not None


def test_workers_without_postgresql_are_refused_before_a_session_starts() -> None:
    with pytest.raises(ConfigError, match="workers share a store on PostgreSQL"):
        Runtime(Stage().store, [Agent("a", model=MODEL)], runner="workers")


async def test_default_models_come_from_the_environment(tmp_path: Path) -> None:
    stage = Stage()
    runtime = Runtime(stage.store, [Agent("a", model="scripted:echo")])
    chat = await runtime.start("a", workspace=Workspace(working_dir=str(tmp_path)))
    assert (await chat.send("hello")).text.startswith("offline scripted model")


async def test_concurrent_resumes_of_an_imported_session_record_one_agent() -> None:
    stage = Stage()
    session = await stage.store.create(id="imported", origin="import")
    await session.append(user("before"), assistant("then"))
    one, two = Agent("one", model=MODEL), Agent("two", model=MODEL)
    first, second = await asyncio.gather(
        stage.runtime().resume("imported", one), stage.runtime().resume("imported", two)
    )
    assert first.agent.id == second.agent.id
    assert (await stage.kinds("imported")).count("agent_bound") == 1


async def test_runtime_releases_chats_of_ended_turns() -> None:
    stage = Stage(says("one"))
    runtime = stage.runtime()
    chat = await runtime.start(Agent("a", model=MODEL))
    await chat.send("go")
    forgotten = weakref.ref(chat)
    del chat
    gc.collect()
    assert forgotten() is None


async def test_resumed_session_keeps_its_agent_but_gets_new_limits() -> None:
    stage = Stage(says("one"), says("two"))
    first = Agent("a", model=MODEL, limits=Limits(max_turns=1), instructions="Be brief.")
    await (await stage.runtime(first).start(first, id="s")).send("one")
    today = Agent("a", model="scripted:other", limits=Limits(max_turns=5), instructions="Sing.")
    resumed = await stage.runtime(today).resume("s")
    assert (await resumed.send("two")).text == "two"
    assert resumed.agent.instructions == "Be brief."


async def test_runtime_limit_leaves_other_limits_of_the_agent_unchanged() -> None:
    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return "cape"

    stage = Stage(*[says(calls("look"))] * 4)
    agent = Agent("a", model=MODEL, tools=[look], limits=Limits(max_tool_rounds=2))
    runtime = Runtime(stage.store, [agent], models=stage.models, limits=Limits(max_turns=10_000))
    with pytest.raises(TurnFailed, match="max_tool_rounds"):
        await (await runtime.start(agent)).send("look")


async def test_workspace_is_detected_and_recorded(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    stage = Stage(says("one"))
    agent = Agent("a", model=MODEL, instructions="On {{ctx.git_ref}}.")
    place = Workspace(str(tmp_path), active_file="a.py", selection=Selection("a.py", 1, 2))
    await stage.runtime(agent).start(agent, workspace=place, id="s", scope="sandboxed")
    resumed = await stage.runtime(agent).resume("s")
    kept = resumed.workspace
    assert (kept.git_ref, kept.active_file, kept.scope) == ("main", "a.py", "sandboxed")
    assert kept.selection == Selection("a.py", 1, 2)
    assert resumed.agent.permissions.scope == "sandboxed"


@pytest.mark.parametrize(
    "agent",
    [
        Agent("a", model="opnai:gpt-5"),
        Agent("a", model="scripted:echo", fallbacks=["opnai:gpt-5"]),
    ],
)
async def test_unknown_provider_is_refused_before_a_session_begins(agent: Agent) -> None:
    stage = Stage()
    runtime = Runtime(stage.store, [agent])
    with pytest.raises(ConfigError, match=r"^unknown model provider 'opnai'; available: anthropic"):
        await runtime.start("a")
    assert await stage.store.recent(None, scope="all") == []
    session = await stage.store.create(id="mine")
    with pytest.raises(ConfigError, match="unknown model provider 'opnai'"):
        await runtime.resume(session.id, "a")
    chat = await runtime.start(Agent("b", model="scripted:echo"))
    with pytest.raises(ConfigError, match="unknown model provider 'opnai'"):
        await chat.set_model("opnai:gpt-5")
    assert (await chat.session.info()).model == "scripted:echo"
