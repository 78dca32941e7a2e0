"""``perdure continue-in``: hand a session to another agent program."""

from __future__ import annotations

import glob
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.exits import PathExists
from perdure.apps.cli.histories import folder_of
from perdure.apps.cli.options import SessionArgument
from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.cli.transfer import LeafOption, write_whole
from perdure.apps.terminal.output import remark, show, show_json
from perdure.apps.terminal.text import safe
from perdure.client.lookup.store_files import data_folder
from perdure.interop.continuation import (
    Continuation,
    OriginalFile,
    Program,
    continuation_of,
    original_of,
)
from perdure.session.ids import EntryId, StreamId
from perdure.stores.session_store import SessionStore

_HISTORIES: Mapping[Program, str] = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "pi": "pi",
}
"""Program -> its name in `known_histories`; `_place` handles the programs that are missing here."""

_IS_THERE = "nothing to write, it is there already:"


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
            metavar="FOLDER",
            help="The folder of the program's sessions; default: the folder in which the program "
            "looks for sessions.",
        ),
    ] = None,
    common: CommonOptions,
) -> None:
    """Write a session where another program can resume it, and print the command that resumes it.

    The program gets the conversation as the next request would contain it: compactions are applied;
    reasoning and other branches are not exported (stderr counts them). perdure's session does not
    change. `perdure import` brings back the messages that you add in the other program. Messages
    from pi and Operator are added to this session; messages from the other programs become a new
    session. `perdure usage` counts messages that are in both sessions once. If the program wrote
    the session and nothing was added in perdure, no file is written, and the printed command
    resumes the original session.

    Examples:
        perdure continue-in 01jd codex
        perdure continue-in 01jd claude-code --leaf 12  # from an earlier entry

    Exit codes:
        0  the file exists; warnings list what the printed command needs, such as a folder
        2  the session has no messages
        3  session or entry not found
        4  another file has the path of the new file
    """
    async with common.opened_session(session) as (opened, handle):
        at = None if leaf is None else await handle.find(leaf)
        handed = await _hand_over(opened.backend, handle.id, program, at, folder or _place(program))
    command = handed.shell_command
    warnings = [*handed.warnings, *_gone(handed.cwd, handle.id)]
    if not common.as_json:
        _note(handed, [*warnings, handed.outcome])
        show(safe(command))
        return
    show_json(
        {
            "session": handle.id,
            "program": program,
            "file": str(handed.file),
            "command": command,
            "warnings": warnings,
        }
    )


class _Handed(msgspec.Struct, frozen=True):
    """The session file for another program. `outcome` is a sentence on what was written."""

    file: Path
    cwd: str
    steps: tuple[tuple[str, ...], ...]
    outcome: str
    warnings: tuple[str, ...] = ()

    @property
    def shell_command(self) -> str:
        """Return the shell command that continues the session."""
        named = ([str(self.file) if word == "{file}" else word for word in s] for s in self.steps)
        return " && ".join([f"cd {shlex.quote(self.cwd)}", *map(shlex.join, named)])


async def _hand_over(
    store: SessionStore, session: StreamId, program: Program, leaf: EntryId | None, place: Path
) -> _Handed:
    """Find the original file of `session` in the folder `place`; if there is none, write a copy.

    Raises: PathExists.
    """
    if leaf is None:
        original = await original_of(store, session, program)
        found = None if original is None else _find_original(place, original)
        if found is not None:
            return found
    cwd = str(Path.cwd())
    made = await continuation_of(store, session, program, cwd=cwd, leaf=leaf)
    return _write_copy(place, made)


def _find_original(place: Path, original: OriginalFile) -> _Handed | None:
    """Return the file from which the session was imported; None if it is not in `place`."""
    for file in sorted(place.rglob(glob.escape(original.name))):
        if file.is_file() and original.is_still_at(file):
            outcome = f"nothing to write, the session is in its original file: {file}"
            return _Handed(file, original.cwd or str(Path.cwd()), (original.command,), outcome)
    return None


def _write_copy(place: Path, made: Continuation) -> _Handed:
    """Write the exported session `made` into the folder `place`. Raises: PathExists."""
    file = place / made.path
    outcome = f"{'wrote' if _write(file, made) else _IS_THERE} {file}"
    steps = tuple(step for step in (made.before, made.command) if step)
    return _Handed(file, made.cwd, steps, outcome, made.exported.warnings)


def _note(handed: _Handed, lines: Iterable[str]) -> None:
    """Print `lines` to stderr, and a remark if the other program is not on $PATH."""
    for line in lines:
        remark(safe(line))
    program = handed.steps[-1][0]
    if shutil.which(program) is None:
        remark(f"{program} is not on your PATH")


def _gone(cwd: str, session: str) -> Iterator[str]:
    """Yield advice if the folder in which the other program would run does not exist."""
    if not Path(cwd).is_dir():
        yield (
            f"the session's folder {cwd} does not exist, so the command fails: make it again "
            f"(mkdir -p {shlex.quote(cwd)}), or continue a fork of the session in another "
            f"folder (perdure sessions fork {session} --cwd DIR)"
        )


def _place(program: Program) -> Path:
    """Return the folder where `program` looks for sessions.

    If the folder of `program` is unknown, a folder of perdure is returned.
    """
    if program in _HISTORIES:
        return folder_of(_HISTORIES[program], Path.home(), os.environ)
    if program == "operator":
        profiles = [*folder_of("Operator", Path.home(), os.environ).glob("*/sessions")]
        if len(profiles) == 1:  # of several, only the person knows which
            return profiles[0]
    return data_folder(os.environ, sys.platform) / "perdure" / "continued"


def _write(file: Path, made: Continuation) -> bool:
    """Write `made` to `file` if the file does not exist.

    Returns False if the file existed. An existing file is not replaced, because the other program
    might have added entries to it.

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
