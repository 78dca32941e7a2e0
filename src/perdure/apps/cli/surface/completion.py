"""Completion of a typed word: commands, options, choices, ids, entries, models.

`complete_words` is pure except for `Lookup`, which reads the store. `shells` contains the scripts
that request completions, and the output format of each shell.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, Protocol

import msgspec

from perdure.apps.cli.surface.shape import HELP, Command, Parameter

Mode = Literal["words", "files", "folders"]


class Candidate(msgspec.Struct, frozen=True):
    """One completion of a word, with its description."""

    value: str
    help: str = ""


class Completion(msgspec.Struct, frozen=True):
    """The candidates for a word.

    `mode` defines which further candidates the shell should offer, such as files.

    `is_replacing` is True if the candidates match the typed text but do not begin with it.
    `is_ordered` is True if the shell should show the candidates in this order, not alphabetically.
    """

    candidates: tuple[Candidate, ...] = ()
    mode: Mode = "words"
    is_replacing: bool = False
    is_ordered: bool = False


class Lookup(Protocol):
    """Looks up candidates in the store and on this machine."""

    def sessions(self, typed: str) -> Completion:
        """Return sessions whose id begins with `typed`, or else whose title or id contains it.

        The newest session comes first.
        """
        ...

    def entries(self, session: str) -> Iterable[Candidate]:
        """Return the entries of `session`, newest first."""
        ...

    def questions(self) -> Iterable[Candidate]:
        """Return the open questions."""
        ...

    def grants(self, session: str) -> Iterable[Candidate]:
        """Return the ids of the grants of `session`, with their texts."""
        ...

    def choices(self, question: str) -> Iterable[Candidate]:
        """Return the possible answers to `question`."""
        ...

    def models(self) -> Iterable[Candidate]:
        """Return the known models and providers."""
        ...

    def programs(self) -> Iterable[Candidate]:
        """Return the programs whose sessions can be imported."""
        ...

    def agents(self) -> Iterable[Candidate]:
        """Return the agents in the agent files of the project and of the user."""
        ...


LookupMaker = Callable[[], Lookup]

SESSIONS = frozenset({"session"})
ENTRIES = frozenset({"entry", "entries", "at", "leaf", "first", "second"})
PROGRAM = "PROGRAM"
AGENT = "AGENT"
FOLDERS = frozenset({"DIR"})
FILES = frozenset({"FILE", "PATH"})


class _Typed(msgspec.Struct, frozen=True):
    """The parsed words before the word being typed."""

    command: Command
    given: tuple[str, ...]
    used: frozenset[str]
    awaited: Parameter | None


def complete_words(
    program: Command, words: Sequence[str], typed: str, lookup: LookupMaker
) -> Completion:
    """Return the completions of `typed`; `words` are the words before it, without ``perdure``.

    `lookup` is called only if the typed word needs it.
    """
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


def _after_equals(known: _Typed, name: str, begun: str, lookup: LookupMaker) -> Completion:
    option = _option_named(known.command, name)
    if option is None or option.value is None:
        return Completion()
    found = _values(option, known, begun, lookup)
    whole = tuple(Candidate(f"{name}={each.value}", each.help) for each in found.candidates)
    return msgspec.structs.replace(found, candidates=whole)


def _values(parameter: Parameter, known: _Typed, typed: str, lookup: LookupMaker) -> Completion:
    if parameter.choices:
        return Completion(_fitting([Candidate(choice) for choice in parameter.choices], typed))
    word = parameter.spellings[0] if parameter.is_argument else parameter.value
    if parameter.name in SESSIONS:
        return lookup().sessions(typed)
    if word in FILES:
        return Completion(mode="files")
    if word in FOLDERS:
        return Completion(mode="folders")
    if word == AGENT:
        return Completion(_fitting(lookup().agents(), typed), mode="files")
    fitting = _fitting(_known_values(parameter, known, lookup), typed)
    return Completion(fitting, is_ordered=parameter.name in ENTRIES)


def _known_values(parameter: Parameter, known: _Typed, lookup: LookupMaker) -> Iterable[Candidate]:
    first = known.given[0] if known.given else ""
    if parameter.name in ENTRIES and first:
        return lookup().entries(first)
    if parameter.name == "question":
        return lookup().questions()
    if parameter.name == "choice" and first:
        return lookup().choices(first)
    if parameter.name == "grant" and first:
        return lookup().grants(first)
    if parameter.value == PROGRAM:
        return lookup().programs()
    return lookup().models() if parameter.name == "model" else ()


def _fitting(candidates: Iterable[Candidate], typed: str) -> tuple[Candidate, ...]:
    return tuple(each for each in candidates if each.value.startswith(typed))


def split(line: str) -> tuple[list[str], str]:
    """Split a command line into its words and the word being typed, which can be "".

    After an unclosed quote, the rest of the line belongs to one word.
    """
    # The added letter makes the last word exist, even if it is still empty.
    lexer = shlex.shlex(f"{line}x", posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        words.extend(lexer)
    except ValueError:  # a quote is open
        words.append(lexer.token)
    return words[:-1], words[-1][:-1]
