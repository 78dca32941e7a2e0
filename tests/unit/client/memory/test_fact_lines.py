"""Facts from a file of JSON lines: each line is imported independently."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import perdure
from perdure.client.store import Store
from perdure.errors import FormatError

LINES = [
    '{"text": "Ana likes tea", "subject": "ana", "from": "2026-11-01", "to": "2026-12-01"}',
    '{"text": "Ana sings"}',
    "",
    '{"text": "the office is closed", "agent": "helper"}',
    '{"text": ""}',
    '{"text": "x", "form": "2026"}',
    '{"text": "x", "from": "yesterday"}',
    '{"text": "x", "from": "2026-12-01", "to": "2026-11-01"}',
    "no json",
    '{"text": "token ghp_' + "a1B2" * 9 + '"}',
    '{"text": "x", "subject": ""}',
]


async def test_imported_lines_become_facts_once_and_invalid_lines_are_reported(
    store: Store, tmp_path: Path
) -> None:
    file = tmp_path / "facts.jsonl"
    file.write_bytes("\n".join(LINES).encode() + b'\n{"text": "\xff"}\n')
    done = await store.memory.import_facts(file, subject="bob")
    assert (done.added, done.known) == (3, 0)
    assert [each.line for each in done.problems] == [5, 6, 7, 8, 9, 10, 11, 12]
    assert "ghp_" not in str(done.problems)
    (ana,) = await store.memory.facts(subject="ana", include_past=True)
    assert ana.text == "Ana likes tea"
    assert ana.valid_from is not None
    assert ana.valid_to is not None
    texts = {(each.text, each.agent) for each in await store.memory.facts(subject="bob")}
    assert texts == {("Ana sings", None), ("the office is closed", "helper")}
    again = await store.memory.import_facts(file, subject="bob")
    assert (again.added, again.known, len(again.problems)) == (0, 3, 8)
    assert len(await store.memory.facts(scope="namespace", include_past=True)) == 3


async def test_concurrently_imported_files_store_each_fact_once(tmp_path: Path) -> None:
    file = tmp_path / "facts.jsonl"
    file.write_text("".join(f'{{"text": "fact {number}"}}\n' for number in range(20)))
    address = f"sqlite:///{tmp_path}/s.db"
    async with perdure.open(address) as one, perdure.open(address) as two:
        imports = [store.memory.import_facts(file, subject="ana") for store in (one, two) * 2]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(one.memory.remember("another", subject="ana"))
            done = [tasks.create_task(each) for each in imports]
        assert sum(each.result().added for each in done) == 20
        texts = [each.text for each in await two.memory.facts(subject="ana")]
    assert sorted(texts) == sorted({"another", *(f"fact {number}" for number in range(20))})


async def test_unreadable_file_of_facts_raises_format_error(store: Store, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.jsonl"):
        with pytest.raises(FormatError, match="cannot be read"):
            await store.memory.import_facts(path)
