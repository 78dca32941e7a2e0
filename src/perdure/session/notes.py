"""Bodies of the side kinds that describe a session rather than a turn."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

import msgspec

from perdure.bounds.short_repr import short_repr
from perdure.session.entries import Lane
from perdure.session.ids import EntryId

EndedBy = Literal["user", "idle", "agent"]
QueueMode = Literal["steer", "follow_up"]
QuestionTopic = Literal[
    "unknown_outcome",
    "interrupted",
    "budget",
    "approval",
    "program",
    "prompt-human",
    "autonomous-abort",
    "consent",
    "consent-denied",
    "role-configuration",
    "handoff-approval",
    "improvement-choice",
    "feedback-consent",
]
"""Topics of questions. Flows use the topics after "program", in entries of their own kinds."""

PROGRAM: Final = "program"
"""The topic of a question that a program asks outside a turn (`Session.ask`)."""

WithdrawalReason = Literal["aborted", "cancelled", "expired", "failed", "interrupted"]
"""How the turn of an unanswered question ended; "cancelled" if a program withdrew the question."""

ALLOW_FLOW = "allow-flow"
"""The answer that allows a call and, in the rest of the flow, calls of the same kind.

Depending on the call, these are calls with the same command, of the same tool, or writes of files.
"""

ALLOWING = frozenset(("allow", "always", ALLOW_FLOW))
"""The answers to an approval that allow the call."""


class SideBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of all bodies of the side lane.

    If `follows_entry` is True, forks, bundles and copies include a side entry of this kind together
    with its tree entry. For `event`, see `TreeBody`.
    """

    __repr__ = short_repr

    kind: ClassVar[str]
    event: ClassVar[str] = ""
    version: ClassVar[int] = 1
    lane: ClassVar[Lane] = "side"
    follows_entry: ClassVar[bool] = False


class LeafMoved(SideBody, frozen=True):
    """The conversation continues from the entry `target`; None means before the root."""

    kind: ClassVar[str] = "leaf"
    event: ClassVar[str] = "session:branched"

    target: EntryId | None


class Note(SideBody, frozen=True, omit_defaults=True):
    """A program's own note about an entry or the session; never in a context.

    `note_type` is the program's name for this type of note, such as ``"my.rating"``; `data` is a
    JSON object.
    """

    kind: ClassVar[str] = "note"
    event: ClassVar[str] = "session:noted"

    note_type: str
    data: dict[str, object] = {}


class Label(SideBody, frozen=True, omit_defaults=True):
    """A name for the entry to which `about` refers; None removes the name."""

    kind: ClassVar[str] = "label"
    follows_entry: ClassVar[bool] = True

    text: str | None = None


class SessionInfoChanged(SideBody, frozen=True, omit_defaults=True):
    """A new title (None clears it) or working directory of the session."""

    kind: ClassVar[str] = "session_info"

    title: str | msgspec.UnsetType | None = msgspec.UNSET
    cwd: str | msgspec.UnsetType = msgspec.UNSET


class Invocation(msgspec.Struct, frozen=True):
    """A tool call in another session, for which this session was opened.

    `key` is the call's idempotency key; it identifies the session, so that the session is never
    opened twice.
    """

    session: str
    call_id: str
    key: str


class SessionStarted(SideBody, frozen=True, omit_defaults=True):
    """A runtime opened the session.

    The entry contains the agent, the workspace and the system prompt at the start of the session.
    `agent` and `workspace` are plain-data snapshots, fixed for the session's life. `invoked_by` is
    the agent's call for which the session was opened.
    """

    kind: ClassVar[str] = "session_started"

    agent: dict[str, object] | None = None
    workspace: dict[str, object] | None = None
    system_prompt: str | None = None
    invoked_by: Invocation | None = None


class AgentBound(SideBody, frozen=True, omit_defaults=True):
    """A session received an agent, which has authority in the session on this machine.

    An imported session needs an ``agent_bound`` entry even if the imported file names an agent. If
    `granted_by` names a person who extended the session's permissions, earlier grants and spending
    still count. Without `granted_by`, earlier grants and spending no longer count.
    """

    kind: ClassVar[str] = "agent_bound"
    event: ClassVar[str] = "session:agent_bound"

    agent: dict[str, object]
    workspace: dict[str, object] | None = None
    system_prompt: str | None = None
    granted_by: str | None = None


