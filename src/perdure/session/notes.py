"""Bodies of the side kinds that are about a session rather than about a turn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

import msgspec

from perdure.session.entries import Entry, Lane
from perdure.session.ids import EntryId

EndedBy = Literal["user", "idle", "agent"]
QueueMode = Literal["steer", "follow_up"]
QuestionTopic = Literal[
    "unknown_outcome",
    "interrupted",
    "budget",
    "approval",
    "prompt-human",
    "autonomous-abort",
    "consent",
    "consent-denied",
    "role-configuration",
    "handoff-approval",
    "improvement-choice",
    "feedback-consent",
]
"""Those after the first four are what flows wait for: their entries are the flow's own kinds."""

WithdrawalReason = Literal["aborted", "cancelled", "expired", "failed", "interrupted"]
"""How a turn ended that left its question unanswered."""

ALLOW_FLOW = "allow-flow"
"""The answer that allows a call, and with it what it is about for the whole flow."""

ALLOWING = frozenset(("allow", "always", ALLOW_FLOW))
"""The answers to an approval under which the call runs."""


class SideBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of all bodies of the side lane.

    `follows_entry`: forks, bundles and copies take notes of the kind along with the tree entry that
    they are about.
    """

    kind: ClassVar[str]
    version: ClassVar[int] = 1
    lane: ClassVar[Lane] = "side"
    follows_entry: ClassVar[bool] = False


class LeafMoved(SideBody, frozen=True):
    """The conversation goes on from `target` (None: before the root)."""

    kind: ClassVar[str] = "leaf"

    target: EntryId | None


class Note(SideBody, frozen=True, omit_defaults=True):
    """A program's own note about an entry, or about the session; never in a context.

    `note_type` is the program's name for it, such as ``"my.rating"``; `data` is a JSON object.
    """

    kind: ClassVar[str] = "note"

    note_type: str
    data: dict[str, object] = {}


class Label(SideBody, frozen=True, omit_defaults=True):
    """A name for the entry it is about; None removes the name."""

    kind: ClassVar[str] = "label"
    follows_entry: ClassVar[bool] = True

    text: str | None = None


class SessionInfoChanged(SideBody, frozen=True, omit_defaults=True):
    """A new title (None clears it) or working directory of the session."""

    kind: ClassVar[str] = "session_info"

    title: str | msgspec.UnsetType | None = msgspec.UNSET
    cwd: str | msgspec.UnsetType = msgspec.UNSET


class Invocation(msgspec.Struct, frozen=True):
    """The tool call of another session that a session was opened for.

    `key` is the call's idempotency key, by which it is found again and never opened twice.
    """

    session: str
    call_id: str
    key: str


class SessionStarted(SideBody, frozen=True, omit_defaults=True):
    """A runtime opened the session: its agent as it was then, its workspace, its system prompt.

    `agent` and `workspace` are the snapshots as plain data, frozen for the session's life.
    `invoked_by` is the call of an agent that it was opened for.
    """

    kind: ClassVar[str] = "session_started"

    agent: dict[str, object] | None = None
    workspace: dict[str, object] | None = None
    system_prompt: str | None = None
    invoked_by: Invocation | None = None


class AgentBound(SideBody, frozen=True, omit_defaults=True):
    """An agent of this machine was given to the session, which had none with authority here.

    So after an import, whatever agent the file names. What was granted and spent before does not
    count any more, unless `granted_by` says who gave the session more than it had.
    """

    kind: ClassVar[str] = "agent_bound"

    agent: dict[str, object]
    workspace: dict[str, object] | None = None
    system_prompt: str | None = None
    granted_by: str | None = None


class WorkspaceChanged(SideBody, frozen=True, omit_defaults=True):
    """The session works in another workspace from here on: another folder, file or variables.

    `workspace` is the whole new one. `system_prompt` is what the agent's instructions are in it,
    where that is not what they were.
    """

    kind: ClassVar[str] = "workspace_changed"

    workspace: dict[str, object]
    system_prompt: str | msgspec.UnsetType | None = msgspec.UNSET


def in_workspace(
    bound: SessionStarted | AgentBound, changed: WorkspaceChanged
) -> SessionStarted | AgentBound:
    """Return `bound` in the workspace that the session changed to."""
    prompt = changed.system_prompt
    return msgspec.structs.replace(
        bound,
        workspace=changed.workspace,
        system_prompt=bound.system_prompt if prompt is msgspec.UNSET else prompt,
    )


class SessionReceived(SideBody, frozen=True):
    """The entries before it were read from a file: they give no authority."""

    kind: ClassVar[str] = "session_received"


class SessionEnded(SideBody, frozen=True, omit_defaults=True):
    """The session is closed; the next turn opens it again by a ``session_reopened``."""

    kind: ClassVar[str] = "session_ended"

    by: EndedBy = "user"
    reason: str | None = None


class SessionCancelled(SideBody, frozen=True):
    """Somebody closed the handle that ran the session, between two turns; it can be resumed."""

    kind: ClassVar[str] = "session_cancelled"


class GrantRevoked(SideBody, frozen=True, omit_defaults=True):
    """What a person had allowed for good is asked for again; None: all of it."""

    kind: ClassVar[str] = "grant_revoked"

    grant: str | None = None


class SessionReopened(SideBody, frozen=True):
    """A session that had ended goes on."""

    kind: ClassVar[str] = "session_reopened"


class SessionExported(SideBody, frozen=True, omit_defaults=True):
    """The session was written to a file that others go on with (a workflow).

    `path` is where, as an absolute path; `format` what was written, `dialect` in whose form.
    """

    kind: ClassVar[str] = "session_exported"

    path: str
    format: str
    dialect: str | None = None


class Pin(SideBody, frozen=True, omit_defaults=True):
    """The entry it is about stays in the context as it was said, or no longer has to."""

    kind: ClassVar[str] = "pin"

    is_pinned: bool = True


class ContentErased(SideBody, frozen=True, omit_defaults=True):
    """Bodies of the session were taken out of the store, for good; their digests stay.

    Shape: `ranges` are the seqs (first, last) among which they are; kinds that say nothing but
    how the log hangs together (`KEPT_WHEN_ERASED`) keep theirs. `is_whole`: the session itself
    was erased, and nobody goes on with it. `certificate` names the record of all that was erased.
    """

    kind: ClassVar[str] = "content_erased"

    certificate: str
    by: str
    ranges: tuple[tuple[int, int], ...]
    is_whole: bool = False


KEPT_WHEN_ERASED = frozenset((LeafMoved.kind, ContentErased.kind))
"""Kinds whose bodies an erasure leaves: ids of entries, and the word that there was one."""


class NodeEntered(SideBody, frozen=True, omit_defaults=True):
    """A role's session begins with a node of a flow, at the entry it is about."""

    kind: ClassVar[str] = "node_entered"

    node: str
    flow: str | None = None


