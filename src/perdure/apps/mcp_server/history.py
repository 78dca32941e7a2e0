"""The requests of an MCP client to a store: each method is a tool.

The docstring of each method is the description of its tool.

Every answer is text for a model: its length is limited, and everything that looks like a secret is
masked. A session that the client may not see is reported as missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from perdure.apps.session_rows import agent_of
from perdure.client.memory.recall import recall_anyway
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.errors import AmbiguousId, EntryNotFound, Erased, FactNotFound, SessionNotFound
from perdure.memory.episodes import summary_of
from perdure.memory.hits import MemoryHit
from perdure.memory.scope import ScopeName
from perdure.models.embedders.protocol import Embedder, EmbedderName
from perdure.secrets.mask import mask_part, mask_secrets
from perdure.session.clock import minute
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import SessionInfo
from perdure.session.kinds import MESSAGE
from perdure.session.memory.facts import Fact
from perdure.session.messages import Message
from perdure.session.search.query import sought_in
from perdure.session.search.searchable import searchable_of
from perdure.session.search.snippets import snippet_of
from perdure.session.search.values import MOST_RANKED, Hit

MOST_CHARACTERS = 20_000
"""Maximum length of an answer. A longer text is cut, and the answer says how to read the rest."""

MOST_HITS = 50
MOST_MESSAGES = 200
MOST_LISTED = 100

_SNIPPET = 1_200
"""Maximum length of one recalled text."""

_LOOKED_AT = 4
"""Number of hits or sessions to read per wanted result: some of them are hidden from the client."""


class Scope:
    """The sessions that a client sees: those of `subject`, or those of all subjects if `is_all`.

    If `agent` is given, the client sees only sessions of this agent.
    """

    def __init__(self, subject: str | None, *, is_all: bool, agent: str | None = None) -> None:
        self.subject = None if is_all else subject
        self.agent = agent
        self.is_all = is_all

    @property
    def is_limited(self) -> bool:
        """Whether there can be sessions that the client does not see."""
        return not self.is_all or self.agent is not None

    @property
    def name(self) -> ScopeName:
        """The name of this scope in the memory API."""
        if not self.is_all:
            return "subject"
        return "namespace" if self.agent is None else "agent"

    async def allows(self, store: Store, session: StreamId, subject: str | None) -> bool:
        """Return whether the client sees `session`, which belongs to `subject`."""
        if not self.is_all and subject != self.subject:
            return False
        return self.agent is None or self.agent == await agent_of(store, session)


class History:
    """The read-only tools of the MCP server."""

    def __init__(
        self, store: Store, scope: Scope, embedder: Embedder | EmbedderName | None = None
    ) -> None:
        self._store = store
        self._scope = scope
        self._memory = store.memory.with_embedder(embedder)

    async def recall(self, question: str, limit: int = 8) -> str:
        """Search the memory for a question, in the words that a person would use.

        Finds messages, summaries of sessions, and facts. A text is found even if it shares few
        words with the question. Each result names its session and entry, or its fact; read_session
        and read_entry return more text.
        """
        scope, wanted = self._scope, _within(limit, MOST_HITS)
        hits, problem = await recall_anyway(
            self._memory,
            question,
            limit=wanted,
            subject=scope.subject,
            agent=scope.agent,
            scope=scope.name,
        )
        if scope.agent is not None:  # a session may have changed its agent
            hits = [
                hit for hit in hits if hit.kind == "fact" or await self._is_shown(hit.session_id)
            ]
        found = [_recalled(hit, whole) for hit in hits if (whole := await self._whole(hit))]
        found = found or ["Nothing in earlier sessions is about that."]
        return _answer([*_words_only(problem), *found], "")

    async def search_sessions(self, query: str, limit: int = 10) -> str:
        """Find messages that contain all words of a query, in every branch of every session.

        "words in quotes" must be next to each other, begin* finds all words with this beginning, OR
        finds texts with either word, and NOT excludes texts with a word.
        """
        wanted, phrases = _within(limit, MOST_HITS), sought_in(query).phrases
        found: list[str] = []
        for hit in await self._shown_hits(query, wanted):
            text, entry = hit.snippet, "title"
            if hit.entry is not None:  # a snippet may begin within a secret
                if not (whole := await self._said(hit.entry)):
                    continue
                text, entry = snippet_of(mask_secrets(whole), phrases).text, f"entry {hit.entry}"
            head = f"{minute(hit.at)}  session {hit.stream}  {entry}  {hit.role}"
            found.append(f"{head}\n{_indented(text)}")
        return _answer(found, "Nothing contains these words.")

    async def list_sessions(self, query: str = "", limit: int = 20) -> str:
        """List sessions, the last active first; `query` is a part of their title or id."""
        wanted = _within(limit, MOST_LISTED)
        shown = await self.newest(wanted, query)
        return _answer(map(_listed, shown), "There are no such sessions.")

    async def read_session(self, session: str, last: int = 40, before: str = "") -> str:
        """Read messages of a session's current branch, oldest first.

        `session` is an id or its beginning. `last` is the number of messages. To read earlier
        messages, set `before` to the oldest entry that you have read.
        """
        opened = await self._open(session)
        path = await opened.path(kind=MESSAGE)
        if before:
            ids = [entry.id for entry in path]
            path = path[: ids.index(EntryId(before))] if before in ids else []
        path = path[-_within(last, MOST_MESSAGES) :]
        title = opened.title or "without a title"
        head = f"Session {opened.id}, {title}"
        said = [text for entry in path if (text := _message(entry)) is not None]
        return _answer(_newest_that_fit([head, *said]), "The session has no messages.")

    async def read_entry(self, entry: str, offset: int = 0) -> str:
        """Read the whole text of one entry; `offset` is the character to begin at."""
        text = _text_of(await self.shown_entry(entry))
        part = mask_secrets(text)[max(offset, 0) :]
        if len(part) <= MOST_CHARACTERS:
            return part or "The entry has no text from there on."
        end = max(offset, 0) + MOST_CHARACTERS
        return f"{part[:MOST_CHARACTERS]}\n[cut; continue with offset {end}]"

    async def list_facts(self, limit: int = 50) -> str:
        """List the facts that were remembered, newest first."""
        scope, wanted = self._scope, _within(limit, MOST_LISTED)
        facts = await self._store.memory.facts(
            subject=scope.subject, agent=scope.agent, scope=scope.name, limit=wanted
        )
        return _answer(map(_fact, facts), "No facts are remembered.")

    async def shown_entry(self, entry: str) -> Entry:
        """Return an entry that the client may see.

        Raises: EntryNotFound if the entry does not exist, or is out of scope.
        """
        try:
            found = await self._store.entry(entry)
        except (AmbiguousId, Erased):
            if not self._scope.is_limited:
                raise
            raise EntryNotFound(entry, None) from None
        if not await self._is_shown(found.stream):
            raise EntryNotFound(entry, None)
        return found

    async def text_of(self, session: str) -> str:
        """Return the current branch of a session as text, for the session's resource."""
        return await self.read_session(session, last=MOST_MESSAGES)

    async def newest(self, limit: int, query: str = "") -> list[SessionInfo]:
        """Return the client's sessions with `query` in the title or id, the last active first."""
        shown: list[SessionInfo] = []
        page: list[SessionInfo] | None = None
        while page is None or (len(page) == limit * _LOOKED_AT and len(shown) < limit):
            last = page[-1] if page else None
            page = await self._store.recent(limit * _LOOKED_AT, query=query or None, after=last)
            shown += [
                info
                for info in page
                if await self._scope.allows(self._store, info.id, info.subject)
            ]
        return shown[:limit]

    async def _whole(self, hit: MemoryHit) -> str:
        """Return the whole text that the passage of `hit` is from; "" if the text was erased."""
        if hit.kind != "fact":
            return await self._said(hit.entry_id)
        with suppress(FactNotFound):
            return (await self._store.memory.fact(hit.entry_id)).text
        return ""

    async def _said(self, entry: str) -> str:
        """Return the text of the entry with the id `entry`; "" if it was erased in the meantime."""
        with suppress(EntryNotFound, SessionNotFound, Erased):
            return _text_of(await self._store.entry(entry))
        return ""

    async def _shown_hits(self, query: str, wanted: int) -> list[Hit]:
        """Return the best `wanted` hits that the client may see; read as many hits as needed."""
        limit = wanted
        while True:
            limit *= _LOOKED_AT
            hits = await self._store.search(query, limit=limit)
            sessions = {hit.stream for hit in hits}
            shown = {session for session in sessions if await self._is_shown(session)}
            found = [hit for hit in hits if hit.stream in shown][:wanted]
            if len(found) == wanted or len(hits) < limit or limit > MOST_RANKED:
                return found

    async def _open(self, session: str) -> Session:
        if not self._scope.is_limited:
            return await self._store.open(await self._store.find(session))
        if await self._is_shown(StreamId(session)):
            return await self._store.open(session)
        begun = await self._store.recent(MOST_LISTED, scope="all", id_prefix=session)
        shown = [info.id for info in begun if await self._is_shown(info.id)]
        if len(shown) != 1:  # others with this beginning do not exist for the client
            raise SessionNotFound(session)
        return await self._store.open(shown[0])

    async def _is_shown(self, stream: StreamId) -> bool:
        if not self._scope.is_limited:
            return True
        try:
            subject = (await self._store.open(stream)).subject
            return await self._scope.allows(self._store, stream, subject)
        except (SessionNotFound, Erased):
            return False


