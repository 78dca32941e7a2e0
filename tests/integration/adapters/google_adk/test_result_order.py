"""The session service returns each result of concurrent calls after its call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.adk.events import Event
from google.adk.sessions import BaseSessionService, InMemorySessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.tools import LongRunningFunctionTool
from google.genai import types

import perdure
from perdure.adapters.google_adk import PerdureSessionService
from tests.fakes.forked import run_forked
from tests.fakes.provider_rules import all_problems
from tests.integration.adapters.google_adk.children.runner import KINDS, NAMES, service_in
from tests.integration.adapters.google_adk.children.side_by_side import (
    IDS,
    ask,
    looking,
    run_and_die,
    runner_on,
)

STORED_ID = "adk:app:ana:s"
COMMITS = 5
"""Commits of the whole run: creation, question, calls, results and answer."""


def said_in(events: list[Event] | list[types.Content]) -> list[list[str]]:
    """Return the texts, the ids of calls, and the results with the ids of their calls."""
    found: list[list[str]] = []
    for each in events:
        content = each.content if isinstance(each, Event) else each
        said: list[str] = []
        for part in (content.parts if content else None) or []:
            if part.function_call:
                said.append(f"call {part.function_call.id}")
            elif part.function_response:
                response = part.function_response
                said.append(f"{response.id}: {(response.response or {}).get('result')}")
            else:
                said.append(str(part.text))
        if said:
            found.append(said)
    return found


CALLED = [f"call {id}" for id in IDS]
RESULTS = [f"{id}: saw {id}" for id in IDS]
WHOLE = [["go"], CALLED, RESULTS, ["Well."]]


async def check_session(store: perdure.Store) -> None:
    """Check that each provider gets the results in the correct positions."""
    session = await store.open(STORED_ID)
    messages = [each.message for each in (await session.context()).messages]
    assert all_problems(messages) == []
    parts = [part for message in messages for part in message.parts]
    results = [part for part in parts if isinstance(part, perdure.ToolResultPart)]
    assert [part.call_id for part in results] == list(IDS)
    assert [part.text for part in results] == [f"saw {id}" for id in IDS]


@pytest.mark.filterwarnings("ignore:.*ResumabilityConfig:UserWarning")  # it is experimental
@pytest.mark.all_only
async def test_tool_results_after_any_kill_are_in_the_order_of_their_calls(tmp_path: Path) -> None:
    done = run_forked(run_and_die, str(tmp_path), COMMITS)
    codes = done.out.decode().split()
    assert codes[: COMMITS + 1] == ["0", *["-9"] * COMMITS], done.err
    assert set(codes) == {"0", "-9"}, done.err
    for kind in KINDS:
        for dies_at in range(COMMITS + 1):
            folder = tmp_path / kind / str(dies_at)
            async with service_in(kind, folder, 0) as service:
                session = await service.get_session(**NAMES)
                kept = session.events if session else []
                assert said_in(kept) == WHOLE[: len(said_in(kept))]
                if not kept:
                    continue
                if len(said_in(kept)) < len(WHOLE):
                    running, model = runner_on(service, looking(folder))
                    names: dict[str, Any] = {"user_id": "ana", "session_id": "s"}
                    invocation = kept[-1].invocation_id
                    async for _ in running.run_async(**names, invocation_id=invocation):
                        pass
                    assert said_in(model.asked[-1]) == WHOLE[:-1]
                session = await service.get_session(**NAMES)
                assert session is not None
                assert said_in(session.events) == WHOLE
            if kind == "perdure":
                async with perdure.open(f"sqlite:///{folder / 's.db'}") as store:
                    assert (await store.verify()).is_ok
                    await check_session(store)


def look(id: str) -> None:
    """Start to look; the result arrives later."""


async def asked_with_late_results(service: BaseSessionService) -> list[list[types.Content]]:
    """Return the requests of an agent whose call results arrive later, in reverse order."""
    await service.create_session(**NAMES)
    running, model = runner_on(service, LongRunningFunctionTool(look), is_resumable=False)
    await ask(running, types.Part(text="go"))
    for id in reversed(IDS):
        result = types.FunctionResponse(name="look", id=id, response={"result": f"saw {id}"})
        await ask(running, types.Part(function_response=result))
    return model.asked


async def test_late_results_are_matched_to_their_calls(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        asked = await asked_with_late_results(PerdureSessionService(store))
        assert asked == await asked_with_late_results(InMemorySessionService())
        assert said_in(asked[-1]) == [["go"], CALLED, RESULTS[::-1]]
        await check_session(store)


async def test_calls_of_another_program_are_quoted_once_in_the_request(
    store_address: str,
) -> None:
    async with perdure.open(store_address) as store:
        service = PerdureSessionService(store)
        await service.create_session(**NAMES)
        stored = await store.open(STORED_ID)
        calls = [perdure.tool_call(id, "look", {"id": id}) for id in IDS]
        await stored.append(perdure.user("go"), perdure.assistant(*calls))
        for id in reversed(IDS):
            await stored.append(perdure.tool_result(id, f"saw {id}"))
        running, model = runner_on(service, look, is_resumable=False)
        await ask(running, types.Part(text="and now?"))
        (asked, *_) = model.asked
        quoted = " ".join(text for said in said_in(asked) for text in said)
        assert [quoted.count(f"'{id}'") for id in IDS] == [1] * len(IDS)
        places = [quoted.index(f"saw {id}") for id in reversed(IDS)]
        assert places == sorted(places)
        assert max(quoted.index(f"'{id}'") for id in IDS) < places[0]


async def test_tool_results_of_another_program_are_matched_to_their_calls(
    store_address: str,
) -> None:
    async with perdure.open(store_address) as store:
        service = PerdureSessionService(store)
        await service.create_session(**NAMES)
        running, model = runner_on(service, LongRunningFunctionTool(look), is_resumable=False)
        await ask(running, types.Part(text="go"))
        stored = await store.open(STORED_ID)
        for id in IDS:
            await stored.append(perdure.tool_result(id, f"saw {id}"))
        await ask(running, types.Part(text="and now?"))
        assert said_in(model.asked[-1]) == [["go"], CALLED, RESULTS, ["and now?"]]


@pytest.mark.parametrize("role", ["tool", "user"])
async def test_tool_results_with_text_reach_the_model(role: Any) -> None:
    def with_text(id: str) -> perdure.Message:
        return perdure.Message(
            role, (perdure.ToolResultPart(id, "seen"), perdure.TextPart("Go on."))
        )

    async with perdure.open("memory:") as store:
        service = PerdureSessionService(store)
        await service.create_session(**NAMES)
        running, model = runner_on(service, LongRunningFunctionTool(look), is_resumable=False)
        await ask(running, types.Part(text="go"))
        stored = await store.open(STORED_ID)
        await stored.append(perdure.assistant(perdure.tool_call("p0", "look")))
        await stored.append(*(with_text(id) for id in (*IDS, "p0", "unknown")))
        session = await service.get_session(**NAMES)
        assert session is not None
        authors = [event.author for event in session.events]
        assert authors[-len(IDS) - 2 :] == [*["user"] * len(IDS), "perdure", "user"]
        await ask(running, types.Part(text="and now?"))
        quoted = " ".join(text for said in said_in(model.asked[-1]) for text in said)
        assert quoted.count("Go on.") == len(IDS) + 2
        assert quoted.count("seen") == len(IDS) + 1  # none is left out whose call is known


async def test_authors_of_results_do_not_depend_on_the_number_of_events_read(
    store_address: str,
) -> None:
    async with perdure.open(store_address) as store:
        service = PerdureSessionService(store)
        await service.create_session(**NAMES)
        running, _ = runner_on(service, LongRunningFunctionTool(look), is_resumable=False)
        await ask(running, types.Part(text="go"))
        stored = await store.open(STORED_ID)
        for author, id in ((None, "p0"), ("helper", "p1")):
            await stored.append(perdure.assistant(perdure.tool_call(id, "look"), author=author))
        for id in (*IDS, "p0", "p1"):
            await stored.append(perdure.tool_result(id, f"saw {id}"))
        whole = await service.get_session(**NAMES)
        assert whole is not None
        authors = [event.author for event in whole.events]
        assert authors[:4] == ["user", "guide", "perdure", "helper"]
        assert authors[4:] == ["user", "user", "user", "perdure", "helper"]
        for number in range(1, len(authors) + 1):
            config = GetSessionConfig(num_recent_events=number)
            newest = await service.get_session(**NAMES, config=config)
            assert newest is not None
            assert newest.events == whole.events[-number:]
