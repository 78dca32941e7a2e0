"""``docs/log-format.md`` matches the code: kinds, fields, choices, events, names."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from perdure.events.plain_json import camel
from perdure.events.projection import events_of
from perdure.events.types import SNAPSHOT, LiveType
from perdure.session import info, kinds, ledger, messages, notes
from perdure.session.codec import BODIES, entry_of_line, line_of
from perdure.session.entries import Entry
from perdure.session.flows import graph
from perdure.session.flows import kinds as flows
from perdure.session.ids import StreamId, blob_hash
from perdure.session.kinds import OPAQUE
from perdure.session.memory import kinds as memory
from perdure.session.messages import MESSAGE, Message, Part, Usage
from perdure.stores import chain
from tests.fakes.samples import case

TESTS = Path(__file__).resolve().parents[2]
TEXT = (TESTS.parent / "docs" / "log-format.md").read_text()
GOLDEN = b"".join(file.read_bytes() for file in sorted(TESTS.glob("golden/v1/*.jsonl")))
ENTRIES = [entry_of_line(line) for line in GOLDEN.removesuffix(b"\n").split(b"\n")]
KINDS = [MESSAGE, OPAQUE, *BODIES]


def section(title: str) -> str:
    """Return the text under a heading, up to the next heading."""
    found = re.search(rf"^##+ {re.escape(title)}\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, f"no section {title!r}"
    return found[1]


def names_in(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


def fields_listed(kind: str) -> dict[str, bool]:
    """Return each field of `kind`, and whether its bullet says that the field is always present."""
    listed: dict[str, bool] = {}
    for line in section(f"`{kind}`").splitlines():
        if line.startswith("- "):
            head = line.partition(":")[0]
            listed.update((name, star == "*") for name, star in re.findall(r"`(\w+)`(\*?)", head))
    return listed


def events_listed(kind: str) -> str:
    return section(f"`{kind}`").partition("Events: ")[2]


def test_kind_is_documented_with_exactly_its_fields() -> None:
    for kind in KINDS:
        with case(kind):
            known: type[msgspec.Struct] | None = Message if kind == MESSAGE else BODIES.get(kind)
            fields = () if known is None else msgspec.structs.fields(known)
            assert fields_listed(kind) == {field.name: field.required for field in fields}


def test_log_format_document_states_the_lane_of_each_kind() -> None:
    for kind in KINDS:
        with case(kind):
            lanes = {"tree": "Tree. ", "side": "Side"}
            expected = "Tree" if kind in (MESSAGE, OPAQUE) else lanes[BODIES[kind].lane]
            assert section(f"`{kind}`").startswith(expected)


def test_log_format_document_describes_no_unknown_kind() -> None:
    described = re.findall(r"^### `(\w+)`$", TEXT, re.MULTILINE)
    assert sorted(described) == sorted(KINDS)


def test_log_format_document_lists_every_choice_of_a_field() -> None:
    for kind, choices in [
        ("message", messages.Role),
        ("message", messages.StopReason),
        ("compaction", kinds.CompactionReason),
        ("session_ended", notes.EndedBy),
        ("episode", memory.EpisodeEnd),
        ("fact_remembered", memory.SaidBy),
        ("queued", notes.QueueMode),
        ("turn_started", ledger.InterruptPolicy),
        ("model_called", ledger.CallPurpose),
        ("tool_started", ledger.ToolEffect),
        ("tool_started", ledger.UnknownPolicy),
        ("tool_finished", ledger.ToolOutcome),
        ("turn_finished", ledger.TurnEnd),
        ("turn_finished", ledger.Failure),
        ("question", msgspec.structs.fields(notes.Question)[0].type),
        ("flow_started", flows.ConsentMode),
        ("flow_started", flows.FeedbackKind),
        ("flow_started", flows.InitializationMode),
        ("node_claimed", flows.ClaimCause),
        ("node_parked", flows.AwaitingReason),
        ("repair_asked", flows.RepairCode),
        ("flow_consent", flows.ConsentMode),
        ("flow_consent", flows.GrantedTool),
        ("improvement_chosen", flows.ImprovementMode),
    ]:
        with case((kind, choices)):
            assert names_in(section(f"`{kind}`")) >= set(get_args(choices))


def test_events_of_each_kind_are_documented() -> None:
    for kind in KINDS:
        with case(kind):
            told = [event for e in ENTRIES if e.kind == kind for event in events_of(e)]
            listed = events_listed(kind)
            assert {name for name in names_in(listed) if ":" in name} == {
                event.type for event in told
            }


def test_event_payloads_of_each_kind_are_documented() -> None:
    for kind in KINDS:
        with case(kind):
            listed = events_listed(kind)
            known = names_in(listed)
            if "ll fields" in listed or "its\nfields" in listed:
                known |= {camel(name) for name in fields_listed(kind)}
                known |= {camel(field.name) for field in msgspec.structs.fields(Usage)}
            for entry in ENTRIES:
                if entry.kind == kind:
                    for event in events_of(entry):
                        assert set(event.payload) - {"entryId", "parentId", "about"} <= known


def test_log_format_document_lists_every_live_event() -> None:
    live = section("Events that are not in the log")
    assert names_in(live) >= {*get_args(LiveType), SNAPSHOT, "log:entry"}


def test_log_format_document_lists_every_message_part_with_its_fields() -> None:
    table = section("Parts")
    for part in get_args(Part):
        tag = part.__struct_config__.tag
        (row,) = re.findall(rf"^\| `{tag}` \| (.*) \|$", table, re.MULTILINE)
        listed = dict(reversed(re.findall(r"`(\w+)`(\*?)", row)))  # the first mention counts
        for field in msgspec.structs.fields(part):
            assert (listed[field.name] == "*") == field.required


@pytest.mark.parametrize(
    ("title", "known"),
    [
        ("Streams", info.StreamHeader),
        ("Forks", info.ForkPoint),
        ("Usage", Usage),
        ("Nodes", graph.FlowNode),
    ],
)
def test_fields_of_other_log_values_are_documented_in_order(
    title: str, known: type[msgspec.Struct]
) -> None:
    fields = [field.name for field in msgspec.structs.fields(known)]
    places = [section(title).find(f"`{name}`") for name in fields]
    assert -1 not in places
    listed = re.findall(r"^(?:\| |- )?`(\w+)`", section(title), re.MULTILINE)
    if title != "Usage":
        assert [name for name in listed if name in fields] == fields


def test_line_fields_are_in_documented_order() -> None:
    place = Entry(StreamId("s"), 0, "tree", None, None, 0, "custom", 1, b"{}").id
    entry = Entry(StreamId("s"), 1, "tree", place, None, 0, "custom", 1, b"{}")
    side = Entry(StreamId("s"), 1, "side", None, place, 0, "opaque", 1, b"")
    text = section("One entry as a line of JSON")
    for one in (entry, side):
        written = list(msgspec.json.decode(line_of(one)))
        places = [text.find(f"`{name}`") for name in written]
        assert places == sorted(places)
        assert -1 not in places


def test_hash_chain_is_computed_as_the_log_format_document_says() -> None:
    def hashed(person: bytes, content: bytes) -> bytes:
        return hashlib.blake2b(content, digest_size=32, person=person).digest()

    origin, salt, body = b"o" * 32, b"s" * 16, b'{"text":"x"}'
    point = info.ForkPoint(StreamId("a"), None, 4, "path")
    header = info.StreamHeader(StreamId("s"), 7, title="T", fork=point)
    fork = b'{"stream":"a","leaf":null,"head":4,"scope":"path"}'
    written = b'{"id":"s","created_at":7,"title":"T","fork":' + fork + b"}"
    genesis = hashed(b"perdure-genesis", written + origin)
    assert chain.genesis_hash(header, origin) == genesis

    digest = hashlib.blake2b(body, digest_size=32, key=salt).digest()
    assert chain.body_digest(body, salt) == digest
    root = Entry(StreamId("s"), 0, "tree", None, None, 8, "custom", 1, body)
    label = Entry(StreamId("s"), 1, "side", None, root.id, 9, "label", 2, body)
    lines = [f"0 tree - 8 custom 1 {digest.hex()}\n", f"1 side s/0 9 label 2 {digest.hex()}\n"]
    assert [chain.header_line(entry, digest).decode() for entry in (root, label)] == lines
    commit = hashed(b"perdure-commit", genesis + b"10 3\n" + "".join(lines).encode())
    assert chain.commit_hash(genesis, 10, 3, [line.encode() for line in lines]) == commit

    for word in ("perdure-genesis", "perdure-commit", f"{chain.SALT_BYTES} random bytes"):
        assert word in section("The chain")


def test_blob_is_named_by_its_sha256_as_the_log_format_document_says() -> None:
    assert blob_hash(b"x") == "sha256-" + hashlib.sha256(b"x").hexdigest()


def test_glossary_has_each_term_once_in_alphabetical_order() -> None:
    glossary = (TESTS.parent / "docs" / "glossary.md").read_text()
    terms = re.findall(r"^- \*\*(.+)\*\* — .+$", glossary, re.MULTILINE)
    assert terms == sorted(set(terms))
    assert glossary.count("\n- ") == len(terms)
