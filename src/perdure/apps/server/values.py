"""The JSON values of the API.

Field names are camelCase, times are ISO 8601 in UTC with milliseconds, and ids are complete. The
OpenAPI document is generated from these classes.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

import msgspec

from perdure.apps.session_rows import SessionState
from perdure.session.clock import timestamp
from perdure.session.ledger import ToolOutcome, TurnEnd

T = TypeVar("T")


class Value(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base class of the values of the API."""


class Page(Value, Generic[T], frozen=True, kw_only=True):
    """One page of a list. `next` is the cursor of the next page; null on the last page."""

    items: list[T]
    next: str | None = None


class SessionView(Value, frozen=True, kw_only=True):
    """A session. `name` is the title of the session, or else the beginning of its first message."""

    id: str
    title: str | None
    name: str
    state: SessionState
    agent: str | None
    model: str | None
    subject: str | None
    source: str | None
    folder: str | None
    origin: str
    parent: str | None
    created_at: str
    updated_at: str
    messages: int
    entries: int
    turns: int
    metadata: dict[str, Any] | None
    head: int | None = None
    leaf: str | None = None


class EntryView(Value, frozen=True, kw_only=True):
    """An entry of a log. `body` is null if the entry was erased."""

    id: str
    seq: int
    kind: str
    v: int
    parent_id: str | None
    about: str | None
    at: str
    body: Any


CallStatus = Literal["running", ToolOutcome]


class MessageView(Value, frozen=True, kw_only=True):
    """A message of the active branch. `siblings` are the entries that have the same parent.

    `calls` contains the states of the message's tool calls by call id. A call that has not started,
    or that another program made, has no state.
    """

    id: str
    seq: int
    parent_id: str | None
    at: str
    role: str
    parts: list[Any]
    text: str
    model: str | None = None
    author: str | None = None
    said_at: str | None = None
    error: Any = None
    label: str | None = None
    is_pinned: bool = False
    siblings: list[str] = []
    calls: dict[str, CallStatus] = {}


class CompactionView(Value, frozen=True, kw_only=True):
    """A compaction of the active branch; `after` is the message before the compaction.

    Units: `tokens_before` and `tokens_after` are numbers of tokens in the whole context.
    """

    id: str
    after: str
    at: str
    reason: str
    summary: str
    tokens_before: int | None
    tokens_after: int | None
    is_undone: bool


class Messages(Value, frozen=True, kw_only=True):
    """Messages of the active branch, oldest first.

    `has_more` is true if there are earlier messages.

    `compactions` lists the compactions that follow one of `items`, including undone compactions.
    """

    items: list[MessageView]
    has_more: bool
    compactions: list[CompactionView] = []


class RemovedView(Value, frozen=True, kw_only=True):
    """The messages that a compaction removed from the context, oldest first.

    `pinned` lists the messages that stay in the context although the compaction covers them.
    """

    compaction: str
    items: list[MessageView]
    pinned: list[str]


class Sent(Value, frozen=True, kw_only=True):
    """The result of sending a message. `entry_id` is the entry of a queued message."""

    session_id: str
    status: Literal["started", "queued"]
    is_new: bool
    entry_id: str | None = None


class QuestionView(Value, frozen=True, kw_only=True):
    """An open question; if a `flow` asks it, `target` is the node or role that needs the answer."""

    id: str
    session: str
    flow: str | None
    target: str | None
    about: str | None
    at: str
    question: dict[str, Any]


class TreeRow(Value, frozen=True, kw_only=True):
    """An entry of the tree. `text` is the beginning of the entry's text."""

    id: str
    seq: int
    parent_id: str | None
    kind: str
    role: str | None
    at: str
    text: str
    label: str | None
    is_pinned: bool
    is_on_branch: bool


class Tree(Value, frozen=True, kw_only=True):
    """The newest entries of all branches, in log order; `has_more` is true if older ones exist."""

    leaf: str | None
    items: list[TreeRow]
    has_more: bool


class Difference(Value, frozen=True, kw_only=True):
    """Two branches: the last entry they share, and the messages of each branch after that entry."""

    shared: str | None
    a: list[MessageView]
    b: list[MessageView]


class Tokens(Value, frozen=True, kw_only=True):
    """Tokens of a model call; no token is counted in more than one of the four classes."""

    input: int
    output: int
    cache_read: int
    cache_write: int


class Call(Value, frozen=True, kw_only=True):
    """A call of a turn, to a model or a tool. Units: `cost_microcents` is in 1e-8 US dollars."""

    seq: int
    type: Literal["model", "tool"]
    name: str
    status: CallStatus
    started_at: str
    finished_at: str | None
    attempt: int
    tokens: Tokens | None = None
    cost_microcents: int | None = None
    input: Any = None
    result: str | None = None
    error: str | None = None


class TurnView(Value, frozen=True, kw_only=True):
    """A turn with its calls, in the order in which they started."""

    seq: int
    number: int
    agent: str
    status: Literal["open", TurnEnd]
    started_at: str
    finished_at: str | None
    error: str | None
    calls: list[Call]


class HitView(Value, frozen=True, kw_only=True):
    """A match of a search in the session called `name`; `marks` are the matches in `snippet`."""

    session: str
    name: str
    entry_id: str | None
    about: str | None
    role: str
    at: str
    snippet: str
    marks: tuple[tuple[int, int], ...]
    score: float
    is_on_branch: bool


class ToolCallView(Value, frozen=True, kw_only=True):
    """A tool call. `success` is null while the call has no outcome."""

    id: str
    session: str
    entry_id: str
    name: str
    input: dict[str, Any]
    output: str | None
    success: bool | None
    outcome: str | None
    error: str | None
    called_at: str
    duration_ms: int | None


