"""Redaction of a whole session: text, tools, titles, metadata, files; the tree is unchanged."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.interop.formats import native
from perdure.interop.formats.bundles import standing_of
from perdure.interop.formats.items import REDACTED, with_source
from perdure.interop.redaction.sessions import redact
from perdure.session.codec import encode, readable
from perdure.session.ids import EntryId, StreamId, blob_hash
from perdure.session.kinds import Compaction, Custom
from perdure.session.messages import (
    MediaPart,
    Message,
    ToolResultPart,
    assistant,
    thinking,
    tool_call,
    tool_result,
    user,
)
from perdure.session.notes import (
    ImportedRecord,
    ImportSource,
    Label,
    SessionInfoChanged,
    SessionStarted,
    SourcePlace,
    source_of,
)
from tests.fakes.bundles import HEADER, Making, bundle_of_log
from tests.fakes.random_logs import random_logs
from tests.fakes.tree_log import TreeLog

KEY = "ghp_Ab3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hI6"
HOME = "/home/alice"
EVERYTHING = f"{KEY} {HOME}/src/app/x alice"
CLEAN = "[github-token-1] [cwd-1]/x [user-1]"


def everywhere() -> Making:
    """Return a session with its secret in every possible place."""
    header = msgspec.structs.replace(
        HEADER, cwd=f"{HOME}/src/app", title=EVERYTHING, metadata={"token": KEY, "by": EVERYTHING}
    )
    making = Making(header)
    making.note(SessionStarted(system_prompt=EVERYTHING, workspace={"working_dir": f"{HOME}/w"}))
    first = making.say(user(EVERYTHING))
    making.note(Label(EVERYTHING), first)
    making.note(SessionInfoChanged(title=EVERYTHING))
    args: dict[str, object] = {EVERYTHING: [EVERYTHING, {"password": "sw0rdfish", "n": 1}]}
    making.say(assistant(EVERYTHING, thinking(EVERYTHING), tool_call("c", "run", args)))
    making.say(tool_result("c", EVERYTHING), Custom("x", {"data": EVERYTHING, "api_key": "abcd"}))
    making.say(Compaction(EVERYTHING, first, read_files=(EVERYTHING,)))
    making.raw("opaque", b'\xff{"x": "' + EVERYTHING.encode() + b'"')
    making.raw("hologram", encode({"deep": {"er": EVERYTHING}}))
    return making


def test_redacted_session_contains_no_secret() -> None:
    result = redact(everywhere().made(), ("secrets", "paths"))
    written = native.write_bundle(result.bundle)
    for secret in (KEY, "alice", HOME, "sw0rdfish", '"abcd"'):
        assert secret.encode() not in written
    assert result.counts == {"cwd": 2, "github-token": 1, "secret": 2, "user": 1}
    assert result.places > 20
    assert standing_of(result.bundle).title == CLEAN
    assert result.bundle.header.cwd == "[cwd-1]"
    metadata = {"token": "[github-token-1]", "by": CLEAN, REDACTED: ["secrets", "paths"]}
    assert result.bundle.header.metadata == metadata


def test_redaction_keeps_the_ids_and_references_of_entries() -> None:
    before = everywhere().made()
    after = redact(before, ("secrets", "paths")).bundle
    for old, new in zip(before.entries, after.entries, strict=True):
        assert (old.id, old.parent_id, old.about, old.kind, old.at) == (
            (new.id, new.parent_id, new.about, new.kind, new.at)
        )
        assert type(readable(old)) is type(readable(new))
    compaction = next(b for e in after.entries if isinstance(b := readable(e), Compaction))
    assert compaction.first_kept == before.entries[1].id


def test_only_requested_kinds_are_replaced() -> None:
    result = redact(everywhere().made(), ("secrets",))
    assert result.bundle.header.cwd == f"{HOME}/src/app"
    assert result.bundle.header.metadata is not None
    assert result.bundle.header.metadata[REDACTED] == ["secrets"]
    assert KEY.encode() not in native.write_bundle(result.bundle)


def test_redacted_export_omits_the_import_original() -> None:
    making = Making()
    original = f'{{"text":"{KEY}"}}\n'.encode()
    making.blobs = [original]
    digest = blob_hash(original)
    making.note(ImportSource("pi", EVERYTHING, digest, 0, len(original), 1, 1))
    making.say(user("harmless"))
    source = SourcePlace(part=0, offset=0, length=9)
    entry = making.entries[1]
    making.entries[1] = msgspec.structs.replace(entry, body=with_source(entry.body, source))
    after = redact(making.made(), ("secrets",)).bundle
    assert after.blobs == ()
    assert readable(after.entries[0]) == ImportedRecord("pi", REDACTED)
    assert source_of(after.entries[1].body) is None
    assert KEY.encode() not in native.write_bundle(after)
    again = native.parse(native.write_bundle(after), "x")
    assert again.entries == after.entries


def test_files_with_secrets_are_dropped_and_pictures_are_reported() -> None:
    making = Making()
    making.blobs = [b"\x89PNG\x00", b"harmless", f"key {KEY}".encode()]
    media = tuple(
        MediaPart("text/plain", f"media://{blob_hash(blob)}", len(blob)) for blob in making.blobs
    )
    making.say(Message("tool", (ToolResultPart("c", "", media=media),)))
    result = redact(making.made(), ("secrets",))
    assert result.bundle.blobs == (b"\x89PNG\x00", b"harmless")
    assert (result.unseen, result.dropped) == (1, 1)
    assert native.parse(native.write_bundle(result.bundle), "x").entries == result.bundle.entries


def test_foreign_ids_are_unchanged_unless_sensitive() -> None:
    making = Making()
    first = making.say(user("one"))
    making.aliases = {"0a1b2c3d": first, KEY: first}
    assert redact(making.made(), ("secrets",)).bundle.aliases == {"0a1b2c3d": first}


def test_user_name_equal_to_a_field_name_damages_no_entry() -> None:
    making = Making()
    making.say(user("/home/parts/x /home/message/x /home/assistant/x"))
    making.say(assistant("parts of a message"))
    after = redact(making.made(), ("paths",)).bundle
    assert [type(readable(entry)) for entry in after.entries] == [Message, Message]


def test_user_name_in_the_session_id_breaks_no_reference() -> None:
    making = Making(msgspec.structs.replace(HEADER, id="alice"))
    first = making.say(user("/home/alice/x"))
    making.say(Compaction("s", first))
    after = redact(making.made(), ("paths",)).bundle
    compaction = readable(after.entries[1])
    assert isinstance(compaction, Compaction)
    assert compaction.first_kept == EntryId("alice/0")


def test_origin_id_in_entry_ids_is_redacted() -> None:
    making = Making(msgspec.structs.replace(HEADER, parent=StreamId("alice")))
    first = making.say(user("/home/alice/x"))
    second = making.say(user("more"))
    made = msgspec.structs.replace(
        making.made(), stored_ids={first: EntryId("alice/7"), second: EntryId(f"{HEADER.id}/0")}
    )
    after = redact(made, ("paths",)).bundle
    assert after.stored_ids == {first: "[user-1]/7", second: f"{HEADER.id}/0"}
    assert after.header.parent is None
    assert redact(after, ("paths",)).bundle == after
    shown = redact(made, ("secrets",)).bundle
    assert (shown.stored_ids, shown.header.parent) == (made.stored_ids, "alice")


@pytest.mark.full_only
@settings(max_examples=max(20, settings().max_examples // 2))
@given(st.data(), random_logs(16))
def test_any_log_is_redacted_and_repetition_changes_nothing(
    data: st.DataObject, log: TreeLog
) -> None:
    bundle = bundle_of_log(log, data.draw(st.sampled_from([None, *log.by_id])))
    once = redact(bundle, ("secrets", "paths"))
    assert once.counts in ({}, {"cwd": 1})
    assert [entry.id for entry in once.bundle.entries] == [entry.id for entry in bundle.entries]
    again = redact(once.bundle, ("secrets", "paths"))
    assert again.bundle.entries == once.bundle.entries
