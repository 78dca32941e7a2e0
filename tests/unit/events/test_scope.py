"""Whose work is being done, as spans and log lines are told."""

from __future__ import annotations

import asyncio

from perdure.events.scope import scope, within


def test_what_is_said_within_adds_to_what_is_said_around_and_ends_with_the_block() -> None:
    with within(flow="f", role="writer", node=None):
        with within(session="s", turn=3):
            assert scope() == {"flow": "f", "role": "writer", "session": "s", "turn": 3}
        assert scope() == {"flow": "f", "role": "writer"}
    assert scope() == {}


async def test_tasks_begun_within_know_it_and_tell_nobody_else() -> None:
    async def task(name: str) -> object:
        with within(turn=name):
            await asyncio.sleep(0)
            return dict(scope())

    with within(session="s"):
        found = await asyncio.gather(task("a"), task("b"))
    assert found == [{"session": "s", "turn": "a"}, {"session": "s", "turn": "b"}]
    assert scope() == {}
