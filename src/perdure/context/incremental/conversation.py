"""Extend the messages of a window, at a cost that depends only on the added entries.

A `Conversation` is an immutable value; `extend` returns a new one. Changes other than added entries
(a moved leaf, a compaction, an undone compaction, a pin) need a new conversation. `build_context`
defines the correct result: the prompt of a conversation always equals the context that
`build_context` builds from the same window.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.context.build import end_of_turns, texts_in
from perdure.context.emission import ContextMessage, emit, message_in, stays_fresh
from perdure.context.incremental.stable_prefix import Settled, sizes_of
from perdure.context.pins import calls_of
from perdure.context.tool_pairs import Paired, is_sendable, pair_after
from perdure.session.codec import readable
from perdure.session.entries import Entry
from perdure.session.fold import BranchState, ContextWindow
from perdure.session.ids import EntryId
from perdure.session.ledger import History
from perdure.session.messages import Message, Part, ToolResultPart

MOST_OPEN = 3
"""If there are more open messages than this, some of them are settled.

Each request processes all open messages again.
"""


class Conversation(msgspec.Struct, frozen=True):
    """The messages of a window: `settled` messages cannot change any more, `open` messages can.

    `tail` contains the `open` messages in the form that `repair_pairs` returns; `sizes` contains
    the sizes of the messages in `tail`. `leaf` is the end of the branch; `state` is the branch
    state at the leaf. `is_fresh` is true if usage that is reported from now on is valid for the
    context. `pins` and `pinned` are copied from the window. `pinned_calls` are the ids of pinned
    tool calls; a later result of a pinned call is pinned, too.
    """

    leaf: EntryId | None
    state: BranchState
    history: History = "full"
    has_summary: bool = False
    is_fresh: bool = True
    pins: frozenset[EntryId] = frozenset()
    pinned: tuple[Entry, ...] = ()
    pinned_calls: frozenset[str] = frozenset()
    settled: Settled = Settled()
    open: tuple[ContextMessage, ...] = ()
    tail: Paired = Paired()
    sizes: tuple[float, ...] = ()

    def extend(self, entries: Sequence[Entry]) -> Conversation | None:
        """Return this conversation extended by `entries`, which directly follow the leaf.

        `entries` must not change earlier messages, as a compaction does. Returns None if one of the
        entries contains a result of a pinned tool call.
        """
        added: list[ContextMessage] = []
        pinned_calls = self.pinned_calls
        for entry in entries:
            message = message_in(entry, is_fresh=self.is_fresh)
            if message is None:
                continue
            if pinned_calls:
                if any(_call_of(part) in pinned_calls for part in message.parts):
                    return None
                pinned_calls -= calls_of(message)  # a result belongs to the newest call of its id
            added.append(ContextMessage(message, entry.id))
        conversation = self
        if pinned_calls is not self.pinned_calls:
            conversation = msgspec.structs.replace(self, pinned_calls=pinned_calls)
        return _with(conversation, added, entries[-1].id if entries else self.leaf)


def conversation_of(window: ContextWindow, history: History = "full") -> Conversation:
    """Return the messages of `window`; for `history`, see `build_context`."""
    said = emit(window)
    empty = Conversation(
        leaf=window.leaf,
        state=window.state,
        history=history,
        has_summary=said.has_summary,
        is_fresh=stays_fresh(window),
        pins=window.pins,
        pinned=window.pinned,
        pinned_calls=_pinned_calls(window) if window.pins else frozenset(),
    )
    return _with(empty, said.messages, window.leaf)


def _pinned_calls(window: ContextWindow) -> frozenset[str]:
    """Return the ids of calls whose newest occurrence in the window is pinned."""
    found: frozenset[str] = frozenset()
    for entry in (*window.pinned, *window.entries):
        message = readable(entry)
        if isinstance(message, Message):
            calls = calls_of(message)
            found = found | calls if entry.id in window.pins else found - calls
    return found


def _call_of(part: Part) -> str | None:
    return part.call_id if isinstance(part, ToolResultPart) else None


def _with(
    conversation: Conversation, added: Sequence[ContextMessage], leaf: EntryId | None
) -> Conversation:
    """Return `conversation` extended by the messages `added`; its new leaf is `leaf`."""
    whole = (*conversation.open, *added)
    settling = _settled_texts if conversation.history == "text_only" else _settled_with
    for settled, open_ in (settling(conversation, whole), (conversation.settled, whole)):
        tail = pair_after(open_, settled.calls)
        if tail is not None:
            sizes = sizes_of(tail.messages)
            return msgspec.structs.replace(
                conversation, leaf=leaf, settled=settled, open=open_, tail=tail, sizes=sizes
            )
    # A result for a settled call changes its round, and maybe the ids after it.
    anew = msgspec.structs.replace(conversation, settled=Settled(), open=(), tail=Paired())
    return _with(anew, conversation.settled.said.whole(whole), leaf)


_Settling = tuple[Settled, tuple[ContextMessage, ...]]
"""The messages that are settled now, and the messages that stay open."""


def _settled_with(conversation: Conversation, open_: tuple[ContextMessage, ...]) -> _Settling:
    settled, known = conversation.settled, len(conversation.open)
    if len(open_) <= MOST_OPEN:
        return settled, open_
    follower = open_[known].message if known < len(open_) else None
    if follower is not None and follower.role != "tool" and _is_complete(conversation.tail):
        more, sizes = conversation.tail, conversation.sizes
        return settled.with_more(open_[:known], more, sizes), open_[known:]
    # The next message nearly always concerns the newest of them.
    places = range(len(open_) - 1, 0, -1)
    cut = next((n for n in places if open_[n].message.role != "tool" and is_sendable(open_[n])), 0)
    more = pair_after(open_[:cut], settled.calls, follower=open_[cut])
    return (settled, open_) if more is None else (settled.with_more(open_[:cut], more), open_[cut:])


def _is_complete(tail: Paired) -> bool:
    """Return True if no later message except a tool result can change `tail`."""
    if not tail.messages or tail.calls.owed:
        return False
    return tail.messages[-1].message.role != "assistant"  # a failed answer may be retried


def _settled_texts(conversation: Conversation, open_: tuple[ContextMessage, ...]) -> _Settling:
    settled = conversation.settled
    over = end_of_turns(open_)
    more = pair_after(texts_in(open_[:over]), settled.calls)
    if not over or more is None:
        return settled, open_
    return settled.with_more(open_[:over], more), open_[over:]
