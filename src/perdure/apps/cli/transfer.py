"""``perdure export``: sessions out, as files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from perdure.apps.cli.exits import PathExists, UsageMistake
from perdure.apps.cli.options import JsonOption, NamespaceOption, SessionArgument, StoreOption, run
from perdure.apps.opening import NAMESPACE, existing_store
from perdure.apps.terminal.output import (
    remark,
    show_json,
    show_raw,
    size,
)
from perdure.apps.terminal.text import safe
from perdure.interop.exporting import ExportFormat, Selection, export_session
from perdure.interop.redaction.replacing import REDACTIONS, Redaction
from perdure.interop.reports import Exported

LeafOption = Annotated[
    str | None, typer.Option(metavar="ENTRY", help="Only the branch that ends there.")
]
AllBranchesOption = Annotated[
    bool,
    typer.Option(
        "--all-branches", help="Every branch: in Markdown too, and with --leaf standing there."
    ),
]
RedactOption = Annotated[
    str | None, typer.Option(metavar="SORTS", help="Replace secrets, paths, or secrets,paths.")
]


def add_to(program: typer.Typer) -> None:
    """Make ``perdure export`` known."""
    program.command("export")(export)


def export(  # noqa: PLR0913 - each is an option of the command
    session: SessionArgument,
    *,
    format: Annotated[ExportFormat, typer.Option(help="What to write.")] = "perdure",
    leaf: LeafOption = None,
    has_all_branches: AllBranchesOption = False,
    redact: RedactOption = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where; left out: stdout.")
    ] = None,
    is_forced: Annotated[bool, typer.Option("--force", help="Replace FILE.")] = False,
    store: StoreOption = None,
    namespace: NamespaceOption = NAMESPACE,
    as_json: JsonOption = False,
) -> int:
    """Write a session as a file for perdure, pi or Operator, as Markdown, or as an HTML page.

    An unchanged import of pi or Operator gives its own bytes. What the format cannot hold, and
    what --redact replaced, is told on stderr, or with --json on stdout.
    """
    if as_json and output is None:
        raise UsageMistake("--json tells about a file: name one with -o FILE")
    if output is not None and output.is_dir():
        raise UsageMistake(f"{output} is a folder; name a file")
    sorts = redactions(redact)

    async def work() -> None:
        if output is not None and output.exists() and not is_forced:
            raise PathExists(str(output))
        async with existing_store(store, namespace) as opened:
            handle = await opened.open(session)
            at = None if leaf is None else await opened.backend.resolve(handle.id, leaf)
            selection = Selection(at, has_all_branches, sorts)
            exported = await export_session(opened.backend, handle.id, format, selection)
        if output is not None:
            write_whole(output, exported.content, is_forced=is_forced)
        if as_json:
            show_json(_written(exported, str(output)))
            return
        for warning in exported.warnings:
            remark(safe(warning))
        if sorts:
            remark(f"replaced: {_counts(exported)}")
        if output is None:
            show_raw(exported.content)
        else:
            remark(f"{output}: {size(len(exported.content))}")

    return run(work)


def _written(exported: Exported, output: str) -> dict[str, object]:
    return {
        "session": exported.session,
        "format": exported.format,
        "output": output,
        "bytes": len(exported.content),
        "warnings": exported.warnings,
        "redacted": exported.redacted,
    }


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
    written = file.with_name(f".{file.name}.{os.getpid()}.part") if is_forced else file
    try:
        _write_new(written, content)
        if is_forced:
            _move(written, file)
    except FileExistsError as error:
        raise PathExists(str(file)) from error
    except OSError as error:  # in the words of who named the file
        raise OSError(error.errno, error.strerror, str(file)) from error


def _write_new(file: Path, content: bytes) -> None:
    """Make `file`; a part of it does not stay behind."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(descriptor)
    except BaseException:
        file.unlink(missing_ok=True)
        raise


def _move(written: Path, file: Path) -> None:
    try:
        written.replace(file)
    except BaseException:
        written.unlink(missing_ok=True)
        raise