class Notebook:
    """The tools that write, offered only if the person who starts the server allows writing."""

    def __init__(self, store: Store, scope: Scope) -> None:
        self._store = store
        self._scope = scope
        self._history = History(store, scope)

    async def remember(self, text: str, entry: str = "") -> str:
        """Remember a fact for later sessions: one sentence that can be understood by itself.

        `entry` is the id of the entry that states the fact, if any. When the entry is erased, the
        fact is erased too.
        """
        source = await self._history.shown_entry(entry) if entry else None
        fact = await self._store.memory.remember(
            text,
            subject=self._scope.subject,
            agent=self._scope.agent,
            source=source,
            said_by="tool",
        )
        return f"Remembered as {fact.id}."

    async def correct(self, fact: str, text: str) -> str:
        """Replace a fact by a newer one; the history of the fact contains the old text."""
        newer = await self._store.memory.correct(await self._own(fact), text, said_by="tool")
        return f"Corrected as {newer.id}."

    async def forget(self, fact: str) -> str:
        """Erase a fact."""
        await self._store.memory.forget(await self._own(fact), by="MCP client")
        return "Forgotten."

    async def _own(self, fact: str) -> str:
        """Return the fact id `fact` if the client may see the fact.

        Raises: FactNotFound.
        """
        known = await self._store.memory.facts(
            subject=self._scope.subject, agent=self._scope.agent, include_past=True
        )
        if fact not in {each.id for each in known}:
            raise FactNotFound(fact)
        return fact