class CompactionUndone(SideBody, frozen=True):
    """The compaction it is about no longer hides anything."""

    kind: ClassVar[str] = "compaction_undone"
    follows_entry: ClassVar[bool] = True


class Queued(SideBody, frozen=True, omit_defaults=True):
    """A conversation entry that arrived while somebody else's turn was open.

    Kept until the turn's owner, or recovery, adopts it into the tree (``Adopted``). `entry_kind`,
    `entry_v` and `entry_body` are the entry as it was to be appended; the parent it asked for is
    not kept, since it goes where the conversation then stands.
    """

    kind: ClassVar[str] = "queued"

    entry_kind: str
    entry_body: msgspec.Raw
    entry_v: int = 1
    mode: QueueMode = "steer"


class Adopted(SideBody, frozen=True):
    """The queued entry it is about has become the tree entry `as_id`."""

    kind: ClassVar[str] = "adopted"

    as_id: EntryId


class SourcePlace(msgspec.Struct, frozen=True):
    """Where in its import original an entry stands: `part` is the seq of its ``import_source``.

    Units: bytes; `offset` counts from the beginning of the file, not of the part.
    """

    part: int
    offset: int
    length: int


class ImportSource(SideBody, frozen=True, omit_defaults=True):
    """One stretch of a file that was imported, kept whole.

    Units: bytes. `blob` is the hash of the stretch's bytes, `offset` where in the file it began.
    Shape: `malformed` are the numbers (from 1, in the file) of the lines that could not be read;
    `first_line` is the number of the stretch's first line. `has_more`: the file was being imported
    in several commits, and this was not the last of them.
    """

    kind: ClassVar[str] = "import_source"

    format: str
    name: str
    blob: str
    offset: int
    length: int
    first_line: int
    lines: int
    malformed: tuple[int, ...] = ()
    file_session: str | None = None
    has_more: bool = False