class WorkspaceChanged(SideBody, frozen=True, omit_defaults=True):
    """The session uses another workspace from this entry on: another folder, file or variables.

    `workspace` is the complete new workspace. `system_prompt` is set if the agent's instructions
    differ in the new workspace.
    """

    kind: ClassVar[str] = "workspace_changed"
    event: ClassVar[str] = "session:workspace_changed"

    workspace: dict[str, object]
    system_prompt: str | msgspec.UnsetType | None = msgspec.UNSET


def in_workspace(
    bound: SessionStarted | AgentBound, changed: WorkspaceChanged
) -> SessionStarted | AgentBound:
    """Return `bound` with the session's new workspace."""
    prompt = changed.system_prompt
    return msgspec.structs.replace(
        bound,
        workspace=changed.workspace,
        system_prompt=bound.system_prompt if prompt is msgspec.UNSET else prompt,
    )


class SessionReceived(SideBody, frozen=True):
    """The entries before this one were read from a file, so they grant no permissions."""

    kind: ClassVar[str] = "session_received"
    event: ClassVar[str] = "session:received"


class SessionEnded(SideBody, frozen=True, omit_defaults=True):
    """The session is closed; the next turn reopens it with a ``session_reopened`` entry."""

    kind: ClassVar[str] = "session_ended"
    event: ClassVar[str] = "session:ended"

    by: EndedBy = "user"
    reason: str | None = None


class SessionCancelled(SideBody, frozen=True):
    """The handle that ran the session was closed between two turns; the session can be resumed."""

    kind: ClassVar[str] = "session_cancelled"
    event: ClassVar[str] = "session:cancelled"


class GrantRevoked(SideBody, frozen=True, omit_defaults=True):
    """Revokes the grant `grant` of a person, or all grants if `grant` is None."""

    kind: ClassVar[str] = "grant_revoked"
    event: ClassVar[str] = "session:grant_revoked"

    grant: str | None = None


class SessionReopened(SideBody, frozen=True):
    """A closed session was reopened."""

    kind: ClassVar[str] = "session_reopened"
    event: ClassVar[str] = "session:reopened"


class SessionExported(SideBody, frozen=True, omit_defaults=True):
    """The session was exported as a workflow, which other programs can continue.

    `path` is the absolute path of the file. `format` is the format of the file, and `dialect` is
    the variant of this format.
    """

    kind: ClassVar[str] = "session_exported"

    path: str
    format: str
    dialect: str | None = None


class Pin(SideBody, frozen=True, omit_defaults=True):
    """Pins the entry to which `about` refers, or unpins it.

    A pinned entry stays in the context unchanged.
    """

    kind: ClassVar[str] = "pin"
    event: ClassVar[str] = "session:pinned"

    is_pinned: bool = True


class ContentErased(SideBody, frozen=True, omit_defaults=True):
    """Bodies of the session were permanently deleted from the store; their digests remain.

    Shape: `ranges` are the first and last sequence numbers of the erased ranges. Entries of the
    kinds `KEPT_WHEN_ERASED` keep their bodies, because these bodies contain only the structure of
    the log. `is_whole` means that the whole session was erased and cannot continue. `certificate`
    is the name of the record that lists everything erased.
    """

    kind: ClassVar[str] = "content_erased"
    event: ClassVar[str] = "session:content_erased"

    certificate: str
    by: str
    ranges: tuple[tuple[int, int], ...]
    is_whole: bool = False


KEPT_WHEN_ERASED = frozenset((LeafMoved.kind, ContentErased.kind))
"""Kinds whose bodies survive an erasure: they contain only entry ids and facts of the erasure."""


class NodeEntered(SideBody, frozen=True, omit_defaults=True):
    """A role's session enters a node of a flow at the entry to which `about` refers."""

    kind: ClassVar[str] = "node_entered"
    event: ClassVar[str] = "session:node_entered"

    node: str
    flow: str | None = None


class CompactionUndone(SideBody, frozen=True):
    """The compaction to which `about` refers no longer hides entries."""

    kind: ClassVar[str] = "compaction_undone"
    event: ClassVar[str] = "session:compaction_undone"
    follows_entry: ClassVar[bool] = True


class Queued(SideBody, frozen=True, omit_defaults=True):
    """A conversation entry that arrived during another caller's turn.

    The entry stays queued until the turn's owner, or recovery, adds it to the tree (``Adopted``).
    `entry_kind`, `entry_v` and `entry_body` are the kind, version and body of the entry as
    requested. The requested parent is not stored, because the entry is appended at the leaf that is
    current when the entry is adopted.
    """

    kind: ClassVar[str] = "queued"
    event: ClassVar[str] = "session:queued"

    entry_kind: str
    entry_body: msgspec.Raw
    entry_v: int = 1
    mode: QueueMode = "steer"


