"""Replace secrets and identifying paths with placeholders; equal values get equal placeholders.

This module is pure and works in two passes. First, `Redactor.learn` collects the values in every
text; then, `Redactor.replace` replaces them. A value that is recognized in one place
(``password=…``) is replaced in all places. The placeholders are numbered in the order in which
values occur in the session. The number in a placeholder reveals nothing about the value, whereas
the hash of a short value could be used to guess the value.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable

from perdure.interop.redaction import paths
from perdure.interop.redaction.known_values import KnownValues
from perdure.interop.reports import Redaction
from perdure.secrets import shapes
from perdure.secrets.shapes import PLACEHOLDER, Find

REDACTIONS: tuple[Redaction, ...] = ("secrets", "paths")

_LEAST = 6
"""Minimum length of a value that is replaced in all texts (`shapes.is_unmistakable`)."""


class Redactor:
    """Replaces the learned values of the requested kinds, and counts them.

    `folders` are working directories. A text that equals a member of `kept` stays unchanged.
    """

    def __init__(
        self,
        sorts: Iterable[Redaction],
        folders: Iterable[str] = (),
        kept: Collection[str] = (),
    ) -> None:
        self._sorts = frozenset(sorts)
        self._folders = [folder for folder in folders if paths.is_telling(folder)]
        self._kept = kept
        self._users: dict[str, None] = {}
        self._names: dict[tuple[str, str], str] = {}  # (kind, value) -> placeholder
        self._numbers: Counter[str] = Counter()
        self._secrets: dict[str, str] = {}  # value -> kind
        self._ended: set[str] = set()  # values found without punctuation after them
        self._replaced: Counter[str] = Counter()
        self._everywhere = KnownValues((), _LEAST)
        self._seen: dict[str, tuple[Find, ...]] = {}
        self._folder_shape: re.Pattern[str] | None = None
        self._people = KnownValues((), paths.SHORTEST_NAME)

    def learn(self, text: str) -> None:
        """Collect the values in `text`, before anything is replaced."""
        if "secrets" in self._sorts:
            for find in self._finds(text):
                self.learn_secret(text[find.start : find.end], find.kind)
        if "paths" in self._sorts:
            for name in paths.users(text):
                self._users.setdefault(name.lower())

    def learn_secret(self, value: str, kind: str) -> None:
        """Add the known secret `value`.

        Punctuation at the end of `value` might belong to the sentence around it and not to the
        secret.
        """
        if "secrets" in self._sorts:
            bare = shapes.without_sentence_end(value)
            self._secrets.setdefault(value, self._secrets.setdefault(bare, kind))
            if bare == value:
                self._ended.add(value)

    def settle(self) -> None:
        """Finish collecting values; `replace` can be used only after this call."""
        values = {self._value_of(value) for value in self._secrets}
        known = (value for value in values if shapes.is_unmistakable(value))
        self._everywhere = KnownValues(known, _LEAST)
        if "paths" in self._sorts:
            self._folder_shape = paths.folder_pattern(self._folders)
            self._people = KnownValues(self._users, paths.SHORTEST_NAME)

    def replace(self, text: str) -> str:
        """Return `text` with placeholders for all values.

        If `text` contains no value, the result is the same object.
        """
        found = _without_overlap(self._find(text))
        if not found:
            return text
        pieces: list[str] = []
        at = 0
        for find in found:
            pieces += (text[at : find.start], self._placeholder(text[find.start : find.end], find))
            at = find.end
        return "".join((*pieces, text[at:]))

    def secret(self, value: str) -> str:
        """Return the placeholder for the text `value`, which is completely secret."""
        return self._placeholder(value, Find(0, len(value), self._secrets.get(value, "secret")))

    def is_for(self, sort: Redaction) -> bool:
        """Return whether values of `sort` are replaced."""
        return sort in self._sorts

    def holds_some(self, text: str) -> bool:
        """Return whether `text` contains a value to replace.

        This call does not change the counts.
        """
        return bool(self._find(text))

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of distinct replaced values by kind."""
        return dict(sorted(self._numbers.items()))

    @property
    def places(self) -> int:
        """The number of replacements."""
        return self._replaced.total()

    def _find(self, text: str) -> list[Find]:
        found: list[Find] = []
        if text in self._kept:
            return found
        if "secrets" in self._sorts:
            found += self._secrets_in(text)
            found += self._known_in(text)
        if "paths" in self._sorts:
            found += _matches(self._folder_shape, text, "cwd")
            found += paths.homes(text)
            found += paths.people(self._people, text)
        kept = [each.span() for each in re.finditer(PLACEHOLDER, text)]
        return [
            f for f in found if not any(start <= f.start and f.end <= end for start, end in kept)
        ]

    def _value_of(self, value: str) -> str:
        """If `value` also occurs without its final punctuation, return it without this punctuation.

        If the value never occurs without the punctuation, the punctuation might belong to the
        secret and is replaced too.
        """
        bare = shapes.without_sentence_end(value)
        return bare if bare in self._ended else value

    def _secrets_in(self, text: str) -> Iterable[Find]:
        for find in self._finds(text):
            value = self._value_of(text[find.start : find.end])
            yield Find(find.start, find.start + len(value), find.kind)

    def _finds(self, text: str) -> tuple[Find, ...]:
        """Return the secrets in `text`; the result is cached, because there are two passes."""
        if text not in self._seen:
            self._seen[text] = tuple(shapes.finds(text))
        return self._seen[text]

    def _known_in(self, text: str) -> Iterable[Find]:
        for start, end in self._everywhere.spans(text):
            yield Find(start, end, self._secrets[text[start:end]])

    def _placeholder(self, value: str, find: Find) -> str:
        if find.kind not in ("user", "cwd", "home"):
            value = shapes.without_sentence_end(value)
        kind = self._secrets.get(value, find.kind)
        said = value.lower() if kind == "user" else value.rstrip("/\\").replace("\\\\", "\\")
        key = (kind, said)
        if key not in self._names:
            self._numbers[kind] += 1
            self._names[key] = f"[{kind}-{self._numbers[kind]}]"
        self._replaced[kind] += 1
        return self._names[key]


def _matches(shape: re.Pattern[str] | None, text: str, kind: str) -> Iterable[Find]:
    if shape is not None:
        for found in shape.finditer(text):
            yield Find(found.start(), found.end(), kind)


def _without_overlap(found: Iterable[Find]) -> list[Find]:
    """Return `found` in order and without overlaps.

    Overlapping spans are joined, so that everything found is replaced. A joined span has the kind
    of the span that starts first. If several spans start first, the joined span has the kind of the
    longest of them.
    """
    joined: list[Find] = []
    for find in sorted(found, key=lambda each: (each.start, -each.end)):
        if joined and find.start < joined[-1].end:
            last = joined[-1]
            joined[-1] = Find(last.start, max(last.end, find.end), last.kind)
        else:
            joined.append(find)
    return joined
