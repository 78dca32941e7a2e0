"""All data about a session, as text and as JSON."""

from __future__ import annotations

import msgspec

import perdure
from perdure.apps.session_costs import sum_of
from perdure.apps.terminal.reports import report_data, report_lines, report_of
from perdure.apps.terminal.style import Style
from perdure.session.messages import Usage, assistant, user


async def test_report_shows_counts_usage_labels_and_the_branch() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create(id="s", title="Trip", cwd="/tmp")
        first = await session.append(user("Where to?"))
        answer = assistant("Rome", usage=Usage(10, 5, cache_read_tokens=85, cost_microcents=5_000))
        await session.append(answer)
        await session.append(assistant("Oslo", usage=Usage(7, 3)), parent=first)
        await session.label(first, "start")
        spent = sum_of(await store.usage("model", session="s"))
        report = await report_of(session, store.backend, None, spent)
    data = msgspec.to_builtins(report_data(report))
    assert data["id"] == "s"
    assert (data["title"], data["messages"], data["entries"], data["turns"]) == ("Trip", 3, 4, 0)
    assert data["usage"]["total_tokens"] == 110
    assert data["usage"]["cost_microcents"] == 5_000
    assert data["labels"] == {"s/0": "start"}
    assert (data["branches"], data["leaf"], data["open_turn"]) == (2, "s/2", False)
    assert [(row["id"], row["role"], row["text"]) for row in data["branch"]] == [
        ("s/0", "user", "Where to?"),
        ("s/2", "assistant", "Oslo"),
    ]
    lines = list(report_lines(report, 80, Style()))
    text = "\n".join(lines)
    assert lines[0] == "Trip"
    assert "17 tokens in, 8 out, 85 cached, 0 written to the cache" in text
    assert "cost         $0.0001+, 1 call without a price" in text
    assert "after it was created" in text
    assert lines[-2:] == ["0 ● user       Where to?  [start]", "2 ● assistant  Oslo  ◀ here"]


async def test_empty_session_can_be_reported() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create(id="s")
        report = await report_of(session, store.backend)
    assert report_data(report)["branch"] == []
    assert next(report_lines(report, 80, Style())) == "(nothing said yet)"
