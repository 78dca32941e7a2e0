"""The table of commands. Running a command imports only the module of this command."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import re
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, cast, get_type_hints

import msgspec
import typer

from perdure.apps.cli.exits import DONE, USAGE, UsageMistake
from perdure.apps.cli.surface import tasks
from perdure.apps.cli.surface.groups import commands_of, found_at
from perdure.apps.cli.surface.shape import Command, describe_program, page_lines
from perdure.apps.cli.surface.table import command_table
from perdure.apps.terminal.output import remark, show, width
from perdure.apps.terminal.style import Style
from perdure.stores.access.collector import collector_paused_to_load
from perdure.stores.access.lazy_modules import Later

if TYPE_CHECKING:
    from perdure.apps.settings import advice
else:
    advice = Later("perdure.apps.settings.advice")

_COMMON = "CommonOptions"
_VERSION = ("--version", "-V")

COMMANDS: Mapping[str, str] = {
    "demo": "perdure.apps.demo.command:demo",
    "init": "perdure.apps.setup.command:init",
    "chat": "perdure.apps.chat.command:chat",
    "agents": "perdure.apps.configuration.agents_command:agents",
    "sessions": "perdure.apps.cli.sessions.group:sessions",
    "import": "perdure.apps.cli.imports:import_sessions",
    "export": "perdure.apps.cli.transfer:export",
    "continue-in": "perdure.apps.cli.continuation:continue_in",
    "flow": "perdure.apps.flow.command:flow",
    "inbox": "perdure.apps.cli.inbox:inbox",
    "schedule": "perdure.apps.cluster.schedule_command:schedule",
    "grants": "perdure.apps.chat.grants:grants",
    "store": "perdure.apps.cli.stores:store_commands",
    "usage": "perdure.apps.cli.records:usage",
    "activity": "perdure.apps.cli.records:activity",
    "edits": "perdure.apps.cli.records:edits",
    "memory": "perdure.apps.memory.command:memory",
    "models": "perdure.apps.cli.models:models_commands",
    "mcp": "perdure.apps.configuration.mcp_command:mcp",
    "serve": "perdure.apps.server_commands.command:serve",
    "worker": "perdure.apps.cluster.worker_command:worker",
    "cluster": "perdure.apps.cluster.status_command:cluster",
    "token": "perdure.apps.server_commands.token_command:token",
    "config": "perdure.apps.configuration.settings_command:config",
    "doctor": "perdure.apps.cli.doctor:doctor",
    "completion": "perdure.apps.cli.surface.completion_command:completion",
}
"""Command -> ``module:name`` of its function, or of its group; in the order of the help."""


def run(words: Sequence[str]) -> int:
    """Run the command that `words` name and return the exit code.

    Raises: UsageMistake if `words` name no command; otherwise, any error of the command.
    """
    command = command_line(words)
    try:
        result: object = command.main(list(words), prog_name="perdure", standalone_mode=False)
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
    except typer.TyperException as error:
        return _report_misuse(error.format_message(), command_table().at(words), words)
    except typer.Abort:  # typer's word for a stdin that ended
        raise KeyboardInterrupt from None
    return result if isinstance(result, int) else DONE


def command_line(words: Sequence[str]) -> Any:
    """Return a parser that knows the command in `words`.

    If `words` contain no command, the parser knows only the names of all commands. A process builds
    the parser only once, because building it takes longer than most commands.
    """
    place = next((n for n, word in enumerate(words) if not word.startswith("-")), len(words))
    named, *after = words[place:] or [""]
    if named not in COMMANDS:
        return _built(())
    if (named,) in _programs or not after:
        return _built((named,))
    return _built((named, after[0]))


_programs: dict[tuple[str, ...], Any] = {}
"""Names of a command, or of a group and a command -> the parser that knows only this command."""


def _built(names: tuple[str, ...]) -> Any:
    if names not in _programs:
        with collector_paused_to_load():
            program = _program(names[:1])
            only = names[1] if names[1:] else None
            with _loaded(program, only) as is_one:
                kept = names if is_one else names[:1]  # the word after a command may be anything
                _programs[kept] = built = typer.main.get_command(program)
        return built
    return _programs[names]


@contextmanager
def _loaded(program: typer.Typer, only: str | None = None) -> Generator[bool]:
    """Within the block, load the commands of each group, or just `only` if the group contains it.

    Yields whether a group contains the command `only`.
    """
    groups = [cast("typer.Typer", group.typer_instance) for group in program.registered_groups]
    own = [group.registered_commands for group in groups]
    for group in groups:
        group.registered_commands = [*commands_of(group, only)]
    try:
        _spread_options(program)
        names = [[known.name for known in group.registered_commands] for group in groups]
        yield [only] in names
    finally:
        for group, commands in zip(groups, own, strict=True):
            group.registered_commands = commands


def _spread_options(program: typer.Typer) -> None:
    """Replace each parameter whose type is a struct of options by one option per field."""
    for known in (program.registered_callback, *program.registered_commands):
        if known is not None and _COMMON in getattr(known.callback, "__annotations__", {}).values():
            known.callback = _spread(cast("Callable[..., object]", known.callback))
    for group in program.registered_groups:
        _spread_options(cast("typer.Typer", group.typer_instance))


def _spread(command: Callable[..., object]) -> Callable[..., object]:
    parameters: dict[str, inspect.Parameter] = {}
    structs: dict[str, type[msgspec.Struct]] = {}
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        known = parameter.annotation
        if isinstance(known, type) and issubclass(known, msgspec.Struct):
            structs[name] = known
            hints = get_type_hints(known, include_extras=True)
            for field in msgspec.structs.fields(known):
                parameters[field.name] = parameter.replace(
                    name=field.name, default=field.default, annotation=hints[field.name]
                )
        else:
            parameters[name] = parameter

    @wraps(command)
    def called(**given: Any) -> object:
        options = {
            name: known(**{field: given.pop(field) for field in known.__struct_fields__})
            for name, known in structs.items()
        }
        return command(**options, **given)

    called.__annotations__ = {name: each.annotation for name, each in parameters.items()}
    vars(called)["__signature__"] = inspect.Signature(list(parameters.values()))
    return called


def shape_of(command: object) -> Command:
    """Return the description of `command`, which is a program built with typer."""
    return describe_program(command, tuple(COMMANDS))


def whole_program() -> typer.Typer:
    """Return the program with every command loaded."""
    program = _program(COMMANDS)
    for group in program.registered_groups:
        instance = cast("typer.Typer", group.typer_instance)
        instance.registered_commands = [*commands_of(instance)]
    _spread_options(program)
    return program


def _program(loaded: Collection[str]) -> typer.Typer:
    """Return a program that has the commands in `loaded`.

    If `loaded` is empty, the program contains only the names of all commands.
    """
    program = typer.Typer(rich_markup_mode=None, no_args_is_help=True, add_completion=False)
    program.callback()(_perdure)
    for name in loaded:
        found = found_at(COMMANDS[name])
        if isinstance(found, typer.Typer):
            program.add_typer(found, name=name)
        else:
            program.command(name)(found)
    for name in () if loaded else COMMANDS:
        program.command(name)(_not_loaded)
    return program


def _not_loaded() -> None:
    """The placeholder for a command whose module is not loaded."""


def _show_version(is_wanted: bool) -> None:  # noqa: FBT001 - typer passes it by position
    if is_wanted:
        # Imported lazily: it takes longer to load than most commands take to run.
        version: str = importlib.import_module("importlib.metadata").version("perdure")
        show(f"perdure {version}")
        raise typer.Exit(DONE)


def _perdure(
    *,
    _is_version: Annotated[
        bool,
        typer.Option(
            *_VERSION,
            callback=_show_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Store, run and continue the sessions of AI agents in a durable log.

    Every command works on a store: --store, or $PERDURE_STORE, or a file in your data folder.
    Results go to stdout, with --json as JSON; everything else goes to stderr.

    `perdure COMMAND --help` describes a command. `perdure sessions COMMAND --help` describes a
    command of a group.

    Examples:
        perdure demo                     # see what it does, offline, in under a minute
        perdure import ~/.claude/projects  # bring in the sessions of another program
        perdure sessions search hotel    # find a conversation by a word
        perdure chat --continue          # continue the newest session of this folder
    """


