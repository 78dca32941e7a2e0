"""JSON values of other programs in notes: any value, also what a log cannot hold as JSON."""

from __future__ import annotations

import json
from typing import Any, cast

import perdure

_INLINE_BYTES = 4096
"""JSON in a note, at most; longer is stored beside the log, once for all equal ones."""


def json_text(value: object) -> str:
    """Return `value` as JSON text that any log can hold."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a character pair
        return json.dumps(value, separators=(",", ":"))
    return text


def stored_json(value: object) -> dict[str, object]:
    """Return the data of a note that holds `value`."""
    text = json_text(value)
    if len(text) <= _INLINE_BYTES:
        return {"json": text}
    return {"content": perdure.content(text.encode(), "application/json")}


async def read_json(store: perdure.Store, entry: perdure.Entry) -> Any:
    """Return the value in the note `entry`."""
    data = cast("perdure.Note", perdure.body_of(entry)).data
    if "json" in data:
        return json.loads(cast("str", data["json"]))
    handle = cast("dict[str, str]", data["content"])["handle"]
    return json.loads(await store.content(handle))
