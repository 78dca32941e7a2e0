"""A channel value is stored once; if it grows, only its change is stored."""

from __future__ import annotations

import random

import msgspec

from perdure import InlineMedia
from perdure.adapters.langgraph.values import (
    ChannelValue,
    combined,
    content_of,
    stored,
    whole_records,
    window_of,
)


def history(values: list[bytes]) -> list[dict[str, dict[str, object]]]:
    """Return the records of successive checkpoints whose only channel has `values` in turn."""
    before: ChannelValue | None = None
    path: list[dict[str, dict[str, object]]] = []
    for value in values:
        record, before = stored(("msgpack", value), before)
        path.append({"c": record})
    return path


def read(path: list[dict[str, dict[str, object]]]) -> ChannelValue:
    back, records = whole_records(path, "c")
    contents: dict[str, bytes] = {}
    whole = dict(records[-1])
    if isinstance(content := whole.get("content"), InlineMedia):
        whole["content"] = {"handle": "it"}
        contents["it"] = content.content
    return combined(back, [*records[:-1], whole], contents)


def test_growing_array_is_usually_stored_as_added_items() -> None:
    messages = [f"{number} {'text ' * 20}" for number in range(40)]
    values = [msgspec.msgpack.encode(messages[: number + 1]) for number in range(40)]
    path = history(values)
    for number, value in enumerate(values):
        assert read(path[: number + 1]).data == value
    tails = [record["c"] for record in path if "tail" in record["c"]]
    assert len(tails) > 30
    assert all(len(str(record["tail"])) < 250 for record in tails)


def test_unchanged_value_is_stored_again_only_after_many_checkpoints() -> None:
    path = history([b"x" * 1_000] * 200)
    assert sum("type" in record["c"] for record in path) == 4
    assert read(path).data == b"x" * 1_000


def test_value_is_rebuilt_from_its_stored_changes() -> None:
    rng = random.Random(7)
    data, before = b"", None
    path: list[dict[str, dict[str, object]]] = []
    for _ in range(300):
        change = rng.random()
        if change < 0.6:
            data += rng.randbytes(rng.randrange(600))
        elif change < 0.7:
            data = data[: rng.randrange(len(data) + 1)]
        elif change < 0.75:
            data = rng.randbytes(300)
        record, before = stored(("bytes", data), before)
        path.append({"c": record})
        found = read(path[-window_of({"c": before}) :])
        assert found == before
        assert found.data == data


def test_value_is_stored_whole_if_its_type_changes() -> None:
    _, before = stored(("bytes", b"x" * 300), None)
    record, _ = stored(("msgpack", b"x" * 300), before)
    assert record["type"] == "msgpack"
    assert content_of(record) is None
    assert "from" not in record
