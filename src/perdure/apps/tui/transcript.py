"""The visible part of a session: the newest entries, and earlier ones after scrolling up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget

from perdure.apps.tui.blocks import (
    AnswerBlock,
    Block,
    CallBlock,
    FoldBlock,
    SentBlock,
    ThoughtBlock,
    block_of,
)
from perdure.apps.tui.composer import TextMessage
from perdure.apps.tui.items import Answer, Item, ItemFold, Remark
from perdure.client.session import Session
from perdure.events.projection import events_of
from perdure.events.types import AnyEvent
from perdure.session.codec import readable
from perdure.session.entries import Entry
from perdure.session.ids import EntryId
from perdure.session.kinds import Compaction
from perdure.session.ledger import ToolFinished
from perdure.session.messages import Message, ToolCallPart, ToolResultPart
from perdure.session.notes import CompactionUndone

PAGE = 60
"""Number of entries of the branch that are read at a time."""

_MOST_READS = 5
"""Maximum number of reads to find the calls of the first results of a page."""

_MOST_OUTCOMES = 10 * PAGE
"""Maximum number of outcomes that are read for a page, including those of other branches."""


class Transcript(VerticalScroll, can_focus=True):
    """Shows the messages of one session.

    The view follows the newest messages until the user scrolls up.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("home", "earlier", "Earlier", show=False),
    ]

    class Typed(TextMessage):
        """The user typed or pasted `text` in the transcript instead of in the text field."""

    def __init__(self) -> None:
        super().__init__(id="transcript")
        self._fold = ItemFold()
        self._blocks: dict[int, Block] = {}
        self._session: Session | None = None
        self._first: Entry | None = None
        self._is_reading = False
        self.is_reasoning_shown = False

    def on_mount(self) -> None:
        """Watch for the moment when the text becomes longer than the view."""
        self.watch(self, "show_vertical_scrollbar", self._fill_terminal)

    def _fill_terminal(self, is_longer: bool) -> None:  # noqa: FBT001 - Textual passes it so
        """In inline mode, use all rows below the shell prompt once the transcript exceeds its view.

        Textual reserves the rows below the shell prompt in case the transcript becomes longer.
        """
        if is_longer and self.app.is_inline:  # pyright: ignore[reportUnknownMemberType] - any app
            self.screen.add_class("full")

    async def open(self, session: Session | None, *, is_running: bool = False) -> None:
        """Show the newest entries of `session`; None means a new session without messages.

        If `is_running` is False, calls without a result are shown as ended.
        """
        await self.remove_children()
        self._fold, self._blocks = ItemFold(), {}
        self._session, self._first = session, None
        if session is not None:
            entries = await _page(session)
            self._first = entries[0] if entries else None
            items = await _items_of(session, entries, self._fold)
            if not is_running:
                self._fold.settle()
            await self.mount(*self._new_blocks(items))
        self.anchor()

    async def feed(self, event: AnyEvent) -> None:
        """Show `event`."""
        folded = self._fold.feed(event)
        if folded.added:
            await self.mount(*self._new_blocks(folded.added))
        begun = (item for item in folded.added if isinstance(item, Answer) and item.is_open)
        for item in (*begun, *folded.changed):
            block = self._blocks.get(id(item))
            if isinstance(block, AnswerBlock | FoldBlock):
                await block.refresh_item()

    async def remark(self, text: str) -> None:
        """Show a line between the messages."""
        await self.mount(*self._new_blocks([Remark(text)]))

    def _new_blocks(self, items: Sequence[Item]) -> list[Widget]:
        made: list[Widget] = []
        for item in items:
            block = self._blocks[id(item)] = block_of(item)
            if isinstance(block, ThoughtBlock):
                block.display = self.is_reasoning_shown
                block.is_unfolded = True
            made.append(block)
        return made

    # ------------------------------------------------------------ what is typed here

    def on_key(self, event: events.Key) -> None:
        """Pass a typed character on to the text field."""
        if event.character is not None and event.is_printable:
            event.stop()
            self.post_message(self.Typed(event.character))

    def on_paste(self, event: events.Paste) -> None:
        """Pass a paste on to the text field."""
        event.stop()
        self.post_message(self.Typed(event.text))

    # ------------------------------------------------------------ scrolling, earlier entries

    async def scroll_page(self, direction: int) -> None:
        """Scroll by a page.

        At the top of the transcript, earlier entries are read; at the end, the view follows new
        entries again.
        """
        if direction < 0 and self.scroll_y <= 0:
            await self.read_earlier()
        step = direction * max(self.size.height - 2, 1)
        self.scroll_relative(y=step, animate=False, immediate=True)
        if direction > 0 and self.scroll_y >= self.max_scroll_y:
            self.anchor()  # any scrolling ended that

    async def read_earlier(self) -> None:
        """Show the entries before the first visible entry, if there are any."""
        first, session = self._first, self._session
        if self._is_reading or session is None or first is None or first.parent_id is None:
            return
        self._is_reading = True
        try:
            entries = await _page(session, first.parent_id)
            self._first = entries[0] if entries else None
            fold = ItemFold()
            items = await _items_of(session, entries, fold)
            fold.settle()
            before = self.virtual_size.height
            if items:
                await self.mount(*self._new_blocks(items), before=0)
            self.call_after_refresh(self._stay, before)
        finally:
            self._is_reading = False

    def _stay(self, height_before: int) -> None:
        """Keep the visible lines where they are."""
        self.scroll_to(y=self.scroll_y + self.virtual_size.height - height_before, animate=False)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """When the view reaches the top, read earlier entries."""
        super().watch_scroll_y(old_value, new_value)
        if new_value <= 0 < old_value:
            self.run_worker(self.read_earlier(), group="earlier")

    def on_mouse_scroll_up(self, _: events.MouseScrollUp) -> None:
        """When the view is at the top, read earlier entries."""
        if self.scroll_y <= 0:
            self.run_worker(self.read_earlier(), group="earlier")

    async def action_earlier(self) -> None:
        """Scroll to the top, and read earlier entries."""
        self.scroll_home(animate=False, immediate=True)
        await self.read_earlier()

    # ------------------------------------------------------------ folding

    def show_reasoning(self, *, is_shown: bool) -> None:
        """Show or hide the model's reasoning."""
        self.is_reasoning_shown = is_shown
        for block in self.query(ThoughtBlock):
            block.display = is_shown

    def unfold_all(self, *, is_unfolded: bool) -> None:
        """Unfold or fold every tool call and attached file."""
        for block in (*self.query(CallBlock), *self.query(SentBlock)):
            block.fold(is_unfolded=is_unfolded)


