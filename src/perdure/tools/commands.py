"""Parse commands to lists of words without a shell, write them canonically, and compare them.

The functions of this module are pure. A rule of an allow-list has the form of a command line. Rules
are compared word by word, so that one argument never matches as two arguments, or two as one. Lines
that need a shell are rejected.

In a glob, ``*`` matches any number of characters within one argument, and ``?`` matches one
character. ``**`` is allowed as the last word, and matches any number of further arguments if ``*``
matches each of them. A pattern in a glob rule never matches an option, and never matches ``..`` in
a path. To allow an option or ``..``, a rule has to contain it literally. Only the glob that
consists of ``**`` alone matches every command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

MAX_WORDS = 256
MAX_LENGTH = 32 * 1024

ANY_WORDS = "**"
"""The last word of a rule that allows any number of further words."""

ANY_COMMAND = "**"
"""The glob that matches every command."""

_UP = re.compile(r"(?<![^/\\=:,;@\s])\.\.(?![^/\\:,;\s])")
"""Matches ``..`` as a part of a path, even if the path is only a part of the argument."""

_SHELL = frozenset("|&;<>()$`\n\r")
_SHELL_AT_START = ("~", "#", "!")
_PATTERN = frozenset("*?[]{}")


class NeedsShell(ValueError):
    """Raised for a command line that needs a shell; the message contains the reason."""


def words_of(line: str) -> tuple[str, ...]:
    """Split a command line into words.

    Of shell syntax, the line can contain only quotes and backslashes.

    Raises: NeedsShell if the line contains other shell syntax.
    """
    if "\0" in line or len(line) > MAX_LENGTH:
        raise NeedsShell("it is too long or holds a NUL")
    if not line.isprintable() and any(ord(c) < 0x20 and c != "\t" for c in line):
        raise NeedsShell("it holds line breaks or control characters")
    bare = _outside_quotes(line)
    if found := sorted(_SHELL & set(bare)):
        raise NeedsShell(f"{found[0]!r} has no meaning here")
    if found := sorted(_PATTERN & set(bare)):
        raise NeedsShell(f"{found[0]!r} is not expanded here; quote it")
    if '"' in line and _expands(line):
        raise NeedsShell("'$' and '`' are not expanded here; use single quotes")
    try:
        words = shlex.split(line, comments=False, posix=True)
    except ValueError:
        raise NeedsShell("a quote is not closed") from None
    if not words or any(word.startswith(_SHELL_AT_START) for word in bare.split()):
        raise NeedsShell("its first word is missing, or a word begins with ~, # or !")
    return argv_of(words)


def argv_of(words: Sequence[str]) -> tuple[str, ...]:
    """Return `words` as the argument list of a program.

    Raises: NeedsShell if the words cannot be passed to a program.
    """
    if not words or not words[0] or len(words) > MAX_WORDS:
        raise NeedsShell("a command is a program and at most 255 arguments")
    if sum(len(word) for word in words) > MAX_LENGTH or any("\0" in word for word in words):
        raise NeedsShell("it is too long or holds a NUL")
    program = words[0]
    if program.startswith("-") or "=" in program or not program.isprintable() or " " in program:
        raise NeedsShell("its first word is no program")
    return tuple(words)


def canonical(argv: Sequence[str]) -> str:
    """Return `argv` as one quoted line in canonical form, which `words_of` parses back."""
    return shlex.join(argv)


def is_allowed(argv: Sequence[str], exact: Iterable[str], globs: Iterable[str]) -> bool:
    """Return True if `argv` equals one of the lines `exact`, or matches one of the globs."""
    words = tuple(argv)
    if any(words == rule_words(line) for line in exact):
        return True
    return any(_fits(words, rule_words(line, is_glob=True)) for line in globs)


def rule_words(line: str, *, is_glob: bool = False) -> tuple[str, ...]:
    """Return the words of a rule; in a glob rule, words can be patterns.

    Raises: ValueError if the rule is invalid, or cannot match any command.
    """
    if not is_glob:
        return words_of(line)
    words = tuple(shlex.split(line, comments=False, posix=True))
    if words == (ANY_COMMAND,):
        return words
    if not words or not words[0] or _is_pattern(words[0]):
        raise ValueError("a rule names a program, without * and ?")
    for word in words:
        if word.startswith("-") and _is_pattern(word.partition("=")[0]):
            raise ValueError(f"{word!r}: name the option; * and ? stand for no part of its name")
    return words


def _is_pattern(word: str) -> bool:
    return "*" in word or "?" in word


def _fits(words: tuple[str, ...], rule: tuple[str, ...]) -> bool:
    if rule == (ANY_COMMAND,):
        return True
    if rule[-1] == ANY_WORDS and len(rule) > 1:
        fixed = rule[:-1]
        if len(words) < len(fixed) or not all(map(_word_fits, words, fixed)):
            return False
        return all(_word_fits(word, "*") for word in words[len(fixed) :])
    return len(words) == len(rule) and all(map(_word_fits, words, rule))


def _word_fits(word: str, pattern: str) -> bool:
    """Return True if `pattern` allows the argument `word`."""
    if not _is_pattern(pattern):
        return word == pattern
    option, equals, _ = pattern.partition("=")
    if word.startswith("-") and (not equals or not word.startswith(option + equals)):
        return False
    leads_up = len(_UP.findall(word)) > len(_UP.findall(pattern))
    return not leads_up and fnmatchcase(word, pattern.replace("[", "[[]"))  # a rule has no sets


def _outside_quotes(line: str) -> str:
    """Return `line` with an x in place of each quoted or escaped character."""
    return "".join("x" if quote else c for c, quote in _quoted(line))


def _expands(line: str) -> bool:
    """Return True if a shell would expand a ``$`` or a backtick inside double quotes in `line`."""
    return any(quote == '"' and c in "$`" for c, quote in _quoted(line))


def _quoted(line: str) -> Iterator[tuple[str, str]]:
    """Yield each character of `line`, with the quote around it.

    Shape: the quote is "" outside of quotes. The character that opens a quote counts as inside this
    quote. An escaped character is yielded as x, without its backslash.
    """
    quote = ""
    is_escaped = False
    for c in line:
        if is_escaped:
            is_escaped = False
            yield "x", quote
        elif c == "\\" and quote != "'":
            is_escaped = True
        elif quote:
            yield c, quote
            quote = "" if c == quote else quote
        else:
            quote = c if c in "'\"" else ""
            yield c, quote
