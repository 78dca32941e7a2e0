"""A reference implementation of the ranking in plain Python, to compare the product with.

This reference reads every entry for each question and stores nothing. `Techniques` disables the
parts of the ranking separately, to measure the gain of each. The words of a question and of the
entries are compared by stems (from ``snowballstemmer`` if it is installed, otherwise by their first
letters).
"""

from __future__ import annotations

import importlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import lru_cache
from math import exp, log
from typing import Any, NamedTuple

from benchmarks.memory.conversations import Conversation, Language, Place
from perdure.memory.ranking import TALK
from perdure.stores.search.corpus import REACH

NEAR = {-4: 0.1, -3: 0.2, -2: 0.35, -1: 0.7, 0: 1.0, 1: 0.5, 2: 0.25, 3: 0.1}
"""Weight of a word in the entries around an entry, by their distance."""

_WORD = re.compile(r"[^\W_]+")
_POSSESSIVE = re.compile("['\N{RIGHT SINGLE QUOTATION MARK}]s\\b")
_FUNCTION_WORDS: dict[Language, str] = {
    "english": """
        a about after all also am an and any are as at be because been before being but by can
        could did do does doing for from get give given go had has have he her here hers him his how
        i if in into is it its just let like made make me might more most much must my no nor not of
        off on one only or other our out over own said say says she should so some such than that
        the their them then there these they this those through to told too under up us very was we
        were what when where which while who whom whose why will with would you your""",
    "german": """
        aber alle allem allen als am an auch auf aus bei beim bin bis da damit das dass daß dem
        den denn der des die dies diese dieser doch du durch ein eine einem einen einer er es für
        gegen hab habe haben hat hatte ich ihm ihn ihr ihre ihrem ihren ihrer im in ist ja kein
        keine man mein mich mir mit muß nach nicht noch nun nur ob oder sagte schon sein seine
        seinem seinen seiner sich sie sind so soll über um und uns unter vom von vor wann war waren
        warum was weil welche welchem welchen welcher welches wem wen wenn wer werden wie wieder
        wird wo woher wohin womit worüber worum wofür zu zum zur""",
    "french": """
        a ai au aux avait avec avoir c ce ces cet cette chez comme comment d dans de des dit donc
        du elle elles en est et était été étaient être eu eut fait font fut il ils j je l la le les
        leur leurs lui m ma mais me même mes mon n ne ni nos nous on ont ou où par pas pendant plus
        pour pourquoi qu quand que quel quelle quelles quels qui quoi s sa sans se ses si son sont
        sous sur t ta te tes ton tous tout toute tu un une votre vous y""",
}
_STOP = {language: frozenset(words.split()) for language, words in _FUNCTION_WORDS.items()}
_MONTHS = (
    "january januar janvier",
    "february februar février",
    "march märz mars",
    "april avril",
    "may mai",
    "june juni junius juin",
    "july juli julius juillet",
    "august août",
    "september septembre",
    "october oktober octobre",
    "november novembre",
    "december dezember décembre",
)
_MONTH = {name: number for number, names in enumerate(_MONTHS, 1) for name in names.split()}
_WHEN = re.compile(r"\b(?:when|what time|wann|um wie viel uhr|quand|quelle heure)\b", re.IGNORECASE)
_OTHER = re.compile(
    r"\b(?:how|what|where|which|who|whom|whose|why|was|wer|wie|wo|welche[mnrs]?|warum|comment|où"
    r"|pourquoi|quel(?:le)?s?|qui|quoi)\b",
    re.IGNORECASE,
)
_TIME = re.compile(
    r"\b(?:\d{1,4}|o'clock|today|tomorrow|yesterday|to-morrow|morning|evening|night|week|month|year"
    r"|uhr|heute|morgen|gestern|abends?|woche|monat|jahre?|heures?|demain|hier|matin|soir|semaine"
    rf"|mois|ans?|{'|'.join(_MONTH)})\b",
    re.IGNORECASE,
)


class Techniques(NamedTuple):
    """The parts of the ranking. Numbers such as `context` are weights; a part with 0 is disabled.

    `passages`: the number of words in the passages into which a long entry is split; passages are
    ranked like entries. `vector`, `own_vector`: used only by recall with an embedder.
    """

    stems: bool = True
    neighbours: bool = True
    passages: int = 0
    context: float = 0.28
    own: float = 0.10
    session: float = 0.45
    speaker: float = 1.0
    date: float = 6.0
    time: float = 1.9
    answers: float = 0.2
    asks: float = -0.6
    has_question: float = -0.25
    names: float = 0.25
    exchange: float = 1.0
    reach: int = REACH
    vector: float = 5.0
    own_vector: float = 2.0


