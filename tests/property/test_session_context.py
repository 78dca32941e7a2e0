"""The context within a budget equals the context of the whole branch, for any session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from unittest.mock import patch

from hypothesis import event, given
from hypothesis import strategies as st

from perdure.client.agents.agent import Agent
from perdure.client.agents.chat import Chat
from perdure.client.agents.runtime import Runtime
from perdure.client.conversation import contexts
from perdure.client.session import Session
from perdure.context.build import Context, History
from perdure.engine.turns.config import CompactionSettings
from perdure.errors import InvalidEntry
from perdure.session.ids import EntryId
from perdure.session.kinds import Compaction, Custom, ModelChange, ThinkingChange
from perdure.session.messages import Message, Usage, assistant, tool_call, tool_result, user
from perdure.tools.decorator import tool
from tests.fakes.chats import MODEL, Stage, calls, says
from tests.fakes.contexts import with_numbered_calls

TURNS = (
    (says("one word"),),
    (says("let me look", calls("look", "look")), says("it is red and it is blue")),
    (says(calls("look")), says(calls("look")), says("nothing " * 12)),
)
"""The model's answers in the turns of a session, in order."""

ALL = 2**31
"""Number of entries that are read at first; no session has more."""


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen " * 20


class Course:
    """A session with an agent, to which a test appends random events."""

    def __init__(self, runtime: Runtime, chat: Chat) -> None:
        self.runtime = runtime
        self.chat = chat
        self.number = 0

    @property
    def session(self) -> Session:
        return self.chat.session

    async def entry(self, at: int) -> EntryId | None:
        """Return an entry of the tree, counted from the newest."""
        found = await self.session.tree_entries()
        return found[-1 - at % len(found)].id if found else None

    async def say(self, at: int) -> None:
        """Append exchanges, some with reported usage."""
        for n in range(at % 7):
            self.number += 1
            usage = Usage(self.number * 40) if at % 3 == 0 or n % 4 == 1 else None
            await self.session.append(user(f"ask {self.number} " * (at % 5 + 1)))
            await self.session.append(assistant(f"answer {self.number} " * 3, usage=usage))

    async def work(self, at: int) -> None:
        """Append rounds of calls; some calls have no result, or a late one."""
        self.number += 1
        ids = [f"c{self.number}-{n}" for n in range(at % 4)]
        results = [tool_result(id_, f"result of {id_}") for id_ in ids]
        asking = assistant("hm", *(tool_call(id_, "look", {}) for id_ in ids))
        late = [user("meanwhile")] if at % 5 == 0 else []
        said = [asking, *late, *(results[1:] if at % 7 == 0 else results)]
        await self.session.append_many([user(f"do {self.number}"), *said, assistant("done")])

    async def fail(self, at: int) -> None:
        failed: tuple[Message, ...] = (
            assistant("oops", stop_reason="error"),
            assistant("cut", stop_reason="aborted", usage=Usage(at)),
            assistant(" ", stop_reason="error"),
        )
        await self.session.append(failed[at % 3])

    async def send(self, at: int) -> None:
        self.number += 1
        await self.chat.send(f"turn {self.number}, {at}")

    async def settle(self, at: int) -> None:
        changes = (ModelChange(MODEL), ThinkingChange("low"), Custom("note", at))
        await self.session.append(changes[at % 3])

    async def compact(self, at: int) -> None:
        kept = (user("kept"), assistant("as it was")) if at % 4 == 0 else None
        first = await self.entry(at) if at % 3 else None
        await self.session.append(Compaction("gist", first, retained=kept))

    async def uncompact(self, at: int) -> None:
        with suppress(InvalidEntry):
            await self.session.uncompact()

    async def pin(self, at: int) -> None:
        entry = await self.entry(at)
        if entry is not None:
            await (self.session.unpin(entry) if at % 6 == 0 else self.session.pin(entry))

    async def branch(self, at: int) -> None:
        await self.session.branch(await self.entry(at))

    async def edit(self, at: int) -> None:
        await self.session.append(user(f"rather {at}"), parent=await self.entry(at))

    async def fork(self, at: int) -> None:
        fork = await self.session.fork(await self.entry(at))
        self.chat = await self.runtime.resume(fork.id, self.chat.agent)


HISTORIES: list[History] = ["full", "full", "text_only"]
Step = Callable[[Course, int], Awaitable[None]]
STEPS: tuple[Step, ...] = (
    *([Course.say] * 5),
    *([Course.send] * 3),
    *([Course.work] * 3),
    *([Course.pin] * 3),
    *(Course.fail, Course.settle, Course.compact, Course.uncompact),
    *(Course.branch, Course.edit, Course.fork),
)


async def context_reading(session: Session, first: int, budget: int | None) -> Context:
    """Return the context of `session`, read from its newest `first` entries or more."""
    with patch.object(contexts, "_FIRST_READ", first):
        return await session.context(budget)


@given(
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 40)), min_size=4, max_size=16),
    history=st.sampled_from(HISTORIES),
    most=st.none() | st.integers(1, 8),
    budgets=st.lists(st.integers(1, 60) | st.integers(1, 600), min_size=1, max_size=3),
    first=st.integers(1, 8),
)
def test_context_within_budget_equals_context_of_whole_branch(
    steps: list[tuple[Step, int]],
    history: History,
    most: int | None,
    budgets: list[int],
    first: int,
) -> None:
    async def run() -> None:
        turns = [reply for _ in steps for turn in TURNS for reply in turn]
        stage = Stage(*turns)
        compaction = CompactionSettings(max_messages=most)
        agent = Agent("a", model=MODEL, tools=(look,), history=history, compaction=compaction)
        async with stage.runtime(agent) as runtime:
            course = Course(runtime, await runtime.start(agent, id="s"))
            for step, at in steps:
                await step(course, at)
            for budget in budgets:
                whole = await context_reading(course.session, ALL, budget)
                found = await context_reading(course.session, first, budget)
                event("something left out" if whole.dropped else "everything sent")
                assert with_numbered_calls(found) == with_numbered_calls(whole)

    asyncio.run(run())
