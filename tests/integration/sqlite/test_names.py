"""The index of name parts in a file: updated with names, added to old files, erased completely."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.session.codec import new_side
from perdure.session.ids import StreamId
from perdure.session.notes import SessionInfoChanged
from perdure.stores.sqlite.log import lists
from perdure.stores.sqlite.rows import Tables
from tests.conformance.store.building import (
    append,
    create,
    erasure,
    header,
    said,
    said_to_old_version,
)
from tests.fakes.raw_database import raw_database
from tests.integration.sqlite.conftest import Opener
from tests.integration.sqlite.test_neighbours import steps_of

S = StreamId("s")
TITLE = "Canary 7f3a9c of Zanzibar"


@pytest.fixture
def named() -> Iterator[list[str]]:
    """The statements about name parts that any opened connection runs."""
    found: list[str] = []

    def note(event: dict[str, Any]) -> None:
        if "name_part" in event["sql"]:
            found.append(event["sql"].split()[0])

    def hook(db: Any) -> None:
        db.trace_v2(apsw.SQLITE_TRACE_STMT, note)

    apsw.connection_hooks.append(hook)
    yield found
    apsw.connection_hooks.remove(hook)


async def test_append_without_a_name_change_writes_nothing_to_the_name_index(
    named: list[str], open_store: Opener
) -> None:
    store = await open_store()
    await create(store, S, said("first words"))
    assert set(named) >= {"INSERT"}
    named.clear()
    for number in range(10):
        await append(store, S, said(f"more {number}"))
    await append(store, S, new_side(SessionInfoChanged(cwd="/elsewhere")))
    assert named == []
    await append(store, S, new_side(SessionInfoChanged(title="first word")))
    assert sorted(set(named)) == ["DELETE", "INSERT"]


@pytest.mark.parametrize("how", ["erased", "renamed and erased", "removed"])
async def test_erased_name_is_removed_from_the_name_index_and_the_file(
    how: str, open_store: Opener, path: Path
) -> None:
    store = await open_store()
    await create(store, header("s", title=TITLE), said("hello"))
    for number in range(60):  # pages that are split and joined around its parts
        await create(store, header(f"other{number}", title=f"Canoe {number} of Zagreb"))
    if how == "renamed and erased":
        await append(store, S, new_side(SessionInfoChanged(title="Zanzibar 7f3a9c Canary")))
    if how == "removed":
        assert await store.retention.remove(S)
    else:
        await store.retention.erase(erasure("s"))
    assert (await store.maintenance.verify()).problems == ()
    await store.close()
    folded = TITLE.casefold()
    pieces = {folded[at : at + 5].encode() for at in range(len(folded) - 4)}
    common = {piece for piece in pieces if piece in b"canoe of zagreb"}
    content = b"".join(file.read_bytes() for file in path.parent.iterdir() if file.is_file())
    left = {piece for piece in pieces - common if piece in content}
    assert {piece for piece in left if piece.strip() not in b" of z"} == set()


async def test_erasure_removes_an_api_key_that_an_old_version_indexed(
    open_store: Opener, path: Path
) -> None:
    store = await open_store()
    await create(store, S)
    await said_to_old_version(store, "use sk-ant-api03-QRSTUVWXYZabcdefghij please")
    with raw_database(path) as reader:
        assert (b"qrstuvwx",) in set(reader.execute("SELECT part FROM name_part"))
        await store.retention.erase(erasure("s"))
        assert list(reader.execute("SELECT part FROM name_part")) == []


async def test_list_with_id_prefix_reads_only_matching_sessions(
    open_store: Opener, path: Path
) -> None:
    store = await open_store()
    for number in range(400):
        await create(store, f"s{number:03}")
    found = {
        prefix: await store.sessions(limit=None, id_prefix=prefix)
        for prefix in ("s39", "s3", "zz", "\ud800")
    }
    assert [info.id for info in found["s39"]] == [f"s{number}" for number in range(399, 389, -1)]
    assert [len(infos) for infos in found.values()] == [10, 100, 0, 0]
    assert [info.id for info in await store.sessions(id_prefix="s", limit=2)] == ["s399", "s398"]

    def listed(prefix: str | None) -> Callable[[Tables], object]:
        return lambda tables: lists.sessions(tables, "default", limit=None, id_prefix=prefix)

    whole = steps_of(path, listed(None))
    assert steps_of(path, listed("zz")) * 10 < whole
    assert steps_of(path, listed("s39")) * 8 < whole
