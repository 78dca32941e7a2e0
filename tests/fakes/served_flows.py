"""A server with a flow of two roles: the owner asks; the developer's handoff needs approval."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import perdure
from perdure.client.clock import SystemClock
from perdure.models.scenario import Hang, Reply, Say, Scenario, When
from perdure.models.scripted import ScriptedModel
from tests.fakes.flow_stage import ends, hands, says
from tests.fakes.served import Served, served

WORKFLOW = """
workflow:
  name: A page on trains
  nodes:
    - {id: owner-intake, role: owner, work: [Ask which train.]}
    - {id: write, role: developer, human-colab: true, work: [Write the page.]}
    - {id: close, role: owner, work: [Close the work.]}
  edges:
    - {from: owner-intake, to: write}
    - {from: write, to: close}
"""
ASKS = "Which train?\n```handoff\ntype: prompt-human\n```"
SLOW = Reply(
    when=When(user_contains="The slow train", after="user"),
    steps=(Say("I look the slow train up"), Hang()),
)
RULES = (
    SLOW,
    *hands("The night train", "record", "plan.md", "write"),
    says("Node `owner-intake` started", ASKS),
    *hands("Node `write` started", "record", "page.md", "close"),
    ends("Node `close` started", "forward-pass-closed"),
)


@asynccontextmanager
async def serving_flows(
    folder: Path, workflow: str = WORKFLOW, address: str = "memory:"
) -> AsyncGenerator[Served]:
    """Serve a flow of two roles; its workflow is in `folder`, the folder of the project."""
    (folder / "workflow.yaml").write_text(workflow)
    agents = [
        perdure.Agent(role, model="scripted:flow", tools=["read_file", "write_file"])
        for role in ("owner", "developer")
    ]
    models = ScriptedModel(
        Scenario(name="flow", rules=RULES, context_window=20_000), clock=SystemClock()
    )
    async with served(
        folder, agents=agents, models=models, projects=[folder], address=address
    ) as server:
        yield server


async def begun(server: Served, folder: Path, **fields: Any) -> str:
    """Start the workflow, and return the id of the flow."""
    body = {"workspace": str(folder), "recordFolder": "record", "consent": "partial-access"}
    sent = await server.http.post("/v1/flows", json=body | fields)
    assert sent.status_code == 201, sent.text
    return str(sent.json()["id"])


async def flow_until(server: Served, flow: str, is_so: Callable[[dict[str, Any]], bool]) -> Any:
    """Wait until the flow, as the API returns it, satisfies `is_so`; return the flow."""
    async with asyncio.timeout(60):
        while True:
            shown = (await server.http.get(f"/v1/flows/{flow}")).json()
            if is_so(shown):
                return shown
            await asyncio.sleep(0.02)


def waits_for(topic: str) -> Callable[[dict[str, Any]], bool]:
    """Return whether a flow waits for a person with `topic`."""
    return lambda shown: any(each["topic"] == topic for each in shown["waits"])
