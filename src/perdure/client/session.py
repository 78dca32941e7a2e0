"""The handle of one session; its methods call the modules that implement them.

Each call is one commit. A handle has no lock and caches only the last `head` and `leaf` that it has
read, so any number of handles, tasks and processes can use the same session. `Chat` runs turns.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, overload

import msgspec

from perdure.bounds.limits import require_within
from perdure.client.amounts import amount
from perdure.client.clock import Outside, absolute
from perdure.client.conversation.append import (
    Appended,
    AppendOptions,
    ExpectedLeaf,
    Item,
    Parent,
    SessionWriter,
)
from perdure.client.conversation.call_order import CallOrder
from perdure.client.reads import EntryRef, OpenQuestion, SessionReader
from perdure.client.session_fields import require_text, title_of
from perdure.engine.hooks.registry import Hooks
from perdure.errors import WrongArgument
from perdure.events.bus import LiveBus
from perdure.interop.reports import Dialect, Exported, ExportFormat, Redaction
from perdure.session.argument_checks import takes_all_declared_but
from perdure.session.entries import LEAF, Entry
from perdure.session.ids import EntryId, IdempotencyKey, StreamId
from perdure.session.info import SessionInfo, StreamHeader
from perdure.session.kinds import BranchSummary
from perdure.session.messages import Message, ToolCallPart
from perdure.session.notes import Answer, Label, Note, Pin, SessionInfoChanged, SessionReopened
from perdure.session.tree import TreeNode, tree_of
from perdure.stores.access.collector import collector_paused
from perdure.stores.access.lazy_modules import Later
from perdure.stores.lazy_session import SessionStorage, StoredSession
from perdure.stores.protocol import EMPTY, StreamState
from perdure.stores.retention.erase import Certificate, ForkPolicy

if TYPE_CHECKING:
    from perdure.client import erase as erasing
    from perdure.client import transfers
    from perdure.client import watch as watches
    from perdure.client.conversation import abandonment, authority, branches, contexts
    from perdure.client.inbox import answer as answering
    from perdure.client.inbox import program_questions
    from perdure.context import build
    from perdure.context import compaction as compactions
else:
    abandonment = Later("perdure.client.conversation.abandonment")
    answering = Later("perdure.client.inbox.answer")
    authority = Later("perdure.client.conversation.authority")
    branches = Later("perdure.client.conversation.branches")
    build = Later("perdure.context.build")
    compactions = Later("perdure.context.compaction")
    erasing = Later("perdure.client.erase")
    contexts = Later("perdure.client.conversation.contexts")
    program_questions = Later("perdure.client.inbox.program_questions")
    transfers = Later("perdure.client.transfers")
    watches = Later("perdure.client.watch")


@takes_all_declared_but("items")
class Session:
    """A session: append entries, branch, label, fork and end it.

    If a conversation entry is appended during a turn, it is stored as a ``queued`` entry
    (`Entry.lane` is then "side"). A queued message joins the conversation at the next step of the
    turn. Every method that reads entries reads the current log, also for a draft.
    """

    def __init__(
        self,
        backing: SessionStorage,
        state: StreamState,
        outside: Outside,
        bus: LiveBus,
        hooks: Hooks | None = None,
        *,
        order: CallOrder | None = None,
        entry_ids: Mapping[EntryId, EntryId] = {},
    ) -> None:
        self._reader = SessionReader(backing, state)
        self._writer = SessionWriter(self._reader, outside, hooks or Hooks(), order)
        self._bus = bus
        self._entry_ids = entry_ids

    def __repr__(self) -> str:
        entries = self.head + 1
        draft = " draft" if self.is_draft else ""
        return f"<Session {self.id!r} entries={entries} leaf={self.leaf!r}{draft}>"

    @property
    def id(self) -> StreamId:
        """The session's id."""
        return self._reader.id

    @property
    def head(self) -> int:
        """The newest seq that this handle has read or itself appended; -1 for an empty log."""
        return self._reader.state.head

    @property
    def leaf(self) -> EntryId | None:
        """The entry from which the conversation continues, at this handle's last read."""
        return self._reader.state.leaf

    @property
    def is_draft(self) -> bool:
        """Whether the session is not stored yet."""
        return self._reader.backing.is_draft

    @property
    def title(self) -> str | None:
        """The title of the session at the last read."""
        return self._reader.state.info.title

    @property
    def metadata(self) -> Mapping[str, object]:
        """The metadata given at creation."""
        return self._reader.state.header.metadata or {}

    @property
    def subject(self) -> str | None:
        """The subject given at creation: the person that the session is about or with."""
        return self._reader.state.header.subject

    @property
    def entry_ids(self) -> Mapping[EntryId, EntryId]:
        """A map from each entry of the origin to its copy; empty unless `fork` made this handle.

        In a store whose forks share entries under the same ids, the mapping is empty.
        """
        return self._entry_ids

    # ------------------------------------------------------------ read

    async def path(
        self,
        leaf: EntryRef | None = None,
        *,
        last: int | None = None,
        kind: str | None = None,
    ) -> list[Entry]:
        """Return the entries from the root to `leaf` (default: the session's leaf).

        `kind` selects entries of one kind, such as "message"; `last` selects the newest entries.
        Raises: EntryNotFound; Erased if the session was erased and `leaf` is not given; ValueError
        if `last` is negative or too large for a store.
        """
        return await self._reader.path(leaf, last, kind)

    async def entry(self, reference: str) -> Entry:
        """Return the entry whose complete id or alias is `reference`.

        If two entries have the same alias, the newer entry is returned. An entry in the session's
        own log takes precedence over an entry shared with its origin. Raises: EntryNotFound.
        """
        return await self._reader.entry(reference)

    async def tree(self, last: int | None = None) -> tuple[TreeNode, ...]:
        """Return every branch as nested nodes, roots first, with their labels.

        Shape: with `last`, the nodes are the entries of `tree_entries(last)`; an entry whose parent
        is omitted is a root. Raises: ValueError when `last` is negative or too large for a store.
        """
        entries, labels = await self.tree_entries(last), await self.labels()
        with collector_paused():
            return tree_of(entries, labels)

    async def tree_entries(self, last: int | None = None) -> list[Entry]:
        """Return the entries of `tree` as a list in log order; those of a fork's origin come first.

        With `last`, only the newest entries of all branches are returned; if the leaf is not among
        them, the newest entries of its branch are added. Raises: the errors of `tree`.
        """
        return await self._reader.tree_entries(last)

    async def messages(self, last: int | None = None) -> list[Message]:
        """Return the newest `last` messages of the branch (default: all), oldest first.

        Raises: Erased for an erased session; ValueError if `last` is negative or too large.
        """
        return await self._reader.messages(last)

    def entries(
        self,
        after: int = EMPTY,
        *,
        kind: str | None = None,
        newest_first: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[Entry]:
        """Iterate over the session's own log in order; `newest_first` reverses the order.

        The first entry is the next one after seq `after`. With `newest_first`, the first entry is
        the newest one (before `after`, if given). `kind` selects one kind of entries.
        Raises: ValueError if `after` is less than -1, or if `limit` is negative.
        """
        return self._reader.entries(after, kind, newest_first=newest_first, limit=limit)

    def notes(
        self, note_type: str | None = None, *, about: EntryRef | None = None
    ) -> AsyncIterator[Entry]:
        """Iterate over the notes in the session's own log, oldest first.

        `note_type` selects notes of one type, `about` selects notes about one entry. `body_of`
        returns the `Note` of an entry. Erased notes are skipped. Raises: EntryNotFound.
        """
        return self._reader.notes(note_type, about)

    def watch(self, after: int | None = None) -> watches.Watch:
        """Watch the events after seq `after` (default: after `head`), and continue with new ones.

        Shape: the watch yields the durable events of all processes, without gap or repetition. The
        watch also yields live events and snapshots of open calls: on PostgreSQL from all processes,
        in other stores only from this process. The watch ends when the store closes. Raises:
        ValueError when `after` is less than -1. The watch's first step raises WrongArgument (a
        ValueError) if `after` is past the newest seq, because `after` then belongs to another log.
        """
        amount("after", after, least=EMPTY)
        head = self.head
        after = head if after is None else after
        return watches.watch_session(self._reader.backing, self._bus, self.id, after, head)

    async def labels(self) -> dict[EntryId, str]:
        """Return the label of each labelled entry of this session."""
        return await self._reader.labels()

    async def find(self, prefix: str) -> EntryId:
        """Resolve `prefix` as id, seq, alias, label or beginning of an id, tried in this order.

        A label must be complete. ``↑3`` is the entry with seq 3 of a fork's origin. All other
        methods require complete ids. Digits are read as a seq. Raises: EntryNotFound, AmbiguousId.
        """
        return await self._reader.find(prefix)

    async def questions(self) -> list[OpenQuestion]:
        """List the session's open questions, oldest first. A fork does not inherit questions.

        Questions from an import or unknown store are omitted, because no turn waits for an answer.
        """
        unclosed, writer = await self._reader.log.open_questions(self.id), self._writer
        now = writer.outside.clock.now_ms()
        return await authority.questions_in_force(writer.store, unclosed, now)

    async def context(self, budget_tokens: int | None = None) -> build.Context:
        """Return the context that a model would get now, with the entry of each message.

        For an agent's session, the context uses the agent's `history` and `max_messages`. In a
        session with an agent, `Context.model` is the model last set on the branch, or else the
        agent's model; without an agent, the model of the newest model change or answer.

        Raises: ValueError when `budget_tokens` is less than 1.
        """
        amount("budget_tokens", budget_tokens, least=1)
        return await contexts.context_of(self._writer, budget_tokens)

    async def info(self) -> SessionInfo:
        """Return the session's current row of the list `Store.recent`, with the model added."""
        return await contexts.info_of(self._writer)

    async def pins(self) -> frozenset[EntryId]:
        """Return the pinned entries of all branches."""
        return await contexts.pins_of(self._reader)

    async def left_by(self, compaction: EntryRef | None = None) -> compactions.LeftContext | None:
        """Return the entries that `compaction` (default: the current one) removed and retained.

        Returns None if the branch has no compaction that is not undone. Raises: EntryNotFound if
        the entry does not exist; InvalidEntry if it is not a compaction.
        """
        return await contexts.left_by(self._reader, compaction)

    # ------------------------------------------------------------ append

    @overload
    async def append(self, item: Item, /, *, parent: Parent = LEAF) -> Entry: ...
    @overload
    async def append(
        self, item: Item, second: Item, /, *more: Item, parent: Parent = LEAF
    ) -> list[Entry]: ...
    async def append(self, *items: Item, parent: Parent = LEAF) -> Entry | list[Entry]:
        """Append `items` atomically as a chain of entries after `parent`.

        Media given as bytes are stored outside the log; the entry contains a handle. Durable: all
        items are stored on return, and a crash never leaves only some of them. The items of a draft
        session are stored only with its first assistant message.
        Shape: for one item, its entry; for several items, a list of entries in the same order.
        Raises: EntryNotFound; InvalidEntry; WrongArgument for an invalid item; LimitExceeded for a
        message over `InputLimits.message_bytes`.
        """
        entries = await self._writer.append(items, AppendOptions(parent=parent))
        return entries[0] if len(entries) == 1 else entries

    async def append_many(
        self,
        items: Sequence[Item],
        *,
        parent: Parent = LEAF,
        expected_head: int | None = None,
        expected_leaf: ExpectedLeaf = msgspec.UNSET,
        idempotency_key: IdempotencyKey | None = None,
        contents: tuple[bytes, ...] = (),
        aliases: Sequence[str | None] = (),
    ) -> Appended:
        """Append `items` atomically if the session is at the expected head and leaf.

        `contents` are the bytes for the media handles in `items`; they are stored outside the log.
        Contents without a handle are rejected. `aliases` contains a name or None for each item;
        `entry` finds an entry by its alias. An alias that is already in use moves to the new entry.
        A `Note` among the items is about the item before it; a first `Note` is about the session.
        Durable: all items are stored on return, never only some. With `idempotency_key`, a repeated
        call appends nothing and returns the first call's entries, with `Appended.is_replay`.
        Raises: HeadConflict, LeafConflict or IdempotencyMismatch; the errors of `append`.
        """
        options = AppendOptions(
            parent=parent,
            expected_head=expected_head,
            expected_leaf=expected_leaf,
            contents=contents,
            aliases=aliases,
        )
        return await self._writer.append(items, options, idempotency_key)

    async def note(self, note: Note, /, *, about: EntryRef | None = None) -> Entry:
        """Add `note` about an entry, or about the session; the method `notes` returns the notes.

        A note is a side entry: it never moves the leaf, and no context contains it. Durable:
        everything is stored on return. Raises: EntryNotFound; WrongArgument if data is not JSON.
        """
        return await self._writer.add_note(note, about)

    async def label(self, entry: EntryRef, text: str | None) -> Entry:
        """Set the label of `entry`; None, or a label of spaces only, removes it.

        Raises: EntryNotFound; InvalidEntry when the entry is not part of the conversation;
        LimitExceeded for a label longer than ``limits.name_characters``; FlowRefusal for a flow.
        """
        self._writer.require_session("a label")
        require_text("text", text)
        name = (text or "").strip()
        require_within("name_characters", len(name), f"a label of {len(name):,} characters")
        return await self._writer.note(Label(name or None), await self._reader.in_tree(entry))

    async def pin(self, entry: EntryRef) -> Entry:
        """Keep `entry` in the context unchanged, even if a compaction would remove it.

        Pinning a call also pins its results, and pinning a result also pins its call.
        Raises: EntryNotFound; InvalidEntry when the entry is not part of the conversation.
        """
        return await self._writer.note(Pin(), await self._reader.in_tree(entry))

    async def unpin(self, entry: EntryRef) -> Entry:
        """Remove the pin of `entry`, so that a compaction can hide the entry again.

        Raises: the errors of `pin`.
        """
        return await self._writer.note(Pin(is_pinned=False), await self._reader.in_tree(entry))

    async def rename(self, title: str | None) -> Entry:
        """Set the title of the session; None, or a title of spaces only, removes it.

        Raises: LimitExceeded for a title above ``limits.title_characters``; FlowRefusal for a flow.
        """
        self._writer.require_session("a title")
        return await self._writer.note(SessionInfoChanged(title=title_of(title)))

    async def uncompact(self, compaction: EntryRef | None = None) -> Entry | None:
        """Undo `compaction` (default: the current one): its hidden entries return to the context.

        Returns None when the compaction was already undone. Raises: EntryNotFound if the entry does
        not exist; InvalidEntry if there is no compaction to undo.
        """
        return await contexts.undo_compaction(self._writer, compaction)

    async def answer(
        self, question: EntryRef, choice: str, *, by: str, note: str | None = None
    ) -> Entry:
        """Answer a question of this session. The first answer counts; later answers are rejected.

        Durable: everything is stored on return. Raises: EntryNotFound; InvalidEntry if the entry is
        not a question of this session or `choice` is not offered. Raises AlreadyAnswered after a
        different answer; QuestionClosed if the question has expired or its turn has ended.
        """
        return await answering.answer_in(self._writer, question, Answer(choice, by, note))

    async def ask(
        self,
        text: str,
        choices: Sequence[str] = (),
        *,
        call: ToolCallPart | None = None,
        about: EntryRef | None = None,
    ) -> Entry:
        """Ask people a question in the name of the program; no turn waits for the answer.

        The inbox lists the question until it is answered or withdrawn; `answer_to` returns the
        answer. Without `choices`, the answer is a text. The inbox shows the arguments of the tool
        call `call` with secrets masked. On request, the inbox shows the complete arguments if the
        entry `about` contains the call. Durable: everything is stored on return. Raises:
        EntryNotFound; WrongArgument for an invalid question; FlowRefusal for a flow.
        """
        return await program_questions.ask(self._writer, text, choices, call, about)

    async def answer_to(self, question: EntryRef) -> Answer | None:
        """Return the answer to a question of `ask`.

        Returns None if the question is open or withdrawn, or if the answer came from an import or
        unknown store. Raises: EntryNotFound; InvalidEntry if the entry is no question of `ask`.
        """
        return await program_questions.answer_to(self._writer, question)

    async def withdraw(self, question: EntryRef) -> Entry | None:
        """Remove a question of `ask` from the inbox; a later answer raises QuestionClosed.

        Durable: everything is stored on return. Returns None if the question was answered or
        withdrawn before. Raises: EntryNotFound; InvalidEntry if the entry is no question of `ask`.
        """
        return await program_questions.withdraw(self._writer, question)

    async def is_in_force(self, entry: EntryRef) -> bool:
        """Return whether programs on this machine are allowed to act on `entry`.

        Returns False for imported entries and, if the store is not trusted, for entries without a
        mark of this user's perdure. Notes and messages never have a mark. Raises: EntryNotFound.
        """
        found = await self._reader.entry(entry)
        return await authority.is_in_force(self._writer.store, found)

    # ------------------------------------------------------------ branch and fork

    async def branch(
        self,
        entry: EntryRef | None,
        *,
        expected_leaf: ExpectedLeaf = msgspec.UNSET,
        idempotency_key: IdempotencyKey | None = None,
    ) -> Entry | None:
        """Continue the conversation from `entry` (None: from the beginning, before the root).

        With `expected_leaf`, the leaf moves only if `expected_leaf` is still the leaf. The commit
        itself checks the leaf, so new entries of another writer are never abandoned. A repeated
        call with the same `idempotency_key` moves nothing and returns the first call's entry.
        Durable: the new leaf is stored, even if no entry follows. Returns None when `entry` is
        already the leaf. Raises: EntryNotFound; InvalidEntry if `entry` is a note; TurnOpen while a
        turn runs; LeafConflict; IdempotencyMismatch; HookBlocked; FlowRefusal for the session of a
        role until its flow is completed. A hook can add a summary of the abandoned branch.
        """
        return await branches.branch(self._writer, entry, None, expected_leaf, idempotency_key)

    async def branch_with_summary(
        self,
        entry: EntryRef | None,
        summary: str | BranchSummary,
        *,
        expected_leaf: ExpectedLeaf = msgspec.UNSET,
        idempotency_key: IdempotencyKey | None = None,
    ) -> Entry:
        """Continue from `entry` (None: before the root), with a summary of the abandoned branch.

        For `expected_leaf` and `idempotency_key`, see `branch`. Raises: the errors of `branch`.
        """
        writer, key = self._writer, idempotency_key
        moved = await branches.branch(writer, entry, summary, expected_leaf, key)
        assert moved is not None  # a summary is appended wherever the leaf is
        return moved

    async def fork(
        self,
        at: EntryRef | None = None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        title: str | None = None,
        id: str | None = None,
        metadata: Mapping[str, object] | None = None,
        subject: str | None = None,
    ) -> Session:
        """Create a session that shares the tree of this session.

        With `at`, the fork shares only the path to `at`. If the store cannot share entries, it
        copies them (see `entry_ids`). A fork inherits the current labels, but not an open turn.
        With `cwd`, the file tools, instructions and ``{{ctx.working_dir}}`` of the fork use that
        folder. `subject` defaults to this session's subject; the metadata is not inherited. Raises:
        EntryNotFound; InvalidEntry; SessionExists; HookBlocked; LimitExceeded for a long title;
        ConfigError if `cwd` is not a folder; WrongArgument (see `Store.create`); FlowRefusal.
        """
        writer = self._writer
        own = StreamHeader(
            id=writer.outside.stream_id(id),
            created_at=writer.outside.clock.now_ms(),
            cwd=absolute(cwd),
            title=title_of(title),
            metadata=dict(metadata) if metadata else None,
            subject=subject,
        )
        state, ids = await branches.fork(writer, at, own)
        backing = StoredSession(writer.store)
        return Session(backing, state, writer.outside, self._bus, writer.hooks, entry_ids=ids)

    # ------------------------------------------------------------ end, export and erase

    async def flush(self) -> None:
        """Store the session now if it is a draft.

        Raises: SessionExists when another session now has the id; the session stays a draft.
        """
        await self._reader.backing.flush()

    async def end(self, reason: str | None = None, *, summary: str | None = None) -> Entry | None:
        """Close the session; its next turn, or `reopen`, opens it again.

        The messages since the session started, or was last closed, become an episode
        (`Store.memory`) with the given `summary`. Returns None when the session was already closed.
        Raises: TurnOpen while a turn runs; FlowRefusal for a flow, or a role of an open flow.
        """
        require_text("reason", reason)
        require_text("summary", summary)
        return await self._writer.end(reason, summary)

    async def abandon_turn(self) -> bool:
        """Close the open turn of a process that has died, without continuing the turn.

        A partial answer remains on the branch; tool calls without a result are recorded as aborted,
        and questions are withdrawn. Returns True if a turn was open. Raises: LeaseHeld while the
        process of the turn is alive, or while its state is unknown and the lease has not expired.
        Raises FlowRefusal for a flow, and for the session of a role until its flow is completed.
        """
        writer = self._writer
        await writer.require_no_role(await self._reader.look(), "abandon")
        was_open = await abandonment.abandon_turn(writer.store, writer.outside.clock, self.id)
        await self._reader.look()
        return was_open

    async def reopen(self) -> Entry | None:
        """Open a closed or exported session again. Returns None if the session was already open."""
        if (await self._reader.look()).info.status == "active":
            return None
        return await self._writer.note(SessionReopened())

    async def export(
        self,
        format: ExportFormat = "perdure",
        path: str | os.PathLike[str] | None = None,
        *,
        leaf: EntryRef | None = None,
        all_branches: bool = False,
        redact: Sequence[Redaction] = (),
        dialect: Dialect = "perdure",
        replace: bool = False,
    ) -> Exported:
        """Export the session, to the file `path` if `path` is given.

        The format "perdure" contains everything, and `Store.import_files` restores it. Markdown and
        workflows contain one branch; other formats contain all branches. `leaf` selects one branch
        by its end, and `all_branches` selects every branch. `redact` replaces "secrets", "paths" or
        both in the text. `dialect` applies only to workflows. `Exported.warnings` lists data that
        the format cannot represent. A draft session is stored first. Durable: the file is complete
        when this returns. Only the owner of the file can read it. Raises: PathExists, unless
        `replace` is given; FormatError if the path cannot be written; WrongArgument for a folder or
        a file of the store; EntryNotFound if `leaf` does not exist; Erased.
        """
        await self.flush()
        at = None if leaf is None else await self._reader.resolve(leaf)
        return await transfers.exported_to(
            self._writer.store,
            self._writer.outside,
            self.id,
            format,
            transfers.ExportSelection(at, all_branches, tuple(redact), dialect),
            path=path,
            replace=replace,
        )

    async def erase(
        self,
        *,
        forks: ForkPolicy = "refuse",
        by: str | None = None,
        expected_head: int | None = None,
    ) -> Certificate:
        """Permanently delete the session; see `Store.erase`. The deletion cannot be undone.

        With `expected_head`, the session is deleted only if its head is still `expected_head`.
        Raises: HeadConflict; SessionHasForks; Unsupported; SessionNotFound if this is a draft.
        """
        store, outside = self._writer.store, self._writer.outside
        return await erasing.erase_session(
            store, outside, self.id, forks=forks, by=by, expected_head=expected_head
        )

    async def erase_entries(
        self,
        entries: Sequence[EntryRef],
        *,
        forks: ForkPolicy = "refuse",
        by: str | None = None,
    ) -> Certificate:
        """Permanently erase the bodies of single entries of the session; their positions remain.

        The call also erases labels, tool call records, summaries and search texts that repeat the
        bodies, media without another reference, and the stored original of an import. Contexts skip
        the erased entries. For entries that forks share, `forks` "refuse" raises an error, "keep"
        does not erase them, "erase" erases them in the forks, too. The erasure cannot be undone;
        copies elsewhere stay. Durable: the erasure is stored. `by` names the requester
        (docs/guides/erasure.md). Raises: EntryNotFound; InvalidEntry unless all are conversation
        entries, notes or labels of this session; SessionHasForks; TurnOpen; Erased; Unsupported.
        """
        await self.flush()
        self._writer.require_session("erasing entries")
        if isinstance(entries, str) or not entries:
            raise WrongArgument("erase_entries takes a list of entries", argument="entries")
        store, outside = self._writer.store, self._writer.outside
        found = [await self._reader.resolve(entry) for entry in entries]
        done = await erasing.erase_entries(store, outside, self.id, found, forks=forks, by=by)
        await self._reader.look()
        return done

    def asking(self, hooks: Hooks) -> Session:
        """Return another handle of the session; it runs `hooks` after the hooks of this handle."""
        reader, writer = self._reader, self._writer
        both, bus = Hooks(writer.hooks, hooks), self._bus
        return Session(reader.backing, reader.state, writer.outside, bus, both, order=writer.order)
