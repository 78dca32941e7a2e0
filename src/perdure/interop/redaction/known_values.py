"""Find many known values in a text, in a time that does not depend on the number of values.

The search is pure. A session can contain ten thousand user names or passwords, so a separate search
for each value in every text would be too slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class KnownValues:
    """Finds `values` of at least `head` characters in texts; shorter values are ignored.

    The values are indexed by their first `head` characters, then by their length.
    """

    def __init__(self, values: Iterable[str], head: int) -> None:
        self._head = head
        self._by_head: dict[str, dict[int, set[str]]] = {}
        for value in values:
            if len(value) >= head:
                by_length = self._by_head.setdefault(value[:head], {})
                by_length.setdefault(len(value), set()).add(value)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each occurrence of a value, ordered by start."""
        if not self._by_head:
            return
        head, by_head = self._head, self._by_head
        for start in range(len(text) - head + 1):
            by_length = by_head.get(text[start : start + head])
            for length, values in by_length.items() if by_length is not None else ():
                if text[start : start + length] in values:
                    yield start, start + length
