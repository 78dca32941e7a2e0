"""The hook points, and the answers that each point accepts.

Every class defines the name of the point (as in Operator), the types of answers that it accepts,
and whether the point is a guard. If a hook of a guard fails, the action is blocked; other failing
hooks are skipped. `changes` maps a type of answer to a field of the point. An answer of a type in
`changes` replaces the field, and the next hook receives the new value. After an answer of any other
type, no further hook runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import msgspec

from perdure.bounds.short_repr import ShortRepr, short_repr
from perdure.models.protocol import ModelRequest
from perdure.session.argument_checks import check_fields
from perdure.session.entries import Entry
from perdure.session.ids import EntryId
from perdure.session.kinds import Compaction, CompactionReason
from perdure.session.ledger import ToolOutcome
from perdure.session.messages import Message
from perdure.tools.spec import ToolCall, ToolOutput

HookName = Literal[
    "session_start",
    "session_shutdown",
    "before_model_call",
    "after_model_call",
    "tool_call",
    "tool_result",
    "session_before_compact",
    "session_compact",
    "session_before_fork",
    "session_fork",
    "session_before_tree",
    "session_tree",
]


class Block(ShortRepr, frozen=True):
    """Block the operation. `reason` is returned to the caller, which can be a model."""

    reason: str

    def __post_init__(self) -> None:
        check_fields(self)


class HookPoint(msgspec.Struct, frozen=True):
    """Base class of all hook points: it has the session id and describes the answers of hooks."""

    name: ClassVar[HookName]
    takes: ClassVar[tuple[type, ...]] = ()
    changes: ClassVar[Mapping[type, str]] = {}
    is_guard: ClassVar[bool] = False

    session_id: str

    __repr__ = short_repr


class SessionStart(HookPoint, frozen=True):
    """A runtime has opened a session: an existing session if `is_resumed`, else a new session."""

    name: ClassVar[HookName] = "session_start"

    agent: str
    is_resumed: bool = False


class SessionShutdown(HookPoint, frozen=True):
    """The runtime that opened the session is closing."""

    name: ClassVar[HookName] = "session_shutdown"


class BeforeModelCall(HookPoint, frozen=True):
    """A model is about to be called; its intent is in the log.

    If a hook answers with a `ModelRequest`, this request is sent to the same model instead. If a
    hook answers with a `Message`, the message becomes the answer, and the model is not called.
    """

    name: ClassVar[HookName] = "before_model_call"
    takes: ClassVar[tuple[type, ...]] = (Block, ModelRequest, Message)
    changes: ClassVar[Mapping[type, str]] = {ModelRequest: "request"}
    is_guard: ClassVar[bool] = True

    request: ModelRequest


class AfterModelCall(HookPoint, frozen=True):
    """A model has answered.

    A hook cannot change the answer, because a user interface could already have shown the answer's
    text.
    """

    name: ClassVar[HookName] = "after_model_call"

    request: ModelRequest
    message: Message


class ToolAsked(HookPoint, frozen=True):
    """A tool is about to run; its intent is in the log, and its arguments are final.

    A `ToolOutput` from a hook becomes the result, and the tool does not run.
    """

    name: ClassVar[HookName] = "tool_call"
    takes: ClassVar[tuple[type, ...]] = (Block, ToolOutput)
    is_guard: ClassVar[bool] = True

    call: ToolCall


class ToolAnswered(HookPoint, frozen=True):
    """A tool has run, or a hook has supplied its result.

    If a hook answers with a `ToolOutput`, this output replaces the result.

    `outcome` is the outcome of the run. If the tool raised an error or timed out, `output` is the
    text for the model. If a hook blocks a tool call, the hooks of `ToolAnswered` do not run.
    """

    name: ClassVar[HookName] = "tool_result"
    takes: ClassVar[tuple[type, ...]] = (ToolOutput,)
    changes: ClassVar[Mapping[type, str]] = {ToolOutput: "output"}

    call: ToolCall
    output: ToolOutput
    outcome: ToolOutcome = "ok"


class BeforeCompact(HookPoint, frozen=True):
    """A context is about to be compacted.

    If a hook answers with a text, the text becomes the summary, and no model is called.

    `history` are the messages that leave the context; `previous_summary` is the summary of earlier
    compactions.
    """

    name: ClassVar[HookName] = "session_before_compact"
    takes: ClassVar[tuple[type, ...]] = (Block, str)

    reason: CompactionReason
    history: tuple[Message, ...]
    previous_summary: str | None
    tokens_before: int


class Compacted(HookPoint, frozen=True):
    """A context was compacted."""

    name: ClassVar[HookName] = "session_compact"

    compaction: Compaction


class BeforeFork(HookPoint, frozen=True):
    """A session is about to be forked, up to the entry `at` or, if `at` is None, as a whole."""

    name: ClassVar[HookName] = "session_before_fork"
    takes: ClassVar[tuple[type, ...]] = (Block,)
    is_guard: ClassVar[bool] = True

    at: EntryId | None


class Forked(HookPoint, frozen=True):
    """A session was forked; `fork` is the new session."""

    name: ClassVar[HookName] = "session_fork"

    fork: str


class BeforeTree(HookPoint, frozen=True):
    """A conversation is about to continue from `target` instead of `leaf`.

    If a hook answers with a text, the text becomes the summary of the abandoned branch.
    """

    name: ClassVar[HookName] = "session_before_tree"
    takes: ClassVar[tuple[type, ...]] = (Block, str)
    is_guard: ClassVar[bool] = True

    leaf: EntryId | None
    target: EntryId | None


class TreeMoved(HookPoint, frozen=True):
    """A conversation continues from another entry; `entry` records this in the log."""

    name: ClassVar[HookName] = "session_tree"

    entry: Entry
