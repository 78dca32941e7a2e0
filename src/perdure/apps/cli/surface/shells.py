"""The completion scripts of the shells, and the answer format of each shell.

A script calls ``perdure __complete SHELL`` with the text typed so far.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from perdure.apps.cli.surface.completion import Completion, split
from perdure.apps.terminal.text import one_line, safe

Shell = Literal["bash", "zsh", "fish"]

_SCRIPTS = Path(__file__).parents[3] / "data" / "completion"

_MOST_HELP = 80
_MENU_TYPES = frozenset({"37", "42"})
"""Values of bash's $COMP_TYPE for completion without a list, which inserts candidates unchanged."""


def script_of(shell: str) -> str:
    """Return the script that `shell`, which is one of `Shell`, must run once."""
    return (_SCRIPTS / f"perdure.{shell}").read_text("utf-8")


def split_typed(shell: str, words: Sequence[str]) -> tuple[list[str], str]:
    """Split the arguments of the script of `shell` into the words and the word being typed.

    The first word, ``perdure``, is omitted.
    """
    if shell == "bash":
        before, typed = split(words[-1] if words else "")
        return before[1:], typed
    return list(words[:-1]), words[-1] if words else ""


def answer(shell: str, words: Sequence[str], typed: str, found: Completion) -> Iterator[str]:
    """Format `found` for the script of `shell`; `words` are the arguments of the script.

    The shells show the completion candidates in the order in which this function yields them.
    Candidates without `is_ordered` are sorted alphabetically.
    """
    yield f"{found.mode} found" if found.is_replacing else found.mode
    fit = [each for each in found.candidates if safe(each.value) == each.value]
    if not found.is_ordered:
        fit.sort(key=lambda each: each.value)
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
    """Format `found` for bash, which replaces only the text after the last word-break character.

    Bash inserts exactly the text that it shows for a candidate. A description would be inserted,
    too, so descriptions are added only if several candidates are listed.
    """
    breaks = words[0] if words else ""
    cut = max((typed.rfind(mark) + 1 for mark in breaks if not mark.isspace()), default=0)
    is_listed = len(found.candidates) > 1 and words[1:2] and words[1] not in _MENU_TYPES
    for each in found.candidates:
        value = shlex.quote(each.value[cut if each.value.startswith(typed) else 0 :])
        help = one_line(each.help, _MOST_HELP)
        yield f"{value}  ({help})" if is_listed and help else value
