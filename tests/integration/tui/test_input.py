"""Text that is typed, pasted, completed and attached."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from textual import events

from perdure import user
from perdure.apps.chat.history import Drafts
from perdure.apps.tui.blocks import SentBlock
from perdure.apps.tui.composer import Composer
from perdure.apps.tui.gauge import KeyFooter
from perdure.client.store import Store
from perdure.session.codec import body_of
from perdure.session.memory.kinds import ContextRecalled
from perdure.session.messages import MediaPart, TextPart
from tests.fakes.screens import Seen, chatting

PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)


async def said(store: Store) -> list[str]:
    """Return the texts of the user's messages in the newest session."""
    (info, *_) = await store.recent()
    messages = await (await store.open(info.id)).messages()
    return [message.text for message in messages if message.role == "user"]


async def paste(seen: Seen, text: str) -> None:
    """Paste `text` into the focused widget."""
    seen.program.post_message(events.Paste(text))
    await seen.pause()


async def test_pasted_text_is_one_message_with_its_indentation(
    store: Store, tmp_path: Path
) -> None:
    async with chatting(store, tmp_path) as seen:
        await paste(seen, "def f():\r\n    return 1\r\n\x1b[31m")
        assert await store.recent() == []
        await seen.press("enter")
        await seen.shows("you wrote")
        await seen.idle()
    assert await said(store) == ["def f():\n    return 1\n\N{REPLACEMENT CHARACTER}[31m"]


async def test_tab_in_pasted_text_is_shown_as_eight_columns(store: Store, tmp_path: Path) -> None:
    async with chatting(store, tmp_path) as seen:
        await paste(seen, "    if x:\n\treturn")
        await seen.until(lambda: "return" in seen.screen)
        rows = seen.screen.splitlines()
        outer, inner = (next(r for r in rows if word in r) for word in ("if x:", "return"))
        assert inner.index("return") - outer.index("if x:") == 4
        assert seen.program.input.composer.text == "    if x:\n\treturn"


async def test_key_shortcut_or_backslash_adds_a_line_to_the_input(
    store: Store, tmp_path: Path
) -> None:
    async with chatting(store, tmp_path) as seen:
        await seen.press("a", "ctrl+j", "b", "backslash", "enter", "c", "enter")
        await seen.shows("you wrote")
        await seen.idle()
    assert await said(store) == ["a\nb\nc"]


async def test_earlier_inputs_of_the_folder_are_recalled(store: Store, tmp_path: Path) -> None:
    async with chatting(store, tmp_path) as seen:
        await seen.type("the first")
        await seen.idle()
        await seen.shows("you wrote")
    async with chatting(store, tmp_path) as seen:
        await seen.type("/cost")
        await seen.idle()
        composer = seen.program.input.composer
        await seen.press("x", "up")
        await seen.until(lambda: composer.text == "/cost")
        await seen.press("up")
        await seen.until(lambda: composer.text == "the first")
        await seen.press("down", "down")
        await seen.until(lambda: composer.text == "x")


async def test_file_name_is_completed_and_the_file_is_attached(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "sea.py").write_text("print('sea')\n")
    (tmp_path / "shore.png").write_bytes(PNG)
    (tmp_path / "esc\x1b.py").write_text("never offered")
    async with chatting(store, tmp_path) as seen:
        await seen.until(lambda: len(seen.program.input.files) == 2)
        await seen.press("@", "s", "e", "a", "p")
        await seen.until(lambda: seen.program.input.offers is not None)
        await seen.press("tab")
        await seen.shows("attached: src/sea.py (13 bytes)")
        assert seen.program.input.composer.text == "@src/sea.py "
        await seen.press("@", "s", "h", "o")
        await seen.until(lambda: seen.program.input.offers is not None)
        await seen.press("enter")
        await seen.shows("shore.png (24 bytes)")
        await seen.press("enter")
        await seen.shows("you wrote")
        await seen.idle()
    (info,) = await store.recent()
    (message, *_) = await (await store.open(info.id)).messages()
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    media = [part for part in message.parts if isinstance(part, MediaPart)]
    assert texts[0].split() == ["@src/sea.py", "@shore.png"]
    assert texts[1] == "src/sea.py:\n```\nprint('sea')\n```"
    assert [part.name for part in media] == ["shore.png"]


