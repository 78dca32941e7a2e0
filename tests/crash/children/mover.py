"""Move a session, change its variables and fork it; die (SIGKILL) at one of its commits."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import perdure
from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.conversation.workspace import Workspace
from perdure.errors import SessionExists
from tests.crash.children.invoker import dying
from tests.fakes.players import Players

AGENT = Agent("mover", model="p:main", instructions="In {{ctx.working_dir}} for {{ctx.shop}}.")


def run(file: str, first: str, second: str, dies_at: int) -> None:
    """Continue the move from `first` to `second`; die at the commit `dies_at` (0: never)."""
    asyncio.run(_run(file, first, second, dies_at))


async def _run(file: str, first: str, second: str, dies_at: int) -> None:
    async with perdure.open(f"sqlite:///{file}") as store:
        dying(store, dies_at)
        async with Runtime(store, [AGENT], models=Players()) as runtime:
            place = Workspace(first, variables={"shop": "tea"})
            with suppress(SessionExists):
                await runtime.start(AGENT, workspace=place, id="s")
            chat = await runtime.resume("s")
            if chat.turn is not None:
                await chat.turn
            chat = await runtime.resume("s", workspace=Workspace(second))
            await chat.send("hi", variables={"shop": "milk"})
            with suppress(SessionExists):
                await chat.session.fork(cwd=first, id="f")
