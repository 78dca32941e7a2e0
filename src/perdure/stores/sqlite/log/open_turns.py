"""The open turns of a namespace, read from their own index."""

from __future__ import annotations

from perdure.session.info import OpenTurn
from perdure.stores.access.lease_term import holder_at
from perdure.stores.sqlite.rows import INFO_COLUMNS, Tables, described_row, info_of_row

_OPEN_TURNS = f"""
SELECT {INFO_COLUMNS}, b.header, s.owner, s.until
FROM stream AS s INDEXED BY stream_open_turn CROSS JOIN birth AS b ON b.stream = s.no
WHERE s.namespace = (SELECT no FROM namespace WHERE name = ?) AND s.open_turn IS NOT NULL
    AND s.kind = 'session' AND s.status <> 'erased'
"""  # noqa: S608 - put together from constants


def open_turns(tables: Tables, namespace: str, now: int) -> list[OpenTurn]:
    """Implement ``NamespaceReader.open_turns``."""
    return [
        OpenTurn(described_row(info_of_row(row), row[15]), holder_at(now, row[16], row[17]))
        for row in tables.rows(_OPEN_TURNS, namespace)
    ]
