"""Contents on their way in: an entry of the same commit has to name each of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from perdure.errors import InvalidEntry
from perdure.session.entries import NewEntry
from perdure.session.ids import blob_hash

_NAME = re.compile(rb"sha256-[0-9a-f]{64}")


def check_contents(contents: Sequence[bytes], entries: Sequence[NewEntry]) -> None:
    """Refuse contents that none of `entries` names.

    Raises: InvalidEntry.
    """
    unnamed = set(contents).difference(named_contents(contents, entries))
    if unnamed:
        digests = ", ".join(sorted(map(blob_hash, unnamed)))
        reason = f"no entry of the commit names the content {digests}"
        raise InvalidEntry(reason, told=f"{reason}: append the entry that refers to it with it")


def named_contents(contents: Sequence[bytes], entries: Sequence[NewEntry]) -> tuple[bytes, ...]:
    """Those of `contents` that one of `entries` names."""
    if not contents:
        return ()
    named = names_in(entry.body for entry in entries)
    return tuple(content for content in contents if blob_hash(content) in named)


def names_in(texts: Iterable[bytes]) -> set[str]:
    """Return the names of contents that `texts` hold."""
    return {name.decode() for text in texts for name in _NAME.findall(text)}
