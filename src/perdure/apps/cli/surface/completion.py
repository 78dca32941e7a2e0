"""Completion of a typed word: commands, options, choices, ids, entries, models.

`complete_words` is pure except for `Lookup`, which reads the store. A shell calls ``perdure
__complete``; `answer` defines the output for each shell.
"""

from __future__ import annotations

import importlib
import os
import shlex
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, Protocol

import msgspec
import typer

from perdure.apps.cli.exits import DONE, FAILED, UsageMistake
from perdure.apps.cli.surface.shape import HELP, Command, Parameter
from perdure.apps.terminal.output import show, show_lines
from perdure.apps.terminal.text import one_line, safe
from perdure.errors import PerdureError

Mode = Literal["words", "files", "folders"]


class Candidate(msgspec.Struct, frozen=True):
    """One completion of a word, with its description."""

    value: str
    help: str = ""


class Completion(msgspec.Struct, frozen=True):
    """The candidates for a word. `mode` says what else the shell should offer.

    `is_replacing`: the candidates match the typed text without beginning with it.
    """

    candidates: tuple[Candidate, ...] = ()
    mode: Mode = "words"
    is_replacing: bool = False


class Lookup(Protocol):
    """Lookups in the store and on this machine."""

    def sessions(self, typed: str) -> Completion:
        """Return sessions whose id begins with `typed`, or else whose title contains it."""
        ...

    def entries(self, session: str) -> Iterable[Candidate]:
        """Return the entries of `session`, newest first."""
        ...

    def questions(self) -> Iterable[Candidate]:
        """Return the open questions."""
        ...

    def choices(self, question: str) -> Iterable[Candidate]:
        """Return the choices of `question`."""
        ...

    def models(self) -> Iterable[Candidate]:
        """Return the known models and providers."""
        ...


SESSIONS = frozenset({"session"})
ENTRIES = frozenset({"entry", "at", "leaf", "first", "second"})
FOLDERS = frozenset({"DIR"})
FILES = frozenset({"FILE", "PATH"})


class _Typed(msgspec.Struct, frozen=True):
    """The parsed words before the typed word."""

    command: Command
    given: tuple[str, ...]
    used: frozenset[str]
    awaited: Parameter | None


def complete_words(
    program: Command, words: Sequence[str], typed: str, lookup: Lookup
) -> Completion:
    """Return the completions of `typed` after `words`, which do not include ``perdure``."""
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