_CHECKER_WORDS = (
    (r"Got unexpected extra argument\(?s?\)? \((.*)\)", r"unexpected argument: \1"),
    (r"^Missing argument '(.*)'", r"missing argument \1"),
    (r"^(missing argument \S+)\. Choose from:\s*(.*)", r"\1: one of \2"),
    (r"\s*\n\s*", " "),
    (r"^No such option: (\S+)", r"unknown option \1"),
    (r"^No such command '", "unknown command '"),
    (r"is not a valid int(?:eger)?(?: range)?", "is no whole number"),
    (r"is not a valid float(?: range)?", "is no number"),
    (r"is not in the range (\d+)<=x<=(\d+)", r"is not from \1 to \2"),
    (r"is not in the range x>=(\d+)", r"is less than \1"),
    (r"is not in the range x<=(\d+)", r"is more than \1"),
)
"""Patterns in typer's error messages, and the text that replaces each."""


_UNKNOWN_OPTION = re.compile(r"^unknown option (\S+)")
_COUNTS: Mapping[str, str] = {"--last": "--limit", "--limit": "--last"}
"""``--limit`` prints the first rows (the best or newest), ``--last`` the last rows; if a command
lacks one of them, the other is suggested."""


_OF_COMMANDS = frozenset({"--store", "--namespace", "--json"})
"""Options of nearly every command."""

