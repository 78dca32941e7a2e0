"""The library as its users call it: the documented examples are executed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import perdure
from perdure import assistant, thinking, tool_call, tool_result, user


@pytest.fixture(params=["memory", "sqlite"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'agents.db'}"


@perdure.tool(effect="write", on_unknown="ask")
async def send_mail(to: str, body: str, *, call: perdure.ToolCall) -> str:
    """Send a mail.

    to: who gets it
    """
    return f"sent to {to} ({len(body)} characters, key {bool(call.idempotency_key)})"


async def test_library_example_of_a_session_works(address: str) -> None:
    async with perdure.open(address) as store:
        session = await store.create(title="Trip", cwd=".", lazy=True)
        hello = await session.append(user("Hello"))
        await session.append_many(
            [
                assistant("Hi.", thinking("greet"), tool_call("c1", "read_file", {"path": "x"})),
                tool_result("c1", "text of x", is_error=False),
                assistant("Done."),
            ],
            expected_head=session.head,
            idempotency_key="req-1",
        )
        await session.branch(hello.id)
        await session.label(hello.id, "start")
        await session.append(assistant("Another answer"), user("And now?"))
        path = await session.path()
        assert [entry.seq for entry in path] == [0, 6, 7]
        tree = await session.tree()
        assert (tree[0].label, len(tree[0].children)) == ("start", 2)
        latest = await session.messages(last=2)
        assert [message.text for message in latest] == ["Another answer", "And now?"]
        request = await session.context(budget_tokens=8_000)
        assert [each.message.role for each in request.messages] == ["user", "assistant", "user"]
        copy = await session.fork(at=hello.id)
        assert [entry.id for entry in await copy.path()] == [hello.id]

        events: list[perdure.Event | perdure.LiveEvent | perdure.Snapshot] = []
        async for event in session.watch(after=3):
            events.append(event)
            if len(events) == 4:
                break
        assert [event.type for event in events] == [
            "session:branched",
            "session:labeled",
            "agent:message",
            "agent:message",
        ]
        entries = [entry async for entry in session.entries(after=-1)]
        assert [entry.seq for entry in entries] == list(range(8))
        assert (entries[0].id, entries[0].parent_id, entries[0].kind) == (
            hello.id,
            None,
            "message",
        )
        assert entries[0].message == user("Hello")
        assert b"Hello" in entries[0].body
        await session.end()

        again = await store.open(session.id)
        assert (await again.info()).status == "ended"
        assert (await store.continue_recent(cwd=".")).id in (session.id, copy.id)
        assert {info.id for info in await store.recent(limit=50)} == {session.id, copy.id}


async def test_library_example_of_an_agent_works(address: str) -> None:
    agent = perdure.Agent("helper", model="scripted:echo", instructions="Help.", tools=[send_mail])
    async with (
        perdure.open(address) as store,
        perdure.Runtime(store, agents=[agent]) as runtime,
    ):
        chat = await runtime.start(agent, workspace=perdure.Workspace(working_dir="."))
        turn = chat.send('/tool send_mail {"to": "ann", "body": "Hi"}')
        types = [event.type async for event in turn]
        assert types[0] == "session:turn_started"
        assert types[-1] == "session:turn_completed"
        assert {"agent:tool_call", "agent:tool_result", "agent:message"} <= set(types)
        reply = await turn
        assert reply.message is not None
        assert "sent to ann (2 characters, key True)" in str(
            perdure.wire(await chat.session.messages())
        )
        await chat.abort()
        await chat.cancel()
        chat = await runtime.resume(chat.id)
        assert (await chat.send("again")).text
        assert (await chat.session.info()).turns == 2


async def test_message_is_answered_even_if_the_caller_does_not_wait(address: str) -> None:
    agent = perdure.Agent("helper", model="scripted:echo")
    async with perdure.open(address) as store:
        async with perdure.Runtime(store, agents=[agent]) as runtime:
            chat = await runtime.start(agent)
            chat.send("nobody waits for this")
        answered = await store.open(chat.id)
        assert [message.role for message in await answered.messages()] == ["user", "assistant"]


def test_session_and_agent_examples_work_without_async(address: str) -> None:
    agent = perdure.Agent("helper", model="scripted:echo")
    with perdure.blocking.open(address) as store:
        session = store.create(title="Trip")
        hello = session.append(user("Hello"))
        session.append(assistant("Hi"))
        session.branch(hello.id)
        assert [entry.seq for entry in session.entries()] == [0, 1, 2]
        assert session.path() == [hello]
        with perdure.blocking.Runtime(store, agents=[agent]) as runtime:
            chat = runtime.start(agent)
            assert "Fix it" in chat.send("Fix it").result().text


async def test_two_open_handles_of_one_store_file_see_the_same_log(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'agents.db'}"
    async with perdure.open(address) as mine, perdure.open(address) as theirs:
        session = await mine.create(id="shared")
        other = await theirs.open("shared")
        watches = [session.watch(after=-1), other.watch(after=-1), theirs.watch(after=0)]

        async def say(handle: perdure.Session, name: str) -> None:
            for n in range(25):
                await handle.append(user(f"{name}{n}"), user("."))

        async def seen(watch: perdure.Watch) -> list[int]:
            found: list[int] = []
            async for event in watch:
                assert isinstance(event, perdure.Event)
                found.append(event.seq)
                if len(found) == 100:
                    break
            return found

        following = asyncio.gather(*(seen(watch) for watch in watches))
        await asyncio.gather(say(session, "a"), say(other, "b"))
        for found in await asyncio.wait_for(following, 60):
            assert found == list(range(100))
        assert (await mine.verify()).is_ok
