"""The factors of costs: each subject has a size, and the operations to measure at that size.

All operations use the public handles. If the result of an operation grows with the size, the cost
may grow in proportion. Every other operation must have a constant cost.
"""

from __future__ import annotations

import asyncio
import copy
import tempfile
from contextlib import AsyncExitStack, aclosing
from itertools import count

import perdure
from benchmarks.figures import CLOCK
from benchmarks.flow_subjects import flow_past, flows, nodes
from benchmarks.operations import (
    AGENT,
    AT_ONCE,
    FEW,
    LINEAR,
    MANY,
    Made,
    Operation,
    fill,
    model_of,
    runtime_with_tools,
    session_of,
    sessions_of,
)
from benchmarks.texts import text_of
from perdure.apps.maintenance.copy import copy_sessions
from perdure.apps.maintenance.stats import figures
from perdure.apps.terminal.reports import MOST_READ, report_of
from perdure.client import retention
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.session.codec import new_side
from perdure.session.entries import Sibling
from perdure.session.ids import StreamId
from perdure.session.messages import user
from perdure.session.notes import Answer, Question
from perdure.stores.protocol import Commit, Write
from perdure.stores.retention.policy import Retention

DEEP = (100, 1_000, 10_000)
BYTES = (150_000, 1_500_000, 15_000_000)
HELD = 12
"""The number of entries of the measured namespace, next to which another namespace grows."""

_numbers = count()


