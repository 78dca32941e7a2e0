"""``perdure export``: export sessions as files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import msgspec
import typer

from perdure import errors
from perdure.apps.cli.exits import PathExists, PathNotFound, UsageMistake
from perdure.apps.cli.options import FolderFilter, SourceFilter
from perdure.apps.cli.store_options import (
    CommonOptions,
    named_folder,
    named_session,
    require_known,
)
from perdure.apps.session_rows import RowFilter, with_all_forks
from perdure.apps.store_access import store_address
from perdure.apps.terminal.output import count_of, remark, show_file, show_json, size
from perdure.apps.terminal.text import safe
from perdure.client.clock import absolute
from perdure.client.lookup.store_files import is_part_of
from perdure.client.store import Store
from perdure.client.transfers import write_file
from perdure.errors import PerdureError
from perdure.interop.exports import ExportSelection, export_session, note_export
from perdure.interop.redaction.placeholders import REDACTIONS
from perdure.interop.reports import Dialect, Exported, ExportFormat, Redaction
from perdure.interop.workflow_export import session as workflow
from perdure.stores.access.lazy_modules import Later

if TYPE_CHECKING:
    from perdure.apps.cli.sessions import archive
else:
    archive = Later("perdure.apps.cli.sessions.archive")

LeafOption = Annotated[
    str | None,
    typer.Option(
        metavar="ENTRY",
        help="Only the branch that ends at ENTRY, its leaf; `perdure sessions tree` lists entries.",
    ),
]
_STDOUT = Path("-")
_ENDINGS: Mapping[str, ExportFormat] = {
    "": "perdure",
    ".jsonl": "perdure",
    ".json": "perdure",
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
}


_PACKED = frozenset((".zip", ".gz", ".tgz", ".tar", ".xz", ".bz2", ".7z", ".zst"))
"""Endings of compressed files. An archive is a folder, so these endings are rejected."""


def _with_list(sorts: str | None) -> str | None:
    """Check the value of ``--redact``, and return it unchanged.

    Raises: UsageMistake if the value was left out, and the next option was read as the value.
    """
    if sorts is not None and sorts.startswith("-"):
        raise UsageMistake(
            f"--redact needs a list before {sorts}: write --redact secrets or secrets,paths"
        )
    return sorts


class ExportOptions(msgspec.Struct, frozen=True):
    """The arguments of ``perdure export``; the last five select sessions for an archive."""

    session: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="The session; --all, --query, --cwd, --source and --with-forks select several "
            "sessions instead.",
        ),
    ] = None
    format: Annotated[
        ExportFormat | None,
        typer.Option(
            help="The format; default: the format that the ending of FILE selects, or perdure."
        ),
    ] = None
    leaf: LeafOption = None
    has_all_branches: Annotated[
        bool,
        typer.Option(
            "--all-branches",
            help="Export every branch, also in Markdown; with --leaf, ENTRY is the current entry "
            "of the export.",
        ),
    ] = False
    redact: Annotated[
        str | None,
        typer.Option(
            metavar="SORTS",
            callback=_with_list,
            help="What to replace by placeholders: secrets, paths, or secrets,paths.",
        ),
    ] = None
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="The output file; default, or -: stdout."
        ),
    ] = None
    is_forced: Annotated[bool, typer.Option("--force", help="Replace FILE.")] = False
    dialect: Annotated[
        Dialect | None,
        typer.Option(help="The dialect of a workflow: perdure (default) or relavium."),
    ] = None
    has_no_tools: Annotated[
        bool, typer.Option("--no-tools", help="Leave tool calls and their results out of Markdown.")
    ] = False
    has_no_instructions: Annotated[
        bool,
        typer.Option("--no-instructions", help="Leave the agent's instructions out of Markdown."),
    ] = False
    is_all: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Export every session, as an archive of HTML pages or of files in the format of "
            "--format.",
        ),
    ] = False
    query: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Export an archive of the sessions whose title contains this text."
        ),
    ] = None
    cwd: FolderFilter = None
    source: SourceFilter = None
    with_forks: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Export an archive of this session and its forks."),
    ] = None

    @property
    def is_archive(self) -> bool:
        """Whether an archive is requested; otherwise one session is exported."""
        named = (self.query, self.cwd, self.source, self.with_forks)
        return self.is_all or any(each is not None for each in named)

    @property
    def kind(self) -> ExportFormat:
        """The format of the export.

        If the user named no format, the format of an archive is HTML, and the format of a session
        follows from the extension of the output file.
        """
        ending = "" if self.output is None else self.output.suffix.lower()
        return self.format or ("html" if self.is_archive else _ENDINGS.get(ending, "perdure"))

    @property
    def place(self) -> Path | None:
        """The file or folder to write; None for stdout."""
        return None if self.output == _STDOUT else self.output

    @property
    def selection(self) -> ExportSelection:
        """The content to export, without the leaf. Raises: typer.BadParameter."""
        return ExportSelection(
            None,
            self.has_all_branches,
            redactions(self.redact),
            self.dialect or "perdure",
            has_tools=not self.has_no_tools,
            has_instructions=not self.has_no_instructions,
        )

    def check(self, *, as_json: bool) -> None:
        """Raises: UsageMistake if an option has no effect, or is not possible in the format.

        Raises: UsageMistake if the output is a folder, except for an archive or a workflow.
        Raises: UsageMistake if `as_json` is True and no output file is named.
        """
        if as_json and self.place is None:
            raise UsageMistake("--json reports on the file that is written: name it with -o FILE")
        is_workflow, output = self.kind == workflow.FORMAT, self.output
        if not self.is_archive and output is not None and output.is_dir() and not is_workflow:
            raise UsageMistake(f"{output} is a folder; name a file")
        name = "--no-tools" if self.has_no_tools else "--no-instructions"
        if self.kind != "markdown" and (self.has_no_tools or self.has_no_instructions):
            raise UsageMistake(f"{name} is about Markdown: add --format markdown, or -o FILE.md")
        if not is_workflow and self.dialect is not None:
            raise UsageMistake("--dialect is about workflows: add --format workflow")
        if is_workflow and self.has_all_branches:
            raise UsageMistake("a workflow is one branch: leave --all-branches out")

    async def rows(self, store: Store) -> RowFilter:
        """Return the filter that selects the sessions for the archive.

        Raises: SessionNotFound; UsageMistake or PathNotFound if a filter is empty, or if no session
        can match it.
        """
        for option, text in (("--query", self.query), ("--source", self.source)):
            if text is not None and not text.strip():
                raise UsageMistake(f"{option} is empty; name what to export, or leave it out")
        cwd = await named_folder(store, self.cwd)
        await require_known(store, cwd, self.source)
        filters = RowFilter(query=self.query, cwd=cwd, source=self.source)
        if self.with_forks is None:
            return filters
        origin = await named_session(store, self.with_forks)
        family = frozenset(await with_all_forks(store, [origin]))
        return msgspec.structs.replace(filters, scope="all", among=family)


async def export(*, asked: ExportOptions, common: CommonOptions) -> None:
    """Export a session for perdure, pi or Operator, or as Markdown, HTML or a workflow.

    An unchanged import from pi or Operator is exported byte for byte. The data that the format
    cannot contain and the texts that --redact replaced are listed on stderr; with --json on stdout.
    A workflow contains one branch. `perdure export ID --format workflow -o .` names the file after
    the session.

    With --all, --query, --cwd, --source or --with-forks the output is a new folder: an HTML page
    for each session, and an index.html that lists and searches them. If you add --format markdown
    or perdure, the folder contains a Markdown file or a bundle for each session, and no index.

    Examples:
        perdure export 01jd -o trip.html
        perdure export 01jd --format markdown --leaf 12 --redact secrets,paths
        perdure export 01jd -o trip.md --no-tools  # only what you and the model said
        perdure export 01jd -o trip.jsonl  # a bundle: everything, for another perdure
        perdure export --all -o archive --redact secrets
        perdure export --all --format markdown -o texts

    Exit codes:
        2  the format cannot express the session
        4  the file exists, and --force is not given
    """
    selection = asked.selection
    asked.check(as_json=common.as_json)
    if asked.is_archive or asked.session is None:
        await _export_many(asked, selection, common)
        return
    output = _checked_output(asked, store_address(common.store))
    async with common.opened_session(asked.session) as (opened, handle):
        leaf = None if asked.leaf is None else await handle.find(asked.leaf)
        selection = msgspec.structs.replace(selection, leaf=leaf)
        exported = await export_session(opened.backend, handle.id, asked.kind, selection)
        file = _output_file(output, exported, selection)
        if file is not None:
            write_whole(file, exported.content, is_forced=asked.is_forced)
            exported = await _record_export(opened, exported, file, selection)
    if common.as_json:
        show_json(_write_export(exported, str(file)))
    else:
        _tell(exported, file, selection)


def _checked_output(asked: ExportOptions, address: str) -> Path | None:
    """Return the file to write; the file can have any extension if the user named a format.

    Raises: PathExists if the file exists; UsageMistake if it is a file of the store, or if its
    extension belongs to no format.
    """
    output = asked.place
    if output is None:
        return None
    if output.is_file() and not asked.is_forced:
        raise PathExists(str(output))
    _check_outside(output, address)
    ending = output.suffix.lower()
    if not (asked.format or ending in _ENDINGS or output.is_dir()):
        raise UsageMistake(
            f"no format has files that end with {ending}: name one with --format "
            f"({', '.join(get_args(ExportFormat))}), or end the name with .jsonl, .md or .html"
        )
    return output


def _archive_folder(asked: ExportOptions) -> Path:
    """Return the archive's folder.

    Raises: UsageMistake if the options do not fit an archive, or if the output cannot be the
    archive's folder. For example, the name of a new folder can end with ``.md`` or ``.jsonl`` only
    if a format is named.
    """
    if not asked.is_archive:
        raise UsageMistake("name a session, or add --all for an archive of every session")
    if asked.is_all and asked.with_forks is not None:
        raise UsageMistake("--all and --with-forks exclude each other: use one of them")
    if asked.session is not None or asked.leaf is not None:
        raise UsageMistake("an archive has many sessions: omit the ID and --leaf")
    if asked.format not in (None, *archive.ENDINGS):
        raise UsageMistake(
            "an archive of many sessions is made of HTML pages: omit --format, or use --format "
            "markdown or perdure"
        )
    output = asked.place
    if output is None:
        raise UsageMistake("name the folder of the archive: -o DIR")
    if output.is_file():
        raise UsageMistake(f"{output} is a file; name a folder")
    ending = output.suffix.lower()
    if ending in _PACKED and not output.is_dir():
        raise UsageMistake(
            "an archive of many sessions is a folder of HTML pages: "
            f"end its name without {ending}, and pack the folder afterwards"
        )
    is_as_named = asked.format is not None or output.is_dir() or not ending
    if not is_as_named and _ENDINGS.get(ending, "html") != "html":
        raise UsageMistake(
            "an archive of many sessions is a folder of HTML pages: "
            f"end its name without {ending}, or add --format html"
        )
    return output


async def _export_many(
    asked: ExportOptions, selection: ExportSelection, common: CommonOptions
) -> None:
    folder = _archive_folder(asked)
    _check_outside(folder, store_address(common.store))
    async with common.existing_store() as opened:
        wanted = await asked.rows(opened)
        made = await archive.write_archive(
            opened, wanted, folder, asked.kind, selection, is_forced=asked.is_forced
        )
    if common.as_json:
        show_json(made)
        return
    for line in archive.warning_lines(made.warnings):
        remark(safe(line))
    if selection.redact:
        remark(_replaced(made.redacted))
    if made.others:
        files = count_of(made.others, "other file")
        remark(f"{safe(made.folder)} still contains {files}, not written by this export")
    written = safe(made.index or made.folder)
    remark(f"{written}: {count_of(made.sessions, 'session')}, {size(made.bytes)}")


def _check_outside(output: Path, address: str) -> None:
    """Raises: UsageMistake if the output is a file of the store, which would be overwritten."""
    if is_part_of(output, address):
        raise UsageMistake(f"{output} is part of the store; name a file elsewhere")


def _tell(exported: Exported, file: Path | None, selection: ExportSelection) -> None:
    for warning in exported.warnings:
        remark(safe(warning))
    if selection.redact:
        remark(_replaced(exported.redacted))
    if file is None:
        show_file(exported.content)
    else:
        remark(f"{safe(str(file))}: {size(len(exported.content))}")


def _output_file(
    output: Path | None, exported: Exported, selection: ExportSelection
) -> Path | None:
    """Return the file to write; if the output is a folder, the file is named after the session."""
    if output is None or not output.is_dir():
        return output
    return output / workflow.file_name(exported.session, selection.dialect)


async def _record_export(
    store: Store, exported: Exported, file: Path, selection: ExportSelection
) -> Exported:
    """Record the path of an exported workflow in the log.

    If the path cannot be recorded, the result has a warning, and no error is raised.
    """
    if exported.format != workflow.FORMAT:
        return exported
    at = store.outside.clock.now_ms()
    try:
        await note_export(
            store.backend, exported.session, absolute(file) or str(file), selection, at
        )
    except PerdureError as error:
        told = f"the path of the export was not recorded in the session: {error}"
        warnings = (*exported.warnings, told)
        return msgspec.structs.replace(exported, warnings=warnings)
    return exported


def _write_export(exported: Exported, output: str) -> dict[str, object]:
    return {
        "session": exported.session,
        "format": exported.format,
        "output": output,
        "bytes": len(exported.content),
        "warnings": exported.warnings,
        "redacted": exported.redacted,
    }


def redactions(named: str | None) -> tuple[Redaction, ...]:
    """Parse the comma-separated value of ``--redact``."""
    words = () if named is None else tuple(word.strip() for word in named.split(","))
    for word in words:
        if word not in REDACTIONS:
            choices = ", ".join(REDACTIONS)
            raise typer.BadParameter(f"{word!r} is none of {choices}", param_hint="--redact")
    return tuple(sort for sort in REDACTIONS if sort in words)


def _replaced(counts: Mapping[str, int]) -> str:
    told = ", ".join(f"{kind} {count}" for kind, count in counts.items())
    return f"replaced: {told or 'nothing was found'}"


def write_whole(file: Path, content: bytes, *, is_forced: bool) -> None:
    """Write `content` to `file` with `write_file`.

    Raises: PathExists if `file` exists; PathNotFound if the folder of the file does not exist.
    """
    if not file.parent.is_dir():
        raise PathNotFound(str(file.parent))
    try:
        write_file(file, content, is_replacing=is_forced)
    except errors.PathExists as error:
        raise PathExists(error.path) from None
