"""Random actions of a program on a session."""

from __future__ import annotations

import random

from perdure import assistant, tool_call, tool_result, user
from perdure.client.session import Session
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.ids import EntryId
from perdure.session.kinds import Compaction, Custom, CustomMessage, ModelChange, ThinkingChange
from perdure.session.messages import Message, TextPart


async def move(session: Session, chance: random.Random) -> None:
    """Change a session at random: move in its tree, or add something."""
    text = f"words {chance.getrandbits(20):x} é\u2028漢"
    said = [entry.id for entry in await session.path() if _may_be_cut(entry)]
    if said and chance.randrange(3) == 0:
        await _move_in_tree(session, chance, chance.choice(said), text)
    else:
        await _add(session, chance, text)


async def _move_in_tree(session: Session, chance: random.Random, entry: EntryId, text: str) -> None:
    match chance.randrange(5):
        case 0:
            await session.branch(entry)
        case 1:
            await session.branch_with_summary(entry, text)
        case 2:
            await session.label(entry, text)
        case 3:
            await session.label(entry, None)
        case _:
            await session.append(Compaction(text, first_kept=entry))


async def _add(session: Session, chance: random.Random, text: str) -> None:
    match chance.randrange(9):
        case 0 | 1 | 2:
            await session.append(user(text))
        case 3:
            await session.append(assistant(text))
        case 4:
            id = f"call_{chance.getrandbits(20):x}"
            calls = [tool_call(f"{id}_{n}", "read_file", {"path": text}) for n in range(2)]
            await session.append(assistant(text, *calls))
            results = [tool_result(f"{id}_{n}", text, is_error=n == 1) for n in range(2)]
            await session.append_many(results[: chance.choice((1, 2))])
        case 5:
            await session.rename(text)
        case 6:
            await session.append(ThinkingChange("high"), ModelChange("anthropic:claude-5"))
        case 7:
            await session.append(Custom("ext.state", {"n": 1}))
        case _:
            await session.append(CustomMessage("ext.note", (TextPart(text),)))


def _may_be_cut(entry: Entry) -> bool:
    """Return whether the part that a compaction keeps can begin at `entry`."""
    body = body_of(entry)
    return isinstance(body, Message) and body.role in ("user", "assistant")
