"""Any JSON value can be stored in a custom entry, even if the log cannot store it as JSON."""

from __future__ import annotations

import json

import perdure
from perdure.adapters.stored_json import json_text, read_json, stored_json


def test_text_with_lone_surrogate_is_escaped() -> None:
    assert json_text({"a": "ä"}) == '{"a":"ä"}'
    assert json.loads(json_text({"a": "\ud800"})) == {"a": "\ud800"}
    json_text({"a": "\ud800"}).encode()


async def test_long_or_unusual_state_is_read_back_unchanged() -> None:
    state = {"url": "data:image/png;base64,AAAA", "n": 2**70, "long": "x" * 5000, "half": "\ud800"}
    async with perdure.open("memory:") as store:
        session = await store.create()
        for value in (state, {"a": 1}):
            note = await session.note(perdure.Note("state", stored_json(value)))
            assert await read_json(store, note, dict[str, object]) == value
