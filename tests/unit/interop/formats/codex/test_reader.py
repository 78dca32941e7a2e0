from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.context.build import build_context
from perdure.interop.formats.codex.reader import APART, parse
from perdure.interop.formats.items import Item, ParsedSource
from perdure.session.kinds import Compaction, Custom, CustomMessage, ModelChange, ThinkingChange
from perdure.session.messages import Message, Usage, user
from perdure.session.notes import ImportedRecord, LeafMoved, SessionInfoChanged
from tests.fakes.provider_rules import all_problems
from tests.fakes.sources import (
    CODEX,
    check_items,
    codex_file,
    empty_store,
    imported,
    made_of,
    path_of,
    spoilt,
    texts_on,
)

FILES = [codex_file(name) for name in CODEX]
ROLLOUT = "0199a213-81c0-7800-8aa1-bbab2a03c001"


def line(kind: str, /, **payload: object) -> bytes:
    record = {"timestamp": "2026-04-01T10:00:00.500Z", "type": kind, "payload": payload}
    return msgspec.json.encode(record) + b"\n"


def said(text: str, role: str = "user") -> bytes:
    return line("response_item", type="message", role=role, content=[{"text": text}])


def event(kind: str, /, **fields: object) -> bytes:
    return line("event_msg", type=kind, **fields)


def items_of(parsed: ParsedSource, *kinds: type) -> list[Item]:
    return [item for item in parsed.items if isinstance(item.body, kinds)]


@pytest.mark.parametrize("name", CODEX)
def test_every_line_of_a_file_is_imported_or_reported(name: str) -> None:
    parsed = parse(codex_file(name))
    check_items(parsed)
    assert (parsed.warnings, parsed.malformed) == ((), ())


def test_header_of_an_imported_file_gives_the_session_data() -> None:
    header = parse(codex_file("rollout.jsonl")).header
    assert (header.session, header.cwd) == (ROLLOUT, "/home/ana/orchard")
    assert header.created_at == 1_775_037_600_250
    assert header.metadata["cli_version"] == "0.120.0"
    assert (header.parent, header.is_subagent) == (None, False)


def test_conversation_in_a_codex_file_is_one_chain_of_entries() -> None:
    parsed = parse(codex_file("rollout.jsonl"))
    path = path_of(parsed)
    assert texts_on(path)[0] == "How many apples are in this picture?"
    assert texts_on(path)[-1] == "Two pears."
    numbers = [item.number for item in path]
    assert numbers == sorted(numbers)


async def test_context_at_every_entry_is_valid_for_every_provider() -> None:
    store = empty_store()
    for content in FILES:
        stream = (await imported(store, content)).session
        for entry in await store.tree(stream):
            context = build_context(await store.context_window(stream, entry.id))
            assert all_problems([each.message for each in context.messages]) == [], entry.id


def test_change_of_model_or_effort_is_recorded_once() -> None:
    parsed = parse(codex_file("rollout.jsonl"))
    changes = [item.body for item in items_of(parsed, ModelChange, ThinkingChange)]
    assert changes == [
        ModelChange("openai:gpt-5-codex"),
        ThinkingChange("medium"),
        ThinkingChange("high"),
    ]
    again = parse(line("turn_context", model="m", effort="low") * 2)
    assert [item.kind for item in again.items] == [
        *("model_change", "thinking_change", "imported_record")
    ]


def test_turn_record_without_a_model_does_not_change_the_model() -> None:
    parsed = parse(line("turn_context", cwd="/"))
    assert [item.kind for item in parsed.items] == ["imported_record"]


def test_input_tokens_of_usage_exclude_cached_tokens() -> None:
    parsed = parse(codex_file("rollout.jsonl"))
    usages = [
        item.body.usage
        for item in parsed.items
        if isinstance(item.body, Message) and item.body.usage is not None
    ]
    assert usages == [
        Usage(input_tokens=200, output_tokens=40, cache_read_tokens=1000),
        Usage(input_tokens=300, output_tokens=12, cache_read_tokens=1200),
    ]


