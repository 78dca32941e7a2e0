"""Erased memory is in no row of a database."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg import sql

import perdure
from perdure import assistant, user
from perdure.memory.episodes import Episode
from perdure.session.entries import Entry
from perdure.session.memory.facts import Fact
from perdure.session.search.parts.pages import everything
from perdure.stores.search.vectors import stored
from tests.fakes.embedders import WordEmbedder

WORD = "zanzibarian"


def rows_with(address: str, sought: bytes) -> set[str]:
    """Return the tables that contain the bytes in a row or in a compressed page of the index."""
    found: set[str] = set()
    with psycopg.connect(address) as db:
        tables = db.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'perdure'"
        ).fetchall()
        for (table,) in tables:
            every = sql.SQL("SELECT * FROM perdure.{}").format(sql.Identifier(table))
            for row in db.execute(every).fetchall():
                said = [each if isinstance(each, bytes) else str(each).encode() for each in row]
                if table == "search_page":
                    said += [kept.key.encode() for kept in everything(row[-1])]
                if any(sought in each for each in said):
                    found.add(str(table))
    return found


@pytest.mark.full_only
async def test_memory_of_an_erased_subject_is_in_no_row(address: str, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text(f"# Notes\n\nThe {WORD} archive is closed.\n")
    embedder = WordEmbedder(dimension=64)
    vector = stored(embedder.vector(f"a {WORD} spice"))
    async with perdure.open(address) as store:
        for subject in ("ana", "bob"):
            word = WORD if subject == "ana" else "ordinary"
            session = await store.create(subject=subject, title=f"About {word} things")
            said = await session.append(user(f"a {word} spice"))
            await session.append(assistant(f"The {word} one."))
            await session.end(summary=f"We chose the {word} spice.")
            fact = await store.memory.remember(f"likes {word} tea", subject=subject, source=said)
            await store.memory.correct(fact.id, f"likes {word} coffee")
        await store.memory.import_folder(tmp_path, subject="ana")
        memory = store.memory.with_embedder(embedder)
        await memory.embed()
        assert len(await memory.recall(f"{WORD} spice", subject="ana")) > 4
        await store.reindex()
        assert rows_with(address, WORD.encode()) >= {"entry", "stream", "search"}
        assert rows_with(address, vector) == {"search_vector"}, "the check finds one"

        await store.erase(subject="ana")

        left: list[Entry | Fact | Episode] = [
            *await store.memory.facts(scope="namespace", include_past=True),
            *await store.memory.episodes(scope="namespace", limit=None),
        ]
        assert len(left) == 2
        hits = await memory.recall(f"{WORD} spice", scope="namespace", limit=50)
        assert not [hit for hit in hits if WORD in hit.text]
        assert await store.search(WORD) == []
    assert rows_with(address, WORD.encode()) == set()
    assert rows_with(address, vector) == set()
