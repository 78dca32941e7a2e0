"""Find the sessions in a file, a database or a folder; each session becomes one source.

A folder with one file per event is recognized by a file that such a folder always contains. A
database is read in one transaction, and each of its sessions becomes lines of JSON. A text file
with several sessions is split. A session that cannot be read does not stop the import of other
sessions. The modules that read a single session do not depend on this module.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import closing
from fnmatch import fnmatchcase

from perdure.errors import FormatError, PerdureError, UnknownFormat
from perdure.interop.formats.databases.row_lines import DatabaseFormat, session_content
from perdure.interop.formats.registry import FORMATS, SourceFormat
from perdure.interop.formats.sources.content import Content, FileContent
from perdure.interop.formats.sources.database import MAGIC, Database
from perdure.interop.reports import FormatName

_FILE_NAMES = tuple(
    name
    for format in FORMATS.values()
    for name in (*format.file_names, *(format.database.file_names if format.database else ()))
)
"""Name patterns, without ``.jsonl``, of the files in which known programs store sessions."""

_BEGINNING_BYTES = 4_096


def is_known_name(name: str) -> bool:
    """Return whether `name` matches a file name that a known program uses for sessions."""
    return any(fnmatchcase(name, pattern) for pattern in _FILE_NAMES)


def sessions_in(
    content: FileContent, format: FormatName = "auto"
) -> Generator[Content | PerdureError] | None:
    """Return the sessions in `content`, or the error of each unreadable session. This call blocks.

    Shape: the result is None if `content` is itself the file of one session.
    Raises: FormatError if no session can be read. The call itself might not raise the FormatError;
    the generator then raises it when its first session is requested.
    """
    start = content.read(0, _BEGINNING_BYTES)
    if start.startswith(MAGIC):
        return _in_database(content, format)
    for name, known in FORMATS.items():
        is_wanted = format in ("auto", name)
        if known.gather is not None and is_wanted and _is_named(content, known):
            return _in_text([known.gather(content.path)])
        if known.cut is not None and known.is_beginning is not None and known.is_beginning(start):
            return _in_text(known.cut(content)) if is_wanted else None
    return None


def _is_named(content: FileContent, known: SourceFormat) -> bool:
    return any(fnmatchcase(content.path.name, pattern) for pattern in known.file_names)


def _in_text(sections: Iterable[Content]) -> Generator[Content | PerdureError]:
    yield from sections


def _in_database(content: FileContent, format: FormatName) -> Generator[Content | PerdureError]:
    with closing(Database(content.path)) as database:
        known = _format_of(database, content.name, format)
        for id in known.ids(database):
            try:
                yield session_content(database, known, id)
            except PerdureError as error:
                yield error


def _format_of(database: Database, name: str, format: FormatName) -> DatabaseFormat:
    titles: list[str] = []
    for each, known in FORMATS.items():
        if known.database is None:
            continue
        titles.append(known.title)
        if database.has(known.database.tables):
            if format not in ("auto", each):
                raise FormatError(name, f"it is the database of {known.title}, not of {format}")
            return known.database
    raise UnknownFormat(name, f"not a recognized database (supported: {', '.join(titles)})")
