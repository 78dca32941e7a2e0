"""The handle of one session: its operations that write; `SessionReader` has those that read.

Each call is one commit. A handle has no lock and caches only the last seen `head` and `leaf`: any
number of handles, tasks and processes may use the same session. `Chat` runs turns.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import msgspec

from perdure.bounds.limits import require_within
from perdure.client.clock import absolute
from perdure.client.conversation.append import Appender, ExpectedLeaf
from perdure.client.erase import erase_entries, erase_session
from perdure.client.reads import EntryRef, OpenQuestion, open_questions
from perdure.client.session_fields import require_header, require_text
from perdure.client.titles import title_of
from perdure.engine.hooks.registry import Hooks
from perdure.errors import (
    HeadConflict,
    HookBlocked,
    InvalidEntry,
    LeafConflict,
    TurnOpen,
    WrongArgument,
)
from perdure.interop.reports import Dialect, Exported, ExportFormat, Redaction
from perdure.session.argument_checks import takes_all_declared
from perdure.session.codec import body_of, new_side
from perdure.session.entries import Entry
from perdure.session.fold import undone_of
from perdure.session.ids import entry_place
from perdure.session.info import ForkPoint, StreamHeader
from perdure.session.kinds import BranchSummary, Compaction
from perdure.session.notes import (
    Answer,
    CompactionUndone,
    Label,
    LeafMoved,
    Pin,
    Question,
    SessionEnded,
    SessionInfoChanged,
    SessionReopened,
)
from perdure.stores.access.lazy_modules import Later
from perdure.stores.lazy_session import StoredSession
from perdure.stores.protocol import Commit, StreamState, Write
from perdure.stores.retention.erase import Certificate, ForkPolicy

if TYPE_CHECKING:
    from perdure.client import transfers
    from perdure.client.conversation import abandonment, authority, role_sessions, workspace
    from perdure.client.inbox import answer as answering
    from perdure.engine import episodes
    from perdure.engine.hooks import points
else:
    abandonment = Later("perdure.client.conversation.abandonment")
    answering = Later("perdure.client.inbox.answer")
    authority = Later("perdure.client.conversation.authority")
    episodes = Later("perdure.engine.episodes")
    points = Later("perdure.engine.hooks.points")
    transfers = Later("perdure.client.transfers")
    role_sessions = Later("perdure.client.conversation.role_sessions")
    workspace = Later("perdure.client.conversation.workspace")
if TYPE_CHECKING:
    from perdure.engine.hooks import points
else:
    points = Later("perdure.engine.hooks.points")


@takes_all_declared
class Session(Appender):
    """A session: append entries, branch, label, fork and end it.

    A conversation entry appended during a turn is stored as a ``queued`` entry (`Entry.lane` is
    then "side"). It joins the conversation at the turn's next step.
    """

    def __repr__(self) -> str:
        entries = self.head + 1
        draft = " draft" if self.is_draft else ""
        return f"<Session {self.id!r} entries={entries} leaf={self.leaf!r}{draft}>"

    async def branch(
        self,
        entry: EntryRef | None,
        *,
        expected_leaf: ExpectedLeaf = msgspec.UNSET,
        idempotency_key: str | None = None,
    ) -> Entry | None:
        """Continue the conversation from `entry` (None: from before the root).

        With `expected_leaf` the leaf moves only if it is still that entry, checked in the same
        commit, so entries of another writer are never left behind. Repeating a call with its
        `idempotency_key` moves nothing and returns the first call's entry.
        Durable: also without a following entry. Shape: None when `entry` is already the leaf.
        Raises: EntryNotFound; InvalidEntry when `entry` is a note; TurnOpen while a turn runs;
        LeafConflict; IdempotencyMismatch; HookBlocked; FlowRefusal for the role of a flow that is
        not completed. A hook may add a summary of the abandoned branch instead.
        """
        state = await self._look()
        await self._require_no_role(state, "branch")
        target = None if entry is None else await self._in_tree(entry)
        expected = await self._resolve_expected_leaf(expected_leaf)
        leaf = state.leaf
        if leaf == target and idempotency_key is None:
            if expected is not msgspec.UNSET and expected != leaf:
                raise LeafConflict(self.id, expected, leaf)
            return None
        summary = await ask_hooks(self._hooks, points.BeforeTree(self.id, leaf, target))
        if isinstance(summary, str) and summary.strip():
            told = BranchSummary(summary, from_id=target)
            return await self._move(told, expected, idempotency_key, state.head)
        new = (new_side(LeafMoved(target)),)
        moved = (await self._commit(new, expected_leaf=expected, key=idempotency_key))[0]
        await self._tell_moved(moved, state.head)
        return moved

    async def branch_with_summary(
        self,
        entry: EntryRef | None,
        summary: str | BranchSummary,
        *,
        expected_leaf: ExpectedLeaf = msgspec.UNSET,
        idempotency_key: str | None = None,
    ) -> Entry:
        """Continue from `entry` (None: before the root) with a summary of the abandoned branch.

        `expected_leaf` and `idempotency_key` as for `branch`. Raises: as `branch`.
        """
        state = await self._look()
        await self._require_no_role(state, "branch")
        target = None if entry is None else await self._in_tree(entry)
        expected = await self._resolve_expected_leaf(expected_leaf)
        other = await ask_hooks(self._hooks, points.BeforeTree(self.id, state.leaf, target))
        told = other if isinstance(other, str) and other.strip() else summary
        if isinstance(told, str):
            told = BranchSummary(told)
        told = msgspec.structs.replace(told, from_id=target)
        return await self._move(told, expected, idempotency_key, state.head)

    async def questions(self) -> list[OpenQuestion]:
        """List the session's open questions, oldest first. A fork does not inherit its origin's.

        Questions from an import or an unknown store are not listed: no turn waits for them.
        """
        unclosed = await self._backing.log.open_questions(self.id)
        found = open_questions(unclosed, self._outside.clock.now_ms())
        return await authority.questions_in_force(self._backing.store, found)

    async def label(self, entry: EntryRef, text: str | None) -> Entry:
        """Set the label of `entry`; None or blanks remove it.

        Raises: EntryNotFound; InvalidEntry when it is not part of the conversation; LimitExceeded
        for a label above ``limits.name_characters``; FlowRefusal for a flow.
        """
        self._require_session("a label")
        require_text("text", text)
        name = (text or "").strip()
        require_within("name_characters", len(name), f"a label of {len(name):,} characters")
        return await self._note(Label(name or None), await self._in_tree(entry))

    async def pin(self, entry: EntryRef) -> Entry:
        """Keep `entry` unchanged in the context, even if a compaction hides it.

        Pinning a call also keeps its results, and pinning a result its call.
        Raises: EntryNotFound; InvalidEntry when it is not part of the conversation.
        """
        return await self._note(Pin(), await self._in_tree(entry))

    async def unpin(self, entry: EntryRef) -> Entry:
        """Remove the pin of `entry`: a compaction can hide it again.

        Raises: as `pin`.
        """
        return await self._note(Pin(is_pinned=False), await self._in_tree(entry))

    async def rename(self, title: str | None) -> Entry:
        """Set the title of the session; None or blanks remove it.

        Raises: LimitExceeded for a title above ``limits.title_characters``; FlowRefusal for a flow.
        """
        self._require_session("a title")
        return await self._note(SessionInfoChanged(title=title_of(title)))

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
        """Create a session that shares this one's whole tree, or with `at` the path to that entry.

        Nothing is copied, except where a store cannot share entries (`entry_ids` then names the
        copies). Labels are inherited as they are now; an open turn is not. With `cwd` its
        agent works in that folder: file tools, instructions and ``{{ctx.working_dir}}``.
        `metadata` is the fork's own; `subject` is this session's unless given.
        Raises: EntryNotFound; InvalidEntry; SessionExists; HookBlocked; LimitExceeded for a title;
        ConfigError when `cwd` is not a folder; WrongArgument as `Store.create`; FlowRefusal.
        """
        self._require_session("a fork")
        folder = absolute(cwd)
        require_header(subject=subject, metadata=metadata, cwd=folder)
        if folder is not None:
            workspace.require_folder(folder)
        await self.flush()
        leaf = None if at is None else await self._in_tree(at)
        await ask_hooks(self._hooks, points.BeforeFork(self.id, leaf))
        state = await self._look()
        point = ForkPoint(
            stream=self.id,
            leaf=leaf or state.leaf,
            head=state.head,
            scope="tree" if at is None else "path",
        )
        header = msgspec.structs.replace(
            self._header_of_fork(state, point, id),
            cwd=folder or state.info.cwd,
            title=title_of(title),
            metadata=dict(metadata) if metadata else None,
            subject=subject or state.header.subject,
        )
        store = self._backing.store
        entries = await authority.agent_of_fork(store, self.id, folder)
        write = Write(stream=header.id, create=header, entries=entries)
        made = await store.commit(Commit(writes=(write,), at=header.created_at))
        fork = await store.state(header.id)
        await self._hooks.tell(points.Forked(self.id, fork.header.id))
        return Session(
            StoredSession(store), fork, self._outside, self._bus, self._hooks, entry_ids=made.copies
        )

    async def uncompact(self, compaction: EntryRef | None = None) -> Entry | None:
        """Undo `compaction` (default: the one in effect): its entries return to the context.

        Shape: None when it was already undone.
        Raises: EntryNotFound; InvalidEntry when there is no compaction to undo.
        """
        if compaction is None:
            leaf = (await self._look()).leaf
            window = await self._backing.log.context_window(self.id, leaf, 1)
            target = window.state.compaction
        else:
            target = await self._backing.log.entry(self.id, await self._resolve(compaction))
        if target is None or target.kind != Compaction.kind:
            reason = "there is no compaction to undo"
            raise InvalidEntry(reason, told=f"{reason} in session {self.id}")
        undone = undone_of(await self._backing.log.notes(self.id, (CompactionUndone.kind,)))
        return None if target.id in undone else await self._note(CompactionUndone(), target.id)

    async def end(self, reason: str | None = None, *, summary: str | None = None) -> Entry | None:
        """Close the session; its next turn, or `reopen`, opens it again.

        What was said since its start, or since its last end, becomes an episode (`Store.memory`)
        with the given `summary`.
        Shape: None when it was already closed.
        Raises: TurnOpen while a turn runs; FlowRefusal for the role of a flow that is not
        completed.
        """
        require_text("reason", reason)
        require_text("summary", summary)
        async with self._order.place():
            while True:
                state = await self._look()
                await self._require_no_role(state, "end")
                if state.open_turn is not None:
                    raise TurnOpen(self.id, state.open_turn)
                if state.info.status == "ended":
                    return None
                with suppress(HeadConflict):
                    return await self._end(state, reason, summary)

    async def abandon_turn(self) -> bool:
        """Close the turn of a dead process without continuing it.

        A partial answer stays on the branch; tool calls without a result are recorded as
        aborted, and questions are withdrawn. Shape: whether a turn was open.
        Raises: LeaseHeld while that process is alive, or while its state is unknown and its lease
        has not expired; FlowRefusal for the role of a flow that is not completed.
        """
        await self._require_no_role(await self._look(), "abandon")
        was_open = await abandonment.abandon_turn(self._backing.store, self._outside.clock, self.id)
        await self._look()
        return was_open

    async def reopen(self) -> Entry | None:
        """Open a closed or exported session again. Shape: None when it was open."""
        if (await self._look()).info.status == "active":
            return None
        return await self._note(SessionReopened())

    async def answer(
        self, question: EntryRef, choice: str, *, by: str, note: str | None = None
    ) -> Entry:
        """Answer a question of this session. The first answer wins.

        Durable: when this returns. Raises: EntryNotFound; InvalidEntry when it is not a
        question of this session or `choice` is not offered; AlreadyAnswered after another
        answer; QuestionClosed once the question expired or its turn ended.
        """
        found = await self._backing.log.entry(self.id, await self._resolve(question))
        body = body_of(found)
        if not isinstance(body, Question) or found.stream != self.id:
            reason = f"{found.id} is not a question of this session"
            raise InvalidEntry(reason, told=reason)
        if choice not in body.choices:
            reason = f"{choice!r} is none of the answers {', '.join(body.choices)}"
            raise InvalidEntry(reason, told=reason)
        clock = self._outside.clock
        answer = Answer(choice, by, note)
        given = await answering.answer_question(self._backing.store, clock, found, body, answer)
        await self._look()
        return given

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
        """Export the session, to the file `path` if given.

        "perdure" holds everything, and `Store.import_files` restores it. Markdown and workflows
        hold one branch, the others all; `leaf` selects the branch that ends there, and with
        `all_branches` every branch. `redact` replaces "secrets", "paths" or both. `dialect` is that
        of a workflow. `Exported.warnings` lists what the format cannot represent. A draft is stored
        first.
        Durable: the file is complete when this returns. Only its owner can read it.
        Raises: PathExists, unless `replace`; FormatError for a path that cannot be written;
        WrongArgument for a folder, and for a file of the store; EntryNotFound; Erased.
        """
        await self.flush()
        at = None if leaf is None else await self._resolve(leaf)
        return await transfers.exported_to(
            self._backing.store,
            self._outside,
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
        """Permanently delete the session; see `Store.erase`.

        With `expected_head`, only if the head has not changed.
        Raises: HeadConflict; SessionHasForks; Unsupported; SessionNotFound for a draft.
        """
        store = self._backing.store
        return await erase_session(
            store, self._outside, self.id, forks=forks, by=by, expected_head=expected_head
        )

    async def erase_entries(
        self,
        entries: Sequence[EntryRef],
        *,
        forks: ForkPolicy = "refuse",
        by: str | None = None,
    ) -> Certificate:
        """Permanently erase the bodies of single entries of the session; their positions stay.

        Also erases labels, tool call records, summaries and search texts that repeat them, media
        without another reference, and the stored original of an import. Contexts skip the entries.
        `forks` applies to entries that forks share: "refuse" fails, "keep" retains them there,
        "erase" erases them for forks too. `by` as for `erase`; see docs/guides/erasure.md.
        Durable: as `Store.erase`.
        Raises: EntryNotFound; InvalidEntry for an entry of another session, and one that is not
        part of the conversation, a note or a label; SessionHasForks; TurnOpen; Erased; Unsupported.
        """
        await self.flush()
        self._require_session("erasing entries")
        if isinstance(entries, str) or not entries:
            raise WrongArgument("erase_entries takes a list of entries", argument="entries")
        found = [await self._resolve(entry) for entry in entries]
        for entry in found:
            if entry_place(entry)[0] != self.id:
                reason = f"{entry} is shared with another session: erase it there"
                raise InvalidEntry(reason, told=reason)
        done = await erase_entries(self._backing.store, self._outside, found, forks=forks, by=by)
        await self._look()
        return done

    def asking(self, hooks: Hooks) -> Session:
        """Return a handle of the same session that runs `hooks` after the hooks of this handle."""
        joined = Hooks(self._hooks, hooks)
        other = Session(self._backing, self._state, self._outside, self._bus, joined)
        other._order = self._order
        return other

    # ------------------------------------------------------------ inside

    def _header_of_fork(self, state: StreamState, point: ForkPoint, id: str | None) -> StreamHeader:
        return StreamHeader(
            id=self._outside.stream_id(id),
            created_at=self._outside.clock.now_ms(),
            origin=state.header.origin,
            parent=self.id,
            fork=point,
        )

    async def _end(self, state: StreamState, reason: str | None, summary: str | None) -> Entry:
        """Append the end with its episode. Raises: HeadConflict if the session moved."""
        at = self._outside.clock.now_ms()
        end = new_side(SessionEnded(reason=reason), at=at)
        log, head = self._backing.log, state.head
        entries = await episodes.with_episode(
            log, self.id, head, (end,), at, info=state.info, summary=summary
        )
        expected = None if self.is_draft else head  # an expectation would store the draft
        return (await self._commit(entries, expected_head=expected))[0]

    async def _require_no_role(
        self, state: StreamState, action: Literal["branch", "end", "abandon"]
    ) -> None:
        store, header = self._backing.store, state.header
        if header.origin == "role" or header.kind == "flow":
            await role_sessions.require_no_role(store, self._outside.clock, header, action)

    async def _move(
        self, summary: BranchSummary, expected: ExpectedLeaf, key: str | None, head: int
    ) -> Entry:
        """Append `summary` at its `from_id`, and continue the conversation from there."""
        (entry,) = await self.append_many(
            [summary], parent=summary.from_id, expected_leaf=expected, idempotency_key=key
        )
        await self._tell_moved(entry, head)
        return entry

    async def _tell_moved(self, moved: Entry, head: int) -> None:
        """Run the hooks of a move; skip a move up to `head`, which a repeated call returned."""
        if moved.seq > head:
            await self._hooks.tell(points.TreeMoved(self.id, moved))


async def ask_hooks(hooks: Hooks, point: points.HookPoint) -> object:
    """Return the answer of the hooks of `point`; None without an answer.

    Raises: HookBlocked.
    """
    _, answer = await hooks.ask(point)
    if isinstance(answer, points.Block):
        raise HookBlocked(point.name, answer.reason)
    return answer
