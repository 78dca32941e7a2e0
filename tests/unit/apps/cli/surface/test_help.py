"""The help of every command describes its purpose, arguments and examples."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from itertools import dropwhile, takewhile
from typing import Any

import pytest
import typer

from perdure.apps.cli.program import shape_of, whole_program
from perdure.apps.cli.surface.shape import (
    EXIT_CODES,
    Command,
    Example,
    Parameter,
    facts,
    page_lines,
)
from perdure.apps.cli.surface.table import FILE, command_table, encode_table
from perdure.apps.terminal.style import Style
from tests.fakes.samples import case

ROOT = typer.main.get_command(whole_program())
PROGRAM = shape_of(ROOT)
COMMANDS = {command.line: command for command in PROGRAM.walk()}

SUMMARY_CELLS = 95
_VALUE = re.compile(r"[A-Z][A-Z_]*([=:][A-Z]+)?|[a-z0-9-]+(\|[a-z0-9-]+)+")


def test_table_of_commands_matches_the_commands() -> None:
    assert command_table() == PROGRAM, "run scripts/make_command_docs.py"
    assert encode_table(PROGRAM) == FILE.read_text(encoding="utf-8")


def test_help_page_of_the_program_shows_the_version_option() -> None:
    assert "  -V, --version  Show the version and exit." in list(page_lines(PROGRAM, 100, Style()))


def test_command_help_begins_with_one_line_about_its_purpose() -> None:
    for line, command in COMMANDS.items():
        with case(line):
            summary = command.summary
            assert summary.endswith("."), (
                f"{line}: its docstring begins with a sentence: {summary!r}"
            )
            assert len(summary) <= SUMMARY_CELLS, f"{line}: its first line is too long: {summary!r}"
            assert summary[0].isupper()


def test_help_of_each_command_has_an_example() -> None:
    for line, command in COMMANDS.items():
        with case(line):
            assert command.examples, f"{line}: its docstring needs a section `Examples:`"
            for example in command.examples:
                assert is_of(example, command), f"{line}: {example.line!r} does not call it"


def is_of(example: Example, command: Command) -> bool:
    """Return whether the example calls the command, or a command of the group."""
    return re.search(rf"(^|\W){re.escape(command.line)}(\W|$)", example.line) is not None


def test_example_uses_only_existing_options() -> None:
    for line, command in COMMANDS.items():
        with case(line):
            for example in command.examples:
                for typed in re.findall(r"perdure [^|>)]*", example.line):
                    words = re.sub(r"\"[^\"]*\"|'[^']*'", "QUOTED", typed).split()[1:]
                    called = PROGRAM.at(words)
                    known = {"--help"} | {
                        name
                        for each in called.parameters
                        for name in (*each.spellings, *each.opposites)
                    }
                    used = {word.partition("=")[0] for word in words if word.startswith("-")}
                    assert used <= known, f"{line}: {example.line!r} uses {sorted(used - known)}"


def test_example_is_accepted_by_the_parser() -> None:
    for line, command in COMMANDS.items():
        with case(line):
            for example in command.examples:
                for words in typed_in(example.line):
                    try:
                        parsed(words)
                    except typer.Exit:
                        assert {"--help", "--version"} & {*words}
                    except typer.TyperException as error:
                        pytest.fail(f"{line}: {example.line!r}: {error.format_message()}")


def typed_in(line: str) -> Iterator[list[str]]:
    """Return the words after each `perdure` in a shell line, without redirected output."""
    for one in re.split(r"[|;]|&&", line):
        words = shlex.split(one, comments=True)
        words = list(dropwhile(lambda word: re.match(r"[A-Z_]+=", word), words))
        if words[:1] == ["perdure"]:
            yield list(takewhile(lambda word: not word.startswith((">", "<", "&")), words[1:]))


def parsed(words: list[str]) -> None:
    """Parse `words` with the parsers of the commands; run nothing. Raises: typer.TyperException."""
    command: Any = ROOT
    above, name = None, "perdure"
    while True:
        context = command.make_context(name, list(words), parent=above)
        rest = [*getattr(context, "_protected_args", ()), *context.args]
        if not hasattr(command, "resolve_command") or not rest:
            return
        name, command, words = command.resolve_command(context, rest)
        above = context


def test_every_argument_and_option_is_described() -> None:
    for line, command in COMMANDS.items():
        with case(line):
            for each in command.parameters:
                name = f"{line} {each.spellings[0]}"
                assert each.help.endswith("."), f"{name}: its help is a sentence: {each.help!r}"
                assert each.help[0].isupper() or each.help[0] in "\"'`", f"{name}: {each.help!r}"
                word = each.spellings[0] if each.is_argument else each.value
                assert word is None or _VALUE.fullmatch(word), (
                    f"{name}: name its value, not {word!r}"
                )


def test_help_text_of_an_option_does_not_repeat_the_default_value() -> None:
    doubled: list[str] = []
    for line, command in COMMANDS.items():
        for each in command.parameters:
            known = facts(each)
            is_repeated = "repeat" in each.help.lower()
            has_default = re.search(r"left out|default", each.help.lower()) is not None
            told = [fact for fact in known if fact.startswith("default: ")]
            if is_repeated or (has_default and told) or "default: " in known:
                doubled.append(f"{line} {each.spellings[0]}: {each.help} {known}")
    assert doubled == []


def test_option_with_a_numeric_default_has_a_range() -> None:
    for line, command in COMMANDS.items():
        with case(line):
            for each in command.parameters:
                if each.default is not None and re.fullmatch(r"[\d,]+", each.default):
                    assert is_bounded(each), f"{line} {each.spellings[0]}: give it min= and max="


def is_bounded(parameter: Parameter) -> bool:
    return parameter.limits is not None and " to " in parameter.limits


def test_documented_exit_codes_equal_the_exit_codes_in_code() -> None:
    for line, command in COMMANDS.items():
        with case(line):
            for code, meaning in command.exits:
                assert code in EXIT_CODES, f"{line}: {code}"
                assert meaning, f"{line}: {code} means something"


def test_help_page_fits_the_terminal() -> None:
    for (line, command), width in itertools.product(COMMANDS.items(), [60, 100]):
        with case((line, width)):
            assert command.examples, f"{line}: its docstring needs a section `Examples:`"
            lines = list(page_lines(command, width, Style()))
            examples = lines.index("Examples:")
            names = {each.spellings[0] for each in command.parameters}
            assert all(any(name in text for text in lines) for name in names)
            assert max(map(len, lines[1:examples])) <= max(width, longest_name(command))


def longest_name(command: Command) -> int:
    return max((len(each.value or "") + 30 for each in command.parameters), default=0)
