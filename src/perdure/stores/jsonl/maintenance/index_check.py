"""Compare the search index of a folder with the session files, as part of ``verify``.

An entry that is not indexed yet, or was deleted since, is not a fault: the next search updates the
index.
"""

from __future__ import annotations

from collections.abc import Iterator

from perdure.errors import StoreError
from perdure.session.search.parts.pages import DAMAGE
from perdure.stores.jsonl.disk.folder import Stamp
from perdure.stores.jsonl.index import Log
from perdure.stores.jsonl.search.branch_members import BranchMap
from perdure.stores.jsonl.search.file_table import (
    INDEXED,
    Catalogue,
    Known,
    places_of,
    positions_of,
)
from perdure.stores.jsonl.search.index_file import IndexTables, IndexUnusable
from perdure.stores.jsonl.search.indexer import Index
from perdure.stores.jsonl.search.log import FolderLog
from perdure.stores.jsonl.search.scan import FolderScan, log_of
from perdure.stores.jsonl.search.texts import place_in
from perdure.stores.jsonl.session_index import SessionIndex
from perdure.stores.protocol import Problem
from perdure.stores.regular_files import status_of
from perdure.stores.search import index_check
from perdure.stores.search.index_check import REMEDY
from perdure.stores.search.rows import run_now
from perdure.stores.search.sqlite_tables import SqliteReader, text_count
from perdure.stores.verification import Steps


def indexed_texts(index: Index) -> int:
    """Return the number of indexed texts; 0 if the index cannot be read."""
    try:
        with index.file.reading() as tables:
            return text_count(tables, INDEXED)
    except (IndexUnusable, StoreError, *DAMAGE):
        return 0


def index_problems(index: Index, steps: Steps) -> Iterator[Problem]:
    """Yield each difference between the indexed entries and the same entries in the files."""
    try:
        with index.file.reading() as tables:
            catalogue = tables.catalogue()
            if index.feed.goes_on_from(catalogue.feed):
                yield from _differences(index.sessions, tables, catalogue, steps)
    except (IndexUnusable, *DAMAGE) as error:
        text = f"the search index cannot be read ({error}); the next search rebuilds it"
        yield Problem(None, None, text)


def _differences(
    sessions: SessionIndex, tables: IndexTables, catalogue: Catalogue, steps: Steps
) -> list[Problem]:
    logs = {number: _log_of(sessions, known) for number, known in catalogue.by_number.items()}
    there = [known for number, known in catalogue.by_number.items() if logs[number] is not None]
    gone = [number for number, log in logs.items() if log is None]
    scanned = FolderScan(there, [], [], set(gone), 0, is_placed=True)
    log = FolderLog(sessions, tables, catalogue, scanned)
    ignored = frozenset(positions_of(tables, gone))
    reader = SqliteReader(tables, INDEXED)
    problems = run_now(index_check.index_problems(reader, log, steps, ignored))
    for known in there:
        own = logs[known.number]
        if own is not None:
            problems += _of_session(tables, known, own)
    return problems


def _log_of(sessions: SessionIndex, known: Known) -> Log | None:
    """Return the log of the session if its file still contains the indexed entries."""
    path = sessions.folder.path / known.name
    try:
        is_there = known.begins(path, Stamp.of(status_of(path)))
    except OSError:
        return None
    return log_of(sessions, known, path) if is_there else None


def _of_session(tables: IndexTables, known: Known, log: Log) -> Iterator[Problem]:
    for place in places_of(tables, known.number):
        is_indexed = 0 <= place.seq < known.count
        if not is_indexed or place != place_in(log, place.seq, known.number):
            text = f"its place in its file differs in the search index; {REMEDY}"
            yield Problem(known.stream, place.seq if is_indexed else None, text)
    if known.branching != BranchMap().grown(log.rows, 0, known.count):
        text = f"its branches differ in the search index; {REMEDY}"
        yield Problem(known.stream, None, text)
    if (known.created_at, known.subject) != (log.header.created_at, log.header.subject):
        yield Problem(known.stream, None, f"its header differs in the search index; {REMEDY}")
