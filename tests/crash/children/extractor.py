"""Ends a session of an agent with an extractor, and dies in the middle of the extraction."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import perdure
from perdure import Agent, MemoryConfig, Runtime
from perdure.testing import ScriptedModel


async def die(*_: Any) -> list[Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return []


async def main(address: str) -> None:
    async with perdure.open(address) as store:
        agent = Agent("helper", model="scripted:any", memory=MemoryConfig(extractor=die))
        async with Runtime(store, agents=[agent], models=ScriptedModel(["Hello"])) as runtime:
            chat = await runtime.start("helper", subject="ana")
            await chat.send("I like tea")
            await chat.end()


def run(address: str) -> None:
    asyncio.run(main(address))
