"""A command's help as a page of text: what ``--help`` shows."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from perdure.apps.cli.surface.shape import Command, Parameter
from perdure.apps.terminal.style import Style

WIDEST = 100
"""Cells after which lines of prose are hard to read, however wide the terminal is."""

EXIT_CODES: Mapping[int, str] = {
    0: "done",
    1: "the work failed",
    2: "invalid command line or invalid input",
    3: "not found",
    4: "conflict: in use, changed concurrently, or already exists",
    130: "interrupted",
}
"""What the exit codes of all commands mean."""

HELP = Parameter("help", ("--help",), None, "Show this page.")

_INDENT = 2
_GAP = 2
_MOST_NAMED = 30
"""Cells of a name before its text begins on a line of its own."""


def page_lines(command: Command, width: int, style: Style) -> Iterator[str]:
    """The page of `command`, at most `width` cells wide where words allow."""
    width = min(width, WIDEST)
    yield f"Usage: {style.paint(synopsis(command), 'strong')}"
    for paragraph in (command.summary, *command.description):
        yield ""
        yield from textwrap.wrap(paragraph, width)
    yield from _section_lines(
        "Commands", [(c.words[-1], c.summary) for c in command.commands], width
    )
    yield from _section_lines("Arguments", [_parameter_row(p) for p in command.arguments], width)
    yield from _section_lines(
        "Options", [_parameter_row(p) for p in (*command.options, *_general(command))], width
    )
    exits = tuple(EXIT_CODES.items()) if not command.words else command.exits
    yield from _section_lines(
        "Exit codes", [(str(code), meaning) for code, meaning in exits], width
    )
    yield from _examples(command, style)


def synopsis(command: Command) -> str:
    """How `command` is written: what is needed, and in brackets what is not."""
    words = [command.line]
    if command.commands:
        words.append("COMMAND")
    words.append("[OPTIONS]")
    for argument in command.arguments:
        word = argument.spellings[0] + ("..." if argument.is_repeated else "")
        words.append(word if argument.is_required else f"[{word}]")
    return " ".join(words)


def spelt(parameter: Parameter) -> str:
    """An argument or option as it is written."""
    if parameter.is_argument:
        return parameter.spellings[0] + ("..." if parameter.is_repeated else "")
    names = " / ".join((", ".join(parameter.spellings), *parameter.opposites))
    return names if parameter.value is None else f"{names} {parameter.value}"


def facts(parameter: Parameter) -> tuple[str, ...]:
    """What there is to know of a parameter besides its text."""
    return tuple(
        fact
        for fact, is_known in (
            ("required", parameter.is_required and not parameter.is_argument),
            ("may be repeated", parameter.is_repeated and not parameter.is_argument),
            (f"default: {parameter.default}", parameter.default is not None),
            (str(parameter.limits), parameter.limits is not None),
            (f"or ${parameter.variable}", parameter.variable is not None),
        )
        if is_known
    )


def _general(command: Command) -> tuple[Parameter, ...]:
    return (*command.common, HELP)


def _parameter_row(parameter: Parameter) -> tuple[str, str]:
    known = "; ".join(facts(parameter))
    return spelt(parameter), f"{parameter.help} ({known})" if known else parameter.help


def _section_lines(title: str, rows: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    if not rows:
        return
    yield ""
    yield f"{title}:"
    longest = max((len(name) for name, _ in rows if len(name) <= _MOST_NAMED), default=0)
    start = _INDENT + longest + _GAP
    for name, text in rows:
        lines = textwrap.wrap(text, max(width - start, 20)) or [""]
        if len(name) > longest:
            yield " " * _INDENT + name
        else:
            first, *lines = lines
            yield f"{' ' * _INDENT}{name.ljust(longest)}{' ' * _GAP}{first}".rstrip()
        yield from _indent(lines, start)


def _indent(lines: Iterable[str], start: int) -> Iterator[str]:
    return (" " * start + line for line in lines)


def _examples(command: Command, style: Style) -> Iterator[str]:
    if not command.examples:
        return
    yield ""
    yield "Examples:"
    longest = max(len(each.line) for each in command.examples)
    for each in command.examples:
        note = style.paint(f"  # {each.note}", "faint") if each.note else ""
        yield f"{' ' * _INDENT}{each.line.ljust(longest) if note else each.line}{note}"
