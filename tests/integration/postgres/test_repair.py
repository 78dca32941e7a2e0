"""Repair of a damaged database: readable data is copied elsewhere, losses are reported."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from perdure.apps.maintenance.repair import repair_store
from perdure.client.open import open as open_by_address
from perdure.client.store import Store
from perdure.errors import ConfigError, StoreExists, Unsupported
from perdure.session.messages import assistant, user
from perdure.stores.maintenance.protocol import RepairReport
from tests.fakes.postgres import PostgresServer, serving
from tests.fakes.samples import sampled

Held = dict[str, tuple[str, bytes]]

TURNS = 12


async def filled(address: str) -> None:
    async with open_by_address(address) as store:
        for number in range(2):
            session = await store.create(id=f"s{number}", title=f"title {number}")
            for turn in range(TURNS):
                text = f"{number} {turn} " + os.urandom(turn * 700 % 9_000).hex()
                await session.append(user(text), assistant(f"answer {text}"))
        first = await store.open("s0")
        forked = await first.fork(at=(await first.path())[9].id)
        await forked.append(user("in the fork"))
        await first.branch((await first.path())[5].id)
        await first.append(user("another branch"))


async def held(store: Store) -> Held:
    """Return every entry by its id."""
    backend = store.backend
    return {
        entry.id: (entry.kind, entry.body)
        for each in await backend.maintenance.segment_states()
        for entry in await backend.entries(each.stream)
    }


async def content(address: str) -> Held:
    async with open_by_address(address) as store:
        return await held(store)


@pytest.fixture
def place(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'repaired.db'}"


def execute(address: str, statement: str) -> None:
    with psycopg.connect(address, autocommit=True) as db:
        db.execute("SET row_security = off")
        db.execute("SET session_replication_role = replica")  # no trigger stands in the way
        db.execute(statement.encode())


async def check_repaired(place: str, before: Held, done: RepairReport) -> None:
    """Check that the store is valid, and has all content except the reported losses."""
    lost = {f"{loss.stream}/{loss.seq}" for loss in done.losses if loss.seq is not None}
    of_commits = [loss for loss in done.losses if "hash of its commit" in loss.problem]
    lost |= {f"{loss.stream}/{(loss.seq or 0) + 1}" for loss in of_commits}  # each has two entries
    async with open_by_address(place) as store:
        assert (await store.backend.maintenance.verify()).problems == ()
        after = await held(store)
    assert before.keys() <= after.keys()
    assert {id_ for id_, entry in before.items() if after[id_] != entry} <= lost


DAMAGE = {
    "a body changed": "UPDATE perdure.entry SET body = '{}' WHERE stream = 's1' AND seq = 4",
    "a digest changed": r"UPDATE perdure.entry SET digest = '\x00' WHERE stream = 's1' AND seq = 4",
    "a salt gone": "UPDATE perdure.entry SET salt = NULL WHERE stream = 's1' AND seq = 4",
    "an entry gone": "DELETE FROM perdure.entry WHERE stream = 's1' AND seq = 4",
    "entries of several": "DELETE FROM perdure.entry WHERE seq IN (2, 3)",
    "an origin's entry gone": "DELETE FROM perdure.entry WHERE stream = 's0' AND seq = 9",
    "the last gone": "DELETE FROM perdure.entry WHERE stream = 's1' AND seq > 20",
    "a commit's end gone": "UPDATE perdure.entry SET chain = NULL WHERE stream = 's1' AND seq = 5",
    "a chain changed": r"UPDATE perdure.entry SET chain = '\x11' WHERE stream = 's1' AND seq = 5",
    "a kind changed": "UPDATE perdure.entry SET kind = 'opaque' WHERE stream = 's1' AND seq = 5",
    "a parent changed": "UPDATE perdure.entry SET ref = 1 WHERE stream = 's1' AND seq = 5",
    "a parent from nowhere": "UPDATE perdure.entry SET ref = 99 WHERE stream = 's1' AND seq = 5",
    "a header damaged": "UPDATE perdure.birth SET header = '{' WHERE stream = 's1'",
    "a header gone": "DELETE FROM perdure.birth WHERE stream = 's1'",
    "a standing gone": "DELETE FROM perdure.stream WHERE id = 's1'",
    "its info damaged": "UPDATE perdure.stream SET info = '{' WHERE id = 's1'",
    "a genesis changed": r"UPDATE perdure.birth SET genesis = '\x22' WHERE stream = 's1'",
    "an origin gone": "DELETE FROM perdure.entry WHERE stream = 's0'",
}


RECOVERED = {DAMAGE["a standing gone"], DAMAGE["its info damaged"]}
"""Data beside the entries that is recomputed from them."""


NAMES = {damage: name for name, damage in DAMAGE.items()}


@sampled("damage", list(DAMAGE.values()), kind=type, each=9, ids=NAMES.__getitem__)
async def test_repair_keeps_readable_entries_and_reports_lost_entries(
    address: str, place: str, damage: str
) -> None:
    await filled(address)
    before = await content(address)
    execute(address, damage)

    done = await repair_store(address, to=place)

    assert done.is_damaged
    assert done.losses or damage in RECOVERED
    gone = {name for name in before if name.startswith("s0/") and "stream = 's0'" in damage}
    await check_repaired(place, {k: v for k, v in before.items() if k not in gone}, done)


async def test_repair_leaves_valid_store_unchanged(
    address: str, place: str, tmp_path: Path
) -> None:
    await filled(address)
    done = await repair_store(address, to=place)

    assert not done.is_damaged
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - a path would block just as well


async def test_repair_requires_empty_target(address: str, place: str) -> None:
    await filled(address)
    execute(address, DAMAGE["a body changed"])
    with pytest.raises(ConfigError, match="name that store"):
        await repair_store(address)
    await filled(place)
    with pytest.raises(StoreExists):
        await repair_store(address, to=place)
    with pytest.raises(Unsupported):
        await repair_store("memory:", to=place)


async def test_repair_copies_only_named_namespace(address: str, place: str) -> None:
    await filled(address)
    async with open_by_address(address, namespace="other") as store:
        await (await store.create(id="theirs")).append(user("private"))
    execute(address, DAMAGE["a body changed"])

    await repair_store(address, to=place)

    assert not [name for name in await content(place) if name.startswith("theirs")]


# ---------------------------------------------------------------- rows the server cannot read


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    with serving(is_own=True) as server:
        yield server


async def test_repair_with_an_unreadable_row_keeps_all_other_rows(
    own_server: PostgresServer, place: str
) -> None:
    address = own_server.new_database()
    await filled(address)
    before = await content(address)
    file = await asyncio.to_thread(file_of_long_bodies, address)
    await asyncio.to_thread(own_server.kill)
    whole = bytearray(file.read_bytes())
    assert len(whole) > 3 * 8_192
    whole[8_192 : 2 * 8_192] = bytes(8_192)
    file.write_bytes(whole)
    await asyncio.to_thread(own_server.start)

    done = await repair_store(address, to=place)

    assert 0 < len([loss for loss in done.losses if loss.problem == "it is gone"]) < 20
    await check_repaired(place, before, done)


def file_of_long_bodies(address: str) -> Path:
    """Return the server's file with bodies that are too long for their rows, written to disk."""
    with closing(psycopg.connect(address, autocommit=True)) as db:
        db.execute("CHECKPOINT")
        row: Any = db.execute(
            "SELECT current_setting('data_directory'), pg_relation_filepath(reltoastrelid) "
            "FROM pg_class WHERE oid = 'perdure.entry'::regclass"
        ).fetchone()
    return Path(*row)
