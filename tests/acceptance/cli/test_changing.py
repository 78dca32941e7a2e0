"""Commands that change where a session continues: each command appends to the log, and none
rewrites the log.
"""

from __future__ import annotations

import pytest

from perdure.client.reads import EntryRef
from perdure.client.session import Session
from perdure.session.entries import Entry
from tests.acceptance.cli.conftest import SAMPLE_ID, World


def head_of(world: World) -> int:
    head: int = world.ok("sessions", "show", SAMPLE_ID, "--json").json["head"]
    return head


def test_branch_command_changes_the_current_branch_permanently(sample: World) -> None:
    head = head_of(sample)
    moved = sample.ok("sessions", "branch", SAMPLE_ID, "9", "--json").json
    assert moved == {"session": SAMPLE_ID, "leaf": f"{SAMPLE_ID}/9", "moved": True}
    assert sample.ok("sessions", "tree", SAMPLE_ID, "--json").json["leaf"] == f"{SAMPLE_ID}/9"
    assert head_of(sample) == head + 1
    again = sample.ok("sessions", "branch", SAMPLE_ID, "9", "--json").json
    assert again["moved"] is False
    assert head_of(sample) == head + 1
    assert (
        "already continues from entry 9 (assistant: There it is."
        in sample.ok("sessions", "branch", SAMPLE_ID, "9").out
    )


def test_branch_can_begin_before_the_first_entry(sample: World) -> None:
    assert sample.ok("sessions", "branch", SAMPLE_ID, "root", "--json").json["leaf"] is None
    assert sample.ok("sessions", "context", SAMPLE_ID, "--json").json["messages"] == []
    text = sample.ok("sessions", "branch", SAMPLE_ID, "root").out
    assert text == f"{SAMPLE_ID} already continues from before its first entry.\n"


