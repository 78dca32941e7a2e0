"""pi and perdure write one session file in turns."""

from __future__ import annotations

import random
from pathlib import Path

import perdure
from perdure import assistant, tool_call, tool_result, user
from perdure.client.session import Session
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.ids import EntryId
from perdure.session.kinds import Compaction, Custom, CustomMessage, ModelChange, ThinkingChange
from perdure.session.messages import Message, TextPart
from tests.acceptance.pi.contexts import require_same
from tests.fakes.real_pi import RealPi
from tests.fakes.session_files import file_of

SESSIONS = 25
ROUNDS = 6
STEPS = 5
METADATA = {"ticket": "T-1", "tags": ["a", "é"], "note": "x" * 900}


async def test_pi_and_perdure_write_one_file_in_turns(pi: RealPi, tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    address = f"jsonl:///{folder}?dialect=pi"
    for seed in range(SESSIONS):
        chance = random.Random(seed)
        if seed % 2:
            path = pi.make(folder, "/harbour", seed, STEPS)
        else:
            async with perdure.open(address, durability="normal") as store:
                new = await store.create(title=f"Tides {seed}", cwd="/harbour", metadata=METADATA)
                await new.append(user("begin"), assistant("begun"))
                path = file_of(folder, new.id)
        for number in range(ROUNDS):
            what = f"seed {seed}, round {number}"
            before = path.read_bytes()
            async with perdure.open(address, durability="normal") as store:
                session = await store.open(pi.look(path)["id"])
                for _ in range(STEPS):
                    await move(session, chance)
                await require_same(session, pi.look(path), f"{what}, after perdure", has_marks=True)
            by_perdure = path.read_bytes()
            assert by_perdure.startswith(before), what
            pi.ask("extend", path=path, seed=1000 * seed + number, steps=STEPS)
            assert path.read_bytes().startswith(by_perdure), what
            async with perdure.open(address, durability="normal") as store:
                session = await store.open(session.id)
                await require_same(session, pi.look(path), f"{what}, after pi", has_marks=True)
    async with perdure.open(address, durability="normal") as store:
        assert (await store.verify()).problems == ()
    listed = pi.ask("list", cwd="/harbour", folder=folder)["sessions"]
    assert len(listed) == SESSIONS


async def move(session: Session, chance: random.Random) -> None:
    """Do one thing that a program does with a session."""
    text = f"words {chance.getrandbits(20):x} é\u2028漢"
    said = [entry.id for entry in await session.path() if may_be_cut(entry)]
    if said and chance.randrange(3) == 0:
        await move_in_tree(session, chance, chance.choice(said), text)
    else:
        await add(session, chance, text)


async def move_in_tree(session: Session, chance: random.Random, entry: EntryId, text: str) -> None:
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


async def add(session: Session, chance: random.Random, text: str) -> None:
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


def may_be_cut(entry: Entry) -> bool:
    """Whether a compaction may begin its kept part at `entry`."""
    body = body_of(entry)
    return isinstance(body, Message) and body.role in ("user", "assistant")
