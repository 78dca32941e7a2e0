"""Split text into searchable words and fold them.

Every backend indexes and matches the words that this module makes; no other module splits or folds
text. All backends therefore find the same entries. The rules:

- A word is a sequence of letters, digits and their marks. Every other character separates words,
  ``_`` too. ``foo_bar`` and ``src/foo.py`` are therefore several words in a row, and the query
  ``foo_bar`` finds ``foo bar``, too.
- Letter case, accents, vowel points, ligatures and widths of letters do not count.
- In scripts without spaces between words (Chinese, Japanese, Korean, Thai, Lao, Khmer, Burmese)
  and among emoji, each character is one word, so a query finds it anywhere in a line.
- A word has at most `LONGEST` characters; longer words are split into several words in a row.

If you change this module, the content of indexes changes, so raise `VERSION` to make stores rebuild
their indexes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import NamedTuple

VERSION = 9
"""Version of the content of indexes; stores rebuild an index that has another version.

The content depends on the words, on their sources (``searchable``, ``cues``), and on the form of an
index (``parts``).
"""

LONGEST = 64


class Word(NamedTuple):
    """A folded word, and its position in the text."""

    term: str
    start: int
    end: int


_PLAIN = "\u3041-\u3096\u30a1-\u30fa\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
"""Characters that are one-character words and fold to themselves."""

_SYMBOLS = ((0x2300, 0x23FF), (0x2600, 0x27BF), (0x2B00, 0x2BFF), (0x1F000, 0x1FBFF))
"""Emoji, also of later Unicode versions: an index must not depend on the interpreter."""

_SINGLE = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007"
    "\u3021-\u3029\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f"
    "\U00020000-\U0003ffff" + "".join(f"{chr(first)}-{chr(last)}" for first, last in _SYMBOLS)
)
"""The one-character words, as the content of a character class of a regular expression."""

_DROPPED = "\u00ad\u0640\u200b-\u200d\u2060\ufe00-\ufe0f\U0001f3fb-\U0001f3ff"
"""Ignored characters: soft hyphens, joiners, variants, the Arabic tatweel, skin tones."""

_VOICED = "\u3099\u309a\uff9e\uff9f"

_ASCII_WORD = re.compile(f"[a-z0-9]{{1,{LONGEST}}}")
_PUNCTUATION = re.compile(
    "[\u00a0-\u00a9\u00ab\u00b0\u00b4\u00b7\u00bb\u00bf\u2010-\u2027\u2030-\u205e]"
)
"""The most frequent separators that are not ASCII."""

_UNCLEAR = b"\0"

_SLICE = 65_536
_RUN = re.compile("[A-Za-z0-9\x80-\U0010ffff]+")
_HAS_ASCII = re.compile("[a-z0-9]")


@cache
def _piece() -> re.Pattern[str]:
    """Return the pattern of a word.

    The pattern is compiled at first use, because compiling is slow.
    """
    return re.compile(f"[{_SINGLE}][{_VOICED}{_DROPPED}]*|[^ {_SINGLE}]+")


@cache
def _folded_latin() -> bytes:
    """Return a table that folds Latin-1 letters and digits, and replaces separators by spaces.

    The table is for ``bytes.translate``. `_UNCLEAR` marks characters that do not fold to one ASCII
    letter or digit.
    """
    kept = [chr(code).translate(_SEPARATED) for code in range(256)]
    folded = [" " if each == " " else _fold(each) for each in kept]
    plain = [each if each == " " or _ASCII_WORD.fullmatch(each) else "" for each in folded]
    return b"".join([each.encode() if len(each) == 1 else _UNCLEAR for each in plain])


@cache
def _plain_run() -> re.Pattern[str]:
    return re.compile(f"[{_PLAIN}]+")


@cache
def _cut() -> re.Pattern[str]:
    """Return a pattern for the ends of words: at separators, and between one-character words."""
    return re.compile(f"[^A-Za-z0-9\x80-\U0010ffff]|[{_PLAIN}](?=[{_PLAIN}])")


@cache
def _dropped_pattern() -> re.Pattern[str]:
    return re.compile(f"[{_DROPPED}]+")


@cache
def _chunk() -> re.Pattern[str]:
    return re.compile(f"[{_SINGLE}]|[^ {_SINGLE}]{{1,{LONGEST}}}")


class _Separated(dict[int, int]):
    """A table for ``str.translate``: characters of words stay, all others become a space."""

    def __missing__(self, code: int) -> int:
        kept = self[code] = code if _is_part_of_word(code) else 0x20
        return kept


def _is_part_of_word(code: int) -> bool:
    if any(first <= code <= last for first, last in _SYMBOLS):
        return True
    character = chr(code)
    is_letter = unicodedata.category(character)[0] in "LNM"
    return is_letter or _dropped_pattern().match(character) is not None


_SEPARATED = _Separated()


class _Each(dict[str, str]):
    """Stores equal words as one string, because a long text has few distinct words."""

    def __missing__(self, word: str) -> str:
        self[word] = word
        return word


def terms(text: str) -> list[str]:
    """Return the folded words of `text`, in order."""
    if len(text) <= _SLICE:
        return list(_terms(text))
    found, one = list[str](), _Each().__getitem__
    for begin, end in _slices(text):
        found += map(one, _terms(text[begin:end]))
    return found


def _terms(text: str) -> Iterable[str]:
    if not text.isascii():
        text = _PUNCTUATION.sub(" ", text)  # often all that is not ASCII
        text = text.replace("ß", "ss")
    plain = _plain_terms(text)
    if plain is not None:
        return plain
    found: list[str] = []
    for run in _RUN.findall(text):
        if run.isascii() and len(run) <= LONGEST:
            found.append(run.lower())
        else:
            found += _terms_of_run(run)
    return found


def _plain_terms(text: str) -> list[str] | None:
    """Return the words of `text` if each character folds to one ASCII character; otherwise None.

    For a text of such characters, the function takes a third of the time of regular expressions.
    """
    try:
        folded = text.encode("latin-1").translate(_folded_latin())
    except UnicodeEncodeError:
        return None
    if _UNCLEAR in folded:
        return None
    found = folded.decode("ascii").split()
    if found and max(map(len, found)) > LONGEST:
        return _ASCII_WORD.findall(folded.decode("ascii"))
    return found


def _terms_of_run(run: str) -> Iterable[str]:
    if len(run) <= LONGEST:
        return _terms_of_short_run(run)
    return (term for part in run.translate(_SEPARATED).split() for term in _terms_of_part(part))


@lru_cache(maxsize=20_000)
def _terms_of_short_run(run: str) -> tuple[str, ...]:
    return tuple([term for term, _, _ in _found_in(run)])


def _terms_of_part(part: str) -> Iterable[str]:
    if _plain_run().fullmatch(part):
        return part
    return (term for term, _, _ in _found_in(part))


def _slices(text: str) -> Iterator[tuple[int, int]]:
    """Yield slices of `text`, cut between words, so that no `re` call blocks other threads long."""
    begin = 0
    while begin < len(text):
        found = _cut().search(text, begin + _SLICE)
        end = len(text) if found is None else found.end()
        yield begin, end
        begin = end


def words(text: str) -> Iterator[Word]:
    """Yield the words of `text` with their positions, in order."""
    for begin, end in _slices(text):
        for found in _RUN.finditer(text, begin, end):
            start = found.start()
            for term, first, last in _pieces(found.group()):
                yield Word(term, start + first, start + last)


@cache
def stands_for_ascii(character: str) -> bool:
    """Return True if the non-ASCII `character` can be part of a word that folds to ASCII.

    ``é`` is compared as ``e``, ``ﬁ`` as ``fi``, and a soft hyphen is ignored. A dash separates
    words, and Cyrillic letters are compared as Cyrillic letters, so the result is False for dashes
    and Cyrillic letters.
    """
    kept = character.translate(_SEPARATED)
    folded = _fold(kept)
    return kept != " " and (not folded or _HAS_ASCII.search(folded) is not None)


def folded_runs(text: str) -> str:
    """Return the words of `text` that have non-ASCII characters, folded but not split.

    Shape: the words are in any order, each once. Every word of `terms` that has non-ASCII
    characters is a substring of the result. If `text` is JSON that escapes no letters, every
    non-ASCII word of the decoded text is a substring, too, because other escapes only make a word
    longer.
    """
    return " ".join(
        _folded_run(run) if len(run) <= LONGEST else _folded_pieces(run)
        for run in set(_RUN.findall(text))
        if not run.isascii()
    )


@lru_cache(maxsize=20_000)
def _folded_run(run: str) -> str:
    return _folded_pieces(run)


def _folded_pieces(run: str) -> str:
    return " ".join(
        part if _plain_run().fullmatch(part) else _folded_part(part)
        for part in run.translate(_SEPARATED).split()
    )


def _folded_part(part: str) -> str:
    pieces = (_fold(found.group()) for found in _piece().finditer(part))
    return " ".join(pieces).translate(_SEPARATED)


def _pieces(run: str) -> tuple[Word, ...]:
    """Return the words of a piece of text that has no ASCII separators."""
    return _short_pieces(run) if len(run) <= LONGEST else tuple(_found_in(run))


@lru_cache(maxsize=20_000)
def _short_pieces(run: str) -> tuple[Word, ...]:
    return tuple(_found_in(run))


def _found_in(run: str) -> Iterator[Word]:
    if run.isascii():
        for found in _ASCII_WORD.finditer(run.lower()):
            yield Word(found.group(), found.start(), found.end())
        return
    if _plain_run().fullmatch(run):
        for place, character in enumerate(run):
            yield Word(character, place, place + 1)
        return
    for piece in _piece().finditer(run.translate(_SEPARATED)):
        for chunk in _chunk().findall(_fold(piece.group()).translate(_SEPARATED)):
            yield Word(chunk, piece.start(), piece.end())


def _fold(piece: str) -> str:
    """Return `piece` folded; the result can be several words (``½`` is ``1`` and ``2``)."""
    if piece.isascii():
        return piece.lower()
    decomposed = unicodedata.normalize("NFKD", piece).casefold()
    decomposed = unicodedata.normalize("NFKD", decomposed)
    kept = "".join(character for character in decomposed if not _is_accent(character))
    return unicodedata.normalize("NFC", _dropped_pattern().sub("", kept))


def _is_accent(character: str) -> bool:
    """Return True for the ignored marks, which are Latin accents, Hebrew and Arabic vowel points.

    Marks that make a different letter are not ignored: the Japanese voicing, the Indic nukta and
    virama, tones.
    """
    place = unicodedata.combining(character)
    return 10 <= place <= 35 or place >= 200
