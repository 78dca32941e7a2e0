"""Tools that let an agent read and change the memory of its session's subject.

A tool call can see only facts and sessions of the session's subject, and no fact of another agent.
A call that changes a fact needs the same approval as a call that changes a file. The size of
results is limited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from perdure.client.lookup.search_hits import hits_in_force
from perdure.client.memory.handle import RECALLED, Memory
from perdure.client.memory.recall import recall_anyway
from perdure.errors import FactNotFound, SessionNotFound
from perdure.memory.episodes import agent_in
from perdure.memory.injection import one_item
from perdure.session.argument_checks import takes_declared
from perdure.session.codec import role_of
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.memory.facts import Fact
from perdure.session.messages import MESSAGE
from perdure.session.notes import AgentBound, SessionStarted
from perdure.session.search.searchable import searchable_of
from perdure.session.search.values import MOST_RANKED, Hit, SearchQuery
from perdure.tools.decorator import Declares, tool
from perdure.tools.permissions import Permissions
from perdure.tools.spec import Subject, ToolCall, ToolSpec

_NEWEST = 50
"""The source of a new fact is searched for in this many newest messages."""

_MOST_FACTS = 100
"""Maximum number of facts in one result."""

_MOST_HITS, _MOST_READ = 10, 30
"""Maximum number of hits in one result, and of messages of a session in one result."""

_LOOKED_AT = 4
"""Number of hits that are read first for each wanted hit: some hits belong to other subjects."""

_MOST_CHARACTERS = 1_200
"""Maximum number of characters of one message in a result."""

_KINDS = {"said": "", "knowledge": "", "episode": "Summary: ", "fact": "Fact: "}
"""Kind of a hit -> the prefix of its text."""

Text = Annotated[str, Meta(min_length=1, max_length=1_000)]
FactId = Annotated[str, Meta(min_length=1, max_length=200)]
Id = Annotated[str, Meta(max_length=200)]


@takes_declared
def memory_tools(memory: Memory) -> list[ToolSpec]:
    """Return the tools that let an agent read and change `memory`.

    The tools are recall, search_sessions, read_session, facts, remember, correct and forget. A call
    is limited to the subject of its session. A call that changes a fact needs approval.
    """
    calls = _Calls(memory)
    read, write = tool(effect="read"), tool(effect="write", on_unknown="retry")
    reads = (calls.recall, calls.search_sessions, calls.read_session, calls.facts)
    writes = (calls.remember, calls.correct, calls.forget)
    return [
        *_declared(read, reads, is_outside=True),
        *_declared(write, writes, action="fs_write", examine=_shown),
    ]


def _declared(
    declares: Declares, functions: Iterable[Callable[..., Any]], **fields: Any
) -> list[ToolSpec]:
    return [msgspec.structs.replace(declares(each), **fields) for each in functions]


def _shown(args: Mapping[str, object], _permissions: Permissions) -> Subject:
    return Subject(" ".join(str(args[name]) for name in ("fact", "text") if name in args))


def _line(entry: Entry) -> str | None:
    """Return a message as a line with its id; None if it has no text."""
    found = searchable_of(entry)
    if found is None:
        return None
    cut = "" if len(found.text) <= _MOST_CHARACTERS else " […]"
    text = one_item(found.text[:_MOST_CHARACTERS] + cut)
    return f"[{entry.id}] {found.author or found.role}: {text}"


class _Calls:
    """The functions of the tools; a model reads their docstrings."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def recall(
        self, question: Annotated[Text, "A whole question."], *, call: ToolCall
    ) -> str:
        """Find what is remembered about a question, best first.

        Finds what was said in earlier sessions, summaries of them, and facts.
        """
        hits, problem = await recall_anyway(
            self._memory,
            question,
            limit=RECALLED,
            subject=await self._subject(call),
            without=[call.session_id],
            knowledge_of=await self._agent(call),
        )
        found = [f"[{hit.entry_id}] {_KINDS[hit.kind]}{one_item(hit.text)}" for hit in hits]
        found = found or ["Nothing was found."]
        if problem is not None:
            found.append(f"Only words were compared: {problem}")
        return "\n\n".join(found)

    async def search_sessions(
        self,
        query: Annotated[Text, 'Words; "words in quotes" must be next to each other.'],
        *,
        call: ToolCall,
    ) -> str:
        """Find messages of earlier sessions that contain all words of a query, best first."""
        own, limit = {call.session_id: False}, _MOST_HITS
        subject, found, is_more = await self._subject(call), list[Hit](), True
        while is_more and len(found) < _MOST_HITS and limit <= MOST_RANKED:
            limit *= _LOOKED_AT
            asked = SearchQuery(text=query, limit=limit)
            hits = await hits_in_force(self._memory.backend, asked)
            for stream in {hit.stream for hit in hits} - own.keys():
                own[stream] = await self._subject_of(stream) == subject
            found, is_more = [hit for hit in hits if own[hit.stream]], len(hits) == limit
        return (
            "\n\n".join(
                f"[{hit.entry or hit.stream}] {one_item(hit.snippet)}" for hit in found[:_MOST_HITS]
            )
            or "Nothing was found."
        )

    async def read_session(
        self,
        session: Annotated[FactId, "The id of the session: what stands before / in an entry's id."],
        before: Annotated[Id, "The id of the entry to stop before; else the newest are read."] = "",
        *,
        call: ToolCall,
    ) -> str:
        """Read messages of an earlier session, oldest first."""
        store, stream = self._memory.backend, StreamId(session)
        if await self._subject_of(stream) != await self._subject(call):
            raise SessionNotFound(session)
        leaf = EntryId(before) if before else (await store.state(stream)).leaf
        newest = await store.branch(stream, leaf, limit=_MOST_READ + 1, kind=MESSAGE)
        texts = [_line(entry) for entry in newest if entry.id != before][-_MOST_READ:]
        return "\n\n".join(filter(None, texts)) or "It has no messages there."

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
        """Return the fact if it is visible to the session's subject and agent.

        Raises: FactNotFound.
        """
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
        return await self._subject_of(StreamId(call.session_id))

    async def _subject_of(self, session: StreamId) -> str | None:
        """Return the subject of a session. Raises: SessionNotFound, Erased."""
        header = (await self._memory.backend.state(session)).header
        if header.kind != "session":
            raise SessionNotFound(session)
        return header.subject

    async def _source(self, call: ToolCall) -> EntryId | None:
        """Return the user's newest message as a fact's source; if it is erased, so is the fact."""
        store, session = self._memory.backend, StreamId(call.session_id)
        leaf = (await store.state(session)).leaf
        newest = await store.branch(session, leaf, limit=_NEWEST, kind=MESSAGE)
        said = (each.id for each in reversed(newest) if role_of(each) == "user")
        return next(said, None)
