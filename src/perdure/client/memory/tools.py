"""Tools with which an agent reads and changes the memory of its session's subject.

A call sees the facts and sessions of that subject only, and no fact of another agent. Calls that
change a fact need approval, as changes of files do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from perdure.client.memory.handle import Memory
from perdure.errors import FactNotFound
from perdure.memory.episodes import agent_in
from perdure.memory.injection import one_item
from perdure.session.argument_checks import takes_declared
from perdure.session.codec import role_of
from perdure.session.ids import EntryId, StreamId
from perdure.session.memory.facts import Fact
from perdure.session.messages import MESSAGE
from perdure.session.notes import AgentBound, SessionStarted
from perdure.tools.decorator import tool
from perdure.tools.permissions import Permissions
from perdure.tools.spec import Subject, ToolCall, ToolSpec

_NEWEST = 50
"""Messages in which the one that a fact comes from is looked for."""

_MOST_FACTS = 100
"""Facts in an answer."""

Text = Annotated[str, Meta(min_length=1, max_length=1_000)]
FactId = Annotated[str, Meta(min_length=1, max_length=200)]


@takes_declared
def memory_tools(memory: Memory) -> list[ToolSpec]:
    """Return the tools recall, facts, remember, correct and forget over `memory`, for an agent.

    A call works on the subject of its session only. The calls that change a fact need approval.
    """
    calls = _Calls(memory)
    read, write = tool(effect="read"), tool(effect="write", on_unknown="retry")
    reads: tuple[ToolSpec, ...] = (read(calls.recall), read(calls.facts))
    writes: tuple[ToolSpec, ...] = (
        write(calls.remember),
        write(calls.correct),
        write(calls.forget),
    )
    return [
        *(msgspec.structs.replace(each, is_outside=True) for each in reads),
        *(msgspec.structs.replace(each, action="fs_write", examine=_shown) for each in writes),
    ]


def _shown(args: Mapping[str, object], _permissions: Permissions) -> Subject:
    return Subject(" ".join(str(args[name]) for name in ("fact", "text") if name in args))


class _Calls:
    """The functions of the tools; their docstrings are what a model reads."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def recall(
        self, question: Annotated[Text, "A whole question."], *, call: ToolCall
    ) -> str:
        """Find what was said in earlier sessions about a question, best first."""
        subject = await self._subject(call)
        hits = await self._memory.recall(question, subject=subject, without=[call.session_id])
        return (
            "\n\n".join(f"[{hit.entry_id}] {one_item(hit.text)}" for hit in hits)
            or "Nothing was found."
        )

    async def facts(self, *, call: ToolCall) -> str:
        """List the facts that are remembered, newest first, each after its id."""
        subject, agent = await self._subject(call), await self._agent(call)
        facts = await self._memory.facts(subject=subject)
        found = [fact for fact in facts if fact.agent in (None, agent)][:_MOST_FACTS]
        return "\n".join(f"[{fact.id}] {one_item(fact.text)}" for fact in found) or "No facts."

    async def remember(
        self,
        text: Annotated[Text, "The fact, as a sentence that is clear without this conversation."],
        *,
        call: ToolCall,
    ) -> str:
        """Remember a lasting fact for later sessions."""
        fact = await self._memory.remember(
            text,
            subject=await self._subject(call),
            source=await self._source(call),
            said_by="inferred",
            idempotency_key=call.idempotency_key,
        )
        return f"Remembered as {fact.id}."

    async def correct(
        self,
        fact: Annotated[FactId, "The id of the fact."],
        text: Annotated[Text, "What the fact says from now on."],
        *,
        call: ToolCall,
    ) -> str:
        """Replace what a remembered fact says."""
        known = await self._own(fact, call)
        await self._memory.correct(
            known.id,
            text,
            source=await self._source(call),
            said_by="inferred",
            idempotency_key=call.idempotency_key,
        )
        return f"Corrected {known.id}."

    async def forget(
        self, fact: Annotated[FactId, "The id of the fact."], *, call: ToolCall
    ) -> str:
        """Permanently erase a remembered fact."""
        known = await self._own(fact, call)
        await self._memory.forget(known.id)
        return f"Forgot {known.id}."

    async def _own(self, fact: str, call: ToolCall) -> Fact:
        """Return the fact if the session's subject and agent see it. Raises: FactNotFound."""
        known = await self._memory.fact(fact)
        if known.subject != await self._subject(call):
            raise FactNotFound(fact)
        if known.agent is not None and known.agent != await self._agent(call):
            raise FactNotFound(fact)
        return known

    async def _agent(self, call: ToolCall) -> str | None:
        session = StreamId(call.session_id)
        bindings = (SessionStarted.kind, AgentBound.kind)
        return agent_in(await self._memory.backend.notes(session, bindings))

    async def _subject(self, call: ToolCall) -> str | None:
        state = await self._memory.backend.state(StreamId(call.session_id))
        return state.header.subject

    async def _source(self, call: ToolCall) -> EntryId | None:
        """Return the newest message of the person in the session: erasing it erases the fact."""
        store, session = self._memory.backend, StreamId(call.session_id)
        leaf = (await store.state(session)).leaf
        newest = await store.branch(session, leaf, limit=_NEWEST, kind=MESSAGE)
        said = (each.id for each in reversed(newest) if role_of(each) == "user")
        return next(said, None)
