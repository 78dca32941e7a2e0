"""``perdure import``: import sessions of other programs, once or continuously."""

from __future__ import annotations

import asyncio
import importlib
import os
import shlex
import sys
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import aclosing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from perdure.apps.cli.exits import (
    DONE,
    FAILED,
    NothingToImport,
    PathNotFound,
    UsageMistake,
    exit_code_of,
)
from perdure.apps.cli.histories import known_histories, places
from perdure.apps.cli.options import named_path, only_subject
from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.store_access import (
    KEYFILE,
    copy_command,
    is_store_file,
    scratch_store,
    store_address,
)
from perdure.apps.terminal.line_input import interrupts
from perdure.apps.terminal.output import (
    count_of,
    out_style,
    remark,
    show,
    show_error,
    show_json,
    show_lines,
)
from perdure.apps.terminal.text import safe
from perdure.client.lookup.store_files import database_file, is_part_of, own_folders
from perdure.client.store import Store
from perdure.client.transfers import files_at, unreadable_folder
from perdure.errors import PerdureError, UnknownFormat
from perdure.interop.bulk import Told, import_files, size_of
from perdure.interop.imports import ImportOptions
from perdure.interop.live_import import SUFFIX, Change, FileId, FolderFollower
from perdure.interop.reports import FileOutcome, FormatName, ImportReport

ImportFormat = Literal[FormatName, "a-society"]
"""The formats of session files, and the only format of flows."""


def _check_dry_run(format: str, *, is_watching: bool) -> None:
    """Raises: UsageMistake if this import does not support ``--dry-run``."""
    if is_watching or format == "a-society":
        other = "--watch" if is_watching else "flows"
        raise UsageMistake(f"--dry-run reads session files once: not with {other}")


def _check(
    paths: list[Path], format: str, *, is_watching: bool, again: bool, workspace: Path | None
) -> None:
    """Reject invalid arguments before importing. Raises: PathNotFound, UsageMistake."""
    _check_no_address(paths)
    for path in paths if is_watching or len(paths) == 1 else ():
        if not path.exists():
            raise PathNotFound(str(path))
    if format == "a-society" and is_watching:
        raise UsageMistake("--watch follows session files; a flow's folder is imported once")
    if again and is_watching:
        raise UsageMistake("--again imports erased sessions once: not with --watch")
    if workspace is not None and format != "a-society":
        raise UsageMistake("--workspace works only with flows: add --format a-society")
    if workspace is not None and not workspace.is_dir():
        raise PathNotFound(str(workspace))
    for path in paths:
        if path.name == "flow.json":
            raise UsageMistake(
                f"{path} is one file of a flow; name its folder: "
                f"`perdure import {shlex.quote(str(path.parent))} --format a-society`"
            )
        if _is_special(path):
            raise UsageMistake(f"{path} is not a file or folder")


def _is_special(path: Path) -> bool:
    """Return whether `path` is neither file nor folder; False if this user cannot look at it."""
    try:
        return path.exists() and not (path.is_file() or path.is_dir())
    except PermissionError:
        return False


def _check_no_address(paths: list[Path]) -> None:
    for path in paths:
        if str(path).startswith(("http:/", "https:/")):
            address = str(path).replace(":/", "://", 1)
            raise UsageMistake(
                f"{address} is an address, and addresses are not fetched: download the file first, "
                "then name it"
            )


def _check_no_store(paths: Sequence[Path], address: str, namespace: str) -> None:
    """Raises: UsageMistake if the only path is a store; the error names the command that copies it.

    If there are several paths, the import of a store fails, but the other paths are imported.
    """
    if len(paths) == 1 and is_store_file(paths[0]) and not is_part_of(paths[0], address):
        command = copy_command(paths[0], address, namespace)
        has_file = not command.endswith(f" {KEYFILE}")
        needed = "" if has_file else f", write your key to {KEYFILE} (chmod 600) and run"
        raise UsageMistake(
            f"{paths[0]} is a store of perdure; to add its sessions to yours{needed}: {command}"
        )


PathsArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="PATH",
        parser=named_path,
        help="Session files or their folders; default: the histories of known programs.",
    ),
]
FormatOption = Annotated[
    ImportFormat,
    typer.Option(help="The format of the files; auto detects it. a-society: folders of flows."),
]
WatchOption = Annotated[
    bool, typer.Option("--watch", help="Keep importing new lines until Ctrl-C.")
]
SubjectOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        callback=only_subject,
        help="The person or thing that new sessions are about; see `sessions erase --subject`.",
    ),
]
AgainOption = Annotated[
    bool,
    typer.Option("--again", help="Import erased sessions (new ids) and flows (old ids) again."),
]
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="List the sessions in the files, and write nothing."),
]
WorkspaceOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", parser=named_path, help="The workspace of the flows, if outside PATH."
    ),
]


async def import_sessions(
    named: PathsArgument = None,
    *,
    format: FormatOption = "auto",
    is_watching: WatchOption = False,
    subject: SubjectOption = None,
    again: AgainOption = False,
    is_dry: DryRunOption = False,
    workspace: WorkspaceOption = None,
    common: CommonOptions,
) -> int:
    """Import recorded sessions.

    The list of formats below names the supported programs. Without PATH, the command imports the
    histories of these programs on this machine, and Aider's history in this folder. Importing a
    file again adds only new entries. Erased sessions are not imported again.

    All lines of a session file are stored, also those that perdure cannot interpret. Files of a
    folder that are not sessions are skipped and counted. If a session cannot be imported, the
    import continues with the other sessions, and the exit code is 1. If PATH is a single file that
    cannot be imported, its error decides the exit code: 2 if the file is not a session. --json
    prints one object per session. --watch prints a line per change; a session with a running turn
    is imported after the turn. The counts of --dry-run include entries that the store already has.

    Examples:
        perdure import                             # what known programs left on this machine
        perdure import ~/.claude/projects          # all sessions of Claude Code
        perdure import --dry-run                   # only list them
        perdure import session.jsonl --json
        perdure import ~/.pi/agent/sessions --watch  # and new lines, until Ctrl-C
        perdure import ~/trips --format a-society  # the flows of a workspace
        perdure import chats --subject ann  # to erase everything about ann later

    Exit codes:
        1  some files could not be imported
        2  the file is not a session
        3  nothing to import
    """
    closed: list[OSError] = []
    paths = named or _histories(closed, as_json=common.as_json)
    _check(paths, format, is_watching=is_watching, again=again, workspace=workspace)
    if is_dry:
        _check_dry_run(format, is_watching=is_watching)
    if format == "a-society":
        if subject is not None:
            raise UsageMistake("flows have no subject: leave out --subject")
        # Imported lazily; only flow imports need it.
        flows: Any = importlib.import_module("perdure.apps.flow.imports")
        imported = flows.import_flows(paths, common, workspace=workspace, again=again)
        return int(await imported)
    _check_no_store(paths, store_address(common.store), common.namespace)
    async with scratch_store() if is_dry else common.writable_store() as opened:
        address, outside = store_address(common.store), opened.outside
        how = ImportOptions(
            clock=outside.clock, random=outside.random, format=format, subject=subject, again=again
        )
        if is_watching:
            own, open = own_folders(address), _written_by_us(address)
            follower = FolderFollower(opened.backend, paths, excluded=own, open=open, **how)
            return await _follow(follower, closed, as_json=common.as_json)
        store = None if is_dry else opened
        return await _import_once(store, paths, how, address, closed, as_json=common.as_json)


# -- once


async def _import_once(
    store: Store | None,
    paths: Sequence[Path],
    how: ImportOptions,
    address: str,
    closed: list[OSError],
    *,
    as_json: bool,
) -> int:
    """Import everything at `paths`; return the exit code. If `store` is None, nothing is written.

    `closed` are the errors of folders that could not be read.
    Raises: NothingToImport.
    """
    files = list(files_at(paths, address, closed.append))
    if not files and not closed:
        outside = " outside the store's own folder" if own_folders(address) else ""
        raise NothingToImport(paths, f"{SUFFIX} file{outside}", _hint(paths))
    total = await _import_files(store, files, how, closed, paths, as_json=as_json)
    if total.failure is None:
        return DONE
    is_alone = len(paths) == 1 and not paths[0].is_dir()
    return exit_code_of(total.failure) if is_alone else FAILED


