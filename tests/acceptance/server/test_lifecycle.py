"""The life of sessions over three simulated days, as the guide on it tells.

Real HTTP, and a file that each day's server opens anew. A program gives its session ids, or none.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import MemoryConfig
from perdure.session.messages import assistant, tool_call
from perdure.testing import ScriptedModel
from tests.fakes.clock import ManualClock
from tests.fakes.served import Served, served

DAY_S = 86_400.0
IDLE_S = 30 * 60.0
HELPER = perdure.Agent(
    "helper",
    model="scripted:any",
    tools=["end_session"],
    memory=MemoryConfig(max_working_tokens=4_000),
)

pytestmark = pytest.mark.full_only


class Days:
    """A clock and a file that outlive the servers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()

    @asynccontextmanager
    async def serving(self, *answers: Any) -> AsyncGenerator[tuple[Served, ScriptedModel]]:
        """Start a server of the store, whose model gives `answers` in each session."""
        model = ScriptedModel(answers)
        async with served(
            self.folder,
            agents=(HELPER,),
            models=model,
            address=f"sqlite:///{self.folder}/days.db",
            clock=self.clock,
            idle_timeout_s=IDLE_S,
        ) as server:
            yield server, model


async def episodes(server: Served, subject: str) -> list[dict[str, Any]]:
    """The episodes of a person, newest first."""
    answer = await server.http.get("/v1/memory/episodes", params={"subject": subject})
    answer.raise_for_status()
    return answer.json()["items"]


async def test_sessions_of_several_days_end_and_are_recalled(tmp_path: Path) -> None:
    days = Days(tmp_path)
    ends = assistant(tool_call("c1", "end_session", {"reason": "the hotel is booked"}))

    async with days.serving("The Aurora, near the river.", "Booked.") as (server, _):
        ana = await server.client("write", subject="ana")
        sent = await ana.post("/v1/messages", json={"text": "Which hotel do we take in Lisbon?"})
        assert sent.status_code == 201  # no id: a new session with an id that nobody can guess
        trip = sent.json()["sessionId"]
        await server.until(trip, "idle")
        days.clock.advance(IDLE_S - 1)
        assert await server.runtime.end_idle() == []
        open_ended = await ana.get(f"/v1/sessions/{trip}")
        assert open_ended.json()["state"] == "idle"

    days.clock.advance(2)  # the server is down when the time is over
    async with days.serving("", ends, "Goodbye.") as (server, _):
        assert await server.runtime.end_idle() in ([trip], [])  # or its background was first
        assert (await server.until(trip, "ended"))["state"] == "ended"
        (episode,) = await episodes(server, "ana")
        assert (episode["session"], episode["by"]) == (trip, "idle")

        days.clock.advance(DAY_S)
        ana = await server.client("write", subject="ana")
        again = await ana.post("/v1/messages", json={"text": "Book it.", "sessionId": trip})
        assert again.status_code == 200  # a known id: the ended session is opened again
        await server.until(trip, "ended")  # the agent ended it
        second, first = await episodes(server, "ana")
        assert (first, second["by"]) == (episode, "agent")
        assert second["first"] > first["last"]

        ben = await server.client("write", subject="ben")
        own = {"text": "Which hotel did Ana take?", "sessionId": "ben-of-the-shop"}
        assert (await ben.post("/v1/messages", json=own)).status_code == 201  # an unknown id
        assert (await ben.get(f"/v1/sessions/{trip}")).status_code == 404

    days.clock.advance(DAY_S)
    async with days.serving("The Aurora.") as (server, model):
        for subject in ("ana", "ben"):
            caller = await server.client("write", subject=subject)
            text = "In which hotel do we have breakfast?"
            sent = await caller.post("/v1/messages", json={"text": text})
            await server.until(sent.json()["sessionId"], "idle")
        of_ana, of_ben = (request.messages[0].text for request in model.requests)
        assert "The Aurora, near the river." in of_ana
        assert "Aurora" not in of_ben
        days.clock.advance(60)
        closed = await server.http.post(f"/v1/sessions/{sent.json()['sessionId']}/end", json={})
        assert closed.json()["state"] == "ended"
        assert [each["by"] for each in await episodes(server, "ben")] == ["user", "idle"]
