"""Rate limits: of requests and of open streams, for each caller."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.apps.server.access.rates import Limits, Rates
from perdure.apps.server.access.tokens import Principal
from perdure.apps.server.problems import Problem
from tests.fakes.clock import ManualClock
from tests.fakes.served import served

HERE, THERE = "127.0.0.1", "127.0.0.2"
OWN = Principal("t1", "write")
VISITOR = Principal("pub", "write", origins=("https://shop.example",))


def test_requests_over_the_limit_are_refused_until_time_has_passed() -> None:
    clock = ManualClock()
    rates = Rates(Limits(requests=60, visitor_requests=6), clock.steady_s)
    for _ in range(60):
        rates.count(OWN, HERE)
    with pytest.raises(Problem) as refused:
        rates.count(OWN, HERE)
    assert (refused.value.status, refused.value.facts) == (429, {"retryAfterS": 1})
    rates.count(Principal("t2", "write"), HERE)
    clock.advance(2)
    rates.count(OWN, HERE)
    rates.count(OWN, THERE)  # a token is one caller, wherever it is used
    with pytest.raises(Problem):
        rates.count(OWN, HERE)


def test_rate_limit_of_visitors_is_counted_per_address() -> None:
    rates = Rates(Limits(visitor_requests=2, visitor_streams=1), ManualClock().steady_s)
    for address in (HERE, THERE):
        rates.count(VISITOR, address)
        rates.count(VISITOR, address)
        with pytest.raises(Problem):
            rates.count(VISITOR, address)
    with rates.stream(VISITOR, HERE):
        rates.require_stream(VISITOR, THERE)
        with pytest.raises(Problem):
            rates.require_stream(VISITOR, HERE)
    rates.require_stream(VISITOR, HERE)


async def test_rejected_request_gets_a_retry_after_header(tmp_path: Path) -> None:
    async with served(tmp_path, ["Hello"], limits=Limits(requests=20, streams=1)) as server:
        chat = await server.runtime.start("desk")  # without requests, which would count
        await chat.send("Hi")
        events = f"/v1/sessions/{chat.id}/events"
        other = await server.client()
        async with other.stream("GET", events) as first:
            assert first.status_code == 200
            await anext(first.aiter_bytes())
            second = await other.get(events)
            assert (second.status_code, second.json()["code"]) == (429, "rate_limited")
        answers = [await other.get(f"/v1/sessions/{chat.id}") for _ in range(30)]
        refused = [each for each in answers if each.status_code == 429]
        assert refused
        assert int(refused[0].headers["retry-after"]) >= 1
        assert answers[0].status_code == 200
