"""A log of tree entries in memory, with their ids and parents, and its context windows."""

from __future__ import annotations

from perdure.session.codec import new_tree
from perdure.session.entries import Entry
from perdure.session.fold import ContextWindow, window_of
from perdure.session.ids import EntryId, StreamId, entry_id
from perdure.session.kinds import TreeBody
from perdure.session.messages import Message
from perdure.session.tree import branch_to


class TreeLog:
    """One stream's tree entries. Without `parent`, an entry follows the last appended entry."""

    def __init__(self, stream: str = "s", origin: TreeLog | None = None) -> None:
        self.stream = StreamId(stream)
        self.entries: list[Entry] = []
        self.undone: set[EntryId] = set()
        self.leaf: EntryId | None = origin.leaf if origin else None
        self.by_id: dict[EntryId, Entry] = dict(origin.by_id) if origin else {}

    def append(self, body: Message | TreeBody, *, parent: str | None = "leaf") -> EntryId:
        """Append `body` as the next entry; return its id."""
        new = new_tree(body)
        return self.append_raw(new.kind, new.body, v=new.v, parent=parent)

    def append_raw(
        self, kind: str, body: bytes, *, v: int = 1, parent: str | None = "leaf"
    ) -> EntryId:
        """Append an entry with the bytes `body`, readable or not; return its id."""
        seq = len(self.entries)
        above = self.leaf if parent == "leaf" else parent
        parent_id = None if above is None else EntryId(above)
        entry = Entry(self.stream, seq, "tree", parent_id, None, seq, kind, v, body)
        self.entries.append(entry)
        self.by_id[entry.id] = entry
        self.leaf = entry.id
        return entry_id(self.stream, seq)

    def extend(self, *bodies: Message | TreeBody) -> list[EntryId]:
        """Append each of `bodies` after the previous one; return their ids."""
        return [self.append(body) for body in bodies]

    def path(self, leaf: EntryId | None) -> list[Entry]:
        """The branch to `leaf`."""
        return branch_to(leaf, self.by_id)

    def window(self, leaf: str | None = "leaf") -> ContextWindow:
        """Return the window of the branch to `leaf`, by default to the leaf of the log."""
        end = self.leaf if leaf == "leaf" else leaf
        return window_of(self.path(None if end is None else EntryId(end)), frozenset(self.undone))


def window_on(*bodies: Message | TreeBody) -> ContextWindow:
    """Return the window of a branch that contains `bodies`."""
    log = TreeLog()
    log.extend(*bodies)
    return log.window()
