"""Build a part of an index from texts, and restore the texts' words from a part.

The same texts always give the same part, byte for byte, so that an index can be compared with the
log.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress, count, repeat
from operator import ge, itemgetter, not_, sub
from typing import NamedTuple

from perdure.session.search.parts.blocks import Said
from perdure.session.search.parts.codes import codes_in, codes_of
from perdure.session.search.parts.occurrences import pack_frequencies, pack_places, places
from perdure.session.search.parts.pages import (
    FILTER,
    SESSION,
    Kept,
    Page,
    everything,
    is_word,
    pages_of,
)
from perdure.session.search.parts.postings import bits, numbers, pack_numbers, pack_steps


class Text(NamedTuple):
    """A text to index: its position in the log, its words, and its filter keys.

    `place` is the position of the text in its session: the sequence number of its entry plus 1, or
    0 for a title.
    """

    position: int
    at: int
    words: Sequence[str]
    filters: Sequence[str]
    place: int


class Part(NamedTuple):
    """The texts of a part, ascending by position, and the pages of the index of these texts."""

    said: tuple[Said, ...]
    pages: tuple[Page, ...]


def make_part(texts: Iterable[Text]) -> Part:
    """Return the part for `texts`: at most ``MOST_TEXTS`` texts, ``MOST_WORDS`` words in all."""
    ordered = sorted(texts, key=itemgetter(0))
    size = len(ordered)
    occurrences = _numbers_by_key([text.words for text in ordered])
    codes = codes_of({word: len(found) for word, found in occurrences.items()})
    kept = list(_filters(ordered))
    for word, found in occurrences.items():
        steps = list(map(sub, found[1:], found))
        repeated = pack_frequencies(_repeated(steps)) if 0 in steps else b""
        posting = pack_steps([found[0], *(filter(None, steps) if repeated else steps)], size)
        kept.append(Kept(word, codes[word], posting, repeated))
    kept.sort(key=itemgetter(0))
    return Part(tuple(_said(ordered, codes)), tuple(pages_of(kept)))


def _said(texts: Sequence[Text], codes: Mapping[str, bytes]) -> Iterator[Said]:
    code = codes.__getitem__
    for position, at, own, _, _ in texts:
        yield Said(position, at, len(own), b"".join(map(code, own)))


def _numbers_by_key(keys: Sequence[Collection[str]]) -> dict[str, list[int]]:
    """Return a map from each key to the numbers of the texts that have this key.

    A text is listed as often as it has the key.
    """
    lists = defaultdict[str, list[int]](list)
    numbers = chain.from_iterable(map(repeat, count(), map(len, keys)))
    each_list = map(lists.__getitem__, chain.from_iterable(keys))
    deque(map(list[int].append, each_list, numbers), maxlen=0)  # a loop in C: millions of words
    return lists


def _repeated(steps: Sequence[int]) -> list[tuple[int, int]]:
    """Return the index and the frequency of each number that occurs more than once.

    The index of a number is its position among the distinct numbers. `steps` are the differences
    between consecutive numbers. If a difference is 0, the previous number occurs again.
    """
    found: list[tuple[int, int]] = []
    zeros = compress(count(), map(not_, steps))
    for repeats, at in enumerate(zeros):
        place = at - repeats
        frequency = found.pop()[1] + 1 if found and found[-1][0] == place else 2
        found.append((place, frequency))
    return found


def _filters(texts: Sequence[Text]) -> Iterator[Kept]:
    for key, found in _numbers_by_key([set(text.filters) for text in texts]).items():
        is_session = key.startswith(SESSION)
        where = pack_places([texts[number].place for number in found]) if is_session else b""
        yield Kept(key, b"", pack_numbers(found, len(texts)), where)


# ---------------------------------------------------------------- and back


def texts_in(part: Part) -> Iterator[Text]:
    """Yield the texts that `part` was built from.

    Raises: one of ``pages.DAMAGE``, for example if the positions of the texts do not ascend.
    """
    positions = [said.position for said in part.said]
    if any(map(ge, positions, positions[1:])):
        raise ValueError("the texts of a part are out of order")
    words: dict[bytes, str] = {}
    filters: defaultdict[int, list[str]] = defaultdict(list)
    where: dict[int, int] = {}
    for kept in chain.from_iterable(everything(page.body) for page in part.pages):
        if is_word(kept.key):
            words[kept.code] = kept.key
        elif kept.key.startswith(FILTER):
            for number in numbers(bits(kept.posting, len(part.said))):
                filters[number].append(kept.key)
            if kept.key.startswith(SESSION):
                where.update(places(kept, len(part.said)))
    for number, said in enumerate(part.said):
        spoken = [words[code] for code in codes_in(said.codes)]
        yield Text(said.position, said.at, spoken, filters[number], where[number])