_MEANT_FORMATS: Mapping[str, str] = {
    "jsonl": "perdure, which is JSON lines",
    "json": "perdure, which is JSON lines",
    "md": "markdown",
    "htm": "html",
}
_WRONG_FORMAT = re.compile(r"Invalid value for '--format': '(\w+)' is not one of 'perdure'")


def _names_json(words: Sequence[str]) -> bool:
    """Return whether one of `words` is ``json``, or has it as a value, as in ``--format=json``."""
    return any(word.rpartition("=")[2].casefold() == "json" for word in words)


def _plain(message: str) -> str:
    for said, plainly in _CHECKER_WORDS:
        message = re.sub(said, plainly, message, flags=re.DOTALL)
    return message


def _report_misuse(message: str, called: Command, words: Sequence[str]) -> int:
    if message.startswith("Usage:"):  # a group was called without a command: its help
        remark("\n".join(page_lines(called, width(), Style())))
        return USAGE
    names, group = [each.words[-1] for each in called.commands], " ".join(called.words)
    task = tasks.task_hint(message, group, names)
    if task is not None:
        is_setting = list(words[:2]) == ["config", "set"]
        raise UsageMistake((advice.advice_to_set(words) if is_setting else None) or task)
    if (listed := tasks.commands_hint(message, group, names)) is not None:
        raise UsageMistake(listed)
    message = _plain(message)
    has_json = any("--json" in each.spellings for each in called.common)
    if has_json and message.startswith("unknown option") and _names_json(words):
        raise UsageMistake(f"{message.partition(' (')[0]}; did you mean --json?")
    spelled = {spelling for each in called.options for spelling in each.spellings}
    unknown = _UNKNOWN_OPTION.match(message)
    meant = None if unknown is None else _COUNTS.get(unknown[1])
    if unknown is not None and meant in spelled:
        raise UsageMistake(f"{unknown[0]}; did you mean {meant}?")
    if unknown is not None and called.commands and unknown[1] in _OF_COMMANDS:
        raise UsageMistake(f"{unknown[1]} is an option of commands: write it after the command")
    wrong = _WRONG_FORMAT.match(message)
    if wrong is not None and wrong[1].lower() in _MEANT_FORMATS:
        meant = _MEANT_FORMATS[wrong[1].lower()]
        raise UsageMistake(f"{message.rstrip('.')}; did you mean {meant}?")
    remedy = tasks.remedy_for(message, " ".join(called.words))
    if remedy is not None:
        raise UsageMistake(remedy)
    hint = "" if message.endswith("?") else "; see --help"
    raise UsageMistake(message.rstrip(".") + hint)