def _recalled(hit: MemoryHit, whole: str) -> str:
    """Return `hit` as text.

    Secrets are masked in the text `whole`, because the passage of the hit can contain only half of
    a secret.
    """
    head = f"{minute(hit.at)}  session {hit.session_id}  entry {hit.entry_id}  "
    head += hit.author or hit.role
    if hit.kind == "fact":
        head = f"{minute(hit.at)}  fact {hit.entry_id}"
    text = mask_part(whole, hit.start, hit.start + len(hit.text))
    text = text if len(text) <= _SNIPPET else text[:_SNIPPET] + " […]"
    return f"{head}\n{_indented(text)}"


def _words_only(problem: str | None) -> list[str]:
    return [] if problem is None else [f"Only words were compared: {problem}"]


def _listed(info: SessionInfo) -> str:
    title = info.name or "without a title"
    where = f"  {info.cwd}" if info.cwd else ""
    head = f"{minute(info.updated_at)}  session {info.id}  {info.messages} messages{where}"
    return f"{head}\n  {title}"


def _fact(fact: Fact) -> str:
    return f"{minute(fact.at)}  fact {fact.id}\n{_indented(fact.text)}"


def _message(entry: Entry) -> str | None:
    body = entry.message
    if not isinstance(body, Message):
        return None
    text = mask_secrets(_text_of(entry))
    if not text:
        return None
    at = entry.at if body.said_at is None else body.said_at
    cut = "" if len(text) <= _SNIPPET else f" […{len(text) - _SNIPPET} more: read_entry]"
    head = f"{minute(at)}  entry {entry.id}  {body.author or body.role}"
    return f"{head}\n{_indented(text[:_SNIPPET] + cut)}"


def _text_of(entry: Entry) -> str:
    """Return the text of an entry; for an episode, its summary."""
    found = searchable_of(entry) or summary_of(entry)
    return "" if found is None else found.text


def _newest_that_fit(texts: Sequence[str]) -> list[str]:
    """Return the first text, then as many of the last texts as fit into an answer, in order."""
    head, *rest = texts
    left, kept = MOST_CHARACTERS - len(head), list[str]()
    for text in reversed(rest):
        left -= len(text) + 2
        if left < 0:
            kept.append("[earlier messages left out: use `before`]")
            break
        kept.append(text)
    return [head, *reversed(kept)] if rest else []


def _answer(texts: Iterable[str], nothing: str) -> str:
    answer = mask_secrets("\n\n".join(texts)) or nothing
    if len(answer) <= MOST_CHARACTERS:
        return answer
    return answer[:MOST_CHARACTERS] + "\n[cut: ask for fewer results]"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _within(limit: int, most: int) -> int:
    return min(max(limit, 1), most)
