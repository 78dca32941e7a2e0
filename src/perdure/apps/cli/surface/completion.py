"""What a word that is being typed may become: commands, options, choices, ids, entries, models.

`completed` is pure but for what it is given to look things up in: `Lookup` answers what only a
store knows. A shell asks through ``perdure __complete``; see ``shells`` for what it prints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from perdure.apps.cli.surface.page import HELP
from perdure.apps.cli.surface.shape import Command, Parameter

Mode = Literal["words", "files", "folders"]


class Candidate(msgspec.Struct, frozen=True):
    """What a word may become, and what that is."""

    value: str
    help: str = ""


class Completion(msgspec.Struct, frozen=True):
    """What a word may become. `mode` says what else the shell should offer.

    `is_replacing`: the candidates do not begin with what was typed; they were found by it.
    """

    candidates: tuple[Candidate, ...] = ()
    mode: Mode = "words"
    is_replacing: bool = False


class Lookup(Protocol):
    """What is in the store and on the machine."""

    def sessions(self, typed: str) -> Completion:
        """The sessions whose id begins with `typed`, else those whose title holds it."""
        ...

    def entries(self, session: str) -> Iterable[Candidate]:
        """The entries of `session`, the newest first."""
        ...

    def questions(self) -> Iterable[Candidate]:
        """What waits for an answer."""
        ...

    def choices(self, question: str) -> Iterable[Candidate]:
        """The answers that `question` takes."""
        ...

    def models(self) -> Iterable[Candidate]:
        """The models and providers there are."""
        ...


SESSIONS = frozenset({"session"})
ENTRIES = frozenset({"entry", "at", "leaf", "first", "second"})
FOLDERS = frozenset({"DIR"})
FILES = frozenset({"FILE", "PATH"})


class _Typed(msgspec.Struct, frozen=True):
    """The words before the one being typed, understood."""

    command: Command
    given: tuple[str, ...]
    used: frozenset[str]
    awaited: Parameter | None


def complete_words(
    program: Command, words: Sequence[str], typed: str, lookup: Lookup
) -> Completion:
    """What `typed` may become after `words`, ``perdure`` left out of them."""
    known = _parse_words(program, words)
    if known.awaited is not None:
        return _values(known.awaited, known, typed, lookup)
    name, equals, begun = typed.partition("=")
    if equals and name.startswith("--"):
        return _after_equals(known, name, begun, lookup)
    if typed.startswith("-"):
        return Completion(_fitting(_options(known), typed))
    if known.command.commands:
        below = [Candidate(each.words[-1], each.summary) for each in known.command.commands]
        return Completion(_fitting(below, typed))
    argument = _next_argument(known)
    return Completion() if argument is None else _values(argument, known, typed, lookup)


def _parse_words(program: Command, words: Sequence[str]) -> _Typed:
    command, awaited = program, None
    given: list[str] = []
    used: set[str] = set()
    for word in words:
        option = _option_named(command, word.partition("=")[0])
        if awaited is not None:
            if awaited.is_argument:
                given.append(word)
            awaited = None
        elif option is not None:
            used.add(option.name)
            awaited = None if option.value is None or "=" in word else option
        elif not word.startswith("-"):
            below = next((each for each in command.commands if each.words[-1] == word), None)
            if below is None:
                given.append(word)
            else:
                command, given = below, []
    return _Typed(command, tuple(given), frozenset(used), awaited)


def _option_named(command: Command, word: str) -> Parameter | None:
    options = (each for each in command.parameters if not each.is_argument)
    return next((each for each in options if word in (*each.spellings, *each.opposites)), None)


def _next_argument(known: _Typed) -> Parameter | None:
    arguments = known.command.arguments
    if len(known.given) < len(arguments):
        return arguments[len(known.given)]
    return arguments[-1] if arguments and arguments[-1].is_repeated else None


def _options(known: _Typed) -> list[Candidate]:
    left = [
        each
        for each in (*known.command.parameters, HELP)
        if not each.is_argument and (each.is_repeated or each.name not in known.used)
    ]
    return [
        Candidate(name, each.help) for each in left for name in (*each.spellings, *each.opposites)
    ]


def _after_equals(known: _Typed, name: str, begun: str, lookup: Lookup) -> Completion:
    option = _option_named(known.command, name)
    if option is None or option.value is None:
        return Completion()
    found = _values(option, known, begun, lookup)
    whole = tuple(Candidate(f"{name}={each.value}", each.help) for each in found.candidates)
    return msgspec.structs.replace(found, candidates=whole)


def _values(parameter: Parameter, known: _Typed, typed: str, lookup: Lookup) -> Completion:
    if parameter.choices:
        return Completion(_fitting([Candidate(choice) for choice in parameter.choices], typed))
    word = parameter.spellings[0] if parameter.is_argument else parameter.value
    if parameter.name in SESSIONS:
        return lookup.sessions(typed)
    if word in FILES:
        return Completion(mode="files")
    if word in FOLDERS:
        return Completion(mode="folders")
    return Completion(_fitting(_known_values(parameter, known, lookup), typed))


def _known_values(parameter: Parameter, known: _Typed, lookup: Lookup) -> Iterable[Candidate]:
    first = known.given[0] if known.given else ""
    if parameter.name in ENTRIES and first:
        return lookup.entries(first)
    if parameter.name == "question":
        return lookup.questions()
    if parameter.name == "choice" and first:
        return lookup.choices(first)
    return lookup.models() if parameter.name == "model" else ()


def _fitting(candidates: Iterable[Candidate], typed: str) -> tuple[Candidate, ...]:
    return tuple(each for each in candidates if each.value.startswith(typed))


_QUOTES: Mapping[str, str] = {"'": "'", '"': '"'}


def split(line: str) -> tuple[list[str], str]:
    """The words of a command line that is being typed, and the last one, which may be "".

    A quote that is not closed holds what follows it.
    """
    words: list[str] = []
    word, quote, is_word = "", "", False
    characters = iter(line)
    for character in characters:
        if quote:
            if character == quote:
                quote = ""
            elif character == "\\" and quote == '"':
                word += next(characters, "")
            else:
                word += character
        elif character in _QUOTES:
            quote, is_word = character, True
        elif character.isspace():
            if is_word:
                words.append(word)
            word, is_word = "", False
        else:
            word += next(characters, "") if character == "\\" else character
            is_word = True
    return words, word
