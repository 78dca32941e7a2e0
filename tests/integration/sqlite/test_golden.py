"""Databases as every released schema left them: they open, and hold what they held, for ever.

``schema-N.sqlite`` was written under schema 1, by the program of that time, and brought to schema N
by its migrations; ``schema-N.jsonl`` is what could be read of it. Neither is ever changed.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from perdure.errors import StoreReadOnly
from perdure.session.ids import StreamId
from perdure.stores.sqlite.maintenance.migration_rehearsal import rehearse_migration
from perdure.stores.sqlite.migrate import latest_version
from tests.fakes.planted import content_of
from tests.fakes.raw_database import raw_database
from tests.integration.sqlite.conftest import Opener

GOLDEN = Path(__file__).parents[2] / "golden" / "sqlite"
SCHEMAS = sorted(GOLDEN.glob("schema-*.sqlite"))
WORD = "canary"


@pytest.fixture(params=SCHEMAS, ids=lambda file: file.stem)
def golden(request: pytest.FixtureRequest, path: Path) -> Path:
    """A golden database, copied to `path`."""
    shutil.copyfile(request.param, path)
    return Path(request.param)


def schema_in(path: Path) -> int:
    with raw_database(path) as db:
        return int(db.pragma("user_version"))


async def test_store_of_any_schema_opens_with_all_content(
    golden: Path, open_store: Opener, path: Path
) -> None:
    store = await open_store()

    assert await content_of(store, WORD) == golden.with_suffix(".jsonl").read_bytes()
    assert (await store.verify()).problems == ()
    assert (await store.info()).schema_version == latest_version()
    await store.close()
    assert schema_in(path) == latest_version()


async def test_open_turn_and_alias_survive_migration(
    golden: Path, open_store: Opener, path: Path
) -> None:
    store = await open_store()

    state = await store.state(StreamId("open"))
    assert (state.open_turn, state.epoch, state.head) == (5, 1, 5)
    assert await store.resolve(StreamId("first"), f"alias-{WORD}") == "first/0"
    await store.close()
    with raw_database(path) as db:
        indexes = db.execute("SELECT name FROM sqlite_master WHERE type = 'index'").fetchall()
    assert ("alias_name",) in indexes
    assert [turn.info.id for turn in await (await open_store()).open_turns()] == ["open"]


def test_golden_files_have_schema_of_their_name() -> None:
    assert [schema_in(file) for file in SCHEMAS] == list(range(1, len(SCHEMAS) + 1))


def test_migration_rehearsal_lists_steps_and_changes_nothing(golden: Path, path: Path) -> None:
    before = path.read_bytes()

    plan = rehearse_migration(path)

    assert (plan.current, plan.latest) == (schema_in(golden), latest_version())
    assert len(plan.steps) == plan.latest - plan.current
    assert plan.steps[0].startswith(f"schema {plan.current + 1}: ")
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


async def test_current_store_needs_no_migration_step(open_store: Opener, path: Path) -> None:
    await (await open_store()).close()
    assert rehearse_migration(path).steps == ()


async def test_read_only_old_store_is_rejected_but_can_be_rehearsed(
    golden: Path, open_store: Opener, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def may_read(_path: Path, mode: int) -> bool:
        return mode == os.R_OK

    monkeypatch.setattr("os.access", may_read)  # modes do not keep root from writing
    with pytest.raises(StoreReadOnly):
        await open_store()
    assert rehearse_migration(path).current == schema_in(golden)
