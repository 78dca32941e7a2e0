"""Convert a window of the log to messages, in order and unmodified.

The messages come in this order: the summary of the newest compaction, the pinned entries that it
hides, the entries that it keeps, and the entries after it. Branch summaries and custom messages are
converted to user messages. Settings, extension state and older compactions are omitted. The
messages are not yet valid for a provider: ``tool_pairs`` and ``validity`` repair the messages.
"""

from __future__ import annotations

import msgspec

from perdure.bounds.short_repr import ShortRepr
from perdure.context import prompts
from perdure.session.codec import Unknown, readable
from perdure.session.entries import Entry
from perdure.session.fold import ContextWindow, position_of
from perdure.session.ids import EntryId
from perdure.session.kinds import BranchSummary, Compaction, CustomMessage
from perdure.session.messages import Message, UnknownPart, user


class ContextMessage(ShortRepr, frozen=True):
    """A message of a context, and the entry from which it comes.

    `entry_id` is None for content without an entry, such as the result of an interrupted call.
    `merged` are further entries whose content was merged into it.
    """

    message: Message
    entry_id: EntryId | None
    merged: tuple[EntryId, ...] = ()

    @property
    def entry_ids(self) -> tuple[EntryId, ...]:
        """Return the ids of all entries whose content is in the message."""
        return self.merged if self.entry_id is None else (self.entry_id, *self.merged)


class Shown(msgspec.Struct, frozen=True):
    """An entry of a window, with its message in the context, if any."""

    entry: Entry
    message: Message | None


class Emitted(msgspec.Struct, frozen=True):
    """The messages of a window.

    Shape: if `has_summary` is true, the first of `messages` is the compaction's summary. `skips`
    are the entries that this version cannot read completely, each with the number of unreadable
    pieces.
    """

    messages: tuple[ContextMessage, ...]
    has_summary: bool
    skips: tuple[tuple[EntryId, int], ...] = ()

    @property
    def skipped_count(self) -> int:
        """Return the number of entries and message parts that this version cannot read."""
        return sum(count for _, count in self.skips)


def emit(window: ContextWindow) -> Emitted:
    """Return the messages of `window`, in the order for the model.

    The reported usage is removed from answers whose request had a different context than the
    current one: answers before the newest compaction, and answers between a compaction and its
    undoing.
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
        count = sum(isinstance(part, UnknownPart) for part in each.message.parts)
        if count and each.entry_id is not None:
            skips.append((each.entry_id, count))
    return Emitted((*summary, *said), bool(summary), tuple(skips))


def stays_fresh(window: ContextWindow) -> bool:
    """Return True if the next answers keep their reported usage (see `emit`)."""
    at = position_of(window.state.compaction, window.entries)
    return _first_undone_after(window, at) == len(window.entries)


def shown_entries(window: ContextWindow) -> tuple[Shown, ...]:
    """Return the entries of `window` that can still be in the context, each with its message.

    Shape: if the newest compaction retains messages instead of entries, the result begins with this
    compaction; otherwise, it contains all entries.
    """
    at = position_of(window.state.compaction, window.entries)
    fresh_until = _first_undone_after(window, at)
    replaced = at if retained_messages(window) is not None else 0
    return tuple(
        Shown(entry, message_in(entry, is_fresh=at < position < fresh_until))
        for position, entry in enumerate(window.entries)
        if position >= replaced
    )


def retained_messages(window: ContextWindow) -> tuple[Message, ...] | None:
    """Return the messages that the newest compaction retained; None if it keeps entries instead."""
    body = compaction_of(window)
    return body.retained if body is not None else None


def compaction_of(window: ContextWindow) -> Compaction | None:
    """Return the body of the newest compaction that was not undone; None if it is unreadable."""
    entry = window.state.compaction
    body = readable(entry) if entry is not None else None
    return body if isinstance(body, Compaction) else None


def is_readable(entry: Entry) -> bool:
    """Return True if this version can read `entry`."""
    return not isinstance(readable(entry), Unknown)


def _summary_of(window: ContextWindow) -> tuple[ContextMessage, ...]:
    entry, body = window.state.compaction, compaction_of(window)
    if entry is None or body is None or not body.summary.strip():
        return ()
    text = _quote_summary(prompts.COMPACTION_LEAD_IN, body.summary)
    return (ContextMessage(user(text), entry.id),)


def _retained_messages(window: ContextWindow) -> tuple[ContextMessage, ...]:
    entry = window.state.compaction
    if entry is None or (window.earlier and position_of(entry, window.entries) < 0):
        return ()  # they precede all entries of the window that were read
    kept = retained_messages(window) or ()
    return tuple(ContextMessage(_without_usage(message), entry.id) for message in kept)


def _pinned_messages(window: ContextWindow) -> tuple[ContextMessage, ...]:
    found = ((entry, message_in(entry, is_fresh=False)) for entry in window.pinned)
    return tuple(ContextMessage(message, entry.id) for entry, message in found if message)


def message_in(entry: Entry, *, is_fresh: bool) -> Message | None:
    """Return the message of `entry` for a context, with its reported usage only if `is_fresh`."""
    match readable(entry):
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


def _first_undone_after(window: ContextWindow, at: int) -> int:
    """Return the position from which answers might have had less context than the current one.

    The result is 0 if a compaction before the window was undone. Otherwise, the result is the
    position of the first undone compaction after `at`, or the end of the window without one.
    """
    if not window.undone:
        return len(window.entries)
    if window.earlier and window.undone - {entry.id for entry in window.entries}:
        return 0  # it is one of the earlier entries
    for position, entry in enumerate(window.entries):
        if position > at and entry.id in window.undone:
            return position
    return len(window.entries)