async def test_file_whose_name_was_removed_from_the_message_is_not_attached(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "sea.py").write_text("print('sea')\n")
    async with chatting(store, tmp_path) as seen:
        await seen.until(lambda: len(seen.program.input.files) == 1)
        await seen.press("@", "s")
        await seen.until(lambda: seen.program.input.offers is not None)
        await seen.press("tab")
        await seen.shows("attached: sea.py")
        await seen.press("ctrl+u")
        await seen.until(lambda: "attached:" not in seen.screen)
        await seen.press("ctrl+z")
        await seen.shows("attached: sea.py")
        await seen.press("ctrl+u")
        await seen.type("without it")
        await seen.shows("you wrote")
        await seen.idle()
    assert await said(store) == ["without it"]


@pytest.mark.all_only
async def test_title_of_a_session_is_the_message_without_its_attached_files(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "sea.py").write_text("print('sea')\n")
    async with chatting(store, tmp_path) as seen:
        await seen.type("hello @sea.py")
        await seen.shows("attached: sea.py", "you wrote")
        await seen.idle()
    (info,) = await store.recent()
    assert info.name == "hello @sea.py"


async def test_partial_command_is_completed_and_complete_command_is_sent(
    store: Store, tmp_path: Path
) -> None:
    async with chatting(store, tmp_path) as seen:
        await seen.press("/", "c", "o", "s")
        await seen.until(lambda: seen.program.input.offers is not None)
        await seen.shows("/cost", "tokens and cost of this session")
        await seen.press("enter", "enter")
        await seen.shows("no messages yet")


def press_at_once(seen: Seen, *keys: str) -> None:
    """Press keys without a pause between them."""
    for key in keys:
        seen.program.post_message(events.Key(key, key if len(key) == 1 else None))


@pytest.mark.all_only
async def test_every_command_typed_without_pause_runs(store: Store, tmp_path: Path) -> None:
    session = await store.create(cwd=str(tmp_path))
    await session.append_many([user(f"Message {n}") for n in range(40)])
    async with chatting(store, tmp_path, session=session.id) as seen:
        area = seen.program.input
        for n in range(10):
            await seen.press(*"/labe")
            await seen.until(lambda: area.offers is not None)
            press_at_once(seen, *f"l {n} B{n}", "enter", *f"next {n}")
            await seen.until(lambda n=n: area.composer.text == f"next {n}")
            await seen.shows(f"is called B{n} now")
            await seen.press("ctrl+u")
    assert sorted((await session.labels()).values()) == [f"B{n}" for n in range(10)]


async def test_completion_list_stays_open_when_an_earlier_message_is_sent(
    store: Store, tmp_path: Path
) -> None:
    async with chatting(store, tmp_path) as seen:
        area = seen.program.input
        await seen.press("/", "c", "o")
        await seen.until(lambda: area.offers is not None)
        area.composer.post_message(Composer.Submitted("hello"))  # typed before "/co"
        await seen.shows("you wrote “hello”")
        assert area.offers is not None
        assert area.composer.text == "/co"


async def test_fast_typing_selects_from_the_newest_completions(
    store: Store, tmp_path: Path
) -> None:
    async with chatting(store, tmp_path) as seen:
        area = seen.program.input
        await seen.press("/")
        await seen.until(lambda: area.offers is not None)
        press_at_once(seen, "t", "down")
        await seen.until(
            lambda: area.offers is not None and area.offers.values == ("/tree", "/thinking")
        )
        await seen.press("enter")
        await seen.until(lambda: area.composer.text == "/thinking ")
        await seen.press("ctrl+u", *"/labe")
        await seen.until(lambda: area.offers is not None)
        press_at_once(seen, *"l 2", "up", *" B")
        await seen.until(lambda: area.composer.text == "/label 2 B")


