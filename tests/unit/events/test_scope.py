"""The current scope, as used by spans and log lines."""

from __future__ import annotations

import asyncio

from perdure.events.scope import scope, within


def test_inner_event_scope_extends_the_outer_scope() -> None:
    with within(flow="f", role="writer", node=None):
        with within(session="s", turn=3):
            assert scope() == {"flow": "f", "role": "writer", "session": "s", "turn": 3}
        assert scope() == {"flow": "f", "role": "writer"}
    assert scope() == {}


async def test_tasks_started_in_a_scope_block_inherit_the_scope() -> None:
    async def task(name: str) -> object:
        with within(turn=name):
            await asyncio.sleep(0)
            return dict(scope())

    with within(session="s"):
        found = await asyncio.gather(task("a"), task("b"))
    assert found == [{"session": "s", "turn": "a"}, {"session": "s", "turn": "b"}]
    assert scope() == {}
