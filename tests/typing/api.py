"""The documented surface of the library. The type checker checks this file; it is never run.

This file contains every line of the documented "Library" section that this version supports, with
the expected type of its result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Literal, assert_never, assert_type

import perdure
from perdure import assistant, event_types, thinking, tool_call, tool_result, user

AnyEvent = perdure.Event | perdure.LiveEvent | perdure.Snapshot


async def sessions() -> None:
    async with perdure.open("sqlite:///agents.db", durability="normal", namespace="n") as store:
        assert_type(store, perdure.Store)
        session = await store.create(title="Trip", cwd=".", lazy=True)
        assert_type(session, perdure.Session)
        await store.create(id="mine", metadata={"any": ["json"]})
        hello = await session.append(user("Hello"))
        assert_type(hello, perdure.Entry)
        several = await session.append(
            assistant("…", thinking("…"), tool_call("c1", "read_file", {"path": "x"})),
            tool_result("c1", "…", is_error=False),
        )
        assert_type(several, list[perdure.Entry])
        await session.append_many([user("Hi")], expected_head=session.head, idempotency_key="req-1")
        await session.append_many([user("Hi")], expected_leaf=hello.id, parent=None)
        await session.append(perdure.ModelChange("openai:any"), parent=hello)
        await session.branch(hello.id)
        await session.branch(None)
        await session.label(hello.id, "start")
        await session.label(hello, None)
        assert_type(await session.path(), list[perdure.Entry])
        assert_type(await session.tree(), tuple[perdure.types.TreeNode, ...])
        assert_type(await session.messages(last=50), list[perdure.Message])
        assert_type(await session.context(budget_tokens=8_000), perdure.Context)
        assert_type(await session.fork(at=hello.id), perdure.Session)
        async for event in session.watch(after=3):
            assert_type(event, AnyEvent)
        async for event in store.watch(after=0):
            assert_type(perdure.wire(event), dict[str, object])
        entries: AsyncIterator[perdure.Entry] = session.entries(after=-1)
        async for entry in entries:
            assert_type(entry.seq, int)
            assert_type(entry.kind, str)
            assert_type(entry.body, bytes)
            assert_type(entry.message, perdure.Message | None)
            parent: str | None = entry.parent_id
            assert parent != entry.id
        await session.end()
        session = await store.open(session.id)
        await store.continue_recent(cwd=".")
        assert_type(await store.recent(limit=50), list[perdure.SessionInfo])


async def classes_of_events(turn: perdure.Turn) -> None:
    async for event in turn:
        match event:
            case event_types.AgentMessage(type=type_, payload=message):
                assert_type(type_, Literal["agent:message"])
                assert_type(message["entryId"], str)
                assert_type(message["parts"], list[dict[str, object]])
            case event_types.AgentToolCall(payload=call):
                assert_type(call["toolId"], str)
                assert_type(call["toolInput"], dict[str, object])
            case _:
                pass


async def followed(connect: Callable[[int], AsyncIterator[dict[str, object]]]) -> None:
    async for event in perdure.Follower().events(connect):
        assert_type(event, dict[str, object])


async def events(session: perdure.Session, store: perdure.Store, turn: perdure.Turn) -> None:
    async for event in session.watch(after=-1):
        assert_type(event, perdure.types.AnyEvent)
        match event:
            case perdure.Event(payload=payload, seq=seq):
                assert_type(event, perdure.Event)
                assert_type(payload["toolId"], object)
                assert_type(seq, int)
            case perdure.LiveEvent(text=text):
                assert_type(text, str)
            case perdure.Snapshot(partial=partial):
                assert_type(partial, perdure.Message)
            case _:
                assert_never(event)
    async for event in store.watch():
        if isinstance(event, perdure.LiveEvent):
            assert_type(event.n, int)
        elif isinstance(event, perdure.Snapshot):
            assert_type(event.partial.text, str)
        else:
            assert_type(event, perdure.Event)
    async for event in turn:
        if not isinstance(event, perdure.Event):
            assert_type(event, perdure.LiveEvent | perdure.Snapshot)


@perdure.tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return str(amount)


@perdure.tool(effect="write", on_unknown="ask")
async def send_mail(to: str, body: str, *, call: perdure.ToolCall) -> str:
    """Send a mail."""
    return f"{to}: {body} ({call.idempotency_key})"


@perdure.tool
def now() -> perdure.ToolOutput:
    """The time."""
    return perdure.ToolOutput("noon")


agent = perdure.Agent("helper", model="openai:any", instructions="Help.", tools=[send_mail, now])


async def agents(store: perdure.Store) -> None:
    async with perdure.Runtime(store, agents=[agent]) as runtime:
        chat = await runtime.start(agent, workspace=perdure.Workspace(working_dir="."))
        assert_type(chat, perdure.Chat)
        turn = chat.send("Fix the failing test")
        assert_type(turn, perdure.Turn)
        async for event in turn:
            assert_type(event, AnyEvent)
        reply = await turn
        assert_type(reply, perdure.Reply)
        assert_type(reply.text, str)
        await chat.abort()
        await chat.cancel()
        assert_type(await runtime.resume(chat.id), perdure.Chat)


def without_async() -> None:
    with perdure.blocking.open("sqlite:///agents.db") as store:
        assert_type(store, perdure.blocking.Store)
        session = store.create(title="Trip", lazy=True)
        assert_type(session, perdure.blocking.Session)
        hello = session.append(user("Hello"))
        assert_type(hello, perdure.Entry)
        assert_type(session.append(user("a"), user("b")), list[perdure.Entry])
        session.append_many([user("Hi")], expected_head=session.head)
        session.branch(hello)
        assert_type(session.fork(at=hello), perdure.blocking.Session)
        entries: Iterator[perdure.Entry] = session.entries()
        for entry in entries:
            assert_type(entry.message, perdure.Message | None)
        for event in session.watch(after=3):
            assert_type(event, AnyEvent)
        assert_type(session.watch(), perdure.blocking.Watch)
        assert_type(store.watch(after=0), perdure.blocking.Watch)
        assert_type(store.memory, perdure.blocking.Memory)
        assert_type(store.schedule, perdure.blocking.Schedule)
        with perdure.blocking.Runtime(store, agents=[agent]) as runtime:
            turn = runtime.start(agent).send("Fix the failing test")
            for event in turn:
                assert_type(event, AnyEvent)
            assert_type(turn.result(), perdure.Reply)


async def flows() -> None:
    async with perdure.open() as store, perdure.Flows(perdure.Runtime(store)) as flows:
        chosen = {"reviewer": perdure.RoleConfiguration(skills=("careful-reading",))}
        flow = await flows.start("workflow.yaml", configuring="ask", roles=chosen)
        assert_type(flow, perdure.Flow)
        assert_type(await flow.run(), perdure.types.FlowRun)
        for asked in await store.questions():
            assert_type(asked, perdure.types.OpenQuestion)
            assert_type(await store.answer(asked.id, "approve", by="ana"), perdure.Entry)
        feed = flow.feed("owner", after=None)
        assert_type(await feed.read(limit=50), tuple[perdure.types.FeedItem, ...])
        async for item in feed:
            assert_type(item, perdure.types.FeedItem)


def flows_without_async() -> None:
    with perdure.blocking.open() as store:
        flows = perdure.blocking.Flows(perdure.blocking.Runtime(store))
        flow = flows.open("f")
        assert_type(flow, perdure.blocking.Flow)
        assert_type(flow.session("owner"), perdure.blocking.Session)
        assert_type(flow.run(), perdure.types.FlowRun)
        for item in flow.feed("owner"):
            assert_type(item, perdure.types.FeedItem)


def errors() -> None:
    try:
        without_async()
    except perdure.errors.HeadConflict as conflict:
        assert_type(conflict.expected, int)
    except perdure.errors.LeaseHeld as held:
        assert_type(held.owner, str)
    except perdure.errors.PerdureError as error:
        assert_type(error.code, str)
        assert_type(error.retryable, bool)
        assert_type(error.facts(), dict[str, object])
    assert_type(perdure.__version__, str)


@dataclasses.dataclass
class Trip:
    city: str


async def outputs(runtime: perdure.Runtime, plain: perdure.blocking.Runtime) -> None:
    planner = perdure.Agent("planner", model="openai:any", output=Trip)
    assert_type(planner, perdure.Agent[Trip])
    assert_type(planner.restrict(tools=()), perdure.Agent[Trip])
    chat = await runtime.start(planner)
    assert_type(chat, perdure.Chat[Trip])
    assert_type(await runtime.resume(chat.id, planner), perdure.Chat[Trip])
    reply = await chat.send("Where do we go?")
    assert_type(reply, perdure.Reply[Trip])
    assert_type(reply.output, Trip | None)
    assert_type(plain.start(planner).send("Where to?").result().output, Trip | None)
    named = await runtime.start("planner")
    assert_type(named, perdure.Chat)
    anyone: perdure.Agent = planner
    assert_type(anyone.id, str)
    assert_type(perdure.ToolOutput("Here", media=[perdure.media(b"")]), perdure.ToolOutput)


def failures() -> None:
    try:
        without_async()
    except perdure.errors.TurnFailed as failed:
        assert_type(failed.failure, perdure.errors.TurnFailure)


def no_pushing(point: perdure.types.ToolAsked) -> perdure.Block | None:
    assert_type(point.call, perdure.ToolCall)
    return perdure.Block("no") if point.call.args.get("command") == "git push" else None


async def shortened(point: perdure.types.ToolAnswered) -> perdure.ToolOutput:
    return perdure.ToolOutput(point.output.text[:100])


def hooked(runtime: perdure.Runtime, hooks: perdure.Hooks) -> None:
    assert_type(runtime.on("tool_call", no_pushing), Callable[[], None])
    hooks.on("tool_result", shortened, is_guard=False)
    hooks.on("before_model_call", lambda point: None)
