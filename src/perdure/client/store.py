"""The handle of a store: create, find, list and watch sessions."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from perdure.client.amounts import amount
from perdure.client.clock import Outside, absolute
from perdure.client.conversation.append import (
    AppendOptions,
    CommittedSessions,
    Item,
    commit_sessions,
)
from perdure.client.lookup import identifiers
from perdure.client.lookup.search_hits import hits_in_force
from perdure.client.reads import OpenQuestion
from perdure.client.session import Session
from perdure.client.session_fields import place_of, require_header, require_subject, title_of
from perdure.engine.hooks.registry import Hooks
from perdure.errors import Erased, QuestionNotFound, SessionExists, SessionNotFound, WrongArgument
from perdure.events.bus import LiveBus, SharesLiveEvents
from perdure.interop.reports import ExportedFile, ExportFormat, FormatName, ImportedFiles, Redaction
from perdure.session.argument_checks import takes_all_declared
from perdure.session.clock import ms_of
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, IdempotencyKey, StreamId
from perdure.session.info import (
    Origin,
    SessionInfo,
    SessionScope,
    Sought,
    SoughtStatus,
    StreamHeader,
)
from perdure.session.media.inline import HANDLE, SCHEME, InlineMedia
from perdure.session.messages import MediaPart
from perdure.session.notes import Question
from perdure.session.records import (
    ActivityGroup,
    ActivityTotal,
    FileEdit,
    ToolCallRecord,
    UsageGroup,
    UsageTotal,
)
from perdure.session.search.values import HITS, Hit, SearchQuery, SearchRole
from perdure.stores.access.lazy_modules import Later
from perdure.stores.lazy_session import LazySession, SessionStorage, StoredSession
from perdure.stores.protocol import (
    FLOW_KINDS,
    Capabilities,
    Commit,
    StoreInfo,
    StreamState,
    Verification,
    Write,
)
from perdure.stores.retention.erase import Certificate, ForkPolicy
from perdure.stores.session_store import SessionStore, exists

if TYPE_CHECKING:
    from perdure.client import erase as erasing
    from perdure.client import transfers
    from perdure.client import verify as verification
    from perdure.client import watch as watches
    from perdure.client.conversation import authority
    from perdure.client.inbox import flows as inbox_of_flows
    from perdure.client.lookup import session_files
    from perdure.client.memory import handle as memory_handle
    from perdure.client.records import edits as edit_records
    from perdure.client.records import sessions as session_records
    from perdure.client.records import tool_calls as call_records
    from perdure.client.records import usage as usage_records
    from perdure.client.requests import schedule as schedules
    from perdure.models import prices as model_prices
else:
    erasing = Later("perdure.client.erase")
    session_files = Later("perdure.client.lookup.session_files")
    session_records = Later("perdure.client.records.sessions")
    verification = Later("perdure.client.verify")
    watches = Later("perdure.client.watch")
    memory_handle = Later("perdure.client.memory.handle")
    authority = Later("perdure.client.conversation.authority")
    transfers = Later("perdure.client.transfers")
    inbox_of_flows = Later("perdure.client.inbox.flows")
    edit_records = Later("perdure.client.records.edits")
    call_records = Later("perdure.client.records.tool_calls")
    usage_records = Later("perdure.client.records.usage")
    schedules = Later("perdure.client.requests.schedule")
    model_prices = Later("perdure.models.prices")


@takes_all_declared
class Store:
    """One namespace of a store, made by `perdure.open` and closed at the end of its ``async with``.

    Runtimes and tools use `backend`, `outside` and `bus`; programs do not need them. All sessions
    of this handle share `bus`, so live events reach all watchers (on PostgreSQL, in every process).
    """

    def __init__(self, backend: SessionStore, outside: Outside, bus: LiveBus | None = None) -> None:
        self.backend = backend
        self.outside = outside
        self.bus = bus or LiveBus()
        if isinstance(backend, SharesLiveEvents):
            backend.share(self.bus)
        self.hooks = Hooks()
        self._tallies: (
            tuple[Mapping[str, model_prices.Price] | None, usage_records.Tallies] | None
        ) = None

    def __repr__(self) -> str:
        scheme, _, rest = self.backend.address.partition(":")
        name = rest.partition("?")[0].rstrip("/").rpartition("/")[2].rpartition("@")[2]
        return f"<Store {scheme} {name!r}>" if name else f"<Store {scheme}>"

    async def create(
        self,
        *,
        title: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        lazy: bool = False,
        id: str | None = None,
        metadata: Mapping[str, object] | None = None,
        origin: Origin = "user",
        subject: str | None = None,
        reuse_erased: bool = False,
    ) -> Session:
        """Create a session; with `lazy`, it is a draft until its first assistant message.

        With `reuse_erased`, `id` can be the id of an erased session, unless a fork still shows
        entries of that session. The certificate of the erasure is not removed. `subject` names the
        person that the session is about or with; `erase` can erase by subject. Durable: the session
        is stored when this returns, unless `lazy` is set. Raises: SessionExists if `id` is used;
        LimitExceeded for a long title; WrongArgument for an invalid `id`, an empty subject, text
        with a NUL, and metadata that is not JSON.
        """
        folder = absolute(cwd)
        require_header(subject=subject, metadata=metadata, cwd=folder)
        header = StreamHeader(
            id=self.outside.stream_id(id),
            created_at=self.outside.clock.now_ms(),
            origin=origin,
            cwd=folder,
            title=title_of(title),
            metadata=dict(metadata) if metadata else None,
            subject=subject,
        )
        above = 0
        if id is not None:
            above = await erasing.free_id(self.backend, header.id, is_reused=reuse_erased)
        if reuse_erased:  # a killed call may have removed the session and its epoch
            above = max(above, header.created_at)
        write = Write(stream=header.id, create=header, above_epoch=above)
        if lazy:
            return await self._draft(write, is_chosen=id is not None)
        try:
            await self.backend.commit(Commit(writes=(write,), at=header.created_at))
        except SessionExists:
            raise await erasing.session_exists_error(self.backend, header.id) from None
        return await self._handle(header.id, StoredSession(self.backend))

    async def open_or_create(
        self,
        id: str,
        *,
        title: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        metadata: Mapping[str, object] | None = None,
        subject: str | None = None,
    ) -> Session:
        """Return the session with the complete id `id`; create it if there is none.

        All arguments except `id` apply only to a new session. Concurrent calls of two processes get
        the same session. Raises: Erased; the errors of `create`.
        """
        with suppress(SessionNotFound):
            return await self.open(id)
        try:
            return await self.create(
                id=id, title=title, cwd=cwd, metadata=metadata, subject=subject
            )
        except SessionExists as error:
            if error.is_erased:
                raise Erased(id) from None
        return await self.open(id)

    async def open(self, session: str | Path) -> Session:
        """Return the session with the complete id `session`, or the session of a session file.

        A string is always an id; a `pathlib.Path` is always a file. The file must be a session file
        of this `jsonl:` store, or a file that was imported into this store. The session of an
        imported file lacks entries that were added to the file later. A link to a session file is
        followed, but a link inside the folder of a `jsonl:` store raises FormatError.
        Raises: SessionNotFound (or its subclass NotImported) if the session or file does not exist;
        Erased if it was erased; FormatError if the file cannot be read.
        """
        if isinstance(session, Path):
            id = (await session_files.find_file(self.backend, session)).session
        else:
            id = StreamId(session)
        return (await opened(self, id))[0]

    async def find(self, prefix: str, *, only: Literal["flow"] | None = None) -> StreamId:
        """Return the id that equals `prefix`, or the only id that begins with `prefix`.

        All other methods require complete ids. The call finds sessions and flows; with `only`, it
        finds only flows. An erased session is found if no other id begins with `prefix`. Raises:
        SessionNotFound (or FlowNotFound) if no id matches; AmbiguousId if several match.
        """
        if only == "flow":
            return await identifiers.find_flow(self.backend, prefix)
        return await identifiers.find_stream(self.backend, prefix)

    async def entry(self, reference: str) -> Entry:
        """Return the entry with the id or alias `reference`, in any session of the namespace.

        Raises: EntryNotFound; AmbiguousId when entries of several sessions have the alias.
        """
        return await identifiers.find_entry(self.backend, reference)

    async def commit(
        self,
        writes: Sequence[tuple[Session, Sequence[Item], AppendOptions]],
        *,
        idempotency_key: IdempotencyKey | None = None,
    ) -> CommittedSessions:
        """Append to several sessions atomically, in one commit.

        Each write is a session, items, and options that are named as in `Session.append_many`, such
        as ``(session, [user("Hello")], {"expected_head": 4})``. Draft sessions in `writes` are
        stored first. Durable: on return, all writes are stored; a crash or an error never leaves
        only some of them. With `idempotency_key`, a repeated call appends nothing and returns the
        first call's entries, with ``is_replay``. Raises: Unsupported for several sessions in a
        store of session files (see `capabilities`); InvalidEntry for two writes to one session, or
        an item that cannot be stored. Also raises HeadConflict, LeafConflict, IdempotencyMismatch,
        EntryNotFound, WrongArgument, LimitExceeded, Erased and QuotaExceeded. After
        StoreUnavailable, the commit might have succeeded, so repeat it with its `idempotency_key`.
        """
        written = [(each._writer, items, options) for each, items, options in writes]  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - of the handles
        return await commit_sessions(self.backend, self.outside, written, idempotency_key)

    async def content(self, handle: str | InlineMedia | MediaPart) -> bytes:
        """Return the bytes of the media `handle`, which can be in any entry of the namespace.

        Raises: EntryNotFound when the store does not have the content; CorruptLog when the content
        is damaged; WrongArgument for a text that is not a handle (``media://sha256-…``).
        """
        text = handle if isinstance(handle, str) else handle.handle
        if not HANDLE.fullmatch(text):
            raise WrongArgument(
                f"a handle is media://sha256- and 64 hexadecimal digits, not {text!r:.40}",
                argument="handle",
            )
        return await self.backend.blob(text.removeprefix(SCHEME))

    @property
    def memory(self) -> memory_handle.Memory:
        """The memory across sessions: texts of earlier sessions, facts, and episodes."""
        return memory_handle.Memory(self.backend, self.outside)

    @property
    def schedule(self) -> schedules.Schedule:
        """Messages that are sent later: add, list and cancel them."""
        return schedules.Schedule(self.backend, self.outside)

    @property
    def capabilities(self) -> Capabilities:
        """The optional features that this store supports; unsupported features raise an error."""
        return self.backend.capabilities

    async def continue_recent(self, cwd: str | os.PathLike[str] | None = None) -> Session:
        """Open the most recently active session (of `cwd`, if given), or create a draft."""
        folder = absolute(cwd)
        newest = await self.backend.sessions(limit=1, cwd=folder)
        if newest:
            return await self.open(newest[0].id)
        return await self.create(cwd=folder, lazy=True)

    async def recent(  # noqa: PLR0913 - each is a filter, and has a default
        self,
        limit: int | None = 50,
        *,
        scope: SessionScope = "listed",
        cwd: str | os.PathLike[str] | None = None,
        query: str | None = None,
        subject: str | None = None,
        metadata: Mapping[str, object] | None = None,
        source: str | None = None,
        status: SoughtStatus | None = None,
        id_prefix: str | None = None,
        after: str | SessionInfo | None = None,
    ) -> list[SessionInfo]:
        """List sessions, newest activity first. `query` must occur in a session's name or id.

        Filters: `cwd` (folder), `subject`, `metadata` (each value must match), `status`,
        `id_prefix` and `source` (imports of one program, such as "claude-code", or "perdure" for
        its own sessions). `after` (a session of an earlier list, or its `cursor`) continues that
        list. The status "interrupted" selects sessions with an open turn that no process runs,
        because the turn's process died or the turn was suspended. `subject`, `metadata` and
        `source` have no index: the call reads sessions, newest first, until `limit` of them match.
        Raises: ValueError when `limit` is negative or too large for a store; WrongArgument for an
        invalid `after`.
        """
        amount("limit", limit)
        require_subject(subject)
        sought = Sought(
            subject=subject,
            metadata=metadata,
            source=source,
            id_prefix=id_prefix,
            after=None if after is None else place_of(after),
        )
        folder = absolute(cwd)
        if status == "interrupted":
            return await session_records.interrupted_sessions(
                self.backend, limit=limit, scope=scope, cwd=folder, query=query, sought=sought
            )
        sought["status"] = status
        return await self.backend.sessions(
            limit=limit, scope=scope, cwd=folder, query=query, **sought
        )

    async def search(  # noqa: PLR0913 - each is a filter, and has a default
        self,
        text: str,
        *,
        roles: Sequence[SearchRole] | None = None,
        sessions: Sequence[str] | None = None,
        tools: Sequence[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        on_branch: bool | None = None,
        limit: int = HITS,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> list[Hit]:
        """Search every branch of every session for `text`, best first (see docs/guides/search.md).

        A hit must match every given filter: one of `roles`, one of `sessions` (complete ids), one
        of `tools`. The time of a hit is at or after `since` and before `until`; a time without a
        zone is local time. With `on_branch` True, a hit must be on the current branch of its
        session; with False, on another branch. An empty list as a filter matches nothing. In a
        store without an index, `on_progress` is called with (entries searched, all entries).
        Raises: InvalidQuery; SearchIndexDamaged; SessionNotFound; Unsupported; ValueError if
        `limit` is negative or too large for a store.
        """
        amount("limit", limit)
        query = SearchQuery(
            text=text,
            roles=tuple(roles or ()),
            sessions=tuple([await self._require_session(session) for session in sessions or ()]),
            tools=tuple(tools or ()),
            since=None if since is None else ms_of(since),
            until=None if until is None else ms_of(until),
            is_on_branch=on_branch,
            limit=limit,
        )
        is_empty = any(given is not None and not given for given in (roles, sessions, tools))
        return [] if is_empty else await hits_in_force(self.backend, query, on_progress)

    async def import_files(
        self,
        paths: Sequence[str | os.PathLike[str]],
        *,
        format: FormatName = "auto",
        subject: str | None = None,
        again: bool = False,
        on_progress: Callable[[Path, int], None] | None = None,
    ) -> ImportedFiles:
        """Import session files of perdure and other programs; folders are scanned.

        An invalid file does not stop the import of other files; `ImportedFiles.errors` lists
        failures. If a file is imported again, only its new entries are added. An erased session
        stays erased; with `again`, it is imported under a new id. New sessions get `subject`.
        `on_progress` is called with (file, bytes read), from any thread. The guide docs/formats.md
        lists the content of each format. Durable: every imported session is stored when this
        returns. Raises: WrongArgument.
        """
        if isinstance(paths, str):  # a str is a sequence of str
            raise WrongArgument("import_files takes a list of paths", argument="paths")
        require_subject(subject)
        return await transfers.imported_files(
            self.backend,
            paths,
            on_progress,
            clock=self.outside.clock,
            random=self.outside.random,
            format=format,
            subject=subject,
            again=again,
        )

    async def export(
        self,
        format: ExportFormat,
        folder: str | os.PathLike[str],
        *,
        redact: Sequence[Redaction] = (),
        query: str | None = None,
        replace: bool = False,
    ) -> list[ExportedFile]:
        """Export every session into `folder`, one file each, named after its id.

        The export includes sessions of every origin, but no flows; `query` selects by name or id.
        With `format` "perdure", `import_files` restores the sessions from the folder. Without a
        `query`, this format also exports the facts of each subject to a separate file. A failed
        file does not stop the export: see `ExportedFile.error`. For `redact` and `replace`, see
        `Session.export`. Raises: FormatError when the folder cannot be created.
        """
        selection = transfers.ExportSelection(redact=tuple(redact))
        return await transfers.exported_store(
            self.backend, self.outside, folder, format, selection, query=query, replace=replace
        )

    async def questions(self) -> list[OpenQuestion]:
        """List the open questions of all sessions and flows, oldest first.

        The `id` of a question is the id of the entry that asked it. Questions of imported sessions
        and untrusted stores are not listed, because no turn waits for their answers.
        """
        unclosed = await self.backend.open_of_all(Question.kind)
        now = self.outside.clock.now_ms()
        asked = await authority.questions_in_force(self.backend, unclosed, now)
        flows = await self.backend.notes_of_all(FLOW_KINDS)
        if not flows:
            return asked
        of_flows = await inbox_of_flows.questions(self.backend, self.outside.clock, flows)
        return sorted((*asked, *of_flows), key=lambda question: question.at)

    async def answer(
        self, question: str, answer: str, *, by: str, note: str | None = None
    ) -> Entry:
        """Answer the question with the complete id `question`, in any session or flow.

        `answer` is one of the question's choices, or free text if there are no choices. The first
        answer counts. Durable: everything is stored on return. Raises: QuestionNotFound;
        AlreadyAnswered after a different answer; QuestionClosed if the question has expired or its
        turn has ended. Raises FlowRefusal if a flow no longer waits for the answer; InvalidEntry if
        the entry is no question, or `answer` is not one of its choices.
        """
        asking = identifiers.stream_asking(question)
        if asking is None:
            raise QuestionNotFound(question)
        id, stream = EntryId(question), await self.backend.state(asking)
        if stream.header.kind != "flow":
            session = await self.open(stream.header.id)
            return await session.answer(id, answer, by=by, note=note)
        store, clock, flow = self.backend, self.outside.clock, stream.header.id
        return await inbox_of_flows.answer_question(
            store, clock, flow, id, answer, by=by, note=note
        )

    async def tool_calls(
        self,
        *,
        session: str | None = None,
        tool: str | None = None,
        failed: bool | None = None,
        last: int | None = 100,
    ) -> list[ToolCallRecord]:
        """Return the newest `last` tool calls of one session or of all sessions, oldest first.

        `tool` is the name of the tool. `failed` True selects failed calls, False successful calls,
        None all calls, including calls without an outcome. Imported sessions are included. For a
        fork, only the calls in its own log are returned. Raises: SessionNotFound if `session` does
        not exist; ValueError if `last` is negative.
        """
        amount("last", last)
        known = None if session is None else await self._require_session(session)
        return await call_records.newest_calls(self.backend, known, tool, failed=failed, last=last)

    async def usage(
        self,
        by: UsageGroup = "model",
        *,
        daily: bool = False,
        since: datetime | None = None,
        until: datetime | None = None,
        zone: tzinfo = UTC,
        prices: Mapping[str, model_prices.Price] | None = None,
        session: str | None = None,
        cwd: str | None = None,
    ) -> list[UsageTotal]:
        """Sum the tokens and costs of model calls by model, agent, project, day and so on.

        A project is the folder of a session. A source is the program that an import came from. A
        subject is the person that a session is about. Days are in `zone`, oldest first; other
        groups are sorted by tokens, most first. With `daily`, each group has a total per day. Model
        calls before `since`, and from `until` on, are not counted. `since` is rounded down to a
        quarter of an hour, and `until` is rounded up. The first call of this method reads all
        sessions that were active since `since`; a later call with the same `prices` reads only new
        entries. With `prices`, which maps a model (``provider:name``, ``provider:*``) to its price,
        a call without a cost in the log gets a cost from `prices`, or else from the public list of
        the extra ``models``. If `session` is given, only calls in its log are counted. If `cwd` is
        given, only sessions of this folder are counted. Raises: WrongArgument for an invalid model
        in `prices`; SessionNotFound if `session` does not exist.
        """
        known = None if session is None else await self._require_session(session)
        tally, cwd = self._tally(prices), absolute(cwd)
        return await tally.usage(by, since, until, zone, daily=daily, session=known, cwd=cwd)

    async def activity(
        self,
        by: ActivityGroup = "day",
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        zone: tzinfo = UTC,
        cwd: str | None = None,
    ) -> list[ActivityTotal]:
        """Count messages, turns, tool calls and tokens by day or hour, oldest first.

        Periods without activity are omitted. The filters and `zone` mean the same as in `usage`.
        """
        return await self._tally(None).activity(by, since, until, zone, cwd=absolute(cwd))

    async def edits(
        self, *, session: str | None = None, cwd: str | None = None, last: int | None = 50
    ) -> list[FileEdit]:
        """Return the newest `last` files that tool calls changed; `session` and `cwd` are filters.

        Raises: SessionNotFound if `session` does not exist; ValueError if `last` is negative.
        """
        amount("last", last)
        known = None if session is None else await self._require_session(session)
        return await edit_records.newest_edits(self.backend, known, last, absolute(cwd))

    def _tally(self, prices: Mapping[str, model_prices.Price] | None) -> usage_records.Tallies:
        if self._tallies is None or self._tallies[0] != prices:
            self._tallies = (prices, usage_records.Tallies(self.backend, prices))
        return self._tallies[1]

    async def index(self, on_progress: Callable[[int, int], None] | None = None) -> None:
        """Update the index now, not at the next search. Raises: the errors of `reindex`."""
        await self.backend.search.index(on_progress)

    async def reindex(self, on_progress: Callable[[int, int], None] | None = None) -> int:
        """Rebuild the index of `search` from the log; return the number of searchable texts.

        Raises: StoreReadOnly; StoreFull; StoreUnavailable; Unsupported.
        """
        return await self.backend.search.reindex(on_progress)

    def watch(self, after: int | None = None) -> watches.Watch:
        """Watch the events of every session after position `after` (default: now; 0: all).

        Shape: the watch yields the same events as `Session.watch`. A later watch can continue at
        ``Watch.cursor``. If `after` is past the newest position, a warning is logged, and the watch
        waits. Raises: ValueError if `after` is negative.
        """
        amount("after", after)
        return watches.watch_namespace(self.backend, self.bus, after)

    async def erase(
        self,
        session: str | None = None,
        *,
        subject: str | None = None,
        everything: bool = False,
        forks: ForkPolicy = "refuse",
        by: str | None = None,
        expected_head: int | None = None,
    ) -> Certificate:
        """Permanently delete a session, all sessions of a subject, or everything.

        The deletion cannot be undone; backups, exports and other copies are not changed
        (`Certificate.copies`). If the session has forks, `forks` "refuse" raises an error, "keep"
        retains the entries that the forks share, and "erase" erases the forks, too. With `subject`
        or `everything`, forks are always erased. `by` names the requester in the certificate;
        docs/guides/erasure.md lists the removed data. With `expected_head`, a session is erased
        only if its head is unchanged. Durable: the erasure is stored when this returns. If the
        process is killed during the call, either nothing is erased, or the next open of the store
        finishes the erasure. Raises: SessionNotFound; SessionHasForks; HeadConflict; Unsupported if
        the store cannot erase; ValueError unless exactly one of `session`, `subject` and
        `everything` is given.
        """
        if [session is not None, subject is not None, everything].count(True) != 1:
            raise WrongArgument("erase exactly one of session, subject and everything=True")
        if session is not None:
            return await erasing.erase_session(
                self.backend,
                self.outside,
                StreamId(session),
                forks=forks,
                by=by,
                expected_head=expected_head,
            )
        if expected_head is not None:
            raise WrongArgument("expected_head is for one session", argument="expected_head")
        if subject is not None:
            require_subject(subject)
            return await erasing.erase_subject(self.backend, self.outside, subject, by)
        return await erasing.erase_namespace(self.backend, self.outside, by)

    async def erasures(self) -> list[Certificate]:
        """Return the certificates of all erasures, oldest first. Raises: Unsupported."""
        return await self.backend.retention.erasures()

    async def verify(self, on_progress: Callable[[int, int], None] | None = None) -> Verification:
        """Check every hash, parent and count; change nothing.

        `on_progress` is called with (finished steps, all steps).
        """
        return await verification.verify_backend(self.backend, on_progress)

    async def info(self) -> StoreInfo:
        """Return the format, sizes and counts of the store and its namespace."""
        return await self.backend.info()

    async def close(self) -> None:
        """Finish pending operations and close the store. You can call `close` twice."""
        await self.backend.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _draft(self, birth: Write, *, is_chosen: bool) -> Session:
        if is_chosen and await exists(self.backend, birth.stream):
            raise await erasing.session_exists_error(self.backend, birth.stream)
        outside = self.outside
        draft = await LazySession.create(self.backend, birth, outside.clock, outside.random)
        return await self._handle(birth.stream, draft)

    async def _require_session(self, session: str) -> StreamId:
        """Return the id of the existing stream `session`. Raises: SessionNotFound."""
        return (await self.backend.state(StreamId(session))).header.id

    async def _handle(self, stream: StreamId, backing: SessionStorage) -> Session:
        state = await backing.log.state(stream)
        return Session(backing, state, self.outside, self.bus, self.hooks)


async def opened(store: Store, id: StreamId) -> tuple[Session, StreamState]:
    """Return the session with the complete id `id`, and its state.

    Raises: the errors of `Store.open`.
    """
    state = await identifiers.state_of(store.backend, id)
    if state.info.status == "erased":
        raise Erased(id)
    if state.header.kind == "memory":
        raise SessionNotFound(id)
    backing = StoredSession(store.backend)
    return Session(backing, state, store.outside, store.bus, store.hooks), state
