"""The texts of a namespace in the order of their sessions, kept in memory between recalls.

A corpus contains numbers: for each text the session, place, time, length, cues and neighbours. For
each text that is not yet in a part of the index, the corpus also contains the words. The parts of
an index never change, so only new parts are read. After a text was removed from the index, all
index parts are read again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from perdure.session.search.cues import Cue
from perdure.session.search.parts.blocks import Block
from perdure.session.search.parts.builder import Text
from perdure.session.search.parts.lookup import Head
from perdure.session.search.parts.occurrences import frequencies, places
from perdure.session.search.parts.pages import FILTER, SESSION, Kept, is_word, role_key
from perdure.session.search.parts.postings import listed
from perdure.stores.search.index_keys import AUTHOR, CUES, SUBJECT, cues_in
from perdure.stores.search.vectors import VectorModel, Vectors

BEFORE, AFTER = (0.7, 0.35, 0.2, 0.1), (0.5, 0.25, 0.1)
"""Weights, by distance, with which a text also counts words of the texts before and after it.

The lengths of these texts count with the same weights.
"""

REACH = 60
"""A text counts for its neighbours with at most this many words; further words are too far away."""

_ROLES = frozenset(map(role_key, ("user", "assistant", "tool", "custom")))
"""Roles whose texts are recalled; texts derived from a session are not recalled."""

_MOST_COUNTED = 2_000_000
"""Maximum size of the word counts of index parts that are cached. Units: texts."""

_NOWHERE = -1


class WordClass(NamedTuple):
    """Words that count as the same word: all words with `prefix` that `has` accepts.

    `key` identifies the class. `asked` is the word in the question to which the class belongs.
    """

    key: str
    prefix: str
    has: Callable[[str], bool]
    asked: str

    def contains(self, word: str) -> bool:
        """Return whether `word` is in the class."""
        return word.startswith(self.prefix) and self.has(word)


class Counts(NamedTuple):
    """How often texts contain words of a class: the texts' numbers, and a count for each text."""

    texts: array[int]
    frequencies: array[int]


