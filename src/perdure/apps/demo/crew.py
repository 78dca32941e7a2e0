"""The agent of the demonstration's workers: ``perdure worker perdure.apps.demo.crew:runtime``.

The agent's tool writes to a file in the folder ``$PERDURE_DEMO_FOLDER``.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated

from perdure.apps.demo.cast import NOTEBOOK, append_line
from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.store import Store
from perdure.models.catalogue import ECHO
from perdure.tools.decorator import tool

FOLDER = "PERDURE_DEMO_FOLDER"


@tool(effect="write", on_unknown="ask")
async def take_order(
    order: Annotated[str, "The name of the order."],
    seconds: Annotated[float, "How long the tool waits after it wrote the line."],
) -> str:
    """Write the name of an order, and the process that took it, into a file."""
    append_line(Path(os.environ[FOLDER]) / NOTEBOOK, f"{os.getpid()} {order}")
    await asyncio.sleep(seconds)
    return f"took {order}"


CLERK = Agent("clerk", model=ECHO, instructions="You take orders.", tools=(take_order,))


def runtime(store: Store) -> Runtime:
    """Return the runtime that a worker uses for `store`."""
    return Runtime(store, [CLERK])
