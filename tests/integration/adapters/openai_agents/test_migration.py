"""Sessions of the SDK's own SQLite file are copied, and only once."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession, SQLAlchemySession
from agents.items import TResponseInputItem

import perdure
from perdure.adapters.openai_agents import PerdureSession, copy_session, import_sqlite
from perdure.errors import WrongArgument


async def test_second_import_copies_only_new_items(store_address: str, tmp_path: Path) -> None:
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


async def test_file_that_is_not_a_session_database_is_rejected(tmp_path: Path) -> None:
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


def said(*texts: str) -> list[TResponseInputItem]:
    return [{"role": "user", "content": text} for text in texts]


async def copied_from_sqlalchemy(url: str, address: str) -> None:
    source = SQLAlchemySession.from_url(
        "ana", url=url, create_tables=True, session_settings={"limit": 1}
    )
    await source.add_items(said("a", "b", "a"))
    async with perdure.open(address) as store:
        target = PerdureSession("ana", store)
        assert await copy_session(source, target) == 3
        await source.add_items(said("c"))
        assert await copy_session(source, target) == 1
        assert await target.get_items() == said("a", "b", "a", "c")
    await source.engine.dispose()


async def test_sqlalchemy_session_on_sqlite_is_copied_once(tmp_path: Path) -> None:
    file = tmp_path / "sdk.db"
    await copied_from_sqlalchemy(f"sqlite+aiosqlite:///{file}", f"sqlite:///{tmp_path / 'p.db'}")
    async with perdure.open("memory:") as store:
        assert await import_sqlite(file, store) == {"ana": 4}


@pytest.mark.full_only
async def test_sqlalchemy_session_on_postgres_is_copied_once(postgres: Any, tmp_path: Path) -> None:
    address: str = postgres.take()
    url = address.replace("postgresql://", "postgresql+psycopg://", 1)
    await copied_from_sqlalchemy(url, f"sqlite:///{tmp_path / 'p.db'}")
    postgres.give_back(address)


async def test_only_the_current_branch_of_an_sdk_session_is_copied(tmp_path: Path) -> None:
    file = tmp_path / "sdk.db"
    source = AdvancedSQLiteSession(session_id="ana", db_path=file, create_tables=True)
    await source.add_items(said("a", "b"))
    await source.create_branch_from_turn(2)
    await source.add_items(said("c"))
    async with perdure.open("memory:") as store:
        target = PerdureSession("ana", store)
        assert await copy_session(source, target) == len(await source.get_items())
        assert await target.get_items() == await source.get_items() == said("a", "c")
    source.close()
