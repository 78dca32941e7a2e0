"""The fields that an episode gets from its entries, and the decoding of episodes."""

from __future__ import annotations

import msgspec

from perdure.memory.episodes import EpisodeFold, agent_in, episodes_in, next_first
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import EntryId, StreamId, entry_id
from perdure.session.info import SessionInfo
from perdure.session.ledger import TurnStarted
from perdure.session.memory.kinds import EpisodeRecorded
from perdure.session.messages import assistant, tool_call, tool_result, user
from perdure.session.notes import AgentBound, Label, SessionStarted
from tests.fakes.samples import case

INFO = SessionInfo(StreamId("s"), "session", "user", 0, 0, title="Trip", subject="ana")


def entry(seq: int, new: NewEntry, *, about: EntryId | None = None, at: int = 0) -> Entry:
    stream = StreamId("s")
    return Entry(stream, seq, new.lane, None, about, at, new.kind, new.v, new.body)


def test_episode_counts_its_messages_turns_and_tool_calls() -> None:
    fold = EpisodeFold()
    both = assistant(tool_call("c1", "read", {}), tool_call("c2", "read", {}))
    said = [user('say "tool_call"'), both, tool_result("c1", "1"), tool_result("c2", "2")]
    for at, new in enumerate([new_side(TurnStarted(1, "helper")), *map(new_tree, said)], 10):
        fold.add(new.kind, new.body, new.v, at)
    made = fold.recorded(INFO, 3, 20, "idle", "helper")
    assert (made.messages, made.turns, made.tool_calls) == (4, 1, 2)
    assert (made.first, made.started_at, made.ended_at, made.by) == (3, 10, 20, "idle")
    assert (made.title, made.agent) == ("Trip", "helper")


def test_episode_without_entries_starts_at_its_end() -> None:
    made = EpisodeFold().recorded(INFO, 0, 7, "user", None)
    assert (made.started_at, made.ended_at, made.messages) == (7, 7, 0)


def test_unreadable_message_counts_as_a_message_without_tool_calls() -> None:
    fold = EpisodeFold()
    fold.add("message", b'{"tool_call": "tool_call"', 1, 0)
    made = fold.recorded(INFO, 0, 7, "user", None)
    assert (made.messages, made.tool_calls) == (1, 0)


def test_episode_begins_after_the_end_of_the_previous_episode() -> None:
    recorded = new_side(EpisodeRecorded(0, 0, 0))
    ends = [entry(n + 1, recorded, about=entry_id("s", n)) for n in (4, 9)]
    assert next_first([], 20) == 0
    assert next_first(ends, 20) == 10
    assert next_first(ends, 9) == 5
    assert next_first(ends, 3) == 0


def test_episode_has_the_agent_that_was_bound_last() -> None:
    started = entry(0, new_side(SessionStarted({"id": "old"})))
    bound = entry(5, new_side(AgentBound({"id": "new"})))
    assert agent_in([bound, started]) == "new"
    assert agent_in([started]) == "old"
    assert agent_in([]) is None


def test_unreadable_agent_entry_keeps_the_earlier_agent() -> None:
    started = entry(0, new_side(SessionStarted({"id": "old"})))
    bound = entry(5, new_side(AgentBound({"id": "new"})))
    unreadable = [
        msgspec.structs.replace(bound, v=99),
        msgspec.structs.replace(bound, body=b""),
        msgspec.structs.replace(bound, body=b'{"agent"'),
        entry(5, new_side(Label("a label"))),
    ]
    assert [agent_in([started, each]) for each in unreadable] == ["old"] * 4
    numbered = msgspec.structs.replace(bound, body=b'{"agent":{"id":7}}')
    assert agent_in([started, numbered]) is None
    assert agent_in([entry(0, new_side(SessionStarted()))]) is None
    assert agent_in([]) is None


def test_episode_has_the_id_of_the_entry_that_ended_it() -> None:
    body = EpisodeRecorded(3, 10, 20, "agent", None, "helper", 4, 1, 2, "Said hello.")
    infos = {INFO.id: INFO}
    (found,) = episodes_in([entry(8, new_side(body), about=entry_id("s", 7))], infos)
    assert (found.id, found.session, found.first, found.last) == ("s/7", "s", 3, 7)
    assert (found.subject, found.agent, found.summary) == ("ana", "helper", "Said hello.")
    assert found.title == "Trip"
    label = entry(8, new_side(Label("x")), about=entry_id("s", 7))
    assert list(episodes_in([entry(8, new_side(body)), label], infos)) == []


def test_forged_first_entry_of_an_episode_is_moved_into_its_session() -> None:
    for first, expected in ((9, 7), (7, 7), (0, 0), (-5, 0)):
        with case(first):
            note = entry(8, new_side(EpisodeRecorded(first, 10, 20)), about=entry_id("s", 7))
            (found,) = episodes_in([note], {INFO.id: INFO})
            assert found.first == expected
