"""Names, parameters and texts of all commands, as data that is read from the program.

Help pages, completion and the command reference are generated from this data, so they match the
code. A command's docstring contains its summary (the first paragraph), its description, and the
sections ``Examples:`` and ``Exit codes:`` with indented lines.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from perdure.apps.terminal.style import Style

COMMON = ("store", "namespace", "as_json")
"""Names of the function arguments for the options that most commands have."""

_EXAMPLES = "Examples:"
_EXITS = "Exit codes:"


class Example(msgspec.Struct, frozen=True, omit_defaults=True):
    """An example command line with its purpose."""

    line: str
    note: str = ""


class Parameter(msgspec.Struct, frozen=True, omit_defaults=True):
    """An argument or option. `name` is the parameter's name in the function.

    Shape: `spellings` are the names of an option, such as ``-o`` and ``--output``, or the
    placeholder of an argument; `opposites` lists the negations of a flag; `value` is the
    placeholder of an option's value, None for a flag.
    """

    name: str
    spellings: tuple[str, ...]
    value: str | None
    help: str
    opposites: tuple[str, ...] = ()
    is_argument: bool = False
    is_required: bool = False
    is_repeated: bool = False
    default: str | None = None
    choices: tuple[str, ...] = ()
    limits: str | None = None
    variable: str | None = None


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command, or a group of commands. `words` is the command's name without ``perdure``."""

    words: tuple[str, ...]
    summary: str
    description: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()
    exits: tuple[tuple[int, str], ...] = ()
    parameters: tuple[Parameter, ...] = ()
    commands: tuple[Command, ...] = ()

    @property
    def arguments(self) -> tuple[Parameter, ...]:
        """The positional arguments."""
        return tuple(parameter for parameter in self.parameters if parameter.is_argument)

    @property
    def options(self) -> tuple[Parameter, ...]:
        """The options of this command, without those that most commands have."""
        return tuple(p for p in self.parameters if not p.is_argument and p.name not in COMMON)

    @property
    def common(self) -> tuple[Parameter, ...]:
        """The options of this command that most commands have."""
        return tuple(p for p in self.parameters if not p.is_argument and p.name in COMMON)

    @property
    def line(self) -> str:
        """The command's name with ``perdure``, without arguments."""
        return " ".join(("perdure", *self.words))

    def at(self, words: Sequence[str]) -> Command:
        """Return the command that the first of `words` name; `self` if they name no command."""
        found = next((each for each in self.commands if words and each.words[-1] == words[0]), None)
        return self if found is None else found.at(words[1:])

    def walk(self) -> Iterator[Command]:
        """Yield this command and every command below it, in the order of the help page."""
        yield self
        for command in self.commands:
            yield from command.walk()


def describe_program(program: Any, order: Sequence[str] = ()) -> Command:
    """Describe `program`, built by typer: first the commands in `order`, then all others."""
    return _describe(program, (), {name: place for place, name in enumerate(order)})


def _describe(found: Any, words: tuple[str, ...], places: Mapping[str, int]) -> Command:
    text = inspect.cleandoc(found.help or "")
    paragraphs, examples, exits = _sections(text)
    below: dict[str, Any] = getattr(found, "commands", {})
    names = sorted(below, key=lambda name: places.get(name, len(places)))
    return Command(
        words=words,
        summary=paragraphs[0] if paragraphs else "",
        description=tuple(paragraphs[1:]),
        examples=tuple(map(_example, examples)),
        exits=tuple(map(_exit, exits)),
        parameters=tuple(
            _parameter(each) for each in found.params if not getattr(each, "hidden", False)
        ),
        commands=tuple(
            _describe(below[name], (*words, name), {})
            for name in names
            if not getattr(below[name], "hidden", False)
        ),
    )


def _sections(text: str) -> tuple[list[str], list[str], list[str]]:
    """Return the paragraphs of a docstring, and the lines of its sections."""
    lines: dict[str, list[str]] = {_EXAMPLES: [], _EXITS: []}
    prose: list[str] = []
    section: str | None = None
    for line in text.splitlines():
        if line in lines:
            section = line
        elif section is not None and line.startswith(" "):
            lines[section].append(line.strip())
        elif line or section is None:
            section = None
            prose.append(line)
    paragraphs = [" ".join(part.split()) for part in "\n".join(prose).split("\n\n")]
    return [part for part in paragraphs if part], lines[_EXAMPLES], lines[_EXITS]


