from __future__ import annotations

import pytest

from perdure.secrets.mask import MASK, mask_secrets
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import StreamId
from perdure.session.info import (
    TITLE_LENGTH,
    ForkPoint,
    SessionInfo,
    StreamHeader,
    info_after,
    info_of,
    is_found,
    listed_text,
)
from perdure.session.ledger import TurnStarted
from perdure.session.messages import assistant, system, tool_result, user
from perdure.session.notes import (
    ContentErased,
    ImportSource,
    Label,
    SessionEnded,
    SessionExported,
    SessionInfoChanged,
    SessionReopened,
)
from tests.fakes.samples import case
from tests.fakes.secret_forms import CONTEXTS, MARKED, forms

HEADER = StreamHeader(StreamId("s"), created_at=1000)


def entry_of(new: NewEntry, at: int) -> Entry:
    return Entry(StreamId("s"), 0, new.lane, None, None, at, new.kind, new.v, new.body)


def info_with(*new: NewEntry, header: StreamHeader = HEADER) -> SessionInfo:
    entries = [entry_of(one, 2000 + n) for n, one in enumerate(new)]
    return info_after(info_of(header), entries)


def test_info_of_a_new_session_comes_from_its_header() -> None:
    header = StreamHeader(
        StreamId("s"),
        created_at=1000,
        origin="import",
        cwd="here",
        title=" A\n b ",
        parent=HEADER.id,
    )
    assert info_of(header) == SessionInfo(
        StreamId("s"),
        "session",
        "import",
        1000,
        1000,
        title="A\n b",
        cwd="here",
        parent=StreamId("s"),
    )


def test_messages_entries_and_turns_are_counted() -> None:
    info = info_with(
        new_side(TurnStarted(1, "a")),
        new_tree(user("Hi")),
        new_tree(assistant("Hello")),
        new_tree(tool_result("c", "x")),
        new_side(Label("x")),
    )
    assert (info.entries, info.messages, info.turns) == (5, 3, 1)


def test_only_user_and_assistant_messages_count_as_activity() -> None:
    assert info_with(new_tree(system("x")), new_tree(tool_result("c", "x"))).updated_at == 1000
    assert info_with(new_side(SessionInfoChanged(title="x"))).updated_at == 1000
    assert info_with(new_tree(user("x")), new_side(SessionEnded())).updated_at == 2000
    assert info_with(new_tree(user("x")), new_tree(assistant("y"))).updated_at == 2001


def test_old_message_does_not_reset_updated_at() -> None:
    entries = [entry_of(new_tree(user("new")), 5000), entry_of(new_tree(user("old")), 3000)]
    assert info_after(info_of(HEADER), entries).updated_at == 5000


def test_untitled_session_is_named_by_first_user_message() -> None:
    info = info_with(new_tree(assistant("Hello")), new_tree(user("Fix\n it ")), new_tree(user("b")))
    assert (info.title, info.first_text, info.name) == (None, "Fix it", "Fix it")
    assert info_with().name == ""


def test_first_message_without_text_does_not_become_the_session_name() -> None:
    assert info_with(new_tree(user("  ")), new_tree(user("Hi"))).name == "Hi"


def test_attached_text_does_not_become_a_part_of_the_session_name() -> None:
    sea = "sea.py:\n```\nprint('sea')\n```"
    assert info_with(new_tree(user("look", sea, "y" * 30_000))).name == "look"
    assert info_with(new_tree(user("look", "and answer"))).name == "look and answer"
    assert info_with(new_tree(user(sea))).name == "sea.py: ``` print('sea') ```"


@pytest.mark.parametrize(
    "command",
    ["/mode", "/plugin:run", "<command-name>/clear</command-name> <command-args></command-args>"],
)
def test_slash_command_does_not_become_the_session_name(command: str) -> None:
    says = [new_tree(user(text)) for text in (command, "/clear", "Hi", "b")]
    assert info_with(*says).name == "Hi"
    assert listed_text(StreamId("s"), [entry_of(one, 1) for one in says]).first_text == "Hi"
    named = info_with(new_tree(user(command))).name
    assert named == info_with(*says[:2]).name
    assert command.startswith(named.rstrip("…"))
    assert named


@pytest.mark.parametrize("text", ["/usr/bin is full", "/ask why", "a /mode"])
def test_message_with_a_slash_inside_becomes_the_session_name(text: str) -> None:
    assert info_with(new_tree(user(text)), new_tree(user("b"))).name == text


def test_long_first_message_is_cut_in_the_session_name() -> None:
    long = "word " * 40
    info = info_with(new_tree(user(long)))
    assert info.name.endswith("word…")
    assert len(info.name) <= TITLE_LENGTH
    titled = info_with(new_side(SessionInfoChanged(title=long)))
    assert titled.name == long.strip()
    assert info_with(new_tree(user("x" * TITLE_LENGTH))).name == "x" * TITLE_LENGTH


def test_title_and_folder_change_independently() -> None:
    renamed = new_side(SessionInfoChanged(title="New"))
    moved = new_side(SessionInfoChanged(cwd="there"))
    header = StreamHeader(StreamId("s"), created_at=1, title="Old", cwd="here")
    info = info_with(renamed, header=header)
    assert (info.title, info.cwd) == ("New", "here")
    info = info_with(renamed, moved, header=header)
    assert (info.title, info.cwd) == ("New", "there")
    for cleared in (None, "", "  \n"):
        info = info_with(new_side(SessionInfoChanged(title=cleared)), header=header)
        assert info.title is None


