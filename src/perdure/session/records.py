"""Records that a store lists besides messages: tool calls, usage, activity, file edits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from perdure.bounds.short_repr import ShortRepr
from perdure.session.ids import EntryId, StreamId
from perdure.session.ledger import ToolOutcome
from perdure.session.messages import Usage

UsageGroup = Literal["model", "agent", "source", "project", "subject", "day", "session"]
ActivityGroup = Literal["day", "hour"]


class ToolCallRecord(ShortRepr, frozen=True):
    """One tool call of a session.

    `success` is None while the call has no outcome: it runs, or it was interrupted. `outcome` gives
    details of calls that perdure ran; it is None for imported calls. `output` is the text sent to
    the model. `entry_id` is the entry of the call: its ``tool_started``, or else the message that
    requests the call, or else its ``tool_finished``. A retried call has one record for each
    attempt.
    Units: `called_at` is Unix milliseconds; `duration_ms` is None for imported calls.
    """

    id: str
    name: str
    input: Mapping[str, object]
    output: str | None
    success: bool | None
    error: str | None
    called_at: int
    duration_ms: int | None
    session: StreamId
    entry_id: EntryId
    outcome: ToolOutcome | None = None


class UsageTotal(ShortRepr, frozen=True):
    """Usage of the model calls of one group.

    `key` is the group: a model, agent, folder, day (``2026-11-22``) or session; "" if the log names
    none. `usage` is the sum over the calls of the group that reported usage, and `calls` is the
    number of those calls. `sessions` is the number of sessions that contain calls with reported
    usage. The cost in `usage` excludes `unpriced_calls`, whose price is unknown. If totals are also
    summed by day, `day` is the day of this total.
    """

    key: str
    calls: int
    usage: Usage
    unpriced_calls: int
    sessions: int
    day: str | None = None


class ActivityTotal(ShortRepr, frozen=True):
    """Activity in a day (``2026-11-22``) or an hour (``2026-11-22T14``).

    `messages` counts the messages of people and models. `tokens` counts the tokens of all model
    calls. `sessions` counts the sessions with any activity.
    """

    key: str
    messages: int
    turns: int
    tool_calls: int
    tokens: int
    sessions: int


class FileEdit(ShortRepr, frozen=True):
    """A file that tool calls changed.

    `path` is the path as in the call. A relative path is below `cwd`; for an absolute path, `cwd`
    is None. `entry_id` refers to the newest call that changed the file: a call of `tool` in
    `session`. `edits` counts the calls that changed the file, in the sessions that were read for
    the list.
    Units: `at` is Unix milliseconds.
    """

    path: str
    cwd: str | None
    session: StreamId
    entry_id: EntryId
    tool: str
    at: int
    edits: int