def test_usage_before_the_first_message_is_stored_outside_the_tree() -> None:
    info = {"last_token_usage": {"input_tokens": 5, "output_tokens": 1}}
    parsed = parse(event("token_count", info=info) + event("token_count", info=None))
    assert [item.body for item in parsed.items] == [
        ImportedRecord("codex", "event_msg:token_count")
    ] * 2


def test_injected_text_is_not_a_user_message() -> None:
    parsed = parse(codex_file("rollout.jsonl"))
    kinds = [
        item.body.custom_type
        for item in path_of(parsed)
        if isinstance(item.body, CustomMessage) and item.body.in_context
    ]
    assert kinds == ["codex:developer", "codex:context"]


def test_codex_rollback_moves_the_leaf_before_the_undone_turns() -> None:
    parsed = parse(codex_file("rollout.jsonl"))
    assert "And this is a mistake" not in texts_on(path_of(parsed))
    [leaf] = items_of(parsed, LeafMoved)
    assert leaf.references is not None
    body = parsed.items[leaf.references["target"]].body
    assert isinstance(body, Message)
    assert body.text == "Nine apples."


@pytest.mark.parametrize(("count", "left"), [(1, ["a", "A"]), (2, []), (9, [])])
def test_rollback_undoes_stated_number_of_turns(count: int, left: list[str]) -> None:
    told = said("a") + said("A", "assistant") + said("b") + said("B", "assistant")
    parsed = parse(told + event("thread_rolled_back", num_turns=count))
    assert texts_on(path_of(parsed)) == left
    check_items(parsed)


@pytest.mark.parametrize("count", [0, -1, "x", None])
def test_codex_rollback_without_a_positive_count_changes_nothing(count: object) -> None:
    parsed = parse(said("a") + event("thread_rolled_back", num_turns=count))
    assert texts_on(path_of(parsed)) == ["a"]


def test_codex_thread_name_becomes_the_title() -> None:
    parsed = parse(codex_file("rollout.jsonl"))
    [item] = items_of(parsed, SessionInfoChanged)
    assert item.body == SessionInfoChanged(title="Apples")
    unnamed = parse(event("thread_name_updated", thread_name=None))
    assert [item.kind for item in unnamed.items] == ["imported_record"]


def test_replacement_history_becomes_retained_messages() -> None:
    parsed = parse(codex_file("rollout.jsonl"))
    [item] = items_of(parsed, Compaction)
    assert isinstance(item.body, Compaction)
    assert item.body.summary == "Nine apples were counted."
    assert item.body.retained == (user("And the pears?"),)


def test_compaction_of_early_codex_versions_has_only_a_summary() -> None:
    parsed = parse(said("a") + line("compacted", message="All of it."))
    assert parsed.items[-1].body == Compaction("All of it.", reason="import")


def test_codex_events_are_stored_outside_the_tree() -> None:
    parsed = parse(codex_file("rollout.jsonl"))
    assert made_of(parsed, 6).body == ImportedRecord("codex", "event_msg:user_message")
    assert made_of(parsed, 32).body == ImportedRecord("codex", "event_msg:turn_aborted")


# -- sessions that belong together


async def test_session_of_a_codex_subagent_has_its_parent_session() -> None:
    store = empty_store()
    report = await imported(store, codex_file("agent.jsonl"))
    header = (await store.state(report.session)).header
    assert (header.origin, header.parent) == ("subagent", ROLLOUT)


async def test_imported_codex_fork_has_the_origin_as_parent() -> None:
    store = empty_store()
    content = line("session_meta", id="fork", forked_from_id=ROLLOUT, cwd="/") + said("a")
    header = (await store.state((await imported(store, content)).session)).header
    assert (header.origin, header.parent) == ("import", ROLLOUT)


# -- the first versions


def test_rollout_of_the_first_codex_version_is_read() -> None:
    parsed = parse(codex_file("bare.jsonl"))
    assert parsed.header.session == "0198a213-81c0-7800-8aa1-bbab2a03c003"
    assert texts_on(path_of(parsed))[0] == "How many apples?"
    assert {item.at for item in parsed.items} == {1_748_772_000_250}


