"""What costs may grow with: each subject is made at a size, with the operations to measure on it.

All goes through the public handles. An operation that takes what its caller asks for may grow as
that does; every other one must stay flat.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from itertools import count
from pathlib import Path

import msgspec

import perdure
from benchmarks.figures import CLOCK
from benchmarks.flows import line_of, runtime_of
from perdure.apps.maintenance.copy import copy_sessions
from perdure.apps.terminal.reports import MOST_READ, report_of
from perdure.client import retention
from perdure.client.flows.flows import Flows
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.models.scenario import CallTools, Reply, Say, Scenario, ScriptedCall, When
from perdure.models.scripted import ScriptedModel
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import Sibling
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.messages import Message, assistant, user
from perdure.session.notes import Answer, Question
from perdure.stores.protocol import Commit, Write
from perdure.stores.retention.policy import Retention

FLAT, LINEAR = 0.15, 1.15
FEW, MANY = (10, 100, 1_000), (1_000, 10_000, 100_000)
DEEP = (100, 1_000, 10_000)
AT_ONCE = 500
_numbers = count()

Act = Callable[[], Awaitable[object]]


class Operation(msgspec.Struct, frozen=True):
    """Something to measure. `limit` is what its exponents may be; `is_once` if it cannot repeat."""

    name: str
    act: Act
    limit: float = FLAT
    is_once: bool = False


Made = Callable[[Store, int, AsyncExitStack], Awaitable[list[Operation]]]


async def entries(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """One session of so many entries, and two forks of all of it, each with a pin."""
    session = await _session(store, size)
    runtime = await stack.enter_async_context(_runtime(store))
    pinned, hidden = [await runtime.resume((await session.fork()).id, _AGENT) for _ in range(2)]
    for chat in (pinned, hidden):
        await chat.session.pin(f"{session.id}/5")
    chat = await runtime.resume(session.id, _AGENT)
    await chat.send("go on")
    await pinned.send("go on")
    await store.search("number")
    await hidden.compact("It was counted.")
    await hidden.send("go on")
    return [
        Operation("open", lambda: store.open(session.id)),
        Operation("append", lambda: session.append(user("one more"))),
        Operation("newest 50 messages", lambda: session.messages(last=50)),
        Operation("context within 4,000 tokens", lambda: session.context(4_000)),
        Operation("labels", session.labels),
        Operation("pins", session.pins),
        Operation("questions", session.questions),
        Operation("branch back", lambda: session.branch(f"{session.id}/{size - 2}")),
        Operation("fork", session.fork),
        Operation("search, one more entry", lambda: _said_and_sought(store, session)),
        Operation("resume", lambda: runtime.resume(session.id, _AGENT)),
        Operation("a turn with two tools", lambda: chat.send("again")),
        Operation("the same, with a pin", lambda: pinned.send("again")),
        Operation("the same, the pin compacted away", lambda: hidden.send("again")),
        Operation("all messages", session.messages, LINEAR),
        Operation("the whole context", session.context, LINEAR),
        Operation("the tree", session.tree, LINEAR),
        *await _looks(store, session, size),
    ]


async def _looks(store: Store, session: Session, size: int) -> list[Operation]:
    """What a person looks at of a session of `size` entries."""
    middle = f"{session.id}/{size // 2}"
    await session.label(middle, "here")
    fork = await session.fork(middle)
    return [
        Operation("info", session.info),
        Operation("sessions show", lambda: report_of(session, store.backend, MOST_READ)),
        Operation("newest 1,000 of the tree", lambda: session.tree(1_000)),
        Operation("labels of a fork at an entry", fork.labels),
    ]


async def sessions(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """A store of so many sessions of two entries."""
    for first in range(0, size, AT_ONCE):
        await store.backend.commit(_sessions(range(first, min(size, first + AT_ONCE))))
    runtime = await stack.enter_async_context(
        perdure.Runtime(store, models=_model(store), idle_timeout_s=3_600)
    )
    return [
        Operation("create and append", lambda: _created(store)),
        Operation("newest 50", store.recent),
        Operation("newest of a folder without any", lambda: store.recent(cwd="/nowhere")),
        Operation("a name that none has", lambda: store.recent(query="zzzz")),
        Operation("continue in such a folder", lambda: store.continue_recent("/nowhere")),
        Operation("questions", store.questions),
        Operation("end the idle, of which there are none", runtime.end_idle),
        Operation("what a quota has left", lambda: retention.quota(store)),
        Operation("facts of the store", store.info),
        Operation("a retention that removes nothing", lambda: _retained(store)),
        Operation("all sessions", lambda: store.recent(None), LINEAR),
    ]


async def branches(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """A session with so many branches at one entry."""
    del stack
    session = await _session(store, 10)
    for _ in range(size):
        await session.append(user("another way"), parent=f"{session.id}/4")
    return [
        Operation("newest 50 messages", lambda: session.messages(last=50)),
        Operation("append", lambda: session.append(user("more"))),
        Operation("to another branch", lambda: _to_and_fro(session)),
        Operation("the tree", session.tree, LINEAR),
    ]


async def pins(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """A session of 2,000 entries of which so many are pinned."""
    runtime = await stack.enter_async_context(_runtime(store))
    chat = await runtime.start(_AGENT)
    await _fill(chat.session, 2_000)
    for number in range(4, 4 + size):
        await chat.session.pin(f"{chat.session.id}/{number}")
    await chat.send("go on")
    return [Operation("a turn with two tools", lambda: chat.send("again"))]


async def questions(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """A session with so many answered questions."""
    del stack
    session = await _session(store, 10)
    asked = (
        new_side(Question("approval", "May I?", ("allow", "deny"))),
        new_side(Answer("allow", "somebody"), Sibling(0)),
    )
    for _ in range(size):
        write = Write(stream=StreamId(session.id), entries=asked)
        await store.backend.commit(Commit(writes=(write,), at=CLOCK.now_ms()))
    return [
        Operation("questions of the session", session.questions),
        Operation("questions of the store", store.questions),
    ]


async def open_questions(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """A session with so many questions that nothing has answered, beside another session."""
    del stack
    session, other = await _session(store, 10), await _session(store, 10)
    asked = tuple(
        new_side(Question("approval", f"May I do {number}?", ("allow", "deny")))
        for number in range(size)
    )
    await store.backend.commit(
        Commit(writes=(Write(stream=StreamId(session.id), entries=asked),), at=CLOCK.now_ms())
    )
    return [
        Operation("append", lambda: session.append(user("more"))),
        Operation("newest 50 messages", lambda: session.messages(last=50)),
        Operation("questions of another session", other.questions),
        Operation("questions of the session", session.questions, LINEAR),
        Operation("questions of the store", store.questions, LINEAR),
    ]


async def watchers(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """So many watchers, each of an idle session."""
    for _ in range(size):
        session = await _session(store, 1)
        watching = asyncio.create_task(_watch(session))
        stack.callback(watching.cancel)
    elsewhere = await _session(store, 1)
    await asyncio.sleep(0.2)
    return [Operation("append elsewhere", lambda: _appended_and_settled(elsewhere))]


async def forks(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """A chain of so many forks of forks."""
    del stack
    first = session = await _session(store, 4)
    for number in range(size):
        session = await session.fork()
        await session.append(user(f"fork {number}"))
    last = session
    return [
        Operation("newest 50 messages of the last", lambda: last.messages(last=50)),
        Operation("append to the last", lambda: last.append(user("more"))),
        Operation(
            "erase the first, keep the forks", lambda: _erased(store, first), LINEAR, is_once=True
        ),
    ]


async def namespaces(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """So many namespaces of a session each beside the one that is worked in."""
    session = await _session(store, 200)
    for number in range(size):
        async with perdure.open(store.backend.address, namespace=f"beside-{number}") as beside:
            await _session(beside, 20)
    runtime = await stack.enter_async_context(_runtime(store))
    chat = await runtime.start(_AGENT)
    await chat.send("go on")
    return [
        Operation("the first search", lambda: store.search("number"), is_once=True),
        Operation("append", lambda: session.append(user("one more"))),
        Operation("newest 50 messages", lambda: session.messages(last=50)),
        Operation("newest 50 sessions", store.recent),
        Operation("questions of the store", store.questions),
        Operation("search, one more entry", lambda: _said_and_sought(store, session)),
        Operation("a turn with two tools", lambda: chat.send("again")),
        Operation("facts of the store", store.info),
        Operation("verify", store.verify),
        Operation("the first event of all", lambda: _first_event(store, 0)),
        Operation("the position", store.backend.position),
    ]


async def nodes(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """A flow of so many nodes in a line, run from its first to its last."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perdure-flow-")))
    graph = line_of(size)
    flows = await stack.enter_async_context(Flows(runtime_of(store, graph)))
    for node in graph.nodes:
        (folder / f"{node.id}.md").write_text(f"what {node.id} made")
    flow = await flows.start(graph, id="line", workspace=folder, record_folder=folder)
    return [
        Operation("run the whole flow", flow.run, LINEAR, is_once=True),
        Operation("its state", flow.state),
        Operation("open it", lambda: flows.open("line"), LINEAR),
        Operation("what it waits for", flow.waiting),
        Operation("questions of the store", store.questions, LINEAR),
        Operation("the list of flows", flows.list, LINEAR),
    ]


