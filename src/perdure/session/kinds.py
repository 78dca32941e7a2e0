"""Bodies of the tree kinds: the content of a conversation.

Every body class defines its ``kind``, its ``version`` and its ``lane``; ``codec`` converts bodies
to entries and back. Any body can have the additional field ``source`` (see ``notes.SourcePlace``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec

from perdure.bounds.short_repr import short_repr
from perdure.errors.usage import WrongArgument
from perdure.session import messages
from perdure.session.entries import Lane
from perdure.session.ids import EntryId
from perdure.session.messages import Message, Part, Usage

CompactionReason = Literal["manual", "threshold", "overflow", "import", "hook"]


class TreeBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of all bodies of the tree lane.

    `event` is the type of the entry's event; the fields of the body are the payload of that event.
    `event` is empty if ``events/projection.py`` computes the events of the kind.
    """

    __repr__ = short_repr

    kind: ClassVar[str]
    event: ClassVar[str] = ""
    version: ClassVar[int] = 1
    lane: ClassVar[Lane] = "tree"


class Compaction(TreeBody, frozen=True, omit_defaults=True):
    """A summary that replaces everything before `first_kept` in the context.

    `first_kept` is None if no entry before the compaction stays in the context. `retained` (from
    newer versions of pi) contains messages that stay verbatim in the context and replace the
    entries before the compaction. Nothing is deleted: hidden entries stay on the branch. `kept`
    counts the messages before the compaction that stay in the context. `own_summary` is the text
    that the model wrote. `own_summary` is set only if `summary` also contains context that a flow
    added.
    """

    kind: ClassVar[str] = "compaction"

    summary: str
    first_kept: EntryId | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None
    reason: CompactionReason = "manual"
    read_files: tuple[str, ...] = ()
    modified_files: tuple[str, ...] = ()
    usage: Usage | None = None
    retained: tuple[Message, ...] | None = None
    kept: int | None = None
    own_summary: str | None = None


class BranchSummary(TreeBody, frozen=True, omit_defaults=True):
    """The summary of an abandoned branch; the context contains it as a user message.

    `from_id` is the entry at which the new branch starts. `from_id` None means that the
    branch starts before the root.
    """

    kind: ClassVar[str] = "branch_summary"

    summary: str
    from_id: EntryId | None = None
    read_files: tuple[str, ...] = ()
    modified_files: tuple[str, ...] = ()
    usage: Usage | None = None


class ModelChange(TreeBody, frozen=True):
    """The branch uses another model (``provider:name``) from this entry on."""

    kind: ClassVar[str] = "model_change"
    event: ClassVar[str] = "session:model_changed"

    model: str


class ThinkingChange(TreeBody, frozen=True):
    """The branch uses another thinking level (``off`` to ``max``) from this entry on."""

    kind: ClassVar[str] = "thinking_change"
    event: ClassVar[str] = "session:thinking_changed"

    level: str


class _TakesRawJson(type(TreeBody)):
    """Lets the constructor of `Custom` accept `raw_json`, which is not a field."""

    def __call__(
        cls, custom_type: str, data: object = None, *, raw_json: bytes | None = None
    ) -> Custom:
        if raw_json is not None and data is not None:
            raise WrongArgument("Custom takes data or raw_json, not both", argument="raw_json")
        held = data if raw_json is None else _checked_json(raw_json)
        made: Custom = super().__call__(custom_type, held)
        return made


class Custom(TreeBody, frozen=True, omit_defaults=True, metaclass=_TakesRawJson):
    """The state of an extension; it is never in the context. `data` is any JSON value.

    `raw_json` is JSON to store byte for byte, including values that `data` cannot contain: integers
    of any size, repeated keys, ``data:`` addresses. The function `raw_data` returns `raw_json`
    unchanged.
    Raises: WrongArgument if `raw_json` is not JSON or contains half of a surrogate pair, which
    cannot be read back. Raises WrongArgument if both `data` and `raw_json` are given.
    """

    kind: ClassVar[str] = "custom"
    event: ClassVar[str] = "session:custom"

    custom_type: str
    data: object = None

    if TYPE_CHECKING:

        def __init__(
            self, custom_type: str, data: object = None, *, raw_json: bytes | None = None
        ) -> None: ...


class _RawData(msgspec.Struct):
    data: msgspec.Raw = msgspec.Raw(b"null")


def raw_data(body: bytes) -> bytes:
    """Return the data in the body of a ``custom`` entry as its original JSON.

    Raises: WrongArgument if `body` is not bytes; ValueError if it is not the body of a ``custom``
    entry.
    """
    if not isinstance(body, bytes):  # pyright: ignore[reportUnnecessaryIsInstance] - a checker would have told
        kind = type(body).__name__
        raise WrongArgument(f"raw_data takes bytes, not {kind}", argument="body")
    return bytes(msgspec.json.decode(body, type=_RawData).data)


_HALF_PAIR = re.compile(
    rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]"
)


def _checked_json(given: object) -> msgspec.Raw:
    if not isinstance(given, bytes):
        kind = type(given).__name__
        raise WrongArgument(f"raw_json takes bytes, not {kind}", argument="raw_json")
    try:
        msgspec.json.decode(given)
        given.decode()
    except (ValueError, RecursionError) as error:
        what = "half of a surrogate pair" if _HALF_PAIR.search(given) else error
        reason = f"raw_json cannot be read as JSON ({what})"
        raise WrongArgument(reason, argument="raw_json") from error
    return msgspec.Raw(given.strip(b" \t\r\n"))


class CustomMessage(TreeBody, frozen=True, omit_defaults=True):
    """A message written by an extension; the context contains it as a user message.

    `is_displayed` tells user interfaces whether to show the message. `in_context` is False for a
    message that the context excludes, such as a shell command that a person marked as private.
    """

    kind: ClassVar[str] = "custom_message"
    event: ClassVar[str] = "session:custom_message"

    custom_type: str
    parts: tuple[Part, ...]
    is_displayed: bool = True
    in_context: bool = True
    details: object = None


CONTINUE_TEXT = (
    "Your last answer was cut off. Go on exactly where it stops, without repeating any of it."
)
"""Prompt, sent as a custom message, to continue an answer after its stored part."""

MESSAGE = messages.MESSAGE
"""Kind of an entry whose body is a ``messages.Message``."""

OPAQUE = "opaque"
"""Kind of an entry whose body is not readable JSON; stored and exported, never in a context."""
