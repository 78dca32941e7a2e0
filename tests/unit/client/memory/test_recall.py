"""A recall continues without its embedder and reports the reason."""

from __future__ import annotations

from pathlib import Path

import perdure
from perdure import assistant, user
from perdure.client.memory.recall import recall_anyway
from tests.fakes.embedders import WordEmbedder
from tests.fakes.samples import case


async def test_recall_without_vectors_searches_by_words(
    tmp_path: Path,
) -> None:
    down = WordEmbedder()
    down.failure = OSError("down")
    for address, embedder, problem in (
        ("memory:", None, None),
        ("memory:", WordEmbedder(), None),
        ("memory:", down, "words:1: OSError('down')"),
        (f"jsonl:///{tmp_path}", WordEmbedder(), "a jsonl store has no vectors"),
    ):
        with case((address, problem)):
            async with perdure.open(address) as store:
                session = await store.create()
                await session.append(user("Which hotel?"), assistant("The Aurora."))
                memory = store.memory.with_embedder(embedder)
                hits, said = await recall_anyway(memory, "hotel", limit=2)
            assert "Which hotel?" in [hit.text for hit in hits]
            assert (said or "").startswith(problem or "")
            assert (said is None) == (problem is None)
