"""The state of the picker, and the effect of each key. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from perdure.apps.terminal.output import count_of
from perdure.session.info import SessionInfo

PAGE = 10

_SEQUENCES: Mapping[str, str] = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1b[5~": "page_up",
    "\x1b[6~": "page_down",
    "\x1b[H": "first",
    "\x1b[F": "last",
    "\x1b[1~": "first",
    "\x1b[4~": "last",
    "\x1bOH": "first",
    "\x1bOF": "last",
    "\x10": "up",  # Ctrl-P
    "\x0e": "down",  # Ctrl-N
    "\r": "enter",
    "\n": "enter",
    "\x1b": "leave",
    "\x03": "leave",  # Ctrl-C
    "\x04": "leave",  # Ctrl-D
    "\x7f": "erase",
    "\x08": "erase",
    "\x17": "erase_word",  # Ctrl-W
    "\x15": "erase_all",  # Ctrl-U
    "\t": "everywhere",
}
_PIECES = re.compile(
    r"\x1b\[200~|\x1b\[201~"  # around pasted text
    r"|\x1b\[[0-9;?]*[ -/]*[@-~]|\x1bO.|\x1b|[\x00-\x1f\x7f]|[^\x00-\x1f\x7f\x1b]+",
    re.DOTALL,
)


class Choice(msgspec.Struct, frozen=True):
    """A session that the user can choose.

    `texts` are the session's name, id and folder, each normalized with `fold()`.
    """

    info: SessionInfo
    texts: tuple[str, ...]


class State(msgspec.Struct, frozen=True):
    """The state of the picker: all `choices`, the typed text, the matches and the selected match.

    `folder` is the current folder; only its sessions are offered unless `is_everywhere`.
    """

    choices: tuple[Choice, ...]
    folder: str
    query: str = ""
    is_everywhere: bool = False
    fitting: tuple[Choice, ...] = ()
    marked: int = 0

    @property
    def choice(self) -> Choice | None:
        """The selected choice."""
        return self.fitting[self.marked] if self.fitting else None


class Chosen(msgspec.Struct, frozen=True):
    """The user's final choice; None means that the user left without choosing."""

    choice: Choice | None


def choices_of(infos: Sequence[SessionInfo]) -> tuple[Choice, ...]:
    """Return `infos` as choices, in the same order."""
    return tuple(
        Choice(info, (fold(info.name), fold(info.id), fold(info.cwd or ""))) for info in infos
    )


def first_state(choices: tuple[Choice, ...], folder: str, query: str = "") -> State:
    """Return the first state: the sessions of `folder`, or all sessions if `folder` has none."""
    is_everywhere = all(choice.info.cwd != folder for choice in choices)
    return _refit(State(choices, folder, query, is_everywhere))


def keys_in(text: str) -> Iterator[str]:
    """Split input into keys and the text between them. Unknown escape sequences are dropped."""
    for piece in _PIECES.findall(text):
        if piece in _SEQUENCES:
            yield _SEQUENCES[piece]
        elif piece[0] >= " " and piece[0] != "\x7f":
            yield f"text:{piece}"


def after(state: State, key: str) -> State | Chosen:
    """Return the state after `key` was pressed; `Chosen` if the key ends the choice."""
    if key == "enter":
        return Chosen(state.choice) if state.fitting else state
    if key == "leave":
        return Chosen(None)
    if key == "everywhere":
        return _refit(msgspec.structs.replace(state, is_everywhere=not state.is_everywhere))
    query = _edit(state.query, key)
    if query != state.query:
        return _refit(msgspec.structs.replace(state, query=query))
    return msgspec.structs.replace(state, marked=_move(state, key))


def _edit(query: str, key: str) -> str:
    if key.startswith("text:"):
        return query + key.removeprefix("text:")
    if key == "erase":
        return query[:-1]
    if key == "erase_word":
        return query.rstrip().rpartition(" ")[0]
    return "" if key == "erase_all" else query


def _move(state: State, key: str) -> int:
    last = max(len(state.fitting) - 1, 0)
    steps = {"up": -1, "down": 1, "page_up": -PAGE, "page_down": PAGE, "first": -last, "last": last}
    return min(max(state.marked + steps.get(key, 0), 0), last)


def _refit(state: State) -> State:
    """Return `state` with new matches for the text of `state`, and the best match selected."""
    offered = [
        choice for choice in state.choices if state.is_everywhere or choice.info.cwd == state.folder
    ]
    wanted = wanted_of(state.query)
    if not wanted.is_empty:
        matches = rank((choice.texts for choice in offered), wanted)
        offered = [offered[match.index] for match in matches]
    return msgspec.structs.replace(state, fitting=tuple(offered), marked=0)


_NEXT = 16
"""Score of a letter that directly follows the previous letter of the query in the text."""

_BEGINS_WORD = 12
_BEGINS_TEXT = 4
_GAP = 3
_MOST_GAP = 30
_PHRASE = 40
_WHOLE_WORD = 20
_FIELD = 2
"""Subtracted from a match's score for each text of the same item that is more important."""

