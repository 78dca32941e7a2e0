"""``kill -9`` at every commit of a graph, with perdure's saver and with LangGraph's own."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path

import pytest

import perdure
from tests.fakes.forked import run_forked
from tests.fakes.samples import with_larger
from tests.integration.adapters.langgraph.children import runner

WHOLE = [
    text
    for turn in range(runner.TURNS)
    for text in (f"question {turn}", "", f"counted c{turn + 1}")
]


def lines_of(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


@pytest.mark.parametrize(
    "every",
    with_larger(7, 1),
    ids=["sample", "all"],
)
def test_graph_thread_can_continue_after_any_kill(tmp_path: Path, every: int) -> None:
    done = run_forked(runner.run_and_die, str(tmp_path), every)
    ended = Counter(done.out.decode().splitlines())
    for kind in runner.KINDS:
        commits = int((tmp_path / kind / "0" / "commits").read_text())
        kills = range(1, commits + 1, every)
        assert commits > 4 * runner.TURNS
        assert (ended[f"{kind} 0"], ended[f"{kind} -9"]) == (1, len(kills)), done.err
        for dies_at in kills:
            folder = tmp_path / kind / str(dies_at)
            finished = len(lines_of(folder / "done")) and int((folder / "done").read_text())
            with runner.saver_in(kind, folder) as saver:
                graph = runner.graph_in(folder, saver)
                state = graph.get_state(runner.THREAD)
                kept = [message.content for message in state.values.get("messages", [])]
                assert kept == WHOLE[: len(kept)]
                assert len(kept) >= 3 * finished
                ran = lines_of(folder / "ran")
                if state.next:
                    graph.invoke(None, runner.THREAD, durability="sync")
                now = graph.get_state(runner.THREAD)
                assert not now.next
                said = [message.content for message in now.values.get("messages", [])]
                assert said == WHOLE[: len(said)]
                times = Counter(lines_of(folder / "ran"))
                # A node runs again only if the kill came before its writes were stored.
                again = [call for call, number in times.items() if number > 1]
                assert again in ([], ran[-1:])
                assert max(times.values(), default=0) <= 2
                assert not (again and f"counted {again[0]}" in kept)
    with perdure.blocking.open(f"sqlite:///{tmp_path / 'perdure' / '1' / 's.db'}") as store:
        assert store.verify().is_ok
    with sqlite3.connect(tmp_path / "sqlite" / "1" / "s.db") as database:
        assert database.execute("pragma integrity_check").fetchone() == ("ok",)
