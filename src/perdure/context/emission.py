"""A window of the log as the messages it stands for, in order, still as they were said.

The rules of reconstruction: the summary of the newest compaction first, then what is pinned of what
it hides, then what it keeps, then what came after it; branch summaries and custom messages as the
user's words; settings, extension state and older compactions not at all.
Nothing here makes the result valid for a provider: ``pairing`` and ``validity`` do.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.context import prompts
from perdure.errors import CorruptLog, UnsupportedVersion
from perdure.session.codec import Body, Unknown, body_of
from perdure.session.entries import Entry
from perdure.session.fold import ContextWindow
from perdure.session.ids import EntryId
from perdure.session.kinds import BranchSummary, Compaction, CustomMessage
from perdure.session.messages import Message, UnknownPart, user


class ContextMessage(msgspec.Struct, frozen=True):
    """A message of a context and the entry it comes from.

    `entry_id` is None for what is in no entry, such as the result of a call that was interrupted.
    `merged` are the further entries whose content was put into it.
    """

    message: Message
    entry_id: EntryId | None
    merged: tuple[EntryId, ...] = ()

    @property
    def entry_ids(self) -> tuple[EntryId, ...]:
        """Every entry it holds content of."""
        return self.merged if self.entry_id is None else (self.entry_id, *self.merged)


class Shown(msgspec.Struct, frozen=True):
    """An entry of a window, with the message it stands for in the context, if it does."""

    entry: Entry
    message: Message | None


class Emitted(msgspec.Struct, frozen=True):
    """What a window says.

    Shape: with `has_summary` the first of `messages` is the compaction's summary. `skips` are the
    entries that this version cannot read, or only in part: for each, how much of it.
    """

    messages: tuple[ContextMessage, ...]
    has_summary: bool
    skips: tuple[tuple[EntryId, int], ...] = ()

    @property
    def skipped_count(self) -> int:
        """How many entries, and parts of messages, this version cannot read."""
        return sum(count for _, count in self.skips)


def emit(window: ContextWindow) -> Emitted:
    """The messages of `window`, in the order the model is to read them.

    Reported usage stays only on answers that were given to the context of now: it is taken off
    whatever stands before the newest compaction, or after one that was taken back.
    """
    summary = _summary_of(window)
    said = [*_pinned_messages(window), *_retained_messages(window)]
    skips: list[tuple[EntryId, int]] = []
    for shown in shown_entries(window):
        if shown.message is not None:
            said.append(ContextMessage(shown.message, shown.entry.id))
        elif not shown.entry.is_erased and not is_readable(shown.entry):
            skips.append((shown.entry.id, 1))
    for each in said:
        count = _unknown_parts(each.message)
        if count and each.entry_id is not None:
            skips.append((each.entry_id, count))
    return Emitted((*summary, *said), bool(summary), tuple(skips))


def stays_fresh(window: ContextWindow) -> bool:
    """Whether usage that is reported from here on is for the context of then."""
    at = _position(window.entries, window.state.compaction)
    return _first_undone_after(window, at) == len(window.entries)


def shown_entries(window: ContextWindow) -> tuple[Shown, ...]:
    """The entries of `window` that can still be in the context, each with its message.

    Shape: all of them, but for those before a compaction that retains messages instead.
    """
    at = _position(window.entries, window.state.compaction)
    fresh_until = _first_undone_after(window, at)
    replaced = at if retained_messages(window) is not None else 0
    return tuple(
        Shown(entry, message_in(entry, is_fresh=at < position < fresh_until))
        for position, entry in enumerate(window.entries)
        if position >= replaced
    )


def retained_messages(window: ContextWindow) -> tuple[Message, ...] | None:
    """The messages the newest compaction kept verbatim; None where it names an entry instead."""
    body = compaction_of(window)
    return body.retained if body is not None else None


def compaction_of(window: ContextWindow) -> Compaction | None:
    """The body of the newest compaction that was not taken back, if it can be read."""
    entry = window.state.compaction
    body = readable_body(entry) if entry is not None else None
    return body if isinstance(body, Compaction) else None


def readable_body(entry: Entry) -> Body | None:
    """The body of `entry`; None when it is damaged or was written by a newer perdure."""
    try:
        return body_of(entry)
    except (CorruptLog, UnsupportedVersion):
        return None


def is_readable(entry: Entry) -> bool:
    """Whether this version understands `entry`."""
    body = readable_body(entry)
    return body is not None and not isinstance(body, Unknown)


def _summary_of(window: ContextWindow) -> tuple[ContextMessage, ...]:
    entry, body = window.state.compaction, compaction_of(window)
    if entry is None or body is None or not body.summary.strip():
        return ()
    text = _quote_summary(prompts.COMPACTION_LEAD_IN, body.summary)
    return (ContextMessage(user(text), entry.id),)


def _retained_messages(window: ContextWindow) -> tuple[ContextMessage, ...]:
    entry = window.state.compaction
    if entry is None or (window.earlier and _position(window.entries, entry) < 0):
        return ()  # they stand before all entries of the window that were read
    kept = retained_messages(window) or ()
    return tuple(ContextMessage(_without_usage(message), entry.id) for message in kept)


def _pinned_messages(window: ContextWindow) -> tuple[ContextMessage, ...]:
    found = ((entry, message_in(entry, is_fresh=False)) for entry in window.pinned)
    return tuple(ContextMessage(message, entry.id) for entry, message in found if message)


def message_in(entry: Entry, *, is_fresh: bool) -> Message | None:
    """What `entry` says in a context; its reported usage only while that `is_fresh`."""
    match readable_body(entry):
        case Message() as message:
            return message if is_fresh else _without_usage(message)
        case CustomMessage(in_context=True) as custom:
            return Message("user", custom.parts)
        case BranchSummary() as branch if branch.summary.strip():
            return user(_quote_summary(prompts.BRANCH_LEAD_IN, branch.summary))
        case _:
            return None


def _quote_summary(lead_in: str, summary: str) -> str:
    return f"{lead_in}\n\n{prompts.wrap_in_tag('summary', summary.strip())}"


def _without_usage(message: Message) -> Message:
    return msgspec.structs.replace(message, usage=None) if message.usage else message


def _position(entries: Sequence[Entry], wanted: Entry | None) -> int:
    """Where `wanted` stands, -1 if it is not among `entries`."""
    if wanted is None:
        return -1
    return next((n for n, entry in enumerate(entries) if entry.id == wanted.id), -1)


def _first_undone_after(window: ContextWindow, at: int) -> int:
    """Where answers may have been given to a context that was smaller than it is now."""
    if not window.undone:
        return len(window.entries)
    if window.earlier and window.undone - {entry.id for entry in window.entries}:
        return 0  # it is one of the earlier entries
    for position, entry in enumerate(window.entries):
        if position > at and entry.id in window.undone:
            return position
    return len(window.entries)


def _unknown_parts(message: Message) -> int:
    return sum(isinstance(part, UnknownPart) for part in message.parts)