class Adopted(SideBody, frozen=True):
    """The queued entry to which `about` refers became the tree entry `as_id`."""

    kind: ClassVar[str] = "adopted"
    event: ClassVar[str] = "session:adopted"

    as_id: EntryId


class SourcePlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """Position of an entry in its imported file.

    `part` is the seq of the ``import_source`` entry that stores this part of the file. `is_copy` is
    True if perdure wrote the entry to the file as a copy of an entry of the parent session.
    Units: bytes; `offset` counts from the start of the file, not of the part.
    """

    part: int
    offset: int
    length: int
    is_copy: bool = False


SOURCE_FIELD = b'"source":'


class _HasSource(msgspec.Struct):
    source: SourcePlace | None = None


_has_source = msgspec.json.Decoder(_HasSource)


def source_of(body: bytes) -> SourcePlace | None:
    """Return the place of an entry in its imported file, given the entry's `body`.

    Return None for an entry that was not imported.
    """
    if SOURCE_FIELD not in body:
        return None
    try:
        return _has_source.decode(body).source
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def is_copy(body: bytes) -> bool:
    """Return whether the entry with `body` was imported from a file that perdure wrote."""
    if b'"is_copy":true' not in body:
        return False
    place = source_of(body)
    return place is not None and place.is_copy


class ImportSource(SideBody, frozen=True, omit_defaults=True):
    """One piece of an imported file, stored unchanged.

    Units: bytes. `blob` is the hash of the bytes of this piece. `offset` is the position of this
    piece in the file.
    Shape: `malformed` are the numbers of unreadable lines, counted from 1 in the file. `first_line`
    is the number of the first line in this piece of the file. `has_more` means that the file is
    imported in several commits, and this commit is not the last one.
    """

    kind: ClassVar[str] = "import_source"
    event: ClassVar[str] = "session:imported"

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
    """A record of an imported file that is not part of the conversation (progress, a snapshot).

    `type` is the name of the record's type in the format of the file. The record itself is stored
    in the imported file. Children of the record in the file become children of the tree entry to
    which `about` refers.
    """

    kind: ClassVar[str] = "imported_record"
    event: ClassVar[str] = "session:imported_record"

    format: str
    type: str


class RoleImported(SideBody, frozen=True):
    """The state of a role's session at its import, and the feed that the operator had seen by then.

    Shape: `session` is the content of an A-Society ``transcript.json``. `feed` contains the items
    of an A-Society ``feed.json``. `session` and `feed` are stored as they were read. The messages
    of the session are also entries of the tree.
    """

    kind: ClassVar[str] = "role_imported"
    event: ClassVar[str] = "session:role_imported"

    session: dict[str, object]
    feed: tuple[dict[str, object], ...]


class Question(SideBody, frozen=True, omit_defaults=True):
    """A question to a person; `about` refers to the entry that asked the question.

    Shape: `choices` are the accepted answers. `args_hash` is the hash of the exact arguments to
    which the question is bound (BLAKE2b-256, hex). `grant` is the permission that the answer
    "always" gives; `limit_microcents` is the session's limit after the answer "continue" to a
    budget question. For an approval, `agent` asks to use `tool`, whose category is `action`.
    `preview` is the path, command or host of the call. If the session belongs to a flow, `free_in`
    are the consent modes in which perdure runs the call without asking. `arguments` are the
    arguments of the call, with secrets masked; long arguments are shown as beginning, size and
    hash. `bound` lists the files, folders and hashes on which the answer depends. If a fact in
    `bound` changed before the call runs, perdure asks again. `diff` is the proposed change.
    Units: `expires_at` is Unix milliseconds; if it is None, the question never expires.
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
        """Return True if the question has expired at `at`. Units: Unix milliseconds."""
        return self.expires_at is not None and self.expires_at <= at


class Answer(SideBody, frozen=True, omit_defaults=True):
    """A person's answer to the question to which `about` refers. Only the first answer is valid."""

    kind: ClassVar[str] = "answer"
    event: ClassVar[str] = "inbox:answer"

    choice: str
    by: str
    note: str | None = None


class QuestionWithdrawn(SideBody, frozen=True):
    """The turn or program that asked the question needs no answer any more; `reason` says why."""

    kind: ClassVar[str] = "question_withdrawn"
    event: ClassVar[str] = "inbox:withdrawn"

    reason: WithdrawalReason