def _example(line: str) -> Example:
    typed, _, note = line.partition("  # ")
    return Example(typed.rstrip(), note.strip())


def _exit(line: str) -> tuple[int, str]:
    code, _, meaning = line.partition(" ")
    return int(code), meaning.strip()


def _parameter(found: Any) -> Parameter:
    choices = tuple(str(choice) for choice in getattr(found.type, "choices", ()))
    is_argument = found.param_type_name == "argument"
    is_flag = bool(getattr(found, "is_flag", False))
    word = found.metavar or ("|".join(choices) if choices else found.name.upper())
    return Parameter(
        name=found.name,
        spellings=(word,) if is_argument else tuple(sorted(found.opts, key=len)),
        opposites=tuple(found.secondary_opts),
        value=None if is_argument or is_flag else word,
        help=found.help or "",
        is_argument=is_argument,
        is_required=bool(found.required),
        is_repeated=bool(found.multiple) or found.nargs != 1,
        default=_default(found, is_flag=is_flag),
        choices=choices,
        limits=_limits(getattr(found.type, "min", None), getattr(found.type, "max", None)),
        variable=found.envvar if isinstance(found.envvar, str) else None,
    )


def _default(found: Any, *, is_flag: bool) -> str | None:
    value: object = found.default
    if isinstance(found.show_default, str):
        return found.show_default
    if is_flag or value is None or value == "" or not found.show_default or callable(value):
        return None
    return f"{value:,}" if isinstance(value, int) else str(value)


def _limits(least: float | None, most: float | None) -> str | None:
    if least is None and most is None:
        return None
    if least is None:
        return f"up to {most:,}"
    return f"at least {least:,}" if most is None else f"{least:,} to {most:,}"


WIDEST = 100
"""Maximum width of help text, in cells. Longer lines are hard to read, even on a wide terminal."""

EXIT_CODES: Mapping[int, str] = {
    0: "done",
    1: "the work failed",
    2: "invalid command line or invalid input",
    3: "not found",
    4: "conflict: in use, changed concurrently, already exists, or a question that was withdrawn",
    130: "interrupted",
}
"""What the exit codes of all commands mean."""

HELP = Parameter("help", ("--help",), None, "Show this page.")

_INDENT = 2
_GAP = 2
_MOST_NAMED = 30
"""Maximum width of a name, in cells, for its text to begin on the same line."""


def page_lines(command: Command, width: int, style: Style) -> Iterator[str]:
    """Return the help page of `command`, at most `width` cells wide unless a word is longer."""
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
        "Options", [_parameter_row(p) for p in (*command.options, *command.common, HELP)], width
    )
    exits = tuple(EXIT_CODES.items()) if not command.words else command.exits
    yield from _section_lines(
        "Exit codes", [(str(code), meaning) for code, meaning in exits], width
    )
    yield from _examples(command, style)


def synopsis(command: Command) -> str:
    """Return the synopsis of `command`, with optional parts in brackets."""
    words = [command.line]
    if command.commands:
        words.append("COMMAND")
    words.append("[OPTIONS]")
    for argument in command.arguments:
        word = argument.spellings[0] + ("..." if argument.is_repeated else "")
        words.append(word if argument.is_required else f"[{word}]")
    return " ".join(words)


def spelt(parameter: Parameter) -> str:
    """Return an argument or option as the user writes it."""
    if parameter.is_argument:
        return parameter.spellings[0] + ("..." if parameter.is_repeated else "")
    names = " / ".join((", ".join(parameter.spellings), *parameter.opposites))
    return names if parameter.value is None else f"{names} {parameter.value}"


def facts(parameter: Parameter) -> tuple[str, ...]:
    """Return the default, the limits and other properties of a parameter."""
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
        yield from (" " * start + line for line in lines)


def _examples(command: Command, style: Style) -> Iterator[str]:
    if not command.examples:
        return
    yield ""
    yield "Examples:"
    longest = max(len(each.line) for each in command.examples)
    for each in command.examples:
        note = style.paint(f"  # {each.note}", "faint") if each.note else ""
        yield f"{' ' * _INDENT}{each.line.ljust(longest) if note else each.line}{note}"
