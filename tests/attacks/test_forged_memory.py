"""Memory entries in received sessions: none describes, changes or hides another session."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import user
from perdure.client.memory.last_turn import last_turn_of
from perdure.client.store import Store
from perdure.memory.episodes import Episode
from perdure.memory.extraction import ExtractedFact
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.memory.facts import Fact

AT = 1_700_000_000_000
BEYOND = (9 * 10**18, -9 * 10**18, 10**30, -(10**30))


def received(path: Path, *entries: dict[str, Any], created_at: int = AT) -> Path:
    """Write an export of a session about Ana that contains `entries`; return its file."""
    stream = {"id": "sent", "created_at": created_at, "subject": "ana"}
    lines: list[dict[str, Any]] = [{"type": "perdure", "version": 1, "stream": stream}]
    for seq, entry in enumerate(entries):
        lane = "tree" if entry["kind"] == "message" else "side"
        lines.append({"seq": seq, "id": f"sent/{seq}", "lane": lane, "at": AT, "v": 1, **entry})
    lines.append({"type": "end", "entries": len(entries), "blobs": 0})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def said(text: str, **fields: Any) -> dict[str, Any]:
    parts = [{"type": "text", "text": text}]
    return {"kind": "message", "body": {"role": "user", "parts": parts, **fields}}


def episode(about: str, **fields: Any) -> dict[str, Any]:
    body = {"first": 0, "started_at": AT, "ended_at": AT, **fields}
    return {"kind": "episode", "about": about, "body": body}


class Spy:
    """An extractor that stores the texts it receives."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def extract(
        self, episode: Episode, entries: Sequence[Entry], known: Sequence[Fact]
    ) -> list[ExtractedFact]:
        assert (episode.first, len(known)) == (0, 0)
        self.texts += [entry.message.text for entry in entries if entry.message is not None]
        return []


async def with_bob(store: Store) -> None:
    bob = await store.create(id="bob", subject="bob")
    await bob.append(user("the door opens with 4711"))
    await bob.end(summary="bob's summary")


async def test_imported_episode_that_refers_to_another_session_is_ignored(tmp_path: Path) -> None:
    async with perdure.open(f"sqlite:///{tmp_path}/s.db") as store:
        await with_bob(store)
        sent = received(tmp_path / "sent.jsonl", said("hello"), episode("bob/0"), episode("sent/0"))
        await store.import_files([sent])
        spy = Spy()
        for found in await store.memory.episodes(subject="ana"):
            await store.memory.capture(found, spy)
        assert spy.texts == ["hello"]
        of_bob = await store.memory.episodes(scope="namespace", session="bob")
        assert [(each.summary, each.first) for each in of_bob] == [("bob's summary", 0)]


async def test_imported_recall_entry_shows_no_text_of_another_subject(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "door.md").write_text("the door of the office")
    async with perdure.open(f"sqlite:///{tmp_path}/s.db") as store:
        await with_bob(store)
        own = await (await store.create(id="own", subject="ana")).append(user("own text"))
        memory = store.memory
        await memory.import_folder(tmp_path / "docs", agent="helper")
        passage = (await memory.recall("the door", scope="agent", agent="helper"))[0]
        facts = [
            (await memory.remember(f"about {subject}", subject=subject, agent=agent)).id
            for subject, agent in (("bob", None), ("ana", "helper"), ("ana", None))
        ]
        texts = [
            {"session": entry.partition("/")[0], "entry": entry}
            for entry in ("bob/0", passage.entry_id, own.id, facts[0])
        ]
        sent = received(
            tmp_path / "sent.jsonl",
            {"kind": "turn_started", "body": {"number": 1, "agent": "helper"}},
            said("hello"),
            {
                "kind": "context_recalled",
                "about": "sent/0",
                "body": {"boundary": "ab", "texts": texts, "facts": facts},
            },
        )
        await store.import_files([sent])
        last = await last_turn_of(store.backend, StreamId("sent"))
        assert last is not None
        assert [piece.text for piece in last.recalled] == [
            *(None, None, "about ana"),
            *(None, None, "own text", None),
        ]


async def test_imported_episode_with_forged_positions_covers_no_other_session(
    tmp_path: Path,
) -> None:
    forged = episode("sent/0", first=-(10**18), started_at=BEYOND[0], ended_at=BEYOND[1])
    async with perdure.open(f"sqlite:///{tmp_path}/s.db") as store:
        await with_bob(store)
        await store.import_files([received(tmp_path / "sent.jsonl", said("hello"), forged)])
        (found, *_) = await store.memory.episodes(subject="ana")
        spy = Spy()
        await store.memory.capture(found, spy)
        assert (found.first, spy.texts) == (0, ["hello"])


@pytest.mark.parametrize("address", ["memory:", "sqlite"])
async def test_recall_ignores_impossible_times(tmp_path: Path, address: str) -> None:
    messages = [said(f"the hotel {n}", said_at=at) for n, at in enumerate(BEYOND)]
    sent = received(tmp_path / "sent.jsonl", *messages, created_at=9 * 10**18)
    async with perdure.open(
        address if address == "memory:" else f"sqlite:///{tmp_path}/s.db"
    ) as store:
        await store.import_files([sent])
        for is_indexed in (False, True):
            if is_indexed:
                await store.index()
            for question in ("Which hotel?", "Which hotel in May 2023?", "Which hotel in May?"):
                assert len(await store.memory.recall(question, subject="ana")) == len(BEYOND)
        assert [info.id for info in await store.recent(10)] == ["sent"]