def _histories(closed: list[OSError], *, as_json: bool) -> list[Path]:
    """Find, print and return other programs' histories on this machine.

    Adds the errors of folders that cannot be read to `closed`. Raises: NothingToImport.
    """
    found = list(known_histories(Path.home(), os.environ, Path.cwd(), closed.append))
    if not found and not closed:
        raise NothingToImport((places(),), "history", "name a file or a folder")
    for each in () if as_json else found:
        remark(f"{each.program}: {safe(str(each.folder))}")
    return [each.folder for each in found]


def _hint(paths: Sequence[Path]) -> str:
    """Return the hint to use ``--format a-society`` if `paths` contain flows, else ""."""
    folder: Any = importlib.import_module("perdure.interop.a_society.folder")
    if not any(folder.flow_folders(path) for path in paths):
        return ""
    return "it holds flows: add --format a-society"


async def _import_files(
    store: Store | None,
    files: Sequence[Path],
    how: ImportOptions,
    closed: Sequence[OSError],
    named: Sequence[Path],
    *,
    as_json: bool,
) -> _Total:
    total = _Total(named, "added" if store is not None else "in them", lists_all=as_json)
    for outcome in map(unreadable_folder, closed):
        total.add(outcome)
        _tell(outcome, as_json=as_json)
    later: list[FileOutcome] = []  # a progress bar and lines would overwrite each other
    with _progress(files, is_shown=not as_json) as told:
        async with aclosing(_outcomes(store, files, how, told)) as outcomes:
            async for outcome in outcomes:
                if not total.add(outcome):
                    continue
                if told is None:
                    _tell(outcome, as_json=as_json)
                else:
                    later.append(outcome)
    for outcome in later:
        _tell(outcome, as_json=as_json)
    _tell_unchanged(total.unchanged)
    if not as_json and len(files) > 1:
        show_lines(total.lines())
    if store is None and not as_json:
        remark("dry run: nothing was written")
    return total


async def _outcomes(
    store: Store | None, files: Sequence[Path], how: ImportOptions, told: Told | None
) -> AsyncGenerator[FileOutcome]:
    """Import `files` into `store`; if it is None, each file into its own store in memory."""
    for some in [files] if store is not None else [[file] for file in files]:
        async with scratch_store() if store is None else nullcontext(store) as opened:
            imported = import_files(opened.backend, some, told=told, **how)
            async with aclosing(imported) as outcomes:
                async for outcome in outcomes:
                    yield outcome


class _Total:
    """The totals of all imported files. `failure` is the error of the last file that failed.

    A file that is not a session is a failure only if `named` contains the file itself. `unchanged`
    lists the files without anything new for which `add` returned False. If `lists_all` is True,
    `add` returns True for a file without anything new, so `unchanged` is empty.
    """

    def __init__(self, named: Sequence[Path], done: str, *, lists_all: bool) -> None:
        self._named = frozenset(named)
        self._done = done
        self._others = 0
        self._lists_all = lists_all
        self.unchanged: list[FileOutcome] = []
        self.failed = 0
        self.failure: PerdureError | None = None
        self._sessions: dict[str, set[str]] = {}
        self._entries = Counter[str]()

    def add(self, outcome: FileOutcome) -> bool:
        """Count one file; return whether to print a line for it."""
        if isinstance(outcome.error, UnknownFormat) and outcome.path not in self._named:
            self._others += 1
            return False
        if outcome.report is None:
            self.failed += 1
            self.failure = outcome.error
        else:
            report = outcome.report
            self._sessions.setdefault(report.format, set()).add(report.session)
            self._entries[report.format] += report.entries
        if self._lists_all or not _is_unchanged(outcome):
            return True
        self.unchanged.append(outcome)
        return False

    def lines(self) -> Iterator[str]:
        """Return one line with the totals.

        If sessions of several programs were imported, a line for each program comes first.
        """
        programs = self._sessions.items()
        for program, sessions in sorted(programs) if len(programs) > 1 else ():
            yield f"{program}: {self._added(len(sessions), self._entries[program])}"
        whole = len(set[str]().union(*self._sessions.values()))
        ending = f", {count_of(self.failed, 'file')} failed" if self.failed else ""
        others = count_of(self._others, "other file")
        skipped = f", {others} skipped: no sessions" if self._others else ""
        yield f"{self._added(whole, self._entries.total())}{ending}{skipped}"

    def _added(self, sessions: int, entries: int) -> str:
        counted = count_of(entries, "entry", "entries")
        return f"{count_of(sessions, 'session')}, {counted} {self._done}"