class Corpus:
    """The texts, numbered from 0 as they were added.

    Shape: `positions` (in the log), `ats` (Unix milliseconds), `lengths` (words), `sessions`
    (session numbers) and `cues` are columns of texts. `before[d - 1][i]` and `after[d - 1][i]` are
    the d-th neighbour of text i in its session, or -1. A text comes after the texts in its columns
    `before`, so these columns belong to the weights in `AFTER`. `reach` is the fraction of a text's
    words that count for its neighbours. `spans` has lengths plus weighted lengths of neighbours.
    Columns of sessions are `session_subjects` (the subject's number), `session_spans` (the sum of
    spans), and the counts `session_sizes` (texts), `session_lengths` (words) and `session_speakers`
    (speakers). `authors` maps an author key and a session number to texts of the author.
    """

    def __init__(self) -> None:
        self.positions = array("q")
        self.ats = array("q")
        self.lengths = array("l")
        self.sessions = array("l")
        self.cues = bytearray()
        self.before = tuple(array("l") for _ in AFTER)
        self.after = tuple(array("l") for _ in BEFORE)
        self.reach = array("d")
        self.spans = array("d")
        self.session_subjects = array("l")
        self.session_sizes = array("l")
        self.session_lengths = array("l")
        self.session_spans = array("d")
        self.session_speakers = array("l")
        self.authors: dict[str, dict[int, array[int]]] = {}
        self.vectors: dict[VectorModel, Vectors] = {}
        self._sessions: dict[str, int] = {}
        self._subjects: dict[str, int] = {}
        self._speakers: set[tuple[int, frozenset[str]]] = set()
        self._order: list[list[tuple[int, int]]] = []
        self._unmeasured: dict[int, tuple[int, int]] = {}
        self._texts: dict[int, int] = {}
        self._parts: dict[Head, array[int]] = {}
        self._counted: OrderedDict[tuple[Head, str], Counts] = OrderedDict()
        self._counted_size = 0
        self._loose: dict[int, Counter[str]] = {}
        self._words: dict[str, dict[str, dict[int, int]]] = {}

    # -- content

    def unknown(self, heads: Iterable[Head]) -> list[Head]:
        """Return the index parts among `heads` that are not in the corpus yet."""
        return [head for head in heads if head not in self._parts]

    def uncounted(self, heads: Iterable[Head], word: WordClass) -> list[Head]:
        """Return the index parts among `heads` in which words of class `word` are uncounted."""
        return [head for head in heads if (head, word.key) not in self._counted]

    def counts(self, heads: Iterable[Head], word: WordClass) -> Counts:
        """Return how often each text has words of class `word`; all `heads` must be counted."""
        texts, found = array("l"), array("l")
        for head in heads:
            counted = self._counted[head, word.key]
            self._counted.move_to_end((head, word.key))
            texts += counted.texts
            found += counted.frequencies
        loose = Counter[int]()
        for said, held in self._words.get(word.prefix[:2], {}).items():
            if word.contains(said):
                loose.update(held)
        texts.extend(loose.keys())
        found.extend(loose.values())
        self._drop_old_counts()
        return Counts(texts, found)

    def subject(self, key: str) -> int:
        """Return the number of a subject, by its key; -1 if no text is about it."""
        return self._subjects.get(key, _NOWHERE)

    def session(self, key: str) -> int:
        """Return the number of a session, by its key; -1 if the session has no text."""
        return self._sessions.get(key, _NOWHERE)

    def texts_of(self, session: int) -> Iterator[int]:
        """Yield the texts of a session in order."""
        return (number for _, number in self._order[session])

    def around(self, text: int) -> list[int]:
        """Return a text and its neighbours."""
        found = [column[text] for columns in (self.before, self.after) for column in columns]
        return [text, *(other for other in found if other != _NOWHERE)]

    # -- additions

    def add_part(self, head: Head, blocks: Iterable[Block], filters: Iterable[Kept]) -> None:
        """Add an index part: its texts and the pages of its filters. Raises: ``pages.DAMAGE``."""
        keys, where = [list[str]() for _ in range(head.size)], dict[int, int]()
        for kept in filters:
            for number in listed(kept.posting, head.size):
                keys[number].append(kept.key)
            if kept.key.startswith(SESSION):
                where.update(places(kept, head.size))
        numbered = array("l", [_NOWHERE]) * head.size
        for block in blocks:
            for number, said in enumerate(block.said(), block.first):
                text = Text(said.position, said.at, (), keys[number], where[number])
                numbered[number] = self._number(text, said.length)
                self._forget_words(numbered[number])
        self._measure_near()
        self._parts[head] = numbered

    def add_text(self, text: Text) -> None:
        """Add a text that is not yet in a part of the index."""
        number = self._number(text, len(text.words))
        self._measure_near()
        if number == _NOWHERE or number in self._loose:
            return
        words = self._loose[number] = Counter(text.words)
        for word, count in words.items():
            self._words.setdefault(word[:2], {}).setdefault(word, {})[number] = count

    def has(self, position: int) -> bool:
        """Return whether the text at `position` was added, or is excluded from recall."""
        return position in self._texts

    def add_counts(self, head: Head, word: WordClass, kept: Iterable[Kept]) -> None:
        """Add the counts of `word` in an index part; `kept` are the part's keys of this class."""
        numbered = self._parts[head]
        counts, words = Counts(array("l"), array("l")), 0
        for each in filter(lambda each: is_word(each.key), kept):
            texts, found = frequencies(each, head.size)
            counts.texts.extend(map(numbered.__getitem__, texts))
            counts.frequencies.extend(found)
            words += 1
        if words > 1 or _NOWHERE in counts.texts:
            counts = _once(counts)
        self._counted[head, word.key] = counts
        self._counted_size += len(counts.texts) + 1

    def add_vectors(self, vectors: Vectors, rows: Sequence[tuple[int, bytes]]) -> None:
        """Add vectors by position, ascending, to the vectors of a model."""
        for at, body in rows:
            vectors.put(at, self._texts.get(at, _NOWHERE), body)

    # -- the order of the texts

    def _number(self, text: Text, length: int) -> int:
        known = self._texts.get(text.position)
        if known is not None:
            return known
        session, subject, cues, authors, is_recalled = "", "", Cue(0), list[str](), False
        for key in text.filters:
            if key.startswith(SESSION):
                session = key
            elif key.startswith(SUBJECT):
                subject = key
            elif key.startswith(CUES):
                cues = cues_in(key)
            elif key.startswith(AUTHOR):
                authors.append(key)
            is_recalled |= key in _ROLES
        if not is_recalled:
            self._texts[text.position] = _NOWHERE
            return _NOWHERE
        number = self._texts[text.position] = len(self.positions)
        owner = self._add_session(session, subject)
        self.positions.append(text.position)
        self.ats.append(text.at)
        self.lengths.append(length)
        self.reach.append(min(length, REACH) / max(length, 1))
        self.sessions.append(owner)
        self.cues.append(cues.value)
        self._place(owner, text.place, number)
        self.session_sizes[owner] += 1
        self.session_lengths[owner] += length
        self._add_author(owner, frozenset(authors), number)
        return number

    def _add_author(self, owner: int, words: frozenset[str], number: int) -> None:
        """Add the author of a text; `words` are the keys of the words in the author's name."""
        for word in words:
            self.authors.setdefault(word, {}).setdefault(owner, array("l")).append(number)
        if words and (owner, words) not in self._speakers:
            self._speakers.add((owner, words))
            self.session_speakers[owner] += 1

    def _add_session(self, key: str, subject: str) -> int:
        number = self._sessions.get(key)
        if number is None:
            number = self._sessions[key] = len(self._order)
            self._order.append([])
            self.session_subjects.append(self._subjects.setdefault(subject, len(self._subjects)))
            self.session_sizes.append(0)
            self.session_lengths.append(0)
            self.session_spans.append(0)
            self.session_speakers.append(0)
        return number

    def _place(self, owner: int, place: int, number: int) -> None:
        """Insert a text into the session `owner`, and link the text with its neighbours."""
        for columns in (self.before, self.after):
            for column in columns:
                column.append(_NOWHERE)
        self.spans.append(0.0)
        order = self._order[owner]
        index = bisect_left(order, (place, number))
        order.insert(index, (place, number))
        reach = max(len(BEFORE), len(AFTER))
        for later in range(index, min(index + reach + 1, len(order))):
            self._link(order, later)
        first, last = self._unmeasured.get(owner, (index, index))
        self._unmeasured[owner] = min(first, index), max(last + 1, index)

    def _link(self, order: Sequence[tuple[int, int]], index: int) -> None:
        """Link the text at `index` with the texts before it."""
        number = order[index][1]
        for distance, column in enumerate(self.before, 1):
            column[number] = order[index - distance][1] if index >= distance else _NOWHERE
        for distance, column in enumerate(self.after, 1):
            if index >= distance:
                column[order[index - distance][1]] = number

    def _measure_near(self) -> None:
        """Compute the spans (weighted lengths) of new texts and of their neighbours."""
        for owner, (first, last) in self._unmeasured.items():
            order = self._order[owner]
            behind = min(last + len(BEFORE) + 1, len(order))
            for index in range(max(first - len(AFTER), 0), behind):
                self._measure(owner, order, index)
        self._unmeasured.clear()

    def _measure(self, owner: int, order: Sequence[tuple[int, int]], index: int) -> None:
        """Compute the span of the text at `index`."""
        number = order[index][1]
        span = float(self.lengths[number])
        earlier = order[max(index - len(BEFORE), 0) : index]
        later = order[index + 1 : index + 1 + len(AFTER)]
        for weights, near in ((BEFORE, reversed(earlier)), (AFTER, later)):
            for weight, (_, other) in zip(weights, near, strict=False):
                span += weight * min(self.lengths[other], REACH)
        self.session_spans[owner] += span - self.spans[number]
        self.spans[number] = span
        for each in self.vectors.values():
            each.moved.add(number)

    def _forget_words(self, number: int) -> None:
        for word in self._loose.pop(number, ()):
            held = self._words[word[:2]]
            del held[word][number]
            if not held[word]:
                del held[word]

    def _drop_old_counts(self) -> None:
        while self._counted_size > _MOST_COUNTED and self._counted:
            _, dropped = self._counted.popitem(last=False)
            self._counted_size -= len(dropped.texts) + 1


def _once(counts: Counts) -> Counts:
    """Return `counts` with each text only once, without texts that recall excludes."""
    found = dict[int, int]()
    for text, frequency in zip(*counts, strict=True):
        found[text] = found.get(text, 0) + frequency
    found.pop(_NOWHERE, None)
    return Counts(array("l", found.keys()), array("l", found.values()))


FILTERS = FILTER
"""The prefix of the pages that `Corpus.add_part` needs."""