def test_branch_command_prints_its_own_leaf_after_a_concurrent_branch(
    sample: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch = Session.branch

    async def branch_twice(session: Session, entry: EntryRef | None) -> Entry | None:
        moved = await branch(session, entry)
        other = f"{SAMPLE_ID}/3" if entry is None else None
        await branch(session, other)  # as another process does
        return moved

    monkeypatch.setattr(Session, "branch", branch_twice)
    moved = sample.ok("sessions", "branch", SAMPLE_ID, "9", "--json").json
    assert moved["leaf"] == f"{SAMPLE_ID}/9"
    assert "now continues from entry 9" in sample.ok("sessions", "branch", SAMPLE_ID, "9").out
    assert "before its first entry" in sample.ok("sessions", "branch", SAMPLE_ID, "root").out


def test_entry_can_be_selected_by_number_or_id(sample: World) -> None:
    tree = (sample.folder / "own.jsonl", sample.ok("export", SAMPLE_ID, "--format", "pi").out)
    foreign = tree[1].splitlines()[3].split('"id":"')[1][:8]  # the third entry of the file
    for name in ("3", f"{SAMPLE_ID}/3", foreign):
        sample.ok("sessions", "branch", SAMPLE_ID, "1")
        moved = sample.ok("sessions", "branch", SAMPLE_ID, name, "--json").json
        assert moved["leaf"] == f"{SAMPLE_ID}/3", name


def test_branch_command_with_a_missing_entry_exits_3(sample: World) -> None:
    ended = sample.run("sessions", "branch", SAMPLE_ID, "4711", "--json")
    assert ended.code == 3
    assert (ended.error["code"], ended.error["entry"]) == ("entry_not_found", "4711")


def test_branch_to_an_entry_outside_the_tree_is_rejected(sample: World) -> None:
    ended = sample.run("sessions", "branch", SAMPLE_ID, "0", "--json")
    assert (ended.code, ended.error["code"]) == (2, "invalid_entry")


def test_fork_shares_all_entries_and_copies_no_entry(sample: World) -> None:
    made = sample.ok("sessions", "fork", SAMPLE_ID, "--title", "Mine", "--json").json
    assert made["parent"] == SAMPLE_ID
    rows = {row["id"]: row for row in sample.ok("sessions", "list", "--json").json}
    fork = rows[made["session"]]
    assert (fork["title"], fork["parent"], fork["entries"], fork["messages"]) == (
        "Mine",
        SAMPLE_ID,
        0,
        35,
    )
    assert sample.ok("sessions", "context", made["session"], "--json").json["messages"]
    drawn = sample.ok("sessions", "tree", made["session"]).out
    assert "↑46 ● assistant" in drawn
    assert drawn.endswith(f"entries of {SAMPLE_ID} are shared; their ids are {SAMPLE_ID}/NUMBER\n")


def test_fork_at_an_entry_contains_only_the_path_to_that_entry(sample: World) -> None:
    made = sample.ok("sessions", "fork", SAMPLE_ID, "--at", "16", "--json").json
    data = sample.ok("sessions", "show", made["session"], "--json").json
    assert data["branch"][-1]["text"].startswith("The quick way repairs March")
    assert data["branches"] == 1
    assert data["labels"] == {f"{SAMPLE_ID}/9": "two ways out"}


def test_label_command_sets_and_removes_a_label(sample: World) -> None:
    given = sample.ok("sessions", "label", SAMPLE_ID, "18", "the turn 🧭", "--json").json
    assert given == {
        "session": SAMPLE_ID,
        "entry_id": f"{SAMPLE_ID}/18",
        "label": "the turn 🧭",
    }
    assert "[the turn 🧭]" in sample.ok("sessions", "tree", SAMPLE_ID).out
    moved = sample.ok("sessions", "branch", SAMPLE_ID, "the turn 🧭", "--json").json
    assert moved["leaf"] == f"{SAMPLE_ID}/18"
    assert sample.ok("sessions", "label", SAMPLE_ID, "18", "--json").json["label"] is None
    assert "🧭" not in sample.ok("sessions", "tree", SAMPLE_ID).out


def test_title_command_sets_and_removes_a_title(sample: World) -> None:
    assert sample.ok("sessions", "rename", SAMPLE_ID, "Ebb", "--json").json["title"] == "Ebb"
    assert sample.ok("sessions", "list", "--json").json[0]["title"] == "Ebb"
    assert sample.ok("sessions", "rename", SAMPLE_ID, "", "--json").json["title"] is None
    assert sample.ok("sessions", "list", "--json").json[0]["title"].startswith("The tide table for")


def test_undo_command_undoes_a_compaction(sample: World) -> None:
    before = sample.ok("sessions", "context", SAMPLE_ID, "--json").json
    undone = sample.ok("sessions", "uncompact", SAMPLE_ID, "--json").json
    assert undone["undone"] == f"{SAMPLE_ID}/34"
    after = sample.ok("sessions", "context", SAMPLE_ID, "--json").json
    assert len(after["messages"]) > len(before["messages"])
    assert after["messages"][0]["parts"][0]["text"].startswith("The tide table for 29 March")
    assert sample.run("sessions", "uncompact", SAMPLE_ID, "--json").error["code"] == "invalid_entry"


def test_session_is_compacted_by_the_offline_model(world: World) -> None:
    lines = [f"line {number} " + "of much text " * 2_000 for number in range(8)]
    world.ok("chat", stdin="\n".join(lines))
    (session,) = (row["id"] for row in world.ok("sessions", "list", "--json").json)
    made = world.ok("sessions", "compact", session, "--focus", "numbers", "--json").json
    assert made["tokens"] < made["tokens_before"]
    context = world.ok("sessions", "context", session, "--json").json
    assert "## Goal" in context["messages"][0]["parts"][0]["text"]
    again = world.ok("sessions", "compact", session, "--json").json
    assert again["compaction"] is None or again["tokens"] <= again["tokens_before"]


def test_compaction_of_a_short_session_changes_nothing(sample: World) -> None:
    before = sample.ok("sessions", "show", SAMPLE_ID, "--json").json
    made = sample.ok("sessions", "compact", SAMPLE_ID, "-m", "scripted:echo", "--json").json
    assert made["compaction"] is None
    # No agent was bound, no model changed: nothing was written at all.
    assert sample.ok("sessions", "show", SAMPLE_ID, "--json").json["head"] == before["head"]


def test_compaction_with_unavailable_model_is_refused(sample: World) -> None:
    ended = sample.run("sessions", "compact", SAMPLE_ID, "--json")
    assert (ended.code, ended.error["code"]) == (2, "model_not_here")
    assert "-m scripted:echo works offline" in ended.error["message"]
    for words in (("compact", SAMPLE_ID), ("branch", SAMPLE_ID, "4", "--summarize")):
        told = sample.run("sessions", *words, "-m", "scripted:gone").err
        command = " ".join(("perdure sessions", words[0], *words[3:]))
        assert f"; choose another with `{command} -m MODEL`" in told
        assert "--scenario" not in told


def test_ended_session_is_reopened_by_its_next_turn(sample: World) -> None:
    ended = sample.ok("sessions", "end", SAMPLE_ID, "--reason", "done", "--json").json
    assert ended == {"session": SAMPLE_ID, "status": "ended", "changed": True}
    assert sample.ok("sessions", "list", "--json").json[0]["status"] == "ended"
    assert sample.ok("sessions", "end", SAMPLE_ID, "--json").json["changed"] is False
    sample.ok("chat", "--session", SAMPLE_ID, "-m", "scripted:echo", "-p", "One more thing")
    assert sample.ok("sessions", "list", "--json").json[0]["status"] == "active"


def test_pinned_entry_is_in_the_context_until_it_is_unpinned(sample: World) -> None:
    def is_sent() -> bool:
        context = sample.ok("sessions", "context", SAMPLE_ID, "--json").json
        return any("Only that day, only" in str(each["parts"]) for each in context["messages"])

    assert not is_sent()
    pinned = sample.ok("sessions", "pin", SAMPLE_ID, "3", "--json").json
    assert (pinned["entry_id"], pinned["is_pinned"]) == (f"{SAMPLE_ID}/3", True)
    assert is_sent()
    assert "may leave the context" in sample.ok("sessions", "unpin", SAMPLE_ID, "3").out
    assert "is not pinned" in sample.run("sessions", "unpin", SAMPLE_ID, "3").err
    assert not is_sent()
    assert sample.run("sessions", "pin", SAMPLE_ID, "root").code == 2


def test_compaction_reports_hidden_and_pinned_entries(world: World) -> None:
    lines = [f"line {number} " + "of much text " * 2_000 for number in range(8)]
    world.ok("chat", stdin="\n".join(lines))
    (session,) = (row["id"] for row in world.ok("sessions", "list", "--json").json)
    tree = world.ok("sessions", "tree", session, "--json").json
    first = tree["roots"][0]["id"]
    world.ok("sessions", "pin", session, first)
    made = world.ok("sessions", "compact", session, "--json").json
    assert made["left"]["pinned"] == [first]
    assert first not in made["left"]["entries"]
    assert sum(made["left"]["roles"].values()) == len(made["left"]["entries"]) > 2


def test_abandoned_branch_gets_a_summary(world: World) -> None:
    world.ok("chat", stdin="the first question\nthe second question\n")
    (session,) = (row["id"] for row in world.ok("sessions", "list", "--json").json)
    first = world.ok("sessions", "tree", session, "--json").json["roots"][0]["id"]
    words = ("sessions", "branch", session, first)
    assert world.run(*words, "--focus", "x").code == 2
    moved = world.ok(*words, "--summarize", "-m", "scripted:echo", "--json").json
    assert moved["moved"] is True
    context = world.ok("sessions", "context", session, "--json").json
    assert "Another continuation" in str(context["messages"])
