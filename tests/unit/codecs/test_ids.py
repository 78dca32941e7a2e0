from __future__ import annotations

import re

from perdure.codecs.ids import written_id, written_ids
from perdure.session.codec import new_tree
from perdure.session.ids import EntryId
from perdure.session.messages import Message, ToolResultPart, user
from tests.fakes.sources import empty_store
from tests.fakes.streams import append, create


def test_ids_have_16_digits_and_never_change() -> None:
    assert re.fullmatch(r"[0-9a-f]{16}", written_id(EntryId("s/1")))
    assert written_id(EntryId("s/1")) == "e5d9ffb8181dc5be"


def test_every_written_record_has_a_different_id() -> None:
    first, second = EntryId("s/1"), EntryId("s/11")
    ids = {written_id(first), written_id(second), written_id(first, 1), written_id(first, 0, 1)}
    assert len(ids) == 4


async def test_every_record_id_of_an_entry_maps_back_to_that_entry() -> None:
    store = empty_store()
    await create(store)
    results = Message("tool", (ToolResultPart("c1", "x"), ToolResultPart("c2", "y")))
    said, answered = await append(store, new_tree(user("a")), new_tree(results))
    found = written_ids([said, answered])
    assert found[written_id(said.id)] == said.id
    assert found[written_id(answered.id, 0)] == found[written_id(answered.id, 1)] == answered.id
