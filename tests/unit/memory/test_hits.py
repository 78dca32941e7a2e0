"""Recalled texts as hits."""

from __future__ import annotations

import pytest

import perdure
from perdure import MemoryHit, assistant, user
from perdure.errors import WrongArgument


async def test_hit_has_its_source_and_the_reasons_of_its_rank() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create(subject="ana")
        at = 1_700_000_000_000
        long = "padding " * 300 + "the zebra crossing " + "padding " * 300
        first = await session.append(user("Which hotel did we choose?", author="Ana", said_at=at))
        last = await session.append(assistant("The Aurora."), user(long))

        (hit, *_) = await store.memory.recall("What did Ana say of the hotel?", subject="ana")
        found = await store.memory.recall("zebra crossing", subject="ana")
        others = await store.memory.recall("hotel")

    assert isinstance(hit, MemoryHit)
    assert (hit.session_id, hit.entry_id, hit.role) == (session.id, first.id, "user")
    assert (hit.text, hit.at, hit.author) == ("Which hotel did we choose?", at, "Ana")
    assert (hit.why.terms, hit.why.speaker, hit.is_passage) == (("hotel",), True, False)
    (passage,) = [each for each in found if each.entry_id == last[1].id]
    assert passage.is_passage
    assert "zebra crossing" in passage.text
    assert len(passage.text) < len(long) / 2
    assert others == []


async def test_recall_with_invalid_arguments_is_rejected() -> None:
    async with perdure.open("memory:") as store:
        for question in ("", " ?! "):
            with pytest.raises(WrongArgument, match="no word"):
                await store.memory.recall(question)
        with pytest.raises(WrongArgument, match="every subject"):
            await store.memory.recall("moon", subject="ana", scope="namespace")
        with pytest.raises(ValueError, match="limit"):
            await store.memory.recall("moon", limit=-1)
