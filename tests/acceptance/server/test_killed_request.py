"""If a server is killed during a request with an idempotency key, a repeat reports the outcome."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import httpx
import pytest

from tests.acceptance.server.test_serve import serving, signed_in

pytestmark = pytest.mark.full_only

PROGRAM = """
import asyncio, pathlib, perdure
from perdure.testing import ScriptedModel

HERE = pathlib.Path(__file__).parent

def desk(store):
    model = ScriptedModel(["It is here"] * 9)
    runtime = perdure.Runtime(store, [perdure.Agent("desk", model="scripted:desk")], models=model)

    async def hold(point):
        (HERE / "begun").touch()
        while (HERE / "slow").exists():
            await asyncio.sleep(0.01)

    runtime.on("session_before_fork", hold)
    return runtime
"""


@pytest.mark.all_only
async def test_repeated_request_after_a_server_kill_reports_an_unknown_outcome(
    tmp_path: Path,
) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    key = {"Idempotency-Key": "fork-1"}
    async with serving(tmp_path) as (process, address), signed_in(address) as client:
        sent = await client.post("/v1/messages", json={"text": "Where is it?", "sessionId": "s"})
        assert sent.status_code == 201, sent.text
        async with asyncio.timeout(60):
            while (await client.get("/v1/sessions/s")).json()["state"] != "idle":  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.02)
        cookies = dict(client.cookies)
        (tmp_path / "slow").touch()
        asking = asyncio.create_task(client.post("/v1/sessions/s/fork", json={}, headers=key))
        async with asyncio.timeout(60):
            while not (tmp_path / "begun").exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        with pytest.raises(httpx.HTTPError):
            await asking
    (tmp_path / "slow").unlink()
    async with serving(tmp_path) as (_, address):
        url, headers = address.partition("/#")[0], {"X-Perdure": "1"}
        async with httpx.AsyncClient(
            base_url=url, cookies=cookies, headers=headers, timeout=60
        ) as client:
            for _ in range(2):
                again = await client.post("/v1/sessions/s/fork", json={}, headers=key)
                assert (again.status_code, again.json()["code"]) == (409, "outcome_unknown")
            listed = (await client.get("/v1/sessions")).json()["items"]
            assert [each["id"] for each in listed] == ["s"]  # it was not done: another key is safe
            other = {"Idempotency-Key": "fork-2"}
            done = [await client.post("/v1/sessions/s/fork", json={}, headers=other) for _ in "12"]
            assert [each.status_code for each in done] == [201, 201]
            assert done[0].json() == done[1].json()
            retitled = {"title": "found"}  # a PATCH can be done twice
            for _ in range(2):
                renamed = await client.patch("/v1/sessions/s", json=retitled, headers=key)
                assert renamed.status_code == 422, "the key is of another request"
