"""Copies sessions from the SDK's own stores into a store."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

import perdure
from perdure.adapters.openai_agents.session import PerdureSession
from perdure.errors import WrongArgument

if TYPE_CHECKING:
    from agents.items import TResponseInputItem
    from agents.memory import Session

_TABLE = re.compile(r"\w{1,128}", re.ASCII)

_EVERY = 2**31 - 1
"""A limit above the size of any session; without a limit, the session's own limit would apply."""

_Row = tuple[int, str, str, str]
"""The id, session id, JSON and time of an item."""


async def import_sqlite(
    path: str | Path,
    store: perdure.Store | perdure.blocking.Store,
    *,
    messages_table: str = "agent_messages",
) -> dict[str, int]:
    """Copy the sessions in a file of `SQLiteSession`; return the number of new items by session.

    Repeating the call adds only new items. Rows that are not JSON objects are skipped.
    Durable: each item is stored before the next item is read.
    Raises: WrongArgument if the file is missing or does not contain the SDK's tables.
    """
    rows = await asyncio.to_thread(_read, Path(path), messages_table)
    added: dict[str, int] = {}
    sessions: dict[str, PerdureSession] = {}
    for number, session_id, text, written_at in rows:
        try:
            item = json.loads(text)
        except ValueError:
            continue
        if not isinstance(item, dict):
            continue
        session = sessions.setdefault(session_id, PerdureSession(session_id, store))
        moment = datetime.fromisoformat(written_at).replace(tzinfo=UTC)
        key = f"sqlite:{number}:{hashlib.sha256(text.encode()).hexdigest()}"  # rows of any file
        is_new = await session.add_items_once(
            [cast("TResponseInputItem", item)], key, said_at=moment
        )
        added[session_id] = added.get(session_id, 0) + is_new
    return added


async def copy_session(source: Session, target: PerdureSession) -> int:
    """Copy the items of any SDK session, such as `SQLAlchemySession`; return the number copied.

    Repeating the call copies only items that were added at the end of `source` since the last copy.
    If the session has branches, only its current branch is copied.
    Durable: all items are stored when this call returns.
    """
    copied = 0
    for number, item in enumerate(await source.get_items(_EVERY)):
        text = json.dumps(item, sort_keys=True)
        key = f"copy:{number}:{hashlib.sha256(text.encode()).hexdigest()}"
        copied += await target.add_items_once([item], key)
    return copied


def _read(path: Path, table: str) -> list[_Row]:
    if not path.is_file():
        raise WrongArgument(f"{path} is not a file", argument="path")
    if not _TABLE.fullmatch(table):
        raise WrongArgument(f"{table!r} is not the name of a table", argument="messages_table")
    columns = "id, session_id, message_data, created_at"
    query = f"SELECT {columns} FROM {table} ORDER BY id"  # noqa: S608 - word characters only
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as file:
            return file.execute(query).fetchall()
    except sqlite3.DatabaseError as error:
        reason = f"{path} is not a file of SQLiteSession: {error}"
        raise WrongArgument(reason, argument="path") from error