async def test_custom_command_runs_and_the_model_sees_its_output(
    store: Store, tmp_path: Path
) -> None:
    async with chatting(store, tmp_path) as seen:
        await seen.type("!echo one; echo two >&2; exit 3")
        await seen.shows("!echo one; echo two >&2; exit 3", "one two", "(exit code 3)")
        assert "does not see" not in seen.transcript
        await seen.type("!!echo secret")
        await seen.shows("!!echo secret", "(the model does not see this)")
        assert await store.recent() == []
        await seen.type("and now?")
        await seen.shows("you wrote")
        await seen.idle()
    (info,) = await store.recent()
    context = await (await store.open(info.id)).context()
    texts = [message.message.text for message in context.messages]
    assert "I ran this command: `echo one" in texts[0]
    assert "one\ntwo" in texts[0]
    assert not any("secret" in text for text in texts)
    async with chatting(store, tmp_path, session=info.id) as seen:
        await seen.shows(
            "! echo one; echo two >&2; exit 3 one two !! echo secret secret (the model"
        )


async def test_long_paste_is_attached(store: Store, tmp_path: Path) -> None:
    async with chatting(store, tmp_path) as seen:
        await paste(seen, "line of a long paste\n" * 1_000)
        await seen.shows("attached: pasted text, 1001 lines")
        await seen.type("look")
        await seen.shows("you wrote")
        await seen.idle()
    (text,) = await said(store)
    assert text.startswith("look")
    assert text.count("line of a long paste") == 1_000


async def test_sent_file_is_shown_as_one_line_that_unfolds(store: Store, tmp_path: Path) -> None:
    (tmp_path / "sea.txt").write_text("low tide\n" * 300)
    async with chatting(store, tmp_path) as seen:
        await seen.type("/attach sea.txt")
        await seen.type("look")
        await seen.shows("▸ attached: sea.txt, 300 lines")
        await seen.idle()
        block = seen.program.query_one(SentBlock)
        assert not block.is_unfolded
        assert [line.plain for line in block.body()] == ["    low tide"] * 300