def split(line: str) -> tuple[list[str], str]:
    """Split a command line into its words and the word being typed, which may be "".

    An unclosed quote includes everything after it.
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


_BASH = r"""# Completion of perdure for bash. In ~/.bashrc:
#   eval "$(perdure completion bash)"
_perdure() {
    local mode value
    COMPREPLY=()
    {
        IFS= read -r mode
        while IFS= read -r value; do COMPREPLY+=("$value"); done
    } < <("${1/#\~/$HOME}" __complete bash "$COMP_WORDBREAKS" "${COMP_TYPE:-9}" \
        "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    case $mode in
        files*) compopt -o default 2>/dev/null ;;
        folders*) compopt -o dirnames 2>/dev/null ;;
    esac
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[:=] ]]; then
        compopt -o nospace 2>/dev/null
    fi
    return 0
}
complete -F _perdure perdure
"""

_ZSH = r"""#compdef perdure
# Completion of perdure for zsh. In ~/.zshrc, after compinit:
#   eval "$(perdure completion zsh)"
_perdure() {
    local mode value
    local -a replies values shown
    replies=("${(@f)$(
        ${(Q)words[1]} __complete zsh "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null
    )}")
    mode=$replies[1]
    for value in "${(@)replies[2,-1]}"; do
        [[ -n $value ]] || continue
        values+=("${value%%$'\t'*}")
        shown+=("${value/$'\t'/  -- }")
    done
    if (( $#values )); then
        if [[ $mode == *found ]]; then
            compadd -U -l -d shown -a values
            (( $#values > 1 )) && compstate[insert]=menu compstate[list]='list force'
        else
            compadd -l -d shown -a values
        fi
    fi
    case $mode in
        files*) _files ;;
        folders*) _files -/ ;;
    esac
}
if [[ $funcstack[1] == _perdure ]]; then _perdure "$@"; else compdef _perdure perdure; fi
"""

_FISH = r"""# Completion of perdure for fish. Keep it:
#   perdure completion fish > ~/.config/fish/completions/perdure.fish
function __perdure_complete
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    set -l replies ($before[1] __complete fish $before[2..] "$current" 2>/dev/null)
    printf '%s\n' $replies[2..]
    switch "$replies[1]"
        case 'files*'
            __fish_complete_path "$current"
        case 'folders*'
            __fish_complete_directories "$current"
    end
end
complete -c perdure -f -a '(__perdure_complete)'
"""

SCRIPTS: Mapping[str, str] = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
"""Shell -> what it has to be told once."""

_MOST_HELP = 80
_MENU_TYPES = frozenset({"37", "42"})
"""bash's words for completing without a list: there, only what can be inserted may be given."""


def split_typed(shell: str, words: Sequence[str]) -> tuple[list[str], str]:
    """Split the arguments of the script of `shell` into the words and the word being typed.

    Omits ``perdure``.
    """
    if shell == "bash":
        before, typed = split(words[-1] if words else "")
        return before[1:], typed
    return list(words[:-1]), words[-1] if words else ""


def answer(shell: str, words: Sequence[str], typed: str, found: Completion) -> Iterator[str]:
    """Format `found` for the script of `shell`; `words` are its arguments."""
    yield f"{found.mode} found" if found.is_replacing else found.mode
    fit = tuple(each for each in found.candidates if safe(each.value) == each.value)
    found = msgspec.structs.replace(
        found, candidates=tuple(each for each in fit if not {"\n", "\t"} & set(each.value))
    )
    if shell == "bash":
        yield from _for_bash(words, typed, found)
        return
    for each in found.candidates:
        help = one_line(each.help, _MOST_HELP)
        yield f"{each.value}\t{help}" if help else each.value


def _for_bash(words: Sequence[str], typed: str, found: Completion) -> Iterator[str]:
    """Format for bash, which replaces only the text after the last break character.

    Bash shows the text that it inserts. So a description follows a candidate only if there are
    several.
    """
    breaks = words[0] if words else ""
    cut = max((typed.rfind(mark) + 1 for mark in breaks if not mark.isspace()), default=0)
    is_listed = len(found.candidates) > 1 and words[1:2] and words[1] not in _MENU_TYPES
    for each in found.candidates:
        value = shlex.quote(each.value[cut if each.value.startswith(typed) else 0 :])
        help = one_line(each.help, _MOST_HELP)
        yield f"{value}  ({help})" if is_listed and help else value


Shell = Literal["bash", "zsh", "fish"]


def add_to(program: typer.Typer) -> None:
    """Make ``perdure completion`` known."""
    program.command("completion")(completion)


def completion(
    shell: Annotated[
        Shell | None,
        typer.Argument(
            metavar="SHELL", help="The shell: bash, zsh or fish; default: that of $SHELL."
        ),
    ] = None,
) -> int:
    """Print a script for shell completion of commands, options, sessions and entries.

    Completes a session by the beginning of its id or any part of its title, and an entry by its
    number. Completion reads the store and changes nothing.

    Examples:
        eval "$(perdure completion bash)"  # in ~/.bashrc
        eval "$(perdure completion zsh)"   # in ~/.zshrc, after compinit
        perdure completion fish > ~/.config/fish/completions/perdure.fish
    """
    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in SCRIPTS:
        raise UsageMistake(f"name the shell: perdure completion {'|'.join(typing.get_args(Shell))}")
    show(SCRIPTS[name], end="")
    return DONE


def complete(shell: str, words: Sequence[str], program: Command) -> int:
    """Answer the script of `shell`, called with `words`. Prints no error."""
    before, typed = split_typed(shell, words)
    # Imported lazily: only some words need a store.
    looking = importlib.import_module("perdure.apps.cli.surface.candidates")
    try:
        found = complete_words(program, before, typed, looking.StoreLookup(before))
    except (PerdureError, OSError):
        return FAILED  # errors of the store are not shown during typing
    show_lines(answer(shell, words, typed, found))
    return DONE
