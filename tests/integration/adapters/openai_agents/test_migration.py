"""Sessions of the SDK's own SQLite file are copied, and only once."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from agents import SQLiteSession
from agents.items import TResponseInputItem

import perdure
from perdure.adapters.openai_agents import PerdureSession, import_sqlite
from perdure.errors import WrongArgument


async def test_sessions_are_copied_and_new_items_later(store_address: str, tmp_path: Path) -> None:
    file = tmp_path / "sdk.db"
    ana, ben = SQLiteSession("ana", file), SQLiteSession("ben b", file)
    first: list[TResponseInputItem] = [{"role": "user", "content": "a"}]
    more: list[TResponseInputItem] = [{"role": "assistant", "content": "b"}]
    await ana.add_items(first)
    await ben.add_items(first)
    async with perdure.open(store_address) as store:
        assert await import_sqlite(file, store) == {"ana": 1, "ben b": 1}
        await ana.add_items(more)
        assert await import_sqlite(file, store) == {"ana": 1, "ben b": 0}
        assert await PerdureSession("ana", store).get_items() == await ana.get_items()
        assert await PerdureSession("ben b", store).get_items() == first
        (message, _) = await (await store.open("oa:ana")).messages()
        assert message.said_at is not None
    ana.close()
    ben.close()


async def test_other_file_is_rejected(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    other.write_text("no database, but long enough to be read as one")
    async with perdure.open("memory:") as store:
        for path in (other, tmp_path / "missing.db"):
            with pytest.raises(WrongArgument):
                await import_sqlite(path, store)
        with pytest.raises(WrongArgument):
            await import_sqlite(other, store, messages_table="a b")


async def test_files_with_the_same_ids_are_both_copied(tmp_path: Path) -> None:
    async with perdure.open("memory:") as store:
        for text in ("of one file", "of another"):
            file = tmp_path / f"{text}.db"
            session = SQLiteSession("ana", file)
            await session.add_items([{"role": "user", "content": text}])
            session.close()
            with closing(sqlite3.connect(file)) as table, table:
                columns = "(session_id, message_data)"
                table.execute(f"INSERT INTO agent_messages {columns} VALUES ('ana', '\"text\"')")
            assert await import_sqlite(file, store) == {"ana": 1}
            assert await import_sqlite(file, store) == {"ana": 0}
        assert len(await PerdureSession("ana", store).get_items()) == 2
