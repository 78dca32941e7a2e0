"""``perdure import`` and ``perdure export``: sessions of other programs in, sessions out."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from perdure.apps.cli.exits import DONE, FAILED, PathExists, PathNotFound
from perdure.apps.cli.options import JsonOption, NamespaceOption, SessionArgument, StoreOption, run
from perdure.apps.opening import NAMESPACE, existing_store, writable_store
from perdure.apps.terminal.output import (
    counted,
    out_style,
    remark,
    show,
    show_error,
    show_json,
    show_raw,
    size,
)
from perdure.apps.terminal.text import safe
from perdure.client.store import Store
from perdure.errors import PerdureError
from perdure.interop.exporting import ExportFormat, Selection, export_session
from perdure.interop.importing import FormatName, import_source
from perdure.interop.redaction.replacing import REDACTIONS, Redaction
from perdure.interop.reports import Exported, ImportReport

SUFFIX = ".jsonl"
"""What files of a folder are taken for sessions."""

Told = Callable[[int], None]
"""Is told how many bytes of the file were read so far."""


def add_to(program: typer.Typer) -> None:
    """Make ``perdure import`` and ``perdure export`` known."""
    program.command("import")(import_sessions)
    program.command("export")(export)


# ---------------------------------------------------------------- import


def import_sessions(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Files, or folders of .jsonl files.")
    ],
    *,
    format: Annotated[
        FormatName, typer.Option(help="What the files are; auto looks at each.")
    ] = "auto",
    store: StoreOption = None,
    namespace: NamespaceOption = NAMESPACE,
    as_json: JsonOption = False,
) -> int:
    """Import recorded sessions.

    Of perdure, pi or Claude Code. Importing a file again adds nothing.

    Every line is kept. A file that cannot be imported does not stop the others; the exit code is
    then 1. --json prints one object a session.
    """
    files = list(_files(paths))
    if len(paths) == 1 and not paths[0].exists():
        raise PathNotFound(str(paths[0]))

    async def work() -> int:
        async with writable_store(store, namespace) as opened:
            with _progress(files, is_shown=not as_json) as telling:
                results = [await _imported(opened, file, format, telling) for file in files]
        return _told(results, as_json=as_json)

    return run(work)


class Result(msgspec.Struct, frozen=True):
    """What became of one file."""

    file: Path
    report: ImportReport | None = None
    error: PerdureError | None = None


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """The files to import: those named, and the sessions below the folders named."""
    for path in paths:
        if path.is_dir():
            yield from sorted(file for file in path.rglob(f"*{SUFFIX}") if file.is_file())
        else:
            yield path


async def _imported(
    store: Store, file: Path, format: FormatName, telling: Callable[[Path], Told]
) -> Result:
    outside = store.outside
    told = telling(file)
    try:
        report = await import_source(
            store.backend,
            file,
            clock=outside.clock,
            random=outside.random,
            format=format,
            progress=lambda read, _total: told(read),
        )
    except PerdureError as error:
        return Result(file, error=error)
    return Result(file, report)


def _told(results: Sequence[Result], *, as_json: bool) -> int:
    failed = [result for result in results if result.error is not None]
    for result in results:
        if result.report is not None:
            _tell(result.file, result.report, as_json=as_json)
        elif result.error is not None:
            show_error(result.error, as_json=as_json)
    if not as_json and len(results) > 1:
        done = [result.report for result in results if result.report is not None]
        show(_summary(done, len(failed)))
    if not results:
        remark(f"there is no {SUFFIX} file here")
    return FAILED if failed else DONE


def _tell(file: Path, report: ImportReport, *, as_json: bool) -> None:
    if as_json:
        fields = msgspec.structs.asdict(report)
        shown = ("session", "format", "entries", "messages", "skipped", "warnings")
        show_json({name: fields[name] for name in shown})
        return
    style = out_style()
    added = _added(report) if report.entries or report.is_new else "nothing new"
    session = style.paint(report.session, "strong")
    show(f"{session}  {report.format}: {added}  {style.paint(safe(str(file)), 'faint')}")
    if report.malformed:
        numbers = ", ".join(str(number) for number in report.malformed[:10])
        lines = counted(report.skipped, "line")
        show(style.paint(f"  {lines} could not be read and were kept: {numbers}", "warning"))
    for warning in report.warnings:
        show(style.paint(f"  {safe(warning)}", "warning"))


def _added(report: ImportReport) -> str:
    entries = counted(report.entries, "entry", "entries")
    return f"{entries}, {counted(report.messages, 'message')}"


def _summary(reports: Sequence[ImportReport], failed: int) -> str:
    sessions = counted(len({report.session for report in reports}), "session")
    entries = counted(sum(report.entries for report in reports), "entry", "entries")
    ending = f", {counted(failed, 'file')} failed" if failed else ""
    return f"{sessions}, {entries} added{ending}"


@contextmanager
def _progress(files: Sequence[Path], *, is_shown: bool) -> Generator[Callable[[Path], Told]]:
    """Gives, for a file, what is told how far it was read; on a terminal that moves a bar."""
    if not (is_shown and sys.stderr.isatty()):
        yield lambda _file: lambda _read: None
        return
    progress: Any = importlib.import_module("rich.progress")
    console: Any = importlib.import_module("rich.console").Console(stderr=True)
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TimeRemainingColumn(),
    )
    sizes = {file: file.stat().st_size for file in files if file.is_file()}
    with progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("importing", total=sum(sizes.values()))
        before = 0

        def telling(file: Path) -> Told:
            nonlocal before
            start = before
            before += sizes.get(file, 0)
            bar.update(task, completed=start, description=safe(file.name))
            return lambda read: bar.update(task, completed=start + read)

        yield telling


# ---------------------------------------------------------------- export


def export(  # noqa: PLR0913 - each is an option of the command
    session: SessionArgument,
    *,
    format: Annotated[ExportFormat, typer.Option(help="What to write.")] = "perdure",
    leaf: Annotated[
        str | None, typer.Option(metavar="ENTRY", help="Only the branch that ends there.")
    ] = None,
    has_all_branches: Annotated[
        bool,
        typer.Option(
            "--all-branches", help="Every branch: in Markdown too, and with --leaf standing there."
        ),
    ] = False,
    redact: Annotated[
        str | None,
        typer.Option(metavar="SORTS", help="Replace secrets, paths, or secrets,paths."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where; left out: stdout.")
    ] = None,
    is_forced: Annotated[bool, typer.Option("--force", help="Replace FILE.")] = False,
    store: StoreOption = None,
    namespace: NamespaceOption = NAMESPACE,
) -> int:
    """Write a session as a file for perdure, pi or Operator, as Markdown, or as an HTML page.

    An unchanged import of pi or Operator gives its own bytes. What the format cannot hold, and
    what --redact replaced, is told on stderr.
    """
    sorts = redactions(redact)

    async def work() -> None:
        if output is not None and output.exists() and not is_forced:
            raise PathExists(str(output))
        async with existing_store(store, namespace) as opened:
            handle = await opened.open(session)
            at = None if leaf is None else await opened.backend.resolve(handle.id, leaf)
            selection = Selection(at, has_all_branches, sorts)
            exported = await export_session(opened.backend, handle.id, format, selection)
        for warning in exported.warnings:
            remark(safe(warning))
        if sorts:
            remark(f"replaced: {_counts(exported)}")
        if output is None:
            show_raw(exported.content)
        else:
            write_whole(output, exported.content, is_forced=is_forced)
            remark(f"{output}: {size(len(exported.content))}")

    return run(work)


def redactions(named: str | None) -> tuple[Redaction, ...]:
    """What ``--redact`` names, separated by commas."""
    words = () if named is None else tuple(word.strip() for word in named.split(","))
    for word in words:
        if word not in REDACTIONS:
            choices = ", ".join(REDACTIONS)
            raise typer.BadParameter(f"{word!r} is none of {choices}", param_hint="--redact")
    return tuple(sort for sort in REDACTIONS if sort in words)


def _counts(exported: Exported) -> str:
    counts = exported.redacted.items()
    return ", ".join(f"{kind} {count}" for kind, count in counts) or "nothing was found"


def write_whole(file: Path, content: bytes, *, is_forced: bool) -> None:
    """Write `content` to `file`: all of it or nothing, readable only by its owner.

    Raises: PathExists when it is there and `is_forced` is False.
    """
    if is_forced:
        beside = file.with_name(f".{file.name}.{os.getpid()}.part")
        _write_new(beside, content)
        beside.replace(file)
        return
    try:
        _write_new(file, content)
    except FileExistsError as error:
        raise PathExists(str(file)) from error


def _write_new(file: Path, content: bytes) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(descriptor)