async def _page(session: Session, leaf: EntryId | None = None) -> list[Entry]:
    """Return the newest entries of the branch up to `leaf`; a result comes with its call.

    If the call of a result is not found, the page begins with that result.
    """
    page = read = await session.path(leaf, last=PAGE)
    place, without_call = len(read), set[str]()
    for _ in range(_MOST_READS):
        for entry in reversed(read[:place]):
            place -= 1
            called, answered = _calls_in(entry)
            without_call = (without_call | answered) - called
            if not without_call and len(read) - place >= len(page):
                return read[place:]
        if (before := read[0].parent_id if read else None) is None:
            break
        earlier = await session.path(before, last=PAGE)
        place, read = len(earlier), [*earlier, *read]
    return page


def _calls_in(entry: Entry) -> tuple[set[str], set[str]]:
    """Return the ids of the calls and of the results in `entry`."""
    body = readable(entry)
    parts = body.parts if isinstance(body, Message) else ()
    called = {part.id for part in parts if isinstance(part, ToolCallPart)}
    return called, {part.call_id for part in parts if isinstance(part, ToolResultPart)}


async def _items_of(session: Session, entries: Sequence[Entry], fold: ItemFold) -> list[Item]:
    """Return the items for stored `entries`, with the outcomes of their tool calls.

    Outcomes from other branches, which the log also contains, are left out.
    """
    own = {entry.id: entry.seq for entry in entries if entry.stream == session.id}
    outcomes: list[Entry] = []
    if own:
        first = min(own.values()) - 1
        found = session.entries(first, kind=ToolFinished.kind, limit=_MOST_OUTCOMES)
        async for entry in found:
            if entry.seq > max(own.values()):
                break
            if _result_of(entry) in own:
                outcomes.append(entry)
    undone = await _undone_among(session, entries)
    items: list[Item] = []
    for entry in entries:
        if entry.id in undone:
            continue  # its summary is not sent
        while outcomes and entry.stream == session.id and outcomes[0].seq < entry.seq:
            items += _items_in(outcomes.pop(0), fold)
        items += _items_in(entry, fold)
    return items


async def _undone_among(session: Session, entries: Sequence[Entry]) -> set[EntryId | None]:
    """Return the compactions among `entries` that were undone."""
    if not any(entry.kind == Compaction.kind for entry in entries):
        return set()
    return {note.about async for note in session.entries(kind=CompactionUndone.kind)}


def _result_of(entry: Entry) -> EntryId | None:
    body = readable(entry)
    return body.result if isinstance(body, ToolFinished) else None


def _items_in(entry: Entry, fold: ItemFold) -> Iterator[Item]:
    for event in events_of(entry):
        yield from fold.feed(event).added
