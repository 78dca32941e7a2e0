"""Finds other entries of a session that contain a text of the entries to erase.

For example, an answer of the model can quote a password from a message. If only the message were
erased, the password would remain in the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from string import punctuation

from perdure.client.session import Session
from perdure.secrets.shapes import finds, is_unmistakable
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.notes import Label
from perdure.session.search.searchable import searchable_of
from perdure.session.search.words import terms
from perdure.stores.retention.cascade import summaries_of

_LINE_CHARACTERS, _LINE_WORDS = 24, 5
"""Minimum size of a line that is searched for; a smaller line can occur twice by chance."""

_MOST_SOUGHT = 100
"""Maximum number of texts to search for; it limits the cost of erasing a long entry."""

_LISTED = 20
"""Maximum number of entries that a warning names."""


def telling_texts(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Return the texts of `entries` to search for: credentials, then long lines, each only once."""
    texts = [found.text for each in entries if (found := searchable_of(each)) is not None]
    sought = dict.fromkeys((*_credentials(texts), *_long_lines(texts)))
    return tuple(islice(sought, _MOST_SOUGHT))


def _credentials(texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        for find in finds(text):
            value = text[find.start : find.end].strip(punctuation)
            if is_unmistakable(value):
                yield value


def _long_lines(texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        for line in map(str.strip, text.splitlines()):
            if len(line) >= _LINE_CHARACTERS and len(set(terms(line))) >= _LINE_WORDS:
                yield line


async def entries_with(
    session: Session, sought: Sequence[str], erased: Sequence[Entry]
) -> list[Entry]:
    """Return the entries of `session`, except `erased`, that contain a text of `sought`.

    Summaries and labels that are erased together with `erased` are skipped. This call reads the
    whole session.
    """
    if not sought:
        return []
    tree, ids = await session.tree_entries(), {each.id for each in erased}
    skipped = ids | summaries_of(ids, {session.id: tree})
    labels = [each async for each in session.entries(kind=Label.kind) if each.about not in skipped]
    return [
        entry
        for entry in (*tree, *labels)
        if entry.stream == session.id and entry.id not in skipped and _contains(entry, sought)
    ]


def _contains(entry: Entry, sought: Sequence[str]) -> bool:
    found = searchable_of(entry)
    return found is not None and any(text in found.text for text in sought)


def warning_of(session: StreamId, found: Sequence[Entry], *, is_erased: bool) -> str:
    """Return the warning about the entries `found`, with the command that erases them."""
    numbers = [str(each.seq) for each in found[:_LISTED]]
    more = f" and {len(found) - _LISTED:,} more" if len(found) > _LISTED else ""
    is_one = len(found) == 1
    contain = "entry {} {} contains" if is_one else "entries {} {} contain"
    text = contain.format(", ".join(numbers) + more, "still" if is_erased else "also")
    source = "the erased entries" if is_erased else "these entries"
    command = f"perdure sessions erase {session} {' '.join(numbers)}"
    return f"{text} text of {source}; erase {'it' if is_one else 'them'} with: {command}"
