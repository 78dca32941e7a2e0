"""Figures of a database file: the size of a namespace, and the use of the pages."""

from __future__ import annotations

from pathlib import Path

from perdure.session.ids import StreamId
from perdure.session.info import one_line
from perdure.stores.maintenance.stats import (
    FileFigures,
    Growth,
    NamespaceFigures,
    StoreFigures,
    StreamSize,
    figures_of,
)
from perdure.stores.sqlite.log.spans import END
from perdure.stores.sqlite.rows import Tables, namespace_no

_SIZES = f"""
SELECT s.id, s.kind, coalesce(s.title, s.first_text, ''), b.origin IS NOT NULL,
    coalesce(c.entries, 0), coalesce(c.bytes, 0)
FROM stream AS s JOIN birth AS b ON b.stream = s.no LEFT JOIN (
    SELECT e.stream, count(*) AS entries, sum(length(e.body)) AS bytes
    FROM span AS a CROSS JOIN entry AS e NOT INDEXED ON e.n >= a.first AND e.n < {END}
    WHERE a.namespace = ?1 GROUP BY e.stream
) AS c ON c.stream = s.no
WHERE s.namespace = ?1
"""  # noqa: S608 - put together from constants

_GROWTH = f"""
SELECT c.at, c.count, sum(length(e.body))
FROM span AS a CROSS JOIN commits AS c ON c.first >= a.first AND c.first < {END}
CROSS JOIN entry AS e ON e.n >= c.first AND e.n < c.first + c.count
CROSS JOIN stream AS s ON s.no = e.stream
WHERE a.namespace = ?1 AND s.namespace = ?1 AND c.at >= ?2
GROUP BY c.first
"""  # noqa: S608 - put together from constants

_CONTENTS = """
SELECT count(*), coalesce(sum(size), 0) FROM blob WHERE namespace = ?
"""

_PAGES = """
SELECT CASE WHEN d.name LIKE 'search%' THEN 'search'
    WHEN m.type = 'index' THEN 'indexes' ELSE 'tables' END, sum(d.pgsize)
FROM dbstat AS d LEFT JOIN sqlite_schema AS m ON m.name = d.name
WHERE d.aggregate = TRUE GROUP BY 1
"""


def measure(tables: Tables, path: Path, since: int, namespace: str) -> StoreFigures:
    """Implement ``MaintenanceService.measure`` for `namespace`.

    The page counts cover the whole file.
    """
    found = _namespace(tables, namespace, since)
    return StoreFigures(f"sqlite:///{path}", (found,), _file(tables, path))


def _namespace(tables: Tables, name: str, since: int) -> NamespaceFigures:
    sizes, growth = sizes_and_growth(tables, name, since)
    number = namespace_no(tables, name)
    contents = tables.row(_CONTENTS, number) or (0, 0)
    return figures_of(name, sizes, growth.days, (contents[0], contents[1]))


def sizes_and_growth(tables: Tables, name: str, since: int) -> tuple[list[StreamSize], Growth]:
    """Return the size of each stream of the namespace, and the growth since `since`."""
    number = namespace_no(tables, name)
    sizes = [
        StreamSize(StreamId(row[0]), row[1], one_line(row[2]) or "", bool(row[3]), row[4], row[5])
        for row in tables.rows(_SIZES, number)
    ]
    growth = Growth(since)
    for row in tables.rows(_GROWTH, number, since):
        growth.add(row[0], row[1], row[2])
    return sizes, growth


def _file(tables: Tables, path: Path) -> FileFigures:
    used = {row[0]: int(row[1]) for row in tables.rows(_PAGES)}
    page_bytes = int(tables.value("PRAGMA page_size"))
    log = path.with_name(path.name + "-wal")
    return FileFigures(
        file=page_bytes * int(tables.value("PRAGMA page_count")),
        tables=used.get("tables", 0),
        indexes=used.get("indexes", 0),
        search=used.get("search", 0),
        free=page_bytes * int(tables.value("PRAGMA freelist_count")),
        log=log.stat().st_size if log.exists() else 0,
    )