STANDARD = Techniques()

WITHOUT: dict[str, Techniques] = {
    "stems": STANDARD._replace(stems=False),
    "neighbours": STANDARD._replace(neighbours=False),
    "own text": STANDARD._replace(own=0),
    "session": STANDARD._replace(session=0),
    "speaker": STANDARD._replace(speaker=0),
    "names among several": STANDARD._replace(names=0),
    "exchange of two": STANDARD._replace(exchange=0),
    "reach": STANDARD._replace(reach=1_000_000),
    "date": STANDARD._replace(date=0),
    "time": STANDARD._replace(time=0),
    "question marks": STANDARD._replace(answers=0, asks=0, has_question=0),
    "meaning": STANDARD._replace(vector=0),
    "own meaning": STANDARD._replace(own_vector=0),
}
WITH: dict[str, Techniques] = {
    "passages of 60 words": STANDARD._replace(passages=60),
}
"""Techniques that only the reference has."""


class _Unit(NamedTuple):
    """An entry, or a passage of one, with the stems of its words."""

    place: Place
    author: str | None
    text: str
    counts: Counter[str]
    length: int


class Reference:
    """The ranking of the entries of all `conversations` together."""

    def __init__(self, conversations: Sequence[Conversation], techniques: Techniques) -> None:
        self.techniques = techniques
        self._languages = list[Language]()
        self._sessions = list[list[_Unit]]()
        self._days = list[date | None]()
        for conversation in conversations:
            language = conversation.listed.language
            self._languages.append(language)
            for session in conversation.sessions:
                units = list[_Unit]()
                for line in session.lines:
                    place = Place(session.heading.session, line.entry)
                    units += self._units(place, line.author, line.words, language)
                self._sessions.append(units)
                at = session.heading.at
                self._days.append(None if at is None else date.fromisoformat(at[:10]))
        self._prepare()

    def _units(
        self, place: Place, author: str | None, text: str, language: Language
    ) -> Iterator[_Unit]:
        for passage in _passages(text, self.techniques.passages):
            counts = Counter(self._stem(word, language) for word in _words(passage))
            yield _Unit(place, author, passage, counts, counts.total())

    def _stem(self, word: str, language: Language) -> str:
        return _stem(language, word) if self.techniques.stems else word

    def _prepare(self) -> None:
        self._near = list[list[Counter[str]]]()
        near = NEAR if self.techniques.neighbours else {0: 1.0}
        for units in self._sessions:
            smooth = [Counter[str]() for _ in units]
            for at, unit in enumerate(units):
                reach = min(1.0, self.techniques.reach / max(unit.length, 1))
                for distance, weight in near.items():
                    share = weight if distance == 0 else weight * reach
                    if 0 <= at - distance < len(units):
                        for word, count in unit.counts.items():
                            smooth[at - distance][word] += share * count  # pyright: ignore[reportArgumentType] - counts are fractions here
            self._near.append(smooth)
        self._authors = [
            {unit.author for unit in units if unit.author is not None} for units in self._sessions
        ]
        every = [unit for units in self._sessions for unit in units]
        self._having = Counter(word for unit in every for word in unit.counts)
        self._number = len(every)
        self._mean = sum(c.total() for s in self._near for c in s) / max(len(every), 1)
        self._whole = [sum((u.counts for u in units), Counter[str]()) for units in self._sessions]
        self._mean_session = sum(c.total() for c in self._whole) / max(len(self._whole), 1)
        self._in_sessions = Counter(word for whole in self._whole for word in whole)

    def ranked(self, question: str) -> list[Place]:
        """Return the entries with a score above 0, best first."""
        language = language_of(self._languages, question)
        words = [word for word in _words(question) if word not in _STOP[language]]
        asked = {self._stem(word, language) for word in words if len(word) > 1}
        named = set(_words(question))
        scores = dict[Place, float]()
        for at, authors in enumerate(self._authors):
            speakers = {author for author in authors if named & set(_words(author))}
            spoken = {self._stem(word, language) for each in speakers for word in _words(each)}
            name = self.techniques.names if len(authors) > TALK else 0.0
            terms = {term: 1.0 for term in asked - spoken if term in self._having}
            terms |= {term: name for term in asked & spoken if name and term in self._having}
            for unit, score in self._scored(at, terms, question, speakers):
                scores[unit.place] = max(score, scores.get(unit.place, score))
        found = [place for place, score in scores.items() if score > 0]
        return sorted(found, key=lambda place: -scores[place])

    def _scored(
        self, at: int, terms: Mapping[str, float], question: str, speakers: set[str]
    ) -> Iterator[tuple[_Unit, float]]:
        part, units = self.techniques, self._sessions[at]
        fixed = part.session * self._of_session(at, terms)
        fixed += part.date * _closeness(question, self._days[at])
        asks_when = _asks_when(question)
        for number, unit in enumerate(units):
            near = self._near[at][number]
            score = fixed
            for term, weight in terms.items():
                idf = _idf(self._number, self._having[term])
                length = 0.7 + 0.3 * near.total() / self._mean
                around, own = weight * near[term], weight * unit.counts[term]
                score += part.context * idf * 2.2 * around / (around + 1.2 * length)
                score += part.own * idf * 1.9 * own / (own + 0.9)
            if unit.author in speakers:
                score += part.speaker
                if len(self._authors[at]) > TALK and _is_exchange(units, number, speakers):
                    score += part.exchange
            if asks_when and _TIME.search(unit.text):
                score += part.time
            if number and units[number - 1].text.rstrip().endswith("?"):
                score += part.answers
            if unit.text.rstrip().endswith("?"):
                score += part.asks
            if "?" in unit.text:
                score += part.has_question
            yield unit, score

    def _of_session(self, at: int, terms: Mapping[str, float]) -> float:
        whole, score = self._whole[at], 0.0
        length = 0.25 + 0.75 * whole.total() / self._mean_session
        for term, weight in terms.items():
            idf, count = _idf(len(self._whole), self._in_sessions[term]), weight * whole[term]
            score += idf * 2.2 * count / (count + 1.2 * length)
        return score


