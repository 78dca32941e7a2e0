"""The process that is killed: it continues a session until the tool hangs.

The demonstration starts this module with ``python -m perdure.apps.demo.child NAMESPACE SESSION
FOLDER``. The environment contains the address of the store, because the address can contain a
password, which a process list must not show.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from perdure.apps.demo.cast import ADDRESS, ASKS_FOR_A_LINE, FOREVER_S, demo_agent, demo_models
from perdure.apps.store_access import writable_store
from perdure.client.agents.runtime import Runtime


async def talk(address: str, namespace: str, session: str, folder: str) -> None:
    """Send a message in `session` and wait for an answer that never arrives."""
    agent = demo_agent(Path(folder), FOREVER_S)
    async with (
        writable_store(address, namespace) as store,
        Runtime(store, [agent], models=demo_models()) as runtime,
    ):
        chat = await runtime.resume(session, agent)
        await chat.send(ASKS_FOR_A_LINE)


if __name__ == "__main__":
    asyncio.run(talk(os.environ[ADDRESS], *sys.argv[1:4]))