async def entries(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """Create one session of `size` entries, and two full forks of the session with a pin each."""
    session = await session_of(store, size)
    runtime = await stack.enter_async_context(runtime_with_tools(store))
    pinned, hidden = [await runtime.resume((await session.fork()).id, AGENT) for _ in range(2)]
    for chat in (pinned, hidden):
        await chat.session.pin(f"{session.id}/5")
    chat = await runtime.resume(session.id, AGENT)
    await chat.send("go on")
    await pinned.send("go on")
    await store.search("number")
    await hidden.compact("It was counted.")
    await hidden.send("go on")
    return [
        Operation("open the session", lambda: store.open(session.id)),
        Operation("append an entry", lambda: session.append(user("one more"))),
        Operation("read the newest 50 messages", lambda: session.messages(last=50)),
        Operation("build a context of at most 4,000 tokens", lambda: session.context(4_000)),
        Operation("list the labels", session.labels),
        Operation("list the pins", session.pins),
        Operation("list the questions", session.questions),
        Operation("branch at an earlier entry", lambda: session.branch(f"{session.id}/{size - 2}")),
        Operation("fork the session", session.fork),
        Operation("append an entry and search", lambda: _said_and_sought(store, session)),
        Operation("resume the session in a runtime", lambda: runtime.resume(session.id, AGENT)),
        Operation("run a turn with 2 tool calls", lambda: chat.send("again")),
        Operation("run a turn with 2 tool calls, with a pin", lambda: pinned.send("again")),
        Operation(
            "run a turn with 2 tool calls, with a pin before a compaction",
            lambda: hidden.send("again"),
        ),
        Operation("read all messages", session.messages, LINEAR),
        Operation("build a context of all entries", session.context, LINEAR),
        Operation("read the tree", session.tree, LINEAR),
        Operation(
            "read the tree, copy it, convert it to text and JSON", lambda: _used(session), LINEAR
        ),
        *await _looks(store, session, size),
    ]


async def _looks(store: Store, session: Session, size: int) -> list[Operation]:
    """Return the operations that display a session of `size` entries."""
    middle = f"{session.id}/{size // 2}"
    await session.label(middle, "here")
    fork = await session.fork(middle)
    return [
        Operation("read the session's info", session.info),
        Operation(
            "report of `sessions show`", lambda: report_of(session, store.backend, MOST_READ)
        ),
        Operation("read the newest 1,000 entries of the tree", lambda: session.tree(1_000)),
        Operation("list the labels of a fork at an entry", fork.labels),
    ]


async def sessions(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """Create a store of `size` sessions with two entries each."""
    for first in range(0, size, AT_ONCE):
        await store.backend.commit(sessions_of(range(first, min(size, first + AT_ONCE))))
    runtime = await stack.enter_async_context(
        perdure.Runtime(store, models=model_of(store), idle_timeout_s=3_600)
    )
    return [
        Operation("create a session and append an entry", lambda: _created(store)),
        Operation("list the newest 50 sessions", store.recent),
        Operation(
            "list the sessions of a folder without sessions", lambda: store.recent(cwd="/nowhere")
        ),
        Operation(
            "list the sessions with a name that no session has", lambda: store.recent(query="zzzz")
        ),
        Operation(
            "continue in a folder without sessions", lambda: store.continue_recent("/nowhere")
        ),
        Operation("list the questions of the store", store.questions),
        Operation("end idle sessions if no session is idle", runtime.end_idle),
        Operation("read the quota and its usage", lambda: retention.quota(store)),
        Operation("read the store's info", store.info),
        Operation("apply a retention policy that deletes nothing", lambda: _retained(store)),
        Operation("list all sessions", lambda: store.recent(None), LINEAR),
        Operation("read the store's statistics", lambda: figures(store), LINEAR),
    ]


async def branches(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """Create a session with `size` branches at one entry."""
    del stack
    session = await session_of(store, 10)
    for _ in range(size):
        await session.append(user("another way"), parent=f"{session.id}/4")
    return [
        Operation("read the newest 50 messages", lambda: session.messages(last=50)),
        Operation("append an entry", lambda: session.append(user("more"))),
        Operation("switch to another branch and back", lambda: _to_and_fro(session)),
        Operation("read the tree", session.tree, LINEAR),
    ]


async def pins(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """Create a session of 2,000 entries with `size` pins."""
    runtime = await stack.enter_async_context(runtime_with_tools(store))
    chat = await runtime.start(AGENT)
    await fill(chat.session, 2_000)
    for number in range(4, 4 + size):
        await chat.session.pin(f"{chat.session.id}/{number}")
    await chat.send("go on")
    return [Operation("run a turn with 2 tool calls", lambda: chat.send("again"))]


async def questions(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """Create a session with `size` answered questions."""
    del stack
    session = await session_of(store, 10)
    asked = (
        new_side(Question("approval", "May I?", ("allow", "deny"))),
        new_side(Answer("allow", "somebody"), Sibling(0)),
    )
    for _ in range(size):
        write = Write(stream=StreamId(session.id), entries=asked)
        await store.backend.commit(Commit(writes=(write,), at=CLOCK.now_ms()))
    return [
        Operation("list the questions of the session", session.questions),
        Operation("list the questions of the store", store.questions),
    ]


async def open_questions(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """Create a session with `size` unanswered questions, and another session."""
    del stack
    session, other = await session_of(store, 10), await session_of(store, 10)
    asked = tuple(
        new_side(Question("approval", f"May I do {number}?", ("allow", "deny")))
        for number in range(size)
    )
    await store.backend.commit(
        Commit(writes=(Write(stream=StreamId(session.id), entries=asked),), at=CLOCK.now_ms())
    )
    return [
        Operation("append an entry", lambda: session.append(user("more"))),
        Operation("read the newest 50 messages", lambda: session.messages(last=50)),
        Operation("list the questions of another session", other.questions),
        Operation("list the questions of the session", session.questions, LINEAR),
        Operation("list the questions of the store", store.questions, LINEAR),
    ]


async def watchers(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """Create `size` watchers, each of an idle session."""
    runtime = await stack.enter_async_context(runtime_with_tools(store))
    chat = await runtime.start(AGENT)
    await chat.send("go on")
    for _ in range(size):
        session = await session_of(store, 1)
        watching = asyncio.create_task(_watch(session))
        stack.callback(watching.cancel)
    elsewhere = await session_of(store, 1)
    await asyncio.sleep(0.2)
    return [
        Operation("append an entry to another session", lambda: _appended_and_settled(elsewhere)),
        Operation("run a turn in another session", lambda: chat.send("again")),
    ]


async def forks(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """Create a chain of `size` forks of forks."""
    del stack
    first = session = await session_of(store, 4)
    for number in range(size):
        session = await session.fork()
        await session.append(user(f"fork {number}"))
    last = session
    return [
        Operation("read the newest 50 messages of the last fork", lambda: last.messages(last=50)),
        Operation("append an entry to the last fork", lambda: last.append(user("more"))),
        Operation(
            "erase the first session and keep its forks",
            lambda: _erased(store, first),
            LINEAR,
            is_once=True,
        ),
    ]


async def namespaces(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """Create `size` other namespaces with a session each."""
    session = await session_of(store, 200)
    for number in range(size):
        async with perdure.open(store.backend.address, namespace=f"beside-{number}") as beside:
            await session_of(beside, 20)
    runtime = await stack.enter_async_context(runtime_with_tools(store))
    chat = await runtime.start(AGENT)
    await chat.send("go on")
    return [
        Operation("run the first search", lambda: store.search("number"), is_once=True),
        Operation("append an entry", lambda: session.append(user("one more"))),
        Operation("read the newest 50 messages", lambda: session.messages(last=50)),
        Operation("list the newest 50 sessions", store.recent),
        Operation("list the questions of the store", store.questions),
        Operation("append an entry and search", lambda: _said_and_sought(store, session)),
        Operation("run a turn with 2 tool calls", lambda: chat.send("again")),
        Operation("read the store's info", store.info),
        Operation("verify the store, including the whole file", store.verify, LINEAR),
        Operation("read the first event of the store", lambda: _first_event(store, 0)),
        Operation("read the store's position", store.backend.position),
    ]


async def neighbour(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """Create a few entries between `size` entries of another namespace."""
    session = await session_of(store, 1)
    opening = perdure.open(store.backend.address, namespace="beside", durability="normal")
    beside = await stack.enter_async_context(opening)
    for half in (size // 2, size - size // 2):
        await session_of(beside, half)
        await fill(session, HELD // 2)
    await beside.search("number")
    after = await store.backend.position()
    await session.append(user("the newest"))
    return [
        Operation("run the first search", lambda: store.search("number"), is_once=True),
        Operation("append an entry and search", lambda: _said_and_sought(store, session)),
        Operation("append an entry", lambda: session.append(user("one more"))),
        Operation("read the first event of the store", lambda: _first_event(store, 0)),
        Operation("read the first event after a position", lambda: _first_event(store, after)),
        Operation("read the store's position", store.backend.position),
        Operation("list the newest 50 sessions", store.recent),
        Operation("read the store's info", store.info),
        Operation("verify the store, including the whole file", store.verify, LINEAR),
        Operation(
            "read the store's statistics, including the whole file", lambda: figures(store), LINEAR
        ),
    ]


async def large_message(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """Create a message of `size` bytes."""
    text = text_of("source code", size, 1)
    session = await store.create()
    runtime = await stack.enter_async_context(
        perdure.Runtime(store, [perdure.Agent("echo", model="scripted:echo")])
    )
    chat = await runtime.start("echo")
    await chat.send("hello")
    await store.search("hello")
    return [
        Operation("append the message", lambda: session.append(user(text)), LINEAR),
        Operation("read the newest message", lambda: session.messages(last=1), LINEAR),
        Operation(
            "run the first search after the append",
            lambda: store.search("hello"),
            LINEAR,
            is_once=True,
        ),
        Operation("run a turn with the message", lambda: chat.send(text), LINEAR, is_once=True),
        Operation("create another session and append an entry", lambda: _created(store)),
    ]


async def copied(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """Create `size` sessions that are already copied, to measure another copy."""
    await store.backend.commit(sessions_of(range(size)))
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="perdure-bench-"))
    target = await stack.enter_async_context(perdure.open(f"sqlite:///{folder}/copy.db"))
    await copy_sessions(store, target)
    return [
        Operation(
            "copy the store again, without new sessions",
            lambda: copy_sessions(store, target),
            LINEAR,
        )
    ]


async def fork_chain(store: Store, size: int, stack: AsyncExitStack) -> list[Operation]:
    """Create a deep chain of forks with a different word each; the first session has a label."""
    del stack
    session = await session_of(store, 200)
    await session.label(f"{session.id}/0", "first")
    for number in range(size):
        session = await session.fork()
        await session.append(user(f"fork {number}"))
    last = session
    return [
        Operation("read the newest 50 messages of the last fork", lambda: last.messages(last=50)),
        Operation(
            "read the newest 50 entries of the last fork's tree", lambda: last.tree_entries(50)
        ),
        Operation("append an entry to the last fork", lambda: last.append(user("more"))),
        Operation("fork the last fork", last.fork),
        Operation("read all messages of the last fork", last.messages, LINEAR),
        Operation("list the labels of the last fork", last.labels, LINEAR),
    ]


SUBJECTS: dict[str, tuple[Made, tuple[int, ...]]] = {
    "entries of a session": (entries, MANY),
    "sessions of a store": (sessions, MANY),
    "copied sessions": (copied, FEW),
    "bytes of a message": (large_message, BYTES),
    "branches": (branches, FEW),
    "pins": (pins, FEW),
    "answered questions": (questions, FEW),
    "open questions": (open_questions, FEW),
    "watchers": (watchers, FEW),
    "forks of forks": (forks, FEW),
    "a deep chain of forks": (fork_chain, DEEP),
    "namespaces": (namespaces, FEW),
    "entries of another namespace": (neighbour, MANY),
    "nodes of a flow": (nodes, FEW),
    "entries of a flow": (flow_past, MANY),
    "flows": (flows, FEW),
}


# ---------------------------------------------------------------- what is measured


async def _retained(store: Store) -> None:
    await retention.apply_retention(store, Retention(max_age_s=10**8, max_idle_s=10**8))
    await retention.apply_retention(store, Retention(max_sessions=10**8, max_bytes=2**60))


async def _created(store: Store) -> None:
    session = await store.create()
    await session.append(user("a new one"))


async def _said_and_sought(store: Store, session: Session) -> None:
    await session.append(user(f"word{next(_numbers)}"))
    await store.search("number", limit=10)


async def _used(session: Session) -> None:
    roots = await session.tree()
    for root in copy.deepcopy(roots):
        assert len(repr(root)) < len(root.to_json())


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