def _is_exchange(units: Sequence[_Unit], number: int, speakers: set[str]) -> bool:
    """Return whether one of the other `speakers` said the unit before or after."""
    around = [units[at].author for at in (number - 1, number + 1) if 0 <= at < len(units)]
    return any(author in speakers and author != units[number].author for author in around)


def language_of(languages: Sequence[Language], question: str) -> Language:
    """Return the language of `languages` with the most function words of `question`."""
    words = _words(question)
    return max(languages, key=lambda each: sum(word in _STOP[each] for word in words))


def question_words(languages: Sequence[Language], question: str) -> list[str]:
    """Return the words of a question without function words."""
    language = language_of(languages, question)
    words = list(dict.fromkeys(_words(question)))
    return [word for word in words if word not in _STOP[language]] or words


def _words(text: str) -> list[str]:
    return _WORD.findall(_POSSESSIVE.sub("", unicodedata.normalize("NFC", text).lower()))


def _idf(size: int, having: int) -> float:
    return log(1 + (size - having + 0.5) / (having + 0.5))


def _passages(text: str, length: int) -> Iterator[str]:
    words = text.split(" ")
    for start in range(0, len(words), length or len(words)):
        yield " ".join(words[start : start + (length or len(words))])


@lru_cache(maxsize=100_000)
def _stem(language: Language, word: str) -> str:
    stemmer = _stemmer(language)
    return word[: max(4, len(word) - 3)] if stemmer is None else str(stemmer(word))


@lru_cache
def _stemmer(language: Language) -> Callable[[str], str] | None:
    with suppress(ModuleNotFoundError):
        library: Any = importlib.import_module("snowballstemmer")
        return library.stemmer(language).stemWord
    return None


def _asks_when(question: str) -> bool:
    """Return whether "when" is the first question word of the question."""
    when, other = _WHEN.search(question), _OTHER.search(question)
    return when is not None and (other is None or when.start() <= other.start())


def _closeness(question: str, day: date | None) -> float:
    """Return 1 for a day in the period of the question; a period without a year fits any year."""
    words = _words(question)
    months = [(at, _MONTH[word]) for at, word in enumerate(words) if word in _MONTH]
    years = [int(word) for word in words if re.fullmatch(r"1[0-9]{3}|20[0-9]{2}", word)]
    if day is None or not (months or years):
        return 0.0
    year = years[0] if years else day.year
    if not months:
        return float(year == day.year)
    at, month = months[0]
    beside = [word for word in words[max(at - 1, 0) : at + 2] if re.fullmatch(r"\d{1,2}", word)]
    first = date(year, month, min(max(int(beside[0]) if beside else 1, 1), 28))
    last = first if beside else date(year, month, 28)
    after, before = (day - last).days, (first - day).days
    return exp(-max(after, 0) / 10) * exp(-3 * max(before, 0) / 10)