@contextmanager
def _progress(files: Sequence[Path], *, is_shown: bool) -> Generator[Told | None]:
    """Show a progress bar of the files on a terminal."""
    if not (is_shown and sys.stderr.isatty()):
        yield None
        return
    progress: Any = importlib.import_module("rich.progress")
    console: Any = importlib.import_module("rich.console").Console(stderr=True)
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("importing", total=sum(map(size_of, files)))
        read_of: dict[Path, int] = {}
        turn = threading.Lock()  # several files are read in parallel, each in a thread

        def show_progress(path: Path, read: int) -> None:
            with turn:
                bar.update(task, advance=read - read_of.get(path, 0), description=safe(path.name))
                read_of[path] = read

        yield show_progress


# -- continuously


def _written_by_us(address: str) -> frozenset[FileId]:
    """Return the ids of the store's file and of the files that receive this command's output."""
    file = database_file(address)
    found = [] if file is None else [file.stat()]
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            found.append(os.fstat(stream.fileno()))
    return frozenset((each.st_dev, each.st_ino) for each in found)


async def _follow(follower: FolderFollower, closed: list[OSError], *, as_json: bool) -> int:
    """Print the errors `closed`, then the changes as they are imported, until Ctrl-C."""
    for outcome in map(unreadable_folder, closed):
        _tell(outcome, as_json=as_json)
    telling = asyncio.create_task(_tell_changes(follower, as_json=as_json))
    with interrupts(telling.cancel):
        try:
            await asyncio.wait([telling])
        finally:
            telling.cancel()
    if not telling.cancelled():
        telling.result()
    return DONE


async def _tell_changes(follower: FolderFollower, *, as_json: bool) -> None:
    async with aclosing(follower.changes()) as changes:
        async for change in changes:
            if change.what == "gone":
                _tell_gone(change, as_json=as_json)
            else:
                _tell(FileOutcome(change.path, change.report, change.error), as_json=as_json)


# -- words


def _tell_gone(change: Change, *, as_json: bool) -> None:
    if as_json:
        show_json({"file": str(change.path), "gone": True}, is_flushed=True)
    else:
        show(f"{safe(str(change.path))} is gone; its session stays", is_flushed=True)


def _tell(outcome: FileOutcome, *, as_json: bool) -> None:
    if outcome.error is not None:
        show_error(outcome.error, as_json=as_json)
    elif outcome.report is not None and as_json:
        fields = msgspec.structs.asdict(outcome.report)
        shown = ("session", "format", "entries", "messages", "skipped", "warnings")
        show_json({name: fields[name] for name in shown}, is_flushed=True)
    elif outcome.report is not None:
        _tell_report(outcome.path, outcome.report)


def _is_unchanged(outcome: FileOutcome) -> bool:
    report = outcome.report
    return report is not None and not (
        report.entries or report.is_new or report.malformed or report.warnings
    )


def _tell_unchanged(unchanged: Sequence[FileOutcome]) -> None:
    """Print the number of files that had nothing new; for a single file, print its report."""
    if len(unchanged) == 1:
        _tell(unchanged[0], as_json=False)
    elif unchanged:
        is_each_a_file = len({each.path for each in unchanged}) == len(unchanged)
        unit = "file" if is_each_a_file else "session"
        show(f"nothing new in {count_of(len(unchanged), unit)}")


def _tell_report(file: Path, report: ImportReport) -> None:
    style = out_style()
    entries = count_of(report.entries, "entry", "entries")
    added = f"{entries}, {count_of(report.messages, 'message')}"
    if not report.entries and not report.is_new:
        added = "nothing new"
    session = style.paint(report.session, "strong")
    lines = [f"{session}  {report.format}: {added}  {style.paint(safe(str(file)), 'faint')}"]
    if report.malformed:
        numbers = ", ".join(str(number) for number in report.malformed[:10])
        skipped = count_of(report.skipped, "line")
        kept = "was kept" if report.skipped == 1 else "were kept"
        told = f"  {skipped} could not be read and {kept}: {numbers}"
        lines.append(style.paint(told, "warning"))
    lines += [style.paint(f"  {safe(warning)}", "warning") for warning in report.warnings]
    if report.is_erased:
        lines.append("  `perdure import --again` imports it under a new id")
    show("\n".join(lines), is_flushed=True)
