"""``kill -9`` during an erasure: the erasure had no effect, or the next opening completes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import SessionNotFound
from perdure.session.info import StreamHeader
from perdure.stores.session_store import SessionStore
from tests.conformance.store.building import create, fork, said
from tests.crash.children import eraser
from tests.crash.children.eraser import erase, opened
from tests.fakes.clock import START_MS
from tests.fakes.forked import preload, run_forked
from tests.fakes.leaks import leaks_in, pages_with
from tests.fakes.parts import make_parts_of_few_texts
from tests.fakes.planted import FIRST, FLOW, OPEN, PATH_FORK, TREE_FORK, plant
from tests.fakes.samples import EACH_KILL, EACH_KILL_OF_MANY

preload(eraser.__name__)

WORD = "canary7f3a9c"
OTHERS = (FLOW, OPEN)


async def fill(store: SessionStore) -> None:
    """Fill every table. A backend without flows and shared forks gets sessions only."""
    if store.capabilities.pointer_fork:
        await plant(store, WORD)
        return
    await create(store, StreamHeader(FIRST, START_MS, title=WORD), said(WORD, alias="a"))
    await fork(store, FIRST, TREE_FORK, said(WORD))
    await fork(store, FIRST, PATH_FORK, said(WORD))
    for other in OTHERS:
        await create(store, other, said("stays"))


async def has_begun(backend: str, place: Path) -> bool:
    """Open the store; return whether the session is erased, and check that no part remains."""
    store = await opened(backend, place)
    try:
        assert (await store.maintenance.verify()).problems == ()
        begun = [certificate.is_complete for certificate in await store.retention.erasures()]
        assert begun in ([], [True])
        try:
            state = await store.state(FIRST)
        except SessionNotFound:
            assert begun
            return True
        assert (state.info.status == "erased") == bool(begun)
        assert (await store.entries(FIRST))[0].is_erased == bool(begun)
        return bool(begun)
    finally:
        await store.close()


async def erase_for_good(backend: str, place: Path, pages: list[bytes]) -> None:
    """Erase again, as a program that lost the certificate does; then erase all other sessions."""
    store = await opened(backend, place)
    certificate = await erase(store, "e2")
    assert certificate.is_complete
    assert {each.session for each in certificate.sessions} == {FIRST, TREE_FORK, PATH_FORK}
    assert (await store.maintenance.verify()).problems == ()
    for other in OTHERS:
        assert (await store.state(other)).info.status == "active"
        await erase(store, f"rest-{other}", other)
    await store.close()
    assert leaks_in(place, WORD, pages) == []


def killed_at_each(backend: str, folder: Path, step: int) -> list[Path]:
    """Kill an erasure at every `step`-th operation; return the store as each kill left it."""
    assert run_forked(eraser.kill_at_each, backend, folder, step).code == 0
    return sorted(place for place in folder.iterdir() if place.name != "original")


@pytest.mark.timeout(400)
@EACH_KILL_OF_MANY
async def test_erasure_from_sqlite_survives_kill_at_each_step(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await require_survival("sqlite", tmp_path, step, monkeypatch)


@pytest.mark.timeout(400)
@EACH_KILL
async def test_erasure_from_session_files_survives_kill_at_each_step(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await require_survival("jsonl", tmp_path, step, monkeypatch)


async def require_survival(
    backend: str, tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_parts_of_few_texts(monkeypatch)
    original = tmp_path / "original"
    original.mkdir()
    store = await opened(backend, original)
    await fill(store)
    await store.search.reindex()
    await store.close()
    pages = pages_with(original, WORD)
    assert pages
    assert leaks_in(original, WORD)

    places = killed_at_each(backend, tmp_path, step)

    found: list[bool] = []
    for place in places:
        found.append(await has_begun(backend, place))
        await erase_for_good(backend, place, pages)
    assert len(places) > 2
    assert found == sorted(found)  # first it has not begun, then it is finished on opening
    assert found[-1]
