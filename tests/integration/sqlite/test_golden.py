"""Databases of every schema since the first release: every later version opens them completely.

``schema-N.sqlite`` was written by a program of schema N; ``schema-N.jsonl`` contains its content.
After the release of a schema, neither of its files is ever changed. Schema 11 was never released:
its stores cannot be opened, only copied."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from perdure.apps.maintenance.copy import copy_sessions
from perdure.client.clock import Outside
from perdure.client.open import StoreOpening, open_copied
from perdure.client.store import Store
from perdure.errors import StoreReadOnly, StoreSchemaForeign, StoreTooOld
from perdure.session.ids import StreamId
from perdure.stores.sqlite.maintenance.migration_rehearsal import rehearse_migration
from perdure.stores.sqlite.migrate import UNRELEASED, first_version, latest_version
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.planted import content_of
from tests.fakes.raw_database import raw_database
from tests.integration.sqlite.conftest import Opener

GOLDEN = Path(__file__).parents[2] / "golden" / "sqlite"
OLD = GOLDEN / f"schema-{UNRELEASED}.sqlite"
SCHEMAS = sorted(file for file in GOLDEN.glob("schema-*.sqlite") if file != OLD)
WORD = "canary"
PARTIAL = b'[5,"cGFydGlhbCBjYW5hcnk="]\n'
"""The received part of an unfinished answer: a copy omits it, as it omits leases."""


@pytest.fixture(params=SCHEMAS, ids=lambda file: file.stem)
def golden(request: pytest.FixtureRequest, path: Path) -> Path:
    """A golden database of a released schema, copied to `path`."""
    shutil.copyfile(request.param, path)
    return Path(request.param)


def schema_in(path: Path) -> int:
    with raw_database(path) as db:
        return int(db.pragma("user_version"))


def content(path: Path) -> dict[str, bytes]:
    """Return the files in the folder of `path`, with their content."""
    return {file.name: file.read_bytes() for file in path.parent.iterdir()}


def copied(path: Path) -> StoreOpening:
    return open_copied(f"sqlite:///{path}", namespace="default", lock_timeout_s=60)


async def test_store_of_any_schema_can_be_opened_with_all_content(
    golden: Path, open_store: Opener, path: Path
) -> None:
    store = await open_store()

    assert await content_of(store, WORD) == golden.with_suffix(".jsonl").read_bytes()
    assert (await store.maintenance.verify()).problems == ()
    assert (await store.info()).schema_version == latest_version()
    await store.close()
    assert schema_in(path) == latest_version()


@pytest.mark.usefixtures("golden")
async def test_open_turn_and_alias_survive_migration(open_store: Opener) -> None:
    store = await open_store()

    state = await store.state(StreamId("open"))
    assert (state.open_turn, state.epoch, state.head) == (5, 1, 5)
    assert await store.resolve(StreamId("first"), f"alias-{WORD}") == "first/0"
    assert [turn.info.id for turn in await store.open_turns()] == ["open"]


def test_every_schema_since_first_release_has_golden_files() -> None:
    assert [schema_in(file) for file in (OLD, *SCHEMAS)] == list(
        range(first_version() - 1, latest_version() + 1)
    )


def test_migration_rehearsal_lists_steps_and_changes_nothing(golden: Path, path: Path) -> None:
    before = path.read_bytes()

    plan = rehearse_migration(path)

    assert (plan.current, plan.latest) == (schema_in(golden), latest_version())
    assert len(plan.steps) == plan.latest - plan.current
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("version", [1, UNRELEASED])
async def test_unreleased_schema_is_rejected_and_unchanged(
    version: int, open_store: Opener, path: Path
) -> None:
    shutil.copyfile(OLD, path)
    with raw_database(path) as db:
        db.pragma("user_version", version)
    before = content(path)

    with pytest.raises(StoreTooOld) as refused:
        await open_store()
    with pytest.raises(StoreTooOld):
        rehearse_migration(path)

    assert (refused.value.version, refused.value.first) == (version, first_version())
    assert refused.value.can_be_copied == (version == UNRELEASED)
    assert content(path) == before


async def test_store_of_an_unreleased_schema_can_be_copied_completely(
    open_store: Opener, path: Path
) -> None:
    old = path.with_name("old.db")
    shutil.copyfile(OLD, old)

    async with copied(old) as source:
        backend = await open_store()
        target = Store(backend, Outside(ManualClock(), SeededRandom(2)))
        report = await copy_sessions(source, target)

    assert report.is_whole
    whole = OLD.with_suffix(".jsonl").read_bytes()
    assert await content_of(backend, WORD) == whole.replace(PARTIAL, b"null\n")
    assert (await backend.maintenance.verify()).problems == ()
    assert content(old)[old.name] == OLD.read_bytes()
    async with copied(old) as source:
        with pytest.raises(StoreReadOnly):
            await source.create(id="new")


async def test_older_or_foreign_schema_is_not_copied(path: Path) -> None:
    shutil.copyfile(OLD, path)
    with raw_database(path) as db:
        db.execute("CREATE TRIGGER spy AFTER INSERT ON entry BEGIN SELECT 1; END")
    with pytest.raises(StoreSchemaForeign):
        async with copied(path):
            pass
    shutil.copyfile(SCHEMAS[-1], path)
    with raw_database(path) as db:
        db.pragma("user_version", UNRELEASED)
    with pytest.raises(StoreSchemaForeign):
        async with copied(path):
            pass
    shutil.copyfile(OLD, path)
    with raw_database(path) as db:
        db.pragma("user_version", UNRELEASED - 1)
    with pytest.raises(StoreTooOld):
        async with copied(path):
            pass


async def test_current_store_needs_no_migration_step(open_store: Opener, path: Path) -> None:
    await (await open_store()).close()
    assert rehearse_migration(path).steps == ()


async def test_read_only_store_can_be_opened_if_it_needs_no_migration(
    golden: Path, open_store: Opener, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def may_read(_path: Path, mode: int) -> bool:
        return mode == os.R_OK

    monkeypatch.setattr("os.access", may_read)  # modes do not keep root from writing
    version = schema_in(golden)
    if version == latest_version():
        assert (await (await open_store()).info()).schema_version == version
    else:
        with pytest.raises(StoreReadOnly):
            await open_store()
    assert rehearse_migration(path).current == version
