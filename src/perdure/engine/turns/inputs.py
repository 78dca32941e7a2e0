"""The inputs of the turn machine."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from perdure.errors import ModelError
from perdure.session.ids import EntryId
from perdure.session.kinds import Compaction
from perdure.session.ledger import Delegated, Spending, ToolOutcome, Trimmed
from perdure.session.memory.kinds import ContextRecalled
from perdure.session.messages import MediaPart, Message, Usage


class Begin(msgspec.Struct, frozen=True):
    """The user sends a message.

    `number` is the number of the new turn; `base` is the leaf at which the turn begins.

    `ran` is the number of the session's turns that have called a model so far. `spent`,
    `granted_microcents`, `parked` and `grants` come from the session's log before this turn.
    `contents` are the media to which the message refers. `is_reopening` is True if the session had
    ended, so that the turn reopens it. `recalled` contains the texts that the turn recalled from
    earlier sessions. `request` is the seq of the ``turn_requested`` that the turn answers.
    Units: `context_tokens` is the estimated size, in tokens, of the context before `message`.
    """

    message: Message
    number: int
    base: EntryId | None
    context_tokens: int | None = None
    ran: int = 0
    spent: Spending = Spending()
    granted_microcents: int | None = None
    parked: dict[str, int] = {}
    grants: tuple[str, ...] = ()
    contents: tuple[bytes, ...] = ()
    is_reopening: bool = False
    recalled: ContextRecalled | None = None
    request: int | None = None


class Answered(msgspec.Struct, frozen=True):
    """The model's complete answer arrived.

    `trimmed` describes the messages that were omitted from the request for this answer.

    `is_estimated` is True if the usage in `message` is not the provider's own count. `contents` are
    the bytes to which the answer's tool calls refer; the commit of the answer stores them.
    """

    message: Message
    trimmed: Trimmed | None = None
    is_estimated: bool = False
    contents: tuple[bytes, ...] = ()


class Summarised(msgspec.Struct, frozen=True):
    """The summary arrived.

    `is_estimated` is True if the `usage` of the summary call is an estimate.
    """

    compaction: Compaction
    usage: Usage | None = None
    is_estimated: bool = False


class NothingToSummarise(msgspec.Struct, frozen=True):
    """A summary was due, but nothing can leave the context."""


class CallFailed(msgspec.Struct, frozen=True):
    """The model call failed, possibly after part of the answer had arrived (`has_begun`).

    `partial` is the part of the answer that can be shown. `usage` is the usage of the call, None if
    nothing was used; `is_estimated` is True if this usage is an estimate. `is_renewed` is True if
    the key that the provider rejected has been replaced.
    Units: `random01` is a random number from 0 to 1, for the jitter of the wait.
    """

    error: ModelError
    partial: Message | None = None
    random01: float = 0.5
    has_begun: bool = False
    usage: Usage | None = None
    is_estimated: bool = False
    is_renewed: bool = False


class Waited(msgspec.Struct, frozen=True):
    """The wait before the next attempt is over."""


class ToolReturned(msgspec.Struct, frozen=True):
    """The tool returned a result or an error.

    If `text` is cut, `whole` is the handle of the full text. `embedded` are the handles that
    replace base64 data in `text`. `contents` are stored in the commit of the result. `delegated` is
    the session that the call opened for another agent.
    """

    text: str
    outcome: ToolOutcome = "ok"
    error: str | None = None
    error_code: str | None = None
    duration_ms: int | None = None
    media: tuple[MediaPart, ...] = ()
    ends_session: bool = False
    whole: str | None = None
    embedded: tuple[str, ...] = ()
    contents: tuple[bytes, ...] = ()
    delegated: Delegated | None = None


class Woken(msgspec.Struct, frozen=True):
    """An entry was appended while the turn waited for an answer."""


class Expired(msgspec.Struct, frozen=True):
    """The question expired without an answer."""


class Aborted(msgspec.Struct, frozen=True):
    """The turn was ended by a person or by the program.

    `partial` is the received part of the answer; `usage` is the usage of the call. `is_cancel` is
    True if the turn ends because its chat is being closed. `is_interrupted` is True if the turn is
    closed as interrupted, because this process is not allowed to continue it. `delegated` is the
    session that the tool has opened for another agent. `returned` contains the outcome of each tool
    run that had already ended, keyed by the seq of the run's intent.
    """

    partial: Message | None = None
    usage: Usage | None = None
    is_estimated: bool = False
    is_cancel: bool = False
    delegated: Delegated | None = None
    is_interrupted: bool = False
    returned: Mapping[int, ToolReturned] = {}


class Broken(msgspec.Struct, frozen=True):
    """Something that the program supplied (a tool, a model client, prices) broke the turn."""

    reason: str


class Lost(msgspec.Struct, frozen=True):
    """The process that ran the open effect is dead; this process takes over.

    `has_begun` is True if a part of the answer had arrived; `partial` is the part that was stored.
    """

    has_begun: bool = False
    partial: Message | None = None


Input = (
    Begin
    | Answered
    | Summarised
    | NothingToSummarise
    | CallFailed
    | Waited
    | ToolReturned
    | Woken
    | Expired
    | Aborted
    | Broken
    | Lost
)
