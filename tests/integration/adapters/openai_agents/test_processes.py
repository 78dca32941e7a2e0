"""Eight processes on one session, and ``kill -9`` at every commit of a run."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

import perdure
from perdure.adapters.openai_agents import PerdureSession
from tests.fakes.forked import run_forked
from tests.fakes.processes import child
from tests.fakes.samples import with_larger
from tests.integration.adapters.conftest import POSTGRES_LATER
from tests.integration.adapters.openai_agents.children import runner
from tests.integration.adapters.openai_agents.children.worker import SESSION

CHILD = Path(__file__).parent / "children" / "worker.py"
EACH = 20
COMMITS = 1 + 3 * runner.TURNS
"""Commits of the whole run: the session; per turn the question, the call and result, the answer."""


def run_all(address: str, roles: list[str]) -> list[list[str]]:
    """Return the report of each process."""
    with ExitStack() as stack:
        children = [
            stack.enter_context(child(CHILD, role, address, f"w{number}", EACH))
            for number, role in enumerate(roles)
        ]
        for each in children:
            each.tell()
        return [each.last_line().split() for each in children]


async def texts_of(session: PerdureSession) -> list[str]:
    return [cast("dict[str, Any]", item)["content"] for item in await session.get_items()]


@POSTGRES_LATER
async def test_concurrent_adds_and_pops_lose_and_repeat_no_item(store_address: str) -> None:
    roles = ["add", "add", "add", "add", "pop", "pop", "pop", "pop"]
    reports = run_all(store_address, roles)
    added = [text for report in reports[:4] for text in report]
    popped = [text for report in reports[4:] for text in report]
    async with perdure.open(store_address) as store:
        kept = await texts_of(PerdureSession(SESSION, store))
        assert (await store.verify()).is_ok
    assert len(added) == 4 * EACH
    assert Counter([*popped, *kept]) == Counter(added)


@POSTGRES_LATER
@pytest.mark.full_only
async def test_item_is_not_popped_twice_during_clears_of_other_processes(
    store_address: str,
) -> None:
    roles = ["add", "add", "add", "pop", "pop", "pop", "clear", "clear"]
    reports = run_all(store_address, roles)
    added = [text for report in reports[:3] for text in report]
    popped = [text for report in reports[3:6] for text in report]
    async with perdure.open(store_address) as store:
        session = PerdureSession(SESSION, store)
        kept = await texts_of(session)
        stored = await store.open(session.stored_id)
        entries = [entry.message for entry in await stored.tree_entries()]
    assert [text for text, times in Counter([*popped, *kept]).items() if times > 1] == []
    assert set(popped) | set(kept) <= set(added)
    assert Counter(message.text for message in entries if message) == Counter(added)


async def items_of(kind: str, folder: Path) -> list[dict[str, Any]]:
    """Return the items of the session."""
    async with runner.session_in(kind, folder, 0) as session:
        items = await session.get_items()
    if kind == "perdure":
        async with perdure.open(f"sqlite:///{folder / 's.db'}") as store:
            assert (await store.verify()).is_ok
    return [cast("dict[str, Any]", item) for item in items]


def without_ids(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in item.items() if key != "id"} for item in items]


@pytest.mark.full_only
@pytest.mark.parametrize("every", with_larger(2, 1), ids=["sample", "all"])
async def test_items_of_a_killed_run_have_no_gaps(tmp_path: Path, every: int) -> None:
    """The same run is killed on a perdure session and on the SDK's own, after commits."""
    kills = range(1, COMMITS + 1, every)
    done = run_forked(runner.run_and_die, str(tmp_path), list(kills))
    codes = done.out.decode().split()
    assert codes[: len(kills) + 2] == ["0", *["-9"] * len(kills), "0"], done.err
    assert set(codes) == {"0", "-9"}, done.err
    whole = without_ids(await items_of("perdure", tmp_path / "perdure" / "0"))
    assert len(whole) == 4 * runner.TURNS
    for kind in runner.KINDS:
        for dies_at in kills:
            folder = tmp_path / kind / str(dies_at)
            items = without_ids(await items_of(kind, folder))
            assert items == whole[: len(items)]
            finished = int((folder / "done").read_text()) if (folder / "done").exists() else 0
            assert len(items) >= 4 * finished
            ran = (folder / "ran").read_text().split() if (folder / "ran").exists() else []
            assert ran == [str(number) for number in range(len(ran))]
            stored = sum(item.get("type") == "function_call_output" for item in items)
            assert len(ran) - stored in (0, 1)
