"""What an import or an export tells about what it did."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader


class ImportReport(msgspec.Struct, frozen=True):
    """What an import did.

    Shape: `entries` and `messages` count what was added this time: 0 where the file held nothing
    new. `malformed` are the numbers of the new lines that could not be read, or not fully;
    `skipped` is how many they are. `is_new` says that the session did not exist before, `is_erased`
    that it was erased and stays so.
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


def still_erased(session: StreamId, format: str) -> ImportReport:
    """Report that `session` was erased before, so that nothing was imported."""
    warning = f"session {session} was erased; nothing was imported"
    return ImportReport(session, format, 0, 0, 0, (), (warning,), is_new=False, is_erased=True)


def about(report: ImportReport, subject: str | None, header: StreamHeader) -> ImportReport:
    """`report`, saying so when the session of `header` is about somebody else than `subject`."""
    if subject in (None, header.subject):
        return report
    whom = header.subject or "nobody"
    warning = f"the session was here already, and stays about {whom}: --subject is for new ones"
    return msgspec.structs.replace(report, warnings=(*report.warnings, warning))


class Exported(msgspec.Struct, frozen=True):
    """A session in some format. `warnings` say what the format could not hold.

    Shape: `redacted` counts the different values that were replaced, by kind.
    """

    session: StreamId
    format: str
    content: bytes
    warnings: tuple[str, ...] = ()
    redacted: Mapping[str, int] = {}