class ImportedRecord(SideBody, frozen=True):
    """A record of an imported file that says nothing in the conversation (progress, a snapshot).

    `type` is what its format calls it. The record itself is kept in the import original; a child
    of it hangs on the tree entry this is about.
    """

    kind: ClassVar[str] = "imported_record"

    format: str
    type: str


class RoleImported(SideBody, frozen=True):
    """What a role's session was when it was imported, and what its operator had been shown.

    Shape: `session` is a ``transcript.json`` of A-Society's, `feed` the items of a
    ``feed.json``, both as they were read. Its messages are entries of the tree, too.
    """

    kind: ClassVar[str] = "role_imported"

    session: dict[str, object]
    feed: tuple[dict[str, object], ...]


class Question(SideBody, frozen=True, omit_defaults=True):
    """Something that waits for a person. It is about the entry that asked.

    Shape: `choices` are the answers that are understood; `args_hash` binds the question to the
    exact arguments asked about (BLAKE2b-256, hex). `grant` is what the answer "always" allows from
    then on; `limit_microcents` what the session may spend once a budget's question is answered
    "continue". Of an approval, `agent` asks for `tool`, which is an `action`; `preview` is the
    path, the command or the host it is about; `free_in` are the modes of its flow's consent
    that do not ask. `arguments` are the call's, secrets masked, long ones as beginning, size
    and hash. `bound` is what else the answer counts for (files, folders, hashes): where any of it
    has changed by the time the call would run, it is asked again. `diff` is what would change.
    Units: `expires_at` is Unix milliseconds; None never expires.
    """

    kind: ClassVar[str] = "question"

    topic: QuestionTopic
    text: str
    choices: tuple[str, ...]
    call_id: str | None = None
    args_hash: str | None = None
    expires_at: int | None = None
    grant: str | None = None
    limit_microcents: int | None = None
    agent: str | None = None
    tool: str | None = None
    action: str | None = None
    preview: str | None = None
    free_in: tuple[str, ...] | None = None
    arguments: dict[str, object] | None = None
    bound: dict[str, str] | None = None
    diff: str | None = None

    def is_expired(self, at: int) -> bool:
        """Whether it can no longer be answered at `at`. Units: Unix milliseconds."""
        return self.expires_at is not None and self.expires_at <= at


class Answer(SideBody, frozen=True, omit_defaults=True):
    """A person's answer to the question it is about; the first one counts."""

    kind: ClassVar[str] = "answer"

    choice: str
    by: str
    note: str | None = None


class QuestionWithdrawn(SideBody, frozen=True):
    """The turn that asked the question it is about ended without an answer, for this `reason`."""

    kind: ClassVar[str] = "question_withdrawn"

    reason: WithdrawalReason


CLOSING = (Answer.kind, QuestionWithdrawn.kind)
"""Kinds of the entries after which the question they are about is no longer open."""

INBOX_KINDS = (Question.kind, *CLOSING)
"""Kinds of the entries that `unanswered` needs."""


def unanswered_questions(notes: Iterable[Entry]) -> list[Entry]:
    """Return the questions among `notes`, of `INBOX_KINDS`, that none of the others closes."""
    notes = tuple(notes)
    closed = {note.about for note in notes if note.kind in CLOSING}
    return [note for note in notes if note.kind == Question.kind and note.id not in closed]
