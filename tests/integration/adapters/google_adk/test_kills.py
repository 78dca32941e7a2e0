"""``kill -9`` at every commit of a run, with perdure's service and with the ADK's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.adk.events import Event

import perdure
from tests.fakes.forked import run_forked
from tests.fakes.samples import with_larger
from tests.integration.adapters.google_adk.children import runner

COMMITS = 2 + 4 * runner.TURNS
"""Commits of the whole run: creation, shared state, and four events per turn."""


async def read(kind: str, folder: Path) -> tuple[list[Event], dict[str, Any]]:
    """Return the events and the state of the session; nothing if the session was not created."""
    async with runner.service_in(kind, folder, 0) as service:
        session = await service.get_session(**runner.NAMES)
    if kind == "perdure":
        async with perdure.open(f"sqlite:///{folder / 's.db'}") as store:
            assert (await store.verify()).is_ok
    return ([], {}) if session is None else (session.events, session.state)


def shown(events: list[Event]) -> list[tuple[str, str]]:
    return [(each.author, str(each.content and each.content.parts)) for each in events]


def without_ids(events: list[Event]) -> list[tuple[str, str]]:
    for event in events:
        for each in [*event.get_function_calls(), *event.get_function_responses()]:
            each.id = None
    return shown(events)


@pytest.mark.all_only
@pytest.mark.parametrize(
    "every",
    with_larger(7, 1),
    ids=["sample", "all"],
)
async def test_events_of_a_killed_run_have_no_gaps(tmp_path: Path, every: int) -> None:
    kills = range(1, COMMITS + 1, every)
    done = run_forked(runner.run_and_die, str(tmp_path), list(kills))
    codes = done.out.decode().split()
    assert codes[: len(kills) + 1] == ["0", *["-9"] * len(kills)], done.err
    whole = without_ids((await read("perdure", tmp_path / "perdure" / "0"))[0])
    assert len(whole) == 4 * runner.TURNS
    for kind in runner.KINDS:
        for dies_at in kills:
            folder = tmp_path / kind / str(dies_at)
            events, state = await read(kind, folder)
            assert without_ids(events) == whole[: len(events)]
            finished = int((folder / "done").read_text()) if (folder / "done").exists() else 0
            assert len(events) >= 4 * finished
            counted = sum(bool(event.get_function_responses()) for event in events)
            ran = (folder / "ran").read_text().split() if (folder / "ran").exists() else []
            assert ran == [str(number + 1) for number in range(len(ran))]
            assert len(ran) - counted in (0, 1)
            if state:
                assert {state[key] for key in ("n", "user:n", "app:n")} == {counted}