async def copied(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """So many sessions that were copied, to be copied again."""
    await store.backend.commit(_sessions(range(size)))
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="perdure-bench-"))
    target = await stack.enter_async_context(perdure.open(f"sqlite:///{folder}/copy.db"))
    await copy_sessions(store, target)
    return [Operation("copy with nothing new", lambda: copy_sessions(store, target), LINEAR)]


async def fork_chain(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """A deep chain of forks; every one has its own word, and the first a label."""
    del stack
    session = await _session(store, 200)
    await session.label(f"{session.id}/0", "first")
    for number in range(size):
        session = await session.fork()
        await session.append(user(f"fork {number}"))
    last = session
    return [
        Operation("newest 50 messages of a deep fork", lambda: last.messages(last=50)),
        Operation("newest 50 of its tree", lambda: last.tree_entries(50)),
        Operation("append to it", lambda: last.append(user("more"))),
        Operation("fork it", last.fork),
        Operation("all its messages", last.messages, LINEAR),
        Operation("its labels", last.labels, LINEAR),
    ]


SUBJECTS: dict[str, tuple[Made, Sequence[int]]] = {
    "entries of a session": (entries, MANY),
    "sessions of a store": (sessions, MANY),
    "copied sessions": (copied, FEW),
    "branches": (branches, FEW),
    "pins": (pins, FEW),
    "answered questions": (questions, FEW),
    "open questions": (open_questions, FEW),
    "watchers": (watchers, FEW),
    "forks of forks": (forks, FEW),
    "a deep chain of forks": (fork_chain, DEEP),
    "namespaces": (namespaces, FEW),
    "nodes of a flow": (nodes, FEW),
}


# ---------------------------------------------------------------- what they are made of


@perdure.tool(effect="read")
async def look(where: str) -> str:
    """Look somewhere."""
    return f"nothing in {where}"


_AGENT = perdure.Agent(
    "bench", model="scripted:bench", tools=(look,), limits=perdure.Limits(max_turns=10_000)
)


def _model(store: Store) -> ScriptedModel:
    def looking(number: int) -> Reply:
        call = ScriptedCall("look", f'{{"where": "place {number}"}}')
        return Reply(when=When(round=number + 1), steps=(Say("Let me look."), CallTools((call,))))

    rules = (looking(0), looking(1), Reply(steps=(Say("There is nothing."),)))
    return ScriptedModel(Scenario(name="bench", rules=rules), clock=store.outside.clock)


@asynccontextmanager
async def _runtime(store: Store) -> AsyncGenerator[perdure.Runtime]:
    async with perdure.Runtime(store, [_AGENT], models=_model(store)) as runtime:
        yield runtime


async def _session(store: Store, size: int) -> Session:
    session = await store.create()
    await _fill(session, size)
    return session


async def _fill(session: Session, size: int) -> None:
    for first in range(0, size, AT_ONCE):
        await session.append_many([_said(n) for n in range(first, min(size, first + AT_ONCE))])


def _said(number: int) -> Message:
    text = f"This is number {number}, and it says what all the others say. " * 3
    return assistant(text) if number % 2 else user(text)


def _sessions(numbers: range) -> Commit:
    at = CLOCK.now_ms()
    writes = [
        Write(
            stream=StreamId(f"s{number}"),
            create=StreamHeader(StreamId(f"s{number}"), at, cwd=f"/folder/{number % 50}"),
            entries=(new_tree(user(f"Number {number}")), new_tree(_said(1))),  # a short name
        )
        for number in numbers
    ]
    return Commit(writes=tuple(writes), at=at)


async def _retained(store: Store) -> None:
    await retention.apply_retention(store, Retention(max_age_s=10**8, max_idle_s=10**8))
    await retention.apply_retention(store, Retention(max_sessions=10**8, max_bytes=2**60))


async def _created(store: Store) -> None:
    session = await store.create()
    await session.append(user("a new one"))


async def _said_and_sought(store: Store, session: Session) -> None:
    await session.append(user(f"word{next(_numbers)}"))
    await store.search("number", limit=10)


async def _to_and_fro(session: Session) -> None:
    await session.branch(f"{session.id}/12")
    await session.branch(f"{session.id}/11")


async def _first_event(store: Store, after: int) -> None:
    async with aclosing(store.watch(after)) as events:
        await anext(events)


async def _watch(session: Session) -> None:
    async for _ in session.watch():
        pass


async def _appended_and_settled(session: Session) -> None:
    await session.append(user("elsewhere"))
    await asyncio.sleep(0.02)


async def _erased(store: Store, session: Session) -> object:
    return await store.erase(session.id, forks="keep")
