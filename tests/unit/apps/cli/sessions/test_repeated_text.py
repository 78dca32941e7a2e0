"""Entries that repeat a text of the entries to erase."""

from __future__ import annotations

import perdure
from perdure.apps.cli.sessions.repeated_text import entries_with, telling_texts, warning_of
from perdure.session.ids import StreamId

LINE = "The house is behind the old lighthouse"


async def test_search_texts_of_an_entry_are_credentials_and_long_lines() -> None:
    code = "from __future__ import annotations"
    text = f"  {LINE}  \n{code}\nThank you!\npassword: hunter2secret.\n{LINE}"
    async with perdure.open("memory:") as store:
        session = await store.create()
        entry = await session.append(perdure.user(text))

    assert telling_texts([entry]) == ("hunter2secret", LINE)


async def test_number_of_search_texts_of_an_entry_is_limited() -> None:
    lines = "\n".join(f"{LINE} at the mile {number}" for number in range(500))
    async with perdure.open("memory:") as store:
        session = await store.create()
        entry = await session.append(perdure.user(lines))

    assert len(telling_texts([entry])) == 100


async def test_every_credential_of_an_entry_becomes_a_search_text() -> None:
    text = "token=ab12cd34ef56\n" * 150 + "password=Tr0ub4dor&3x"
    async with perdure.open("memory:") as store:
        session = await store.create()
        entry = await session.append(perdure.user(text))

    assert telling_texts([entry]) == ("ab12cd34ef56", "Tr0ub4dor&3x")


async def test_copies_of_erased_text_are_found_on_branches_and_in_labels() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create()
        first = await session.append(perdure.user(LINE))
        quoting = await session.append(perdure.assistant(f"You wrote: {LINE}."))
        await session.branch(first)
        other = await session.append(perdure.assistant("I do not know that house"))
        label = await session.label(other, LINE)
        await session.label(first, LINE)  # erased with the first entry

        found = await entries_with(session, telling_texts([first]), [first])

    assert [entry.id for entry in found] == [quoting.id, label.id]
    assert warning_of(StreamId("s"), found, is_erased=True) == (
        f"entries {quoting.seq}, {label.seq} still contain text of the erased entries; "
        f"erase them with: perdure sessions erase s {quoting.seq} {label.seq}"
    )