class SessionValues(Value, frozen=True, kw_only=True):
    """Values that occur in sessions, for choosing filters."""

    agents: list[str]
    subjects: list[str]
    sources: list[str]
    folders: list[str]


class UsageView(Value, frozen=True, kw_only=True):
    """The usage of one group of model calls, on one `day` if the usage is requested by day.

    The cost does not include the `unpriced_calls`.
    """

    key: str
    day: str | None
    calls: int
    sessions: int
    tokens: Tokens
    cost_microcents: int | None
    unpriced_calls: int


class ActivityView(Value, frozen=True, kw_only=True):
    """Activity in one day or hour."""

    key: str
    messages: int
    turns: int
    tool_calls: int
    tokens: int
    sessions: int


class EditView(Value, frozen=True, kw_only=True):
    """A file that tool calls changed; `entry_id` is the entry of the newest such call."""

    path: str
    folder: str | None
    session: str
    entry_id: str
    tool: str
    at: str
    edits: int


class FactView(Value, frozen=True, kw_only=True):
    """A fact. `history` contains the earlier texts of the fact, oldest first."""

    id: str
    text: str
    subject: str | None
    agent: str | None
    sources: tuple[str, ...]
    said_by: str
    valid_from: str | None
    valid_to: str | None
    at: str
    history: list[str]


class EpisodeView(Value, frozen=True, kw_only=True):
    """A session that ended. The episode covers the entries `first` to `last` of `session`."""

    id: str
    session: str
    subject: str | None
    agent: str | None
    first: int
    last: int
    started_at: str
    ended_at: str
    by: str
    title: str | None
    summary: str | None
    messages: int
    turns: int
    tool_calls: int


class RecalledView(Value, frozen=True, kw_only=True):
    """A recalled text, and the reason why it was found.

    `sources` are the entries from which a fact comes, or the last entry of an episode.
    """

    kind: str
    session: str
    entry_id: str
    role: str
    text: str
    score: float
    at: str
    author: str | None
    why: dict[str, Any]
    sources: tuple[str, ...]


class Recollection(Value, frozen=True, kw_only=True):
    """The recalled texts. `problem` is the reason why the recall compared only words, or null."""

    items: list[RecalledView]
    problem: str | None


class StoreView(Value, frozen=True, kw_only=True):
    """Facts about the store. Units: sizes are bytes."""

    backend: str
    namespace: str
    durability: str
    streams: int
    entries: int
    size_bytes: int
    payload_bytes: int
    is_encrypted: bool
    engine: str


class WorkerView(Value, frozen=True, kw_only=True):
    """The last report of a worker.

    If the worker also serves other namespaces, `agents` is empty, because some of the agents belong
    to those namespaces.
    Units: seconds; `silentS` is the time since the worker's last report.
    """

    id: str
    owner: str
    version: str
    agents: list[str]
    slots: int
    running: int
    state: str
    up_s: float
    silent_s: float


class QueueView(Value, frozen=True, kw_only=True):
    """A queue of turns that need the same agent with the same tools.

    The queue is stuck if turns wait and no worker serves the queue.

    Units: `oldestS` is the waiting time of the oldest waiting turn, in seconds.
    """

    agent: str
    waiting: int
    scheduled: int
    running: int
    oldest_s: float | None
    served_by: tuple[str, ...]


class ClusterView(Value, frozen=True, kw_only=True):
    """The workers of the database, the queues of the namespace, and counters.

    Only a PostgreSQL store can have workers; for any other store, `is_shared` is false.
    """

    is_shared: bool
    workers: list[WorkerView]
    queues: list[QueueView]
    counts: dict[str, int]


class BackupView(Value, frozen=True, kw_only=True):
    """A backup of the store."""

    path: str
    at: str


class RetentionView(Value, frozen=True, kw_only=True):
    """The retention rules of the namespace; null means no limit.

    `expiring` is the number of sessions that exceed the rules now.

    Units: times are seconds, sizes are bytes.
    """

    max_age_s: int | None
    max_idle_s: int | None
    max_sessions: int | None
    max_bytes: int | None
    expiring: int


class MaintenanceView(Value, frozen=True, kw_only=True):
    """The backups of the store, newest first, and its retention rules.

    A null value means that the store does not support this feature.
    """

    backups: list[BackupView] | None
    retention: RetentionView | None


class VerifiedView(Value, frozen=True, kw_only=True):
    """The result of a verification of the whole log."""

    is_ok: bool
    streams: int
    entries: int
    problems: list[dict[str, Any]]


class ErasedView(Value, frozen=True, kw_only=True):
    """How much data was erased; the store keeps the certificate."""

    certificate: dict[str, Any]


class SignedIn(Value, frozen=True, kw_only=True):
    """Whether the browser is signed in now."""

    is_signed_in: bool


class CallerView(Value, frozen=True, kw_only=True):
    """The caller of a request: the role of the token that was used."""

    role: Literal["read", "write", "admin"]


class AgentView(Value, frozen=True, kw_only=True):
    """An agent with which sessions can be started."""

    id: str
    name: str | None
    description: str | None
    model: str | None
    tools: list[str]


def time_or_none(at: int | None) -> str | None:
    """Return the time `at` (Unix milliseconds) as ISO 8601 in UTC; None if `at` is None."""
    return None if at is None else time_of(at)


def time_of(at: int) -> str:
    """Return the time `at` (Unix milliseconds) as ISO 8601 in UTC."""
    return timestamp(at)
