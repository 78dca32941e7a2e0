from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codecs.shared_keys import meta_of
from perdure.context.build import build_context
from perdure.errors import FormatError
from perdure.interop.formats.opencode.reader import parse
from perdure.session.kinds import Compaction, Custom
from perdure.session.messages import Message
from perdure.session.notes import ImportedRecord, SessionInfoChanged
from tests.fakes.provider_rules import all_problems
from tests.fakes.sources import (
    OPENCODE,
    check_items,
    empty_store,
    imported,
    opencode_file,
    path_of,
    spoilt,
    texts_on,
)

FILES = [opencode_file(name) for name in OPENCODE]
SESSION = "ses_4f0c2f6e0001"


def document(*messages: object, **info: object) -> bytes:
    return msgspec.json.encode({"info": {"id": "s", **info}, "messages": messages})


def said(id: str, text: str, role: str = "user") -> dict[str, object]:
    return {"info": {"id": id, "role": role}, "parts": [{"type": "text", "text": text}]}


@pytest.mark.parametrize("name", OPENCODE)
def test_every_line_of_a_file_is_imported_or_reported(name: str) -> None:
    parsed = parse(opencode_file(name))
    check_items(parsed)
    assert (parsed.warnings, parsed.malformed) == ((), ())


def test_header_of_the_imported_session_has_the_data_of_the_file() -> None:
    parsed = parse(opencode_file("export.json"))
    assert (parsed.header.session, parsed.header.cwd) == (SESSION, "/home/ana/orchard")
    assert parsed.header.created_at == 1_775_037_600_000
    assert parsed.header.metadata["version"] == "1.4.0"
    assert parsed.items[0].body == SessionInfoChanged(title="Apples and pears")


def test_messages_are_one_chain_in_the_order_of_the_document() -> None:
    path = path_of(parse(opencode_file("export.json")))
    roles = [item.body.role for item in path if isinstance(item.body, Message)]
    assert roles == [
        *("user", "assistant", "tool", "assistant", "user", "assistant", "tool"),
        *("user", "assistant"),
    ]


def test_every_item_contains_its_line_number_and_offset_in_the_document() -> None:
    content = opencode_file("export.json")
    for item in parse(content).items:
        piece = msgspec.json.decode(content[item.offset : item.offset + item.length])
        assert isinstance(piece, dict)
        assert content.count(b"\n", 0, item.offset) == item.number - 1


def test_summary_becomes_a_compaction_that_keeps_newer_messages() -> None:
    parsed = parse(opencode_file("export.json"))
    [item] = [item for item in parsed.items if isinstance(item.body, Compaction)]
    assert item.body == Compaction("Apples: nine. Pears: gone.", reason="import")
    assert item.references is not None
    assert parsed.items[item.references["first_kept"]].alias == "msg_0004"


async def test_context_at_every_entry_is_valid_for_every_provider() -> None:
    store = empty_store()
    for content in FILES:
        stream = (await imported(store, content)).session
        for entry in await store.tree(stream):
            context = build_context(await store.context_window(stream, entry.id))
            assert all_problems([each.message for each in context.messages]) == [], entry.id


async def test_agent_session_has_parent_session_and_call() -> None:
    store = empty_store()
    agent = await imported(store, opencode_file("agent.json"))
    parent = await imported(store, opencode_file("export.json"))
    header = (await store.state(agent.session)).header
    assert (header.origin, header.parent) == ("subagent", parent.session)
    told = [meta_of(entry.body) for entry in await store.entries(parent.session)]
    assert {"subagent": agent.session} in told


async def test_second_export_adds_only_new_messages() -> None:
    store = empty_store()
    first = document(said("m1", "a"), said("m2", "b", "assistant"))
    await imported(store, first)
    again = document(
        said("m1", "a"), said("m2", "b", "assistant"), said("m3", "c"), updated="later"
    )
    report = await imported(store, again)
    assert (report.session, report.entries, report.is_new) == ("s", 1, False)
    branch = await store.branch(report.session, (await store.state(report.session)).leaf)
    assert [entry.message.text for entry in branch if entry.message] == ["a", "b", "c"]


def test_identical_messages_get_different_offsets() -> None:
    parsed = parse(document(said("m", "a"), said("m", "a")))
    assert len({item.offset for item in parsed.items}) == 2


def test_message_without_role_or_parts_is_reported_and_stored() -> None:
    parsed = parse(document(said("m1", "a"), {"info": {"id": "m2"}}, 5, said("m3", "b")))
    assert texts_on(path_of(parsed)) == ["a", "b"]
    assert isinstance(parsed.items[1].body, Custom)
    assert len(parsed.malformed) == 2
    check_items(parsed)


def test_message_without_content_parts_is_stored_outside_the_tree() -> None:
    quiet = {"info": {"id": "m", "role": "user"}, "parts": [{"type": "compaction", "auto": True}]}
    assert parse(document(quiet)).items[0].body == ImportedRecord("opencode", "message")


def test_document_with_another_key_order_is_read() -> None:
    content = msgspec.json.encode({"messages": [said("m", "a")], "info": {"id": "s"}})
    parsed = parse(content)
    assert parsed.header.session == "s"
    check_items(parsed)


@pytest.mark.parametrize("cut", [2, 500, 2_000])
async def test_document_that_is_cut_off_is_rejected(cut: int) -> None:
    store = empty_store()
    with pytest.raises(FormatError):
        await imported(store, opencode_file("export.json")[:-cut], "opencode")
    assert (await store.info()).streams == 0


@given(spoilt(FILES))
def test_every_line_of_a_damaged_file_is_stored(content: bytes) -> None:
    check_items(parse(content))


@given(st.lists(st.binary(max_size=200)))
def test_every_line_of_any_bytes_is_imported_or_reported(lines: list[bytes]) -> None:
    check_items(parse(b"\n".join(lines)))
