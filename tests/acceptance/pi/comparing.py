"""A session of perdure compared with the data that the real pi reads in its file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perdure.client.session import Session
from perdure.codecs.shared_keys import model_name
from perdure.session.ids import EntryId
from tests.acceptance.pi.contexts import difference, pieces_of, pieces_of_pi

Record = Mapping[str, Any]
"""The `id`, `parent` and `type` of a record that pi read."""

_BESIDE_TREE = ("label", "session_info")


class Places:
    """Maps the records of a session's file to tree entries; labels and names have no tree entry."""

    def __init__(self, records: Mapping[str, Record], entries: Mapping[str, EntryId]) -> None:
        self.entries = entries
        self._records = records

    @classmethod
    async def of(cls, session: Session, records: Sequence[Record], own_file: Path | None) -> Places:
        """Find the entries of `records`: by the marks in `own_file`, or else by their ids."""
        marks = {} if own_file is None else _marks_in(own_file)
        entries: dict[str, EntryId] = {}
        for record in records:
            id = record["id"]
            marked = marks.get(id)
            if marked is not None:
                entries[id] = marked
            elif id not in marks and record["type"] not in _BESIDE_TREE:
                entries[id] = await session.find(id)
        return cls({record["id"]: record for record in records}, entries)

    def nearest(self, id: str | None) -> EntryId | None:
        """Return the entry of the record `id`, or of its nearest ancestor that has an entry."""
        while id is not None and id in self._records and id not in self.entries:
            id = self._records[id]["parent"]
        return None if id is None else self.entries.get(id)


async def require_same(
    session: Session, seen: Mapping[str, Any], what: str, own_file: Path | None = None
) -> None:
    """Require that `session` equals what pi read: context, tree, leaf, labels and title.

    `own_file` is the session's file in a store of session files.
    """
    await require_same_context(session, seen, what)
    info = await session.info()
    places = await Places.of(session, seen["entries"], own_file)
    assert session.leaf == places.nearest(seen["leaf"]), what
    parents = {entry.id: entry.parent_id async for entry in session.entries()}
    for record in seen["entries"]:
        entry = places.entries.get(record["id"])
        if entry is not None:
            assert parents[entry] == places.nearest(record["parent"]), f"{what}: {record}"
    labels = {places.entries[id]: label for id, label in seen["labels"].items()}
    assert await session.labels() == labels, what
    assert info.title == seen["name"], f"{what}: {info.title!r} is {seen['name']!r} for pi"


async def require_same_context(session: Session, seen: Mapping[str, Any], what: str) -> None:
    """Require that a model receives the same context of `session` from perdure as from pi."""
    context = await session.context()
    ours, theirs = pieces_of(context), pieces_of_pi(seen["messages"])
    assert ours == theirs, f"{what}: {difference(ours, theirs)}"
    assert (context.thinking_level or "off") == seen["thinkingLevel"], what
    named: dict[str, str] = seen["model"] or {}
    model = model_name(named.get("provider"), named.get("modelId"))
    assert model is None or context.model == model, what  # pi has no word for "unknown"


def _marks_in(path: Path) -> dict[str, EntryId | None]:
    """Map the ids of perdure's records in the file to entries, or to None outside the tree."""
    marks: dict[str, EntryId | None] = {}
    for line in path.read_text("utf-8").split("\n")[1:-1]:
        record = json.loads(line)
        mark = record.get("perdure")
        if mark is not None:
            is_beside = mark.get("side") or "seq" not in mark
            marks[record["id"]] = None if is_beside else EntryId(f"{mark['of']}/{mark['seq']}")
    return marks
