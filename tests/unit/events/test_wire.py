"""Every return value has a JSON form."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import assistant, errors, tool_call, user
from perdure.errors import WrongArgument


async def test_every_returned_value_has_a_json_form(tmp_path: Path) -> None:
    async with perdure.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        session = await store.create(id="s", title="Trip", cwd=tmp_path, metadata={"a": 1})
        first, _ = await session.append(
            user("hello", said_at=datetime.now(UTC), foreign={"format": "x", "item": {"n": 1}}),
            assistant("hi", tool_call("c1", "read_file", {"path": "x"})),
        )
        await session.append(perdure.Custom("mine", raw_json=b'{"n": 123456789012345678901234}'))
        (tmp_path / "bad.jsonl").write_text("{")
        values: dict[str, object] = {
            "entry": first,
            "entries": await session.tree_entries(),
            "tree": await session.tree(),
            "context": await session.context(),
            "messages": await session.messages(),
            "info": await session.info(),
            "labels": await session.labels(),
            "recent": await store.recent(),
            "hits": await store.search("hello"),
            "import": await store.import_files([tmp_path / "bad.jsonl"]),
            "export": await session.export("markdown", tmp_path / "out.md"),
            "exports": await store.export("perdure", tmp_path / "all"),
            "capabilities": store.capabilities,
            "store": await store.info(),
            "verification": await store.verify(),
            "calls": await store.tool_calls(),
            "usage": await store.usage(),
            "activity": await store.activity(),
            "edits": await store.edits(),
            "questions": await store.questions(),
            "replay": await session.append_many([user("x")], idempotency_key="k"),
            "certificate": await session.erase(),
            "erasures": await store.erasures(),
            "error": errors.SessionNotFound("x"),
        }
        forms = {name: perdure.wire(value) for name, value in values.items()}
        assert json.loads(json.dumps(forms)) == forms
        handles = (store, session, object())
    entry: Any = forms["entry"]
    assert (entry["id"], entry["kind"]) == ("s/0", "message")
    assert entry["body"]["parts"][0]["text"] == "hello"
    imported: Any = forms["import"]
    assert imported["files"][0]["error"]["code"] == "unknown_format"
    assert forms["error"] == {
        "code": "session_not_found",
        "message": str(errors.SessionNotFound("x")),
        "stream": "x",
    }
    for handle in handles:
        with pytest.raises(WrongArgument, match="wire takes events and returned values"):
            perdure.wire(handle)


async def test_json_form_of_a_deep_tree_causes_no_recursion_error() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create()
        await session.append_many([user(str(number)) for number in range(2_000)])
        node: Any = perdure.wire(await session.tree())
    depth = 0
    while node:
        node, depth = node[0]["children"], depth + 1
    assert depth == 2_000