def test_reopened_session_is_active() -> None:
    ended, reopened = new_side(SessionEnded()), new_side(SessionReopened())
    assert info_with(ended).status == "ended"
    assert info_with(ended, reopened).status == "active"


def test_exported_session_is_active_again_when_reopened() -> None:
    exported, reopened = new_side(SessionExported("a", "workflow")), new_side(SessionReopened())
    assert info_with(exported).status == "exported"
    assert info_with(exported, reopened).status == "active"


@pytest.mark.parametrize("kind", ["message", "session_info", "compaction", "opaque", "future"])
def test_unreadable_entry_changes_only_the_entry_count(kind: str) -> None:
    for body, version in ((b"\xff{", 1), (b"{}", 99), (b"[" * 100_000, 1)):
        info = info_with(NewEntry(kind, body, version))
        assert (info.entries, info.messages) == (1, int(kind == "message"))
        assert (info.name, info.updated_at, info.status) == ("", 1000, "active")


def test_unreadable_user_message_counts_as_activity() -> None:
    info = info_with(NewEntry("message", b'{"role":"user","parts":7}'))
    assert (info.messages, info.name, info.updated_at) == (1, "", 2000)


def test_fork_inherits_the_title_but_not_the_turn_count() -> None:
    origin = info_with(
        new_side(TurnStarted(1, "a")),
        new_tree(user("Hi")),
        new_side(SessionInfoChanged(title="T", cwd="here")),
    )
    point = ForkPoint(StreamId("s"), None, 2, "tree")
    fork = info_of(StreamHeader(StreamId("f"), created_at=9000, fork=point), origin)
    assert (fork.parent, fork.title, fork.first_text, fork.cwd) == ("s", "T", "Hi", "here")
    assert (fork.messages, fork.entries, fork.turns, fork.updated_at) == (1, 0, 0, 9000)
    named = StreamHeader(StreamId("f"), created_at=9000, fork=point, title="F", cwd="there")
    assert (info_of(named, origin).title, info_of(named, origin).cwd) == ("F", "there")


def test_session_status_is_importing_until_the_last_part() -> None:
    first = ImportSource("pi", "f", "sha256-x", 0, 9, 1, 1, has_more=True)
    last = ImportSource("pi", "f", "sha256-y", 9, 9, 2, 1)
    assert info_with(new_side(last)).status == "active"
    assert info_with(new_side(first)).status == "importing"
    assert info_with(new_side(first), new_tree(user("Hi"))).status == "importing"
    assert info_with(new_side(first), new_side(last)).status == "active"
    assert info_with(new_side(SessionEnded()), new_side(last)).status == "ended"
    damaged = NewEntry(ImportSource.kind, b"{}", lane="side")
    assert info_with(new_side(first), damaged).status == "importing"


def test_session_filter_ignores_letter_case() -> None:
    named = info_of(StreamHeader(StreamId("Abc"), created_at=1, title="Größe", cwd="/here"))
    assert is_found(named, None, None)
    assert is_found(named, "/here", "")
    assert is_found(named, "/here", "GRÖSSE")
    assert is_found(named, None, "aBC")
    assert not is_found(named, "/there", None)
    assert not is_found(named, "/here", "small")


def test_erased_session_is_not_listed() -> None:
    erased = new_side(ContentErased("e1", "me", ((0, 0),), is_whole=True))
    assert not is_found(info_with(erased), None, None)


PLAIN_WORDS = (
    ("mysql -u root -p hunt3r2 shop", "hunt3r2"),
    ("docker login -u bob -p hunt3r2", "hunt3r2"),
    ("my pw is hunt3r2x, log in", "hunt3r2x"),
    ("ALTER USER bob IDENTIFIED BY 'hunt3r2'", "hunt3r2"),
)
"""Texts with a secret, but without a long word, a key prefix or a name such as "password"."""


def test_session_name_masks_secrets_in_the_stored_text() -> None:
    placed = [(text, secret) for _, text, secret in forms()]
    marked = [(f"use {key} now", key) for _, key in MARKED]
    for text, secret in (*PLAIN_WORDS, *placed, *CONTEXTS, *marked):
        with case(text):
            stored = SessionInfo(StreamId("s"), "session", "user", 0, 0, first_text=text)
            assert stored.name == mask_secrets(text)
            assert MASK in stored.name
            assert secret not in str(stored)


def test_session_name_from_message_without_secrets_is_unchanged() -> None:
    text = "Read src/main.py: 3 lines"
    assert SessionInfo(StreamId("s"), "session", "user", 0, 0, first_text=text).name == text


def test_key_at_the_end_of_a_cut_title_is_masked_completely() -> None:
    key = "sk-ant-api03-" + "Zx9Qw3Lm7Vb2Nc8K" * 3
    info = info_with(new_tree(user(f"  Please use this for the whole afternoon: {key}")))
    assert info.name == "Please use this for the whole afternoon: [redacted]"


def test_key_at_the_end_of_the_searched_text_is_not_shown_in_part() -> None:
    key = "sk-ant-api03-" + "Zx9Qw3Lm7Vb2Nc8K" * 3
    for gap in range(1_940, 2_000, 7):
        with case(gap):
            info = info_with(new_tree(user(f"Use{' ' * gap}{key}")))
            assert info.name in ("Use", "Use [redacted]")
    assert info_with(new_tree(user("x" * 3_000))).name == f"{'x' * 59}…"
