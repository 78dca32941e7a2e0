"""The saver returns each result of parallel calls with its call, in the order of the calls."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command

import perdure
from perdure.adapters.langgraph import PerdureSaver
from tests.fakes.forked import run_forked
from tests.fakes.provider_rules import all_problems
from tests.integration.adapters.langgraph.children.runner import KINDS, THREAD, saver_in
from tests.integration.adapters.langgraph.children.side_by_side import (
    CALLS,
    TURNS,
    graph_in,
    run_and_die,
)


def ids_of(turn: int) -> list[str]:
    return [f"t{turn}c{number}" for number in range(CALLS)]


def whole(turns: int) -> list[tuple[str, str, list[str]]]:
    """Return the type, the text and the call ids of each message of a run."""
    said: list[tuple[str, str, list[str]]] = []
    for turn in range(turns):
        ids = ids_of(turn + 1)
        said += [("human", f"question {turn}", []), ("ai", "", ids)]
        said += [("tool", f"saw {id}", [id]) for id in ids]
        said.append(("ai", "Well.", []))
    return said


def said_in(state: Any) -> list[tuple[str, str, list[str]]]:
    found: list[tuple[str, str, list[str]]] = []
    for each in state.values.get("messages", []):
        ids = [each.tool_call_id] if each.type == "tool" else []
        ids += [call["id"] for call in getattr(each, "tool_calls", [])]
        found.append((each.type, each.content, ids))
    return found


def check_session(store: perdure.blocking.Store, turns: int) -> None:
    """Check that messages and requests contain the results in the order of their calls."""
    session = store.open("lg:t")
    assert all_problems([each.message for each in session.context().messages]) == []
    messages = session.messages()
    parts = [part for message in messages for part in message.parts]
    ids = [part.call_id for part in parts if isinstance(part, perdure.ToolResultPart)]
    assert ids == [id for turn in range(turns) for id in ids_of(turn + 1)]
    assert [message.text for message in messages if message.role == "tool"] == [
        f"saw {id}" for id in ids
    ]


@pytest.mark.all_only
def test_tool_results_after_any_kill_are_in_the_order_of_their_calls(tmp_path: Path) -> None:
    done = run_forked(run_and_die, str(tmp_path))
    ended = Counter(done.out.decode().splitlines())
    for kind in KINDS:
        commits = int((tmp_path / kind / "0" / "commits").read_text())
        kills = range(1, commits + 1)
        assert commits > CALLS * TURNS
        assert (ended[f"{kind} 0"], ended[f"{kind} -9"]) == (1, len(kills)), done.err
        for dies_at in (0, *kills):
            folder = tmp_path / kind / str(dies_at)
            with saver_in(kind, folder) as saver:
                graph = graph_in(folder, saver)
                state = graph.get_state(THREAD)
                kept = said_in(state)
                rest = iter(whole(TURNS))
                assert all(each in rest for each in kept)  # of a step, the results that are stored
                if state.tasks:  # `next` is empty when all of them have their results
                    graph.invoke(None, THREAD, durability="sync")
                now = said_in(graph.get_state(THREAD))
                turns = sum(type == "human" for type, _, _ in now)
                assert now == whole(turns)
                assert len(now) >= len(kept)
            ran = {
                id: (folder / id).read_text() for turn in range(turns) for id in ids_of(turn + 1)
            }
            assert set(ran.values()) <= {"x", "xx"}  # again only if its write was not stored
            if kind == "perdure":
                with perdure.blocking.open(f"sqlite:///{folder / 's.db'}") as store:
                    assert store.verify().is_ok
                    if turns:
                        check_session(store, turns)


def test_answers_of_person_are_matched_to_calls_in_another_process(
    store_address: str, tmp_path: Path
) -> None:
    with perdure.blocking.open(store_address) as store:
        graph = graph_in(tmp_path, PerdureSaver(store), is_asked=True)
        paused = graph.invoke({"messages": [("user", "question 0")]}, THREAD)
        asked = {each.value: each.id for each in paused["__interrupt__"]}
        assert sorted(asked) == ids_of(1)
    with perdure.blocking.open(store_address) as store:
        graph = graph_in(tmp_path, PerdureSaver(store), is_asked=True)
        answers = {asked[id]: f"saw {id}" for id in reversed(ids_of(1))}
        graph.invoke(Command(resume=answers), THREAD)
        assert said_in(graph.get_state(THREAD)) == whole(1)
        check_session(store, 1)
