"""The acceptance scenarios of Relavium about removing messages from a context, by their numbers.

Entries are never removed from the log. To remove messages from a context, the boundary moves
forward: the entry with which the context begins.
"""

from __future__ import annotations

from perdure.client.agents.agent import Agent
from perdure.client.agents.chat import Chat
from perdure.engine.turns.config import CompactionSettings
from perdure.session.kinds import Compaction
from perdure.session.ledger import Trimmed
from perdure.session.messages import assistant, user
from tests.fakes.players import Theatre, words

SUMMARY = "## Goal\nThe person counts upward and wants to be told the next number."
NEXT = "## Goal\nThe person went on counting, past what was summarised before."
MANUAL = CompactionSettings(is_enabled=False, keep_recent_tokens=240)


def sent_by(theatre: Theatre) -> list[str]:
    return [message.text for message in theatre.players.requests[-1].messages]


async def counted(theatre: Theatre, chat: Chat, first: int, last: int) -> None:
    for n in range(first, last + 1):
        await chat.session.append(user(f"say {n} " * 100), assistant(f"{n} " * 200))


async def test_trim_after_a_compaction_keeps_the_summary_and_the_newest_messages() -> None:
    # Scenario 20 of the specification.
    theatre = Theatre(main=[words(SUMMARY), words("thirteen")])
    chat = await theatre.chat(compaction=MANUAL, max_output_tokens=100)
    await counted(theatre, chat, 1, 3)
    assert await chat.compact() is not None
    await counted(theatre, chat, 4, 12)
    theatre.players.windows["main"] = 1500
    await chat.send("and then?")
    (trimmed,) = await theatre.bodies(Trimmed)
    sent = sent_by(theatre)
    assert trimmed.dropped > 0
    assert SUMMARY in sent[0]
    assert sent[-1] == "and then?"
    assert not any(text.startswith("say 4 ") for text in sent)
    assert any(text.startswith("say 12 ") for text in sent)
    told = [payload for type_, payload in await theatre.events() if type_ == "session:trimmed"]
    assert [payload["reason"] for payload in told] == ["auto-fallback"]
    said = [message.text for message in await chat.session.messages()]
    assert sum(text.startswith("say ") for text in said) == 12


async def test_trim_to_a_message_limit_keeps_the_newest_exchanges() -> None:
    # Scenario 20 of the specification.
    theatre = Theatre(main=[words("five"), words("six")])
    by_number = CompactionSettings(is_enabled=False, max_messages=4)
    chat = await theatre.chat(compaction=by_number)
    for n in range(1, 5):
        await chat.session.append(user(f"say {n}"), assistant(f"{n}"))
    await chat.send("say 5")
    assert sent_by(theatre) == ["say 4", "4", "say 5"]
    resumed = await theatre.runtime(chat.agent).resume(chat.id)
    await resumed.send("say 6")
    assert sent_by(theatre) == ["say 5", "five", "say 6"]
    told = [payload for type_, payload in await theatre.events() if type_ == "session:trimmed"]
    assert [(t["droppedMessageCount"], t["keptMessageCount"]) for t in told] == [(6, 3), (8, 3)]
    assert len(await chat.session.messages()) == 12


async def test_compaction_hides_only_entries_before_the_first_kept_entry() -> None:
    # Scenario 20 of the specification.
    theatre = Theatre(main=[words("four")])
    chat = await theatre.chat(compaction=MANUAL)
    one, two, three = await chat.session.append_many(
        [user("say one"), assistant("one"), user("say two")]
    )
    await chat.session.append(Compaction(SUMMARY, first_kept=two.id))
    await chat.send("and then?")
    sent = sent_by(theatre)
    assert SUMMARY in sent[0]
    assert not any("say one" in text for text in sent)
    assert "one" in sent
    assert any("say two" in text for text in sent)
    path = [entry.id for entry in await chat.session.path()]
    assert path[:3] == [one.id, two.id, three.id]


async def test_second_compaction_of_a_resumed_session_loses_no_kept_message() -> None:
    # Scenario 21 of the specification.
    answers = [SUMMARY, "5 " * 200, NEXT, NEXT, "after"]
    theatre = Theatre(main=[words(answer) for answer in answers])
    agent = Agent("helper", model="p:main", compaction=MANUAL)
    chat = await theatre.runtime(agent).start(agent, id="s")
    await counted(theatre, chat, 1, 4)
    assert await chat.compact() is not None
    resumed = await theatre.runtime(agent).resume("s")
    await resumed.send("say 5 " * 100)
    await counted(theatre, resumed, 6, 6)
    assert await resumed.compact() is not None
    # Two requests: of whole turns, and of the beginning of one whose end is kept.
    summarised = "".join(each.messages[-1].text for each in theatre.players.requests[2:4])
    await resumed.send("and then?")
    first, second = await theatre.bodies(Compaction)
    shown = [message.text for message in theatre.players.requests[-1].messages]
    # What was kept by the first boundary is told to the second summary, or still stands there.
    assert first.first_kept != second.first_kept
    assert SUMMARY in summarised
    for n in (4, 5, 6):
        assert any(f"say {n} " in text for text in (summarised, *shown))
    assert second.summary in shown[0]
    assert not any(text.startswith("say 1 ") for text in shown)
    assert shown[-1] == "and then?"
    said = [message.text for message in await resumed.session.messages()]
    assert [text.split()[1] for text in said if text.startswith("say ")] == [*"123456"]
