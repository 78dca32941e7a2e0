"""The searchable part of an entry."""

from __future__ import annotations

import msgspec
import pytest

from perdure.session.codec import encode, new_side, new_tree
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.kinds import BranchSummary, Compaction, Custom, CustomMessage, ModelChange
from perdure.session.messages import (
    MediaPart,
    Message,
    TextPart,
    ThinkingPart,
    UnknownPart,
    assistant,
    system,
    thinking,
    tool_call,
    tool_result,
    user,
)
from perdure.session.notes import Label, SessionInfoChanged, SessionStarted
from perdure.session.search.searchable import (
    KINDS,
    Searchable,
    searchable_of,
    searchable_title,
)

ARGUMENTS: dict[str, object] = {"for": "x", "in": [1, {"a": None, "b": True}]}
PICTURE = MediaPart("image/png", "media://sha256-" + "0" * 64, 10, name="harbour.png")


def entry(new: NewEntry) -> Entry:
    return Entry(StreamId("s"), 0, new.lane, None, None, 1, new.kind, new.v, new.body)


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (new_tree(user("one", "two")), Searchable("user", "one\ntwo")),
        (new_tree(user("see", PICTURE)), Searchable("user", "see\nharbour.png")),
        (new_tree(system("rules")), Searchable("system", "rules")),
        (
            new_tree(assistant("said", thinking("thought"))),
            Searchable("assistant", "said\nthought"),
        ),
        (
            new_tree(assistant(tool_call("c", "grep", ARGUMENTS))),
            Searchable("assistant", "grep\nfor\nx\nin\n1\na\nb", ("grep",)),
        ),
        (new_tree(tool_result("c", "found", name="grep")), Searchable("tool", "found", ("grep",))),
        (new_tree(tool_result("c", "found")), Searchable("tool", "found")),
        (
            new_tree(Message("assistant", (), stop_reason="error", error="overloaded")),
            Searchable("assistant", "overloaded"),
        ),
        (new_tree(Compaction("gist")), Searchable("summary", "gist")),
        (new_tree(BranchSummary("left")), Searchable("summary", "left")),
        (new_tree(CustomMessage("note", (TextPart("text"),))), Searchable("custom", "text")),
        (new_side(SessionInfoChanged(title="Trip")), Searchable("title", "Trip")),
        (new_side(Label("start")), Searchable("label", "start")),
    ],
)
def test_searchable_kinds_have_text(new: NewEntry, expected: Searchable) -> None:
    assert searchable_of(entry(new)) == expected
    assert new.kind in KINDS


@pytest.mark.parametrize(
    "new",
    [
        new_tree(user("")),
        new_tree(Message("assistant", (ThinkingPart("hidden", is_redacted=True),))),
        new_tree(Message("user", (UnknownPart(msgspec.Raw(b'{"type":"hologram","text":"x"}')),))),
        new_tree(ModelChange("x:y")),
        new_tree(Custom("state", {"a": "b"})),
        new_side(SessionInfoChanged(title=None)),
        new_side(SessionInfoChanged(cwd="/work")),
        new_side(Label(None)),
        new_side(SessionStarted(system_prompt="rules")),
        NewEntry("message", b'{"role":"user","parts":[{"type":"text","text":"x"}]}', v=9),
        NewEntry("message", b"[]"),
        NewEntry("label", b"nonsense"),
        NewEntry("hologram", b'{"text":"x"}'),
        NewEntry("opaque", b"\xff"),
    ],
)
def test_entry_without_text_is_not_searchable(new: NewEntry) -> None:
    assert searchable_of(entry(new)) is None


def test_deeply_nested_arguments_are_searchable() -> None:
    nested: object = "core"
    for _ in range(300):
        nested = [nested]
    call = tool_call("c", "dig", {"at": nested})

    found = searchable_of(entry(NewEntry("message", encode(assistant(call)))))

    assert found == Searchable("assistant", "dig\nat\ncore", ("dig",))


def test_title_of_new_session_is_searchable() -> None:
    titled = StreamHeader(StreamId("s"), 1, title="Trip")

    assert searchable_title(titled) == Searchable("title", "Trip")
    assert searchable_title(StreamHeader(StreamId("s"), 1)) is None
    assert searchable_title(msgspec.structs.replace(titled, kind="flow")) is None
