"""A session that moves, gets variables with a message and is forked, killed at one of its commits.

Arguments: the store's file, the folders that it moves between, and at which commit to die (0:
never). What is done already is not done again.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

import perdure
from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.conversation.workspace import Workspace
from perdure.errors import SessionExists
from tests.crash.children.invoker import dying
from tests.fakes.players import Players

AGENT = Agent("mover", model="p:main", instructions="In {{ctx.working_dir}} for {{ctx.shop}}.")


async def main(file: str, first: str, second: str, dies_at: int) -> None:
    """Do all that is left to do until this process dies."""
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


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4], dies_at=int(sys.argv[4])))
