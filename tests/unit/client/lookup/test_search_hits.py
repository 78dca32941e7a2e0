"""Search hits include only labels that are in force."""

from __future__ import annotations

import perdure


async def test_removed_labels_do_not_reduce_the_number_of_other_hits() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create()
        await session.append(perdure.user("The tide comes in at noon, so we leave at ten"))
        entry = await session.append(perdure.user("We leave"))
        for number in range(9):
            await session.label(entry, f"tide {number}")

        (label,) = await store.search("tide", limit=1)
        both = await store.search("tide", limit=2)
        await session.label(entry, None)
        (message,) = await store.search("tide", limit=1)

    assert (label.role, label.snippet) == ("label", "tide 8")
    assert [hit.role for hit in both] == ["label", "user"]
    assert message.role == "user"


async def test_label_changed_in_a_fork_stays_searchable_in_the_origin() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create()
        entry = await session.append(perdure.user("The tide comes in"))
        await session.label(entry, "noon")
        fork = await session.fork()
        await fork.label(entry, "midnight")

        hits = await store.search("noon OR midnight")

    assert {(hit.stream, hit.snippet) for hit in hits} == {
        (session.id, "noon"),
        (fork.id, "midnight"),
    }