_BREAKS = frozenset(" \t/\\-_.,:;()[]{}'\"|")

_Score = Callable[[str, str], int | None]


class Wanted(msgspec.Struct, frozen=True):
    """A parsed query: `words` match fuzzily, `phrases` match exactly; `fold` normalized both."""

    words: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the query is empty, so that everything matches."""
        return not self.words and not self.phrases


class Match(msgspec.Struct, frozen=True):
    """The quality of a match. Shape: `index` is the position of the matched item in its list."""

    index: int
    score: int


def wanted_of(query: str) -> Wanted:
    """Return the words and phrases of `query`."""
    words: list[str] = []
    phrases: list[str] = []
    for number, part in enumerate(query.split('"')):
        if number % 2:
            phrases += [phrase] if (phrase := fold(part).strip()) else []
        else:
            words += fold(part).split()
    return Wanted(tuple(words), tuple(phrases))


def fold(text: str) -> str:
    """Return `text` in lower case, without accents, and with single spaces."""
    text = text.casefold()
    if text.isascii():  # fast, because each key press folds the names of all files
        return " ".join(text.split())
    apart = unicodedata.normalize("NFKD", text)
    return " ".join("".join(c for c in apart if not unicodedata.combining(c)).split())


def rank(texts: Iterable[Sequence[str]], wanted: Wanted) -> list[Match]:
    """Return the matches of `texts`, best first; matches with equal scores keep their order.

    Shape: each item contains the texts of one session, normalized by `fold`, the most important
    text first. Every word and phrase must match one of the texts.
    """
    found: list[Match] = []
    for index, fields in enumerate(texts):
        score = score_of(fields, wanted)
        if score is not None:
            found.append(Match(index, score))
    found.sort(key=lambda match: -match.score)
    return found


def score_of(fields: Sequence[str], wanted: Wanted) -> int | None:
    """Return the score of `fields`, which `fold` normalized; None if they do not match."""
    total = 0
    for sought, score in ((wanted.words, fuzzy_score), (wanted.phrases, phrase_score)):
        for each in sought:
            best = _best(fields, each, score)
            if best is None:
                return None
            total += best
    return total


def _best(fields: Sequence[str], word: str, score: _Score) -> int | None:
    scores = [
        found - _FIELD * place
        for place, text in enumerate(fields)
        if (found := score(text, word)) is not None
    ]
    return max(scores, default=None)


def phrase_score(text: str, phrase: str) -> int | None:
    """Return the score of `phrase` in `text`; None if `text` does not contain it."""
    at = text.find(phrase)
    if at < 0:
        return None
    while at >= 0 and not _begins_word(text, at):  # the start of a word, if there is one
        at = text.find(phrase, at + 1)
    return _PHRASE + (_BEGINS_WORD if at >= 0 else 0) + (_BEGINS_TEXT if at == 0 else 0)


def fuzzy_score(text: str, word: str) -> int | None:
    """Return a score if `text` contains the letters of `word` in order; otherwise None.

    If `text` contains the whole word, the score uses the best occurrence of the word. If `text`
    contains only the letters of `word`, the score uses the positions that `_nearest` returns. The
    running time is linear in the length of the text, without backtracking.
    """
    whole = phrase_score(text, word)
    if whole is not None:
        return whole + _NEXT * (len(word) - 1) + (_WHOLE_WORD if _is_whole(text, word) else 0)
    places = _nearest(text, word)
    if places is None:
        return None
    score = 0
    for number, place in enumerate(places):
        if number and place == places[number - 1] + 1:
            score += _NEXT
        elif number:
            score -= min(_GAP * (place - places[number - 1] - 1), _MOST_GAP)
        if _begins_word(text, place):
            score += _BEGINS_WORD
    return score


def _nearest(text: str, word: str) -> list[int] | None:
    """Return the positions of the letters of `word` in the match that ends first in `text`.

    Each letter has the last position that it can have before the next letter.
    """
    end = -1
    for letter in word:
        end = text.find(letter, end + 1)
        if end < 0:
            return None
    places: list[int] = []
    at = end + 1
    for letter in reversed(word):
        at = text.rfind(letter, 0, at)
        places.append(at)
    return places[::-1]


def _begins_word(text: str, at: int) -> bool:
    return at == 0 or (text[at - 1] in _BREAKS and text[at] not in _BREAKS)


def _is_whole(text: str, word: str) -> bool:
    return f" {word} " in f" {text} "


def none_text(state: State) -> str:
    """Return the text for an empty list, with the number of matches in other folders. Pure."""
    if state.is_everywhere:
        return "nothing matches"
    widened = after(state, "everywhere")
    count = len(widened.fitting) if isinstance(widened, State) else 0
    if not count:
        return "nothing matches in this folder or in other folders"
    found = count_of(count, "session")
    return f"nothing matches in this folder; Tab lists {found} of other folders"
