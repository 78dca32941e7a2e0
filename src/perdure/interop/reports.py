"""The result types of imports and exports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from perdure.bounds.short_repr import ShortRepr
from perdure.errors import PerdureError
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader

Format = Literal[
    "perdure",
    "pi",
    "claude-code",
    "operator",
    "codex",
    "opencode",
    "gemini-cli",
    "qwen-code",
    "copilot-cli",
    "kimi-cli",
    "openhands",
    "amp",
    "goose",
    "cursor",
    "zed",
    "aider",
    "messages",
]
"""The formats of session files that can be imported."""

FormatName = Literal["auto", Format]
"""The format of a file to import; ``auto`` detects it from the content."""

ExportFormat = Literal[
    "perdure",
    "pi",
    "operator",
    "claude-code",
    "codex",
    "opencode",
    "workflow",
    "markdown",
    "html",
]

Redaction = Literal["secrets", "paths"]
"""Kinds of values that an export can replace."""

Dialect = Literal["perdure", "relavium"]
"""The dialect of an exported workflow: the program that will read it."""


class ImportReport(ShortRepr, frozen=True):
    """The result of an import.

    Shape: `entries` and `messages` count what this import added; they are 0 if the file had nothing
    new. `malformed` are the line numbers of the new lines that could not be read completely;
    `skipped` is the count of these lines. `is_new` is True if the session did not exist before.
    `is_erased` is True if the session or some of its entries were erased and remain erased.
    """

    session: StreamId
    format: str
    entries: int
    messages: int
    skipped: int
    malformed: tuple[int, ...]
    warnings: tuple[str, ...]
    is_new: bool
    is_erased: bool = False


class FileOutcome(ShortRepr, frozen=True):
    """The report or the error of one file, or of one session in a file with several sessions."""

    path: Path
    report: ImportReport | None = None
    error: PerdureError | None = None


class ImportedFiles(ShortRepr, frozen=True):
    """The result of an import of several files.

    Shape: one outcome per file, in the order in which files are read. A file with several sessions
    has one outcome per session.
    """

    files: tuple[FileOutcome, ...]

    @property
    def reports(self) -> tuple[ImportReport, ...]:
        """The reports of the files that were imported."""
        return tuple(each.report for each in self.files if each.report is not None)

    @property
    def errors(self) -> tuple[PerdureError, ...]:
        """The errors of files that were not imported."""
        return tuple(each.error for each in self.files if each.error is not None)

    @property
    def is_ok(self) -> bool:
        """True if there was at least one file, and every file was imported."""
        return bool(self.files) and not self.errors

    @property
    def sessions(self) -> tuple[StreamId, ...]:
        """The sessions of the files, each once."""
        return tuple(dict.fromkeys(report.session for report in self.reports))

    @property
    def entries(self) -> int:
        """The number of entries added."""
        return sum(report.entries for report in self.reports)

    @property
    def messages(self) -> int:
        """The number of messages added."""
        return sum(report.messages for report in self.reports)

    @property
    def skipped_count(self) -> int:
        """The number of new lines that could not be read completely."""
        return sum(report.skipped for report in self.reports)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of all files, each once."""
        return tuple(dict.fromkeys(each for report in self.reports for each in report.warnings))


class ExportedFile(ShortRepr, frozen=True):
    """The result of exporting one session: the file, or the error.

    Shape: `warnings` and `redacted` are the same as in `Exported`. Units: `size_bytes` is in bytes.
    """

    session: StreamId
    path: Path | None = None
    size_bytes: int = 0
    warnings: tuple[str, ...] = ()
    redacted: Mapping[str, int] = {}
    error: PerdureError | None = None


class Lost(msgspec.Struct, frozen=True):
    """A session that was erased; if `is_whole` is False, only some of its entries were erased."""

    session: StreamId
    is_whole: bool = True

    def __str__(self) -> str:
        if self.is_whole:
            return f"session {self.session} was erased"
        return f"entries of session {self.session} were erased"


def still_erased(lost: Lost, format: str) -> ImportReport:
    """Return a report which states that nothing was imported, because `lost` was erased before."""
    warning = f"{lost}; nothing was imported"
    return ImportReport(lost.session, format, 0, 0, 0, (), (warning,), is_new=False, is_erased=True)


def only_copies(session: StreamId, format: str) -> ImportReport:
    """Return a report that nothing was imported, because the file is a copy of `session`."""
    warning = f"perdure wrote this file of session {session}, and it has nothing new"
    return ImportReport(session, format, 0, 0, 0, (), (warning,), is_new=False)


def about(report: ImportReport, subject: str | None, header: StreamHeader) -> ImportReport:
    """Return `report`, with a warning if the subject in `header` differs from `subject`."""
    if subject in (None, header.subject):
        return report
    whom = header.subject or "nobody"
    warning = f"the session was here already, and stays about {whom}: --subject is for new ones"
    return msgspec.structs.replace(report, warnings=(*report.warnings, warning))


class Exported(ShortRepr, frozen=True):
    """A session as a file in one of the export formats.

    `warnings` list the content that the format could not express. Shape: `redacted` counts the
    distinct replaced values by kind.
    """

    session: StreamId
    format: str
    content: bytes
    warnings: tuple[str, ...] = ()
    redacted: Mapping[str, int] = {}
