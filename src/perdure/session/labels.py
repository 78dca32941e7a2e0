"""Labels and undone compactions: what side entries say about the tree."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.ids import EntryId
from perdure.session.notes import CompactionUndone, Label


def labels_of(entries: Iterable[Entry]) -> dict[EntryId, str]:
    """Entry -> its label after all of `entries` (in log order); the last one counts."""
    labels: dict[EntryId, str] = {}
    for entry in entries:
        if entry.kind != Label.kind or entry.about is None:
            continue
        body = body_of(entry)
        text = body.text if isinstance(body, Label) else None
        if text:
            labels[entry.about] = text
        else:
            labels.pop(entry.about, None)
    return labels


def undone_of(entries: Iterable[Entry]) -> frozenset[EntryId]:
    """The compactions that `entries` take back."""
    return frozenset(
        entry.about
        for entry in entries
        if entry.kind == CompactionUndone.kind and entry.about is not None
    )