async def test_second_ctrl_c_exits(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.apps.tui.program._LEAVE_S", 60.0)  # long enough on a busy machine
    async with chatting(store, tmp_path) as seen:
        await seen.press("d", "ctrl+c")
        await seen.until(lambda: seen.program.input.composer.text == "")
        await seen.press("ctrl+c")
    assert seen.program.return_value == 130


async def test_unsent_draft_is_restored_only_in_its_session(store: Store, tmp_path: Path) -> None:
    one = await store.create(title="One", cwd=str(tmp_path))
    drafts = Drafts(tmp_path / "drafts", "store", os.getpid())
    drafts.keep(one.id, "to one")
    drafts.keep(str(tmp_path), "to a new one")
    async with chatting(store, tmp_path, drafts=drafts) as seen:
        composer = seen.program.input.composer
        await seen.until(lambda: composer.text == "to a new one")
        await seen.shows("the text that was not sent last time is back")
        await seen.press("ctrl+c")
        await seen.type(f"/resume {one.id}")
        await seen.until(lambda: composer.text == "to one")
        await seen.press("!", "ctrl+d")
    assert drafts.take(one.id) == "to one!"
    assert drafts.take(str(tmp_path)) == ""


@pytest.mark.parametrize("is_new", [True, False])
async def test_draft_and_text_typed_while_the_chat_starts_are_both_kept(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    # the last key is stored when the terminal is gone, even if the usual delay is not over
    monkeypatch.setattr("perdure.apps.tui.program._KEEP_S", 60.0)
    session = None if is_new else (await store.create(cwd=str(tmp_path))).id
    drafts = Drafts(tmp_path / "drafts", "store", os.getpid())
    drafts.keep(session or str(tmp_path), "a draft")
    ours, theirs = os.openpty()
    os.write(ours, b"typed early")
    async with chatting(store, tmp_path, session=session, drafts=drafts, terminal=theirs) as seen:
        composer = seen.program.input.composer
        await seen.until(lambda: composer.text == "a draft\ntyped early")
        await seen.press("!")
        os.close(ours)  # the terminal is gone
        await seen.until(lambda: seen.program.return_code is not None)
    os.close(theirs)
    assert drafts.take(session or str(tmp_path)) == "a draft\ntyped early!"
    assert [*(tmp_path / "drafts").iterdir()] == []


async def test_line_entered_while_the_chat_starts_is_sent_without_the_draft(
    store: Store, tmp_path: Path
) -> None:
    drafts = Drafts(tmp_path / "drafts", "store", os.getpid())
    drafts.keep(str(tmp_path), "a draft")
    ours, theirs = os.openpty()
    os.write(ours, b"hello\r")
    async with chatting(store, tmp_path, drafts=drafts, terminal=theirs) as seen:
        await seen.shows("you wrote “hello”")
        await seen.idle()
        assert seen.program.input.composer.text == "a draft"
    os.close(ours)
    os.close(theirs)
    assert await said(store) == ["hello"]


async def test_file_named_in_a_typed_message_is_attached_or_reported_as_missing(
    store: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "sea.py").write_text("print('sea')\n")
    (folder / "land ho.py").write_text("print('land')\n")
    (folder / ".env").write_text("TOKEN=1\n")
    (tmp_path / "secret.txt").write_text("outside")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    async with chatting(store, folder, size=(100, 40)) as seen:
        await seen.type("/attach land ho.py")
        await seen.type("see @sea.py, (not a@sea.py) @land ho.py @gone.py @../secret.txt @link.txt")
        await seen.shows("attached: sea.py (13 bytes)", "you wrote")
        await seen.shows("sent as text, because the folder has no such file: @gone.py")
        for outside in ("../secret.txt", "link.txt"):
            await seen.shows(f"@{outside} is outside the folder; /attach {outside} attaches it")
        await seen.idle()
        await seen.type("and @.env")
        await seen.shows("@.env may hold credentials; /attach .env attaches it")
        await seen.idle()
        await seen.type("mail me@home.example")
        await seen.idle()
    first, second, third = await said(store)
    assert first.count("print('sea')") == first.count("print('land')") == 1
    assert "outside" not in first
    assert "TOKEN" not in second
    assert third == "mail me@home.example"


@pytest.mark.all_only
async def test_file_named_in_a_steering_message_is_attached(store: Store, tmp_path: Path) -> None:
    (tmp_path / "sea.py").write_text("print('sea')\n")
    scenario = "rules:\n  - steps: [{text: Working.}, hang]\n"
    async with chatting(store, tmp_path, scenario=scenario) as seen:
        await seen.type("go")
        await seen.until(lambda: "running" in seen.screen)
        await seen.type("see @sea.py")
        await seen.shows("attached: sea.py (13 bytes)", "waits: see @sea.py")
        await seen.press("escape")
        await seen.idle()


@pytest.mark.all_only
async def test_secret_in_a_message_is_not_in_the_session_title(
    store: Store, tmp_path: Path
) -> None:
    key = "sk-ant-api03-" + "Zx9Qw3Lm7Vb2Nc8K" * 3
    async with chatting(store, tmp_path, size=(120, 40)) as seen:
        await seen.type(f"use {key} for the test")
        await seen.shows("you wrote")
        await seen.idle()
        await seen.type(f"/export {tmp_path}/talk.md --redact secrets,paths")
        await seen.shows("talk.md; replaced: ")
        await seen.type(f"/export {tmp_path}/talk.html --redact names")
        await seen.shows("'names' is none of secrets, paths")
    (info,) = await store.recent()
    assert info.name == "use [redacted] for the test"
    assert key[:20] not in (tmp_path / "talk.md").read_text()
    assert not (tmp_path / "talk.html").exists()


UNCLEAR = {
    "{}/talk.md --redact": "--redact expects secrets or paths",
    "{}/talk.md --redact=": "--redact expects secrets or paths",
    "--redact {}/talk.md": "is none of secrets, paths",
    "--redacted secrets {}/talk.md": "unknown option --redacted",
    "{}/talk.md secrets": "name one file",
    "--redact secrets": "name one file",
    "{}/it's.md": "a quote is not closed",
}


@pytest.mark.all_only
async def test_export_with_invalid_arguments_writes_no_file(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    async with chatting(store, tmp_path, size=(200, 60)) as seen:
        await seen.type("hello")
        await seen.idle()
        for typed, told in UNCLEAR.items():
            before = seen.transcript.count(told)
            await seen.type(f"/export {typed.format(folder)}")
            await seen.until(lambda told=told, before=before: seen.transcript.count(told) > before)
    assert not list(folder.iterdir())


@pytest.mark.all_only
async def test_export_accepts_the_redaction_option_first_or_last(
    store: Store, tmp_path: Path
) -> None:
    key = "sk-ant-api03-" + "Zx9Qw3Lm7Vb2Nc8K" * 3
    forms = ("--redact secrets,paths '{}'", "--redact=secrets,paths '{}'", "'{}' --redact secrets")
    async with chatting(store, tmp_path, size=(120, 40)) as seen:
        await seen.type(f"use {key} for the test")
        await seen.idle()
        for number, form in enumerate(forms):
            written = tmp_path / f"my talk {number}.md"
            await seen.type(f"/export {form.format(written)}")
            await seen.shows(f"talk {number}.md; replaced: ")
            assert key[:20] not in written.read_text()


async def test_remembered_fact_is_recalled(store: Store, tmp_path: Path) -> None:
    fact = await store.memory.remember("The deploy host is called kestrel")
    other = await store.create(cwd=str(tmp_path))
    await other.append(user("The deploy host is called osprey"))
    async with chatting(store, tmp_path) as seen:
        await seen.type("Which deploy host do we have?")
        await seen.shows("you wrote")
        await seen.idle()
        await seen.type("/context")
        await seen.until(lambda: "recalled" in seen.transcript)
        chat = seen.program.conversation.chat
        assert chat is not None
        (recalled,) = [e async for e in chat.session.entries(kind="context_recalled")]
    body = body_of(recalled)
    assert isinstance(body, ContextRecalled)
    assert body.facts == (fact.id,)
    assert body.texts == ()


async def test_message_sent_just_after_its_turn_ended_is_answered(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "sea.py").write_text("print('sea')\n")
    async with chatting(store, tmp_path) as seen:
        await seen.type("first")
        await seen.shows("you wrote “first”")
        await seen.idle()
        seen.program.shown.is_busy = True  # as between the end of a turn and its display's end
        await seen.type("second @sea.py")
        await seen.shows("you wrote “sea.py:")
        await seen.idle()
    assert [text.count("print('sea')") for text in await said(store)] == [0, 1]


async def test_footer_rebuilds_its_keys_only_if_they_change(store: Store, tmp_path: Path) -> None:
    async with chatting(store, tmp_path) as seen:
        await seen.until(lambda: "Send" in seen.screen)
        footer = seen.program.query_one(KeyFooter)
        keys = list(footer.children)
        await footer.recompose()
        assert list(footer.children) == keys
        seen.program.set_focus(None)
        await seen.until(lambda: "Send" not in seen.screen and "Help" in seen.screen)
        seen.program.set_focus(seen.program.input.composer)
        await seen.until(lambda: "Send" in seen.screen)
