"""A flow of two roles in ``perdure serve``, whose process is killed twice during the flow."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.server.test_serve import serving
from tests.fakes.served_flows import WORKFLOW, waits_for

pytestmark = pytest.mark.all_only

PROGRAM = '''
import asyncio, pathlib, sys
sys.path.append({root!r})
import perdure
from perdure.client.clock import SystemClock
from perdure.models.scenario import CallTools, Reply, Scenario, ScriptedCall, When
from perdure.models.scripted import ScriptedModel
from tests.fakes.flow_stage import ends, hands, says, writes
from tests.fakes.served_flows import ASKS

HERE = pathlib.Path(__file__).parent
TRAIN = "The night train"

@perdure.tool(effect="read")
async def look(name: str) -> str:
    """Look something up."""
    with (HERE / "looked").open("a") as book:
        book.write(name)
    while (HERE / "slow").exists():
        await asyncio.sleep(0.01)
    return f"{{name}} is here"

LOOKS = (CallTools((ScriptedCall("look", '{{"name": "train "}}'),)),)
RULES = (
    Reply(when=When(user_contains=TRAIN, after="user"), steps=LOOKS),
    writes(TRAIN, "record/plan.md", when=When(user_contains=TRAIN, after_tool="look")),
    *hands(TRAIN, "record", "plan.md", "write")[1:],
    says("Node `owner-intake` started", ASKS),
    *hands("Node `write` started", "record", "page.md", "close"),
    ends("Node `close` started", "forward-pass-closed"),
)

def desk(store):
    agents = [
        perdure.Agent(role, model="scripted:flow", tools=[look, "read_file", "write_file"])
        for role in ("owner", "developer")
    ]
    models = ScriptedModel(Scenario(name="flow", rules=RULES), clock=SystemClock())
    return perdure.Runtime(store, agents, models=models)
'''


@asynccontextmanager
async def served(
    folder: Path, cookies: dict[str, str]
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, httpx.AsyncClient]]:
    """Serve the program in `folder`; yield the process, and a client signed in with `cookies`."""
    async with serving(folder) as (process, address):
        url, _, code = address.partition("/#code=")
        headers = {"X-Perdure": "1"}
        async with httpx.AsyncClient(
            base_url=url, headers=headers, cookies=cookies, timeout=60
        ) as client:
            if not cookies:
                (await client.post("/v1/sign-in", json={"code": code})).raise_for_status()
                cookies.update(client.cookies)
            yield process, client


async def killed(process: asyncio.subprocess.Process) -> None:
    """Kill -9 the server."""
    process.send_signal(signal.SIGKILL)
    await process.wait()


async def until(
    client: httpx.AsyncClient, url: str, is_so: Callable[[dict[str, Any]], bool]
) -> Any:
    """Wait until `is_so` is true for the flow in the API, and return this flow."""
    async with asyncio.timeout(60):
        while True:
            shown = (await client.get(url)).raise_for_status().json()
            if is_so(shown):
                return shown
            await asyncio.sleep(0.02)


async def answered(client: httpx.AsyncClient, url: str, topic: str, answer: str) -> None:
    """Answer the open question about `topic` in the inbox."""
    shown = await until(client, url, waits_for(topic))
    (question,) = [each["question"] for each in shown["waits"]]
    sent = await client.post(f"/v1/inbox/{question}/answer", json={"answer": answer})
    assert sent.status_code == 200, sent.text


async def test_flow_of_killed_server_is_resumed_and_approved(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    (tmp_path / "shop.py").write_text(PROGRAM.format(root=str(root)))
    (tmp_path / "workflow.yaml").write_text(WORKFLOW)
    for name in ("slow", "looked"):
        (tmp_path / name).touch()
    cookies: dict[str, str] = {}
    async with served(tmp_path, cookies) as (process, client):
        new = {"workspace": str(tmp_path), "recordFolder": "record", "consent": "partial-access"}
        sent = await client.post("/v1/flows", json=new)
        assert sent.status_code == 201, sent.text
        url = f"/v1/flows/{sent.json()['id']}"
        await until(client, url, waits_for("prompt-human"))
        (await client.post(f"{url}/reply", json={"text": "The night train"})).raise_for_status()
        async with asyncio.timeout(60):
            while not (tmp_path / "looked").read_text():  # noqa: ASYNC110 - another process writes
                await asyncio.sleep(0.01)
        await killed(process)  # in a tool call of the owner
    (tmp_path / "slow").unlink()
    async with served(tmp_path, cookies) as (process, client):
        shown = await until(client, url, lambda shown: shown["canResume"])
        assert shown["nodes"][0]["state"] == "active"
        assert (tmp_path / "looked").read_text() == "train "  # looking at the flow starts nothing
        (await client.post(f"{url}/resume")).raise_for_status()
        await until(client, url, waits_for("handoff-approval"))
        assert (tmp_path / "looked").read_text() == "train train "
        await killed(process)  # as it waits for a person
    async with served(tmp_path, cookies) as (process, client):
        await answered(client, url, "handoff-approval", "approve")  # and nothing resumes it
        await answered(client, url, "improvement-choice", "none")
        shown = await until(client, url, lambda shown: shown["status"] == "completed")
        assert [each["state"] for each in shown["nodes"]] == ["completed"] * 3
        feed = (await client.get(f"{url}/feeds/owner")).json()["items"]
        assert sum("Here is plan.md." in each["text"] for each in feed) == 1
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 60) == 0
