"""Vectors in a database with pgvector, and without it."""

from __future__ import annotations

import psycopg
import pytest

import perdure
from perdure import user
from tests.fakes.embedders import WordEmbedder
from tests.fakes.postgres import PostgresServer

TEXTS = ("the moon rose over the harbour", "a boat came in", "we mended the nets all day")


async def scores(address: str) -> list[tuple[str, float]]:
    """Fill a store; return the results of a recall with vectors."""
    async with perdure.open(address) as store:
        session = await store.create(id="trip")
        await session.append_many([user(text) for text in TEXTS])
        memory = store.memory.with_embedder(WordEmbedder())
        assert await memory.embed() == len(TEXTS)
        return [(hit.text, hit.score) for hit in await memory.recall("Where did the moon rise?")]


def body_type(address: str) -> str:
    with psycopg.connect(address) as db:
        row = db.execute(
            "SELECT atttypid::regtype::text FROM pg_attribute "
            "WHERE attrelid = 'perdure.search_vector'::regclass AND attname = 'body'"
        ).fetchone()
    assert row is not None
    return str(row[0])


@pytest.mark.full_only
@pytest.mark.parametrize("schema", ["public", "extensions"])
async def test_vector_scores_match_those_of_pgvector_if_it_is_installed(
    postgres: PostgresServer, address: str, schema: str
) -> None:
    with_vectors = postgres.new_database()
    with psycopg.connect(with_vectors, autocommit=True) as db:
        found = db.execute("SELECT FROM pg_available_extensions WHERE name = 'vector'").fetchone()
        if found is None:
            pytest.skip("the server has no pgvector")
        db.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}".encode())
        db.execute(f"CREATE EXTENSION vector SCHEMA {schema}".encode())

    assert await scores(with_vectors) == await scores(address)

    assert body_type(address) == "bytea"
    assert body_type(with_vectors).endswith("vector")
    async with perdure.open(with_vectors) as store:
        await store.erase("trip")
    with psycopg.connect(with_vectors, autocommit=True) as db:
        assert db.execute("SELECT count(*) FROM perdure.search_vector").fetchone() == (0,)
