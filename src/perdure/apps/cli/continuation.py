"""``perdure continue-in``: hand a session to another agent program."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from perdure.apps.cli.exits import PathExists
from perdure.apps.cli.histories import folder_of
from perdure.apps.cli.options import SessionArgument
from perdure.apps.cli.store_options import CommonOptions, opened_session
from perdure.apps.cli.transfer import LeafOption, write_whole
from perdure.apps.terminal.output import remark, show, show_json
from perdure.apps.terminal.text import safe
from perdure.client.lookup.store_files import data_folder
from perdure.interop.continuation import Continuation, Program, continuation_of

_HISTORIES: Mapping[Program, str] = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "pi": "pi",
}
"""Program -> its name among the known histories; the others keep no files of sessions."""

_IS_THERE = "nothing to write, it is there already:"


def add_to(program: typer.Typer) -> None:
    """Register ``perdure continue-in``."""
    program.command("continue-in")(continue_in)


async def continue_in(
    session: SessionArgument,
    program: Annotated[
        Program,
        typer.Argument(
            metavar="PROGRAM", help="The program: claude-code, codex, pi, operator, opencode."
        ),
    ],
    *,
    leaf: LeafOption = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="The folder of the program's sessions; default: where it looks."
        ),
    ] = None,
    common: CommonOptions,
) -> None:
    """Write a session where another program resumes it; print the command for it.

    The program gets the conversation as the next request would contain it: compactions are applied;
    reasoning and other branches are not exported (stderr counts them). perdure's session does not
    change. What you add there comes back with `perdure import`: into this session from pi and
    Operator, and from the others as a session of its own, whose earlier messages are not counted a
    second time.

    Examples:
        perdure continue-in 01jd codex
        perdure continue-in 01jd claude-code --leaf 12  # from an earlier entry

    Exit codes:
        0  the file is there; warnings name what the command still needs, such as a missing folder
        2  the session has no messages
        3  session or entry not found
        4  another file is in its place
    """
    async with common.existing_store() as opened:
        handle = await opened_session(opened, session)
        at = None if leaf is None else await handle.find(leaf)
        made = await continuation_of(
            opened.backend, handle.id, program, cwd=str(Path.cwd()), leaf=at
        )
    file = (folder or _place(program)) / made.path
    is_written = _write(file, made)
    command = _command(made, file)
    warnings = [*made.exported.warnings, *_gone(made, handle.id)]
    if not common.as_json:
        _note(made, [*warnings, f"{'wrote' if is_written else _IS_THERE} {file}"])
        show(safe(command))
        return
    show_json(
        {
            "session": made.exported.session,
            "program": program,
            "file": str(file),
            "command": command,
            "warnings": warnings,
        }
    )


def _note(made: Continuation, lines: Iterable[str]) -> None:
    """Print `lines`, and the requirements of the command that this machine lacks."""
    for line in lines:
        remark(safe(line))
    if shutil.which(made.command[0]) is None:
        remark(f"{made.command[0]} is not on your PATH")


def _gone(made: Continuation, session: str) -> Iterator[str]:
    """Yield advice if the folder in which the other program would run does not exist."""
    if not Path(made.cwd).is_dir():
        yield (
            f"the session's folder {made.cwd} does not exist, so the command fails: make it again "
            f"(mkdir -p {shlex.quote(made.cwd)}), or continue a fork of the session in another "
            f"folder (perdure sessions fork {session} --cwd DIR)"
        )


def _place(program: Program) -> Path:
    """Return the folder where `program` looks for sessions; if unknown, a folder of perdure."""
    if program in _HISTORIES:
        return folder_of(_HISTORIES[program], Path.home(), os.environ)
    if program == "operator":
        profiles = [*folder_of("Operator", Path.home(), os.environ).glob("*/sessions")]
        if len(profiles) == 1:  # of several, only the person knows which
            return profiles[0]
    return data_folder(os.environ, sys.platform) / "perdure" / "continued"


def _write(file: Path, made: Continuation) -> bool:
    """Write the file if it does not exist; the other program may have changed an existing file.

    Returns False if the file existed.

    Raises: PathExists if the existing file does not begin with the conversation.
    """
    content = made.exported.content
    if file.is_file():
        with file.open("rb") as there:
            if there.read(len(content)) != content:
                remedy = "it has another conversation: choose another folder with --folder"
                raise PathExists(str(file), remedy)
        return False
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(file, content, is_forced=False)
    return True


def _command(made: Continuation, file: Path) -> str:
    """Return the shell command that continues the session."""
    steps = [step for step in (made.before, made.command) if step]
    named = ([str(file) if word == "{file}" else word for word in step] for step in steps)
    return " && ".join([f"cd {shlex.quote(made.cwd)}", *map(shlex.join, named)])
