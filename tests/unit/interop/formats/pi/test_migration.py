from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.codecs.lines import lines_of
from perdure.interop.formats.pi.migration import migrate, needs_migration, replace_keys
from perdure.interop.formats.pi.reader import parse
from tests.fakes.sources import path_of, pi_file, texts_on


def ids_for(content: bytes) -> dict[int, str]:
    """Return an id for every line: the line number."""
    return {line.offset: f"{line.number:08x}" for line in lines_of(content)}


def records(content: bytes) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line.content, type=dict[str, Any]) for line in lines_of(content)]


def test_only_files_of_versions_below_3_need_migration() -> None:
    assert needs_migration(pi_file("v1.jsonl"))
    assert needs_migration(pi_file("v2.jsonl"))
    assert not needs_migration(pi_file("v3.jsonl"))


def test_records_of_version_1_get_ids_and_form_one_chain() -> None:
    old = pi_file("v1.jsonl")
    header, *entries = records(migrate(old, ids_for(old)))
    assert header["version"] == 3
    assert header["modelId"] == "claude-sonnet-4-5"
    assert [entry["id"] for entry in entries] == [f"{n:08x}" for n in range(2, 13)]
    assert [entry["parentId"] for entry in entries] == [None, *(f"{n:08x}" for n in range(2, 12))]
    compaction = entries[7]
    assert compaction["firstKeptEntryId"] == "00000008"
    assert "firstKeptEntryIndex" not in compaction


def test_migration_appends_new_keys_and_changes_no_other_bytes() -> None:
    old = pi_file("v1.jsonl")
    for before, after in zip(lines_of(old), lines_of(migrate(old, ids_for(old))), strict=True):
        if b"firstKept" not in before.content:
            assert after.content.startswith(before.content[:-1] + b',"')


def test_migration_from_version_2_renames_hook_messages() -> None:
    old = pi_file("v2.jsonl")
    new = migrate(old, {})
    expected = old.replace(b'"version":2', b'"version":3').replace(b"hookMessage", b"custom")
    assert new == expected


def test_second_migration_changes_nothing() -> None:
    for name in ("v1.jsonl", "v2.jsonl", "v3.jsonl", "damaged.jsonl"):
        once = migrate(pi_file(name), ids_for(pi_file(name)))
        assert migrate(once, {}) == once
    assert migrate(pi_file("v3.jsonl"), {}) == pi_file("v3.jsonl")


def test_conversation_is_the_same_after_migration() -> None:
    old = pi_file("v1.jsonl")
    new = migrate(old, ids_for(old))
    before, after = parse(old), parse(new)
    assert texts_on(path_of(before)) == texts_on(path_of(after))
    assert [item.references for item in before.items] == [item.references for item in after.items]


def test_lines_that_are_not_records_stay_in_place() -> None:
    old = b'\n{"type":"session","id":"x"}\r\nnoise\n\n{"type":"custom"}'
    new = migrate(old, ids_for(old))
    assert new.split(b"\n")[0] == b""
    assert new.split(b"\n")[2:4] == [b"noise", b""]
    assert not new.endswith(b"\n")


def test_migration_keeps_the_bytes_of_a_malformed_value() -> None:
    line = b'{"type":"custom","data":["\\ud800",NaN]}'
    assert replace_keys(line, {"id": "a"}) == line[:-1] + b',"id":"a"}'


def changed(line: bytes, changes: Mapping[str, object]) -> bytes:
    return replace_keys(line, changes, "firstKeptEntryIndex")


def test_migration_changes_only_the_migrated_values() -> None:
    line = b'{"type":"x","id":"old","cost":1.50,"firstKeptEntryIndex":3,"parentId":null}'
    new = changed(line, {"id": "new", "parentId": "p"})
    assert new == b'{"type":"x","id":"new","cost":1.50,"parentId":"p"}'