def test_working_directory_of_an_early_codex_file_is_found() -> None:
    assert parse(codex_file("bare.jsonl")).header.cwd == "/home/ana/orchard"


# -- unreadable data


def test_record_of_an_unknown_type_keeps_its_place() -> None:
    parsed = parse(said("a") + line("dream", about="sheep") + said("b"))
    assert parsed.items[1].body == Custom("codex:dream", {"about": "sheep"})
    assert parsed.items[2].parent == 1
    assert any("dream" in text for text in parsed.warnings)


@pytest.mark.parametrize("kind", sorted(APART))
def test_line_outside_the_conversation_is_stored_outside_the_tree(kind: str) -> None:
    parsed = parse(line("session_meta", id="a", cwd="/") + line(kind, full=True))
    assert parsed.warnings == ()
    assert parsed.items[0].body == ImportedRecord("codex", kind)


def test_unknown_response_item_is_stored_outside_the_tree_and_reported() -> None:
    parsed = parse(line("response_item", type="song"))
    assert parsed.items[0].body == ImportedRecord("codex", "response_item:song")
    assert any("song" in text for text in parsed.warnings)


@pytest.mark.parametrize(
    "content",
    [
        b"noise\n",
        b"[1]\n",
        b'{"type":"response_item"}\n',
        b'{"type":"response_item","payload":{"type":"function_call","name":"f"}}\n',
        b'{"type":"response_item","payload":{"type":"message","role":"oracle","content":"x"}}\n',
        b'{"no":"type"}\n',
    ],
)
def test_incomplete_line_is_reported(content: bytes) -> None:
    parsed = parse(said("a") + content + said("b"))
    assert [each.number for each in parsed.malformed] == [2]
    assert texts_on(path_of(parsed)) == ["a", "b"]
    check_items(parsed)


def test_payload_with_role_and_content_is_a_message() -> None:
    thin = line("response_item", role="user", content="Hi")
    thin += line("response_item", role="assistant", content=[{"text": "Hello"}])
    parsed = parse(thin + line("response_item", role="oracle", content="x"))
    assert texts_on(path_of(parsed)) == ["Hi", "Hello"]
    assert [item.body.role for item in parsed.items if isinstance(item.body, Message)] == [
        "user",
        "assistant",
    ]
    check_items(parsed)


async def test_rollout_without_header_gets_session_id_from_path(tmp_path: Path) -> None:
    thin = line("response_item", role="user", content="Hi")
    path = tmp_path / f"rollout-2026-04-01T10-00-00-{ROLLOUT}.jsonl"
    path.write_bytes(thin)
    store = empty_store()
    report = await imported(store, path)
    assert (report.session, report.messages) == (ROLLOUT, 1)
    path.write_bytes(thin + line("response_item", role="assistant", content="Hello"))
    again = await imported(store, path)
    assert (again.session, again.messages, again.is_new) == (ROLLOUT, 1, False)
    other = tmp_path / "notes.jsonl"
    other.write_bytes(said("a"))
    assert (await imported(store, other)).session.startswith("codex-")


def test_second_header_line_is_stored_outside_the_tree() -> None:
    """The rollout of a fork starts with its own header, then its origin's."""
    parsed = parse(line("session_meta", id="a") + line("session_meta", id="b") + said("x"))
    assert parsed.header.session == "a"
    assert parsed.items[0].body == ImportedRecord("codex", "session_meta")


async def test_rollout_with_a_changed_header_becomes_a_separate_session() -> None:
    store = empty_store()
    content = codex_file("rollout.jsonl")
    first = await imported(store, content)
    report = await imported(store, content.replace(b'"branch":"main"', b'"branch":"next"'))
    assert (report.session, report.is_new) == (f"{first.session}.2", True)


@given(spoilt(FILES))
def test_every_line_of_a_damaged_file_is_stored(content: bytes) -> None:
    check_items(parse(content))


@given(st.lists(st.binary(max_size=200)))
def test_every_line_of_any_bytes_is_imported_or_reported(lines: list[bytes]) -> None:
    check_items(parse(b"\n".join(lines)))
