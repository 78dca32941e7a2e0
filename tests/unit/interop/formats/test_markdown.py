"""Exported Markdown: no text ends its message, opens another message or becomes HTML."""

from __future__ import annotations

import re
from urllib.parse import unquote

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from perdure.interop.formats import markdown
from perdure.interop.formats.transcript import transcript_of, without_tools
from perdure.session.kinds import Compaction, CustomMessage, ModelChange
from perdure.session.messages import (
    MediaPart,
    Message,
    TextPart,
    ToolResultPart,
    UnknownPart,
    assistant,
    thinking,
    tool_call,
    tool_result,
    user,
)
from perdure.session.notes import CompactionUndone, Label, LeafMoved, SessionStarted
from tests.fakes.bundles import Making
from tests.fakes.samples import case


def written(making: Making, *, has_all_branches: bool = False) -> str:
    transcript = transcript_of(making.made())
    return markdown.render_markdown(transcript, has_all_branches=has_all_branches).decode()


def test_markdown_shows_the_conversation_from_top_to_bottom() -> None:
    making = Making()
    making.say(ModelChange("a:b"))
    asked = making.say(user("Mend the *table*."))
    making.note(Label("start"), asked)
    making.say(assistant("On it.", thinking("hm"), tool_call("c", "read", {"path": "t.py"})))
    making.say(tool_result("c", "1\n2"))
    making.say(assistant("# Done\nAll green."))
    assert written(making) == (
        "# Tides\n\n"
        "- **Begun:** 2025-06-15 15:06 UTC\n- **Folder:** /srv/tides\n- **Size:** 4 messages\n"
        "- **Session:** s\n\n---\n\n"
        "*0 · The model is now a:b.*\n\n"
        "## 1 · User · 15:06:42 · start\n\n> Mend the *table*.\n\n"
        "## 3 · Assistant · 15:06:44\n\nOn it.\n\n"
        "<details>\n<summary>Thinking</summary>\n\n> hm\n\n</details>\n\n"
        "<details>\n<summary>read t.py · result: entry 4</summary>\n\n"
        '```json\n{\n  "path": "t.py"\n}\n```\n\n```text\n1\n2\n```\n\n</details>\n\n'
        "## 5 · Assistant · 15:06:46\n\n### Done\nAll green.\n"
    )


def test_markup_in_models_and_labels_is_escaped() -> None:
    hostile = "<img src=x> [a](javascript:b) *x*"
    making = Making()
    making.say(ModelChange(f"a:{hostile}"))
    making.note(Label(hostile), making.say(user("Mend it.")))
    unescaped = re.sub(r"\\.", "", written(making))
    assert unescaped.count("img src=x") == 2
    for markup in ("<img", "[a](", "*x*"):
        assert markup not in unescaped, markup


def test_transcript_without_tools_keeps_what_people_and_models_said() -> None:
    making = Making()
    making.say(user("Mend it."))
    making.say(assistant("On it.", tool_call("c", "read", {"path": "t.py"})))
    making.say(tool_result("c", "1\n2"))
    making.say(assistant(tool_call("d", "read", {"path": "u.py"})))
    making.say(tool_result("d", "3"))
    making.say(assistant("Done."))
    text = markdown.render_markdown(without_tools(transcript_of(making.made()))).decode()
    assert text.partition("---\n\n")[2] == (
        "## 0 · User · 15:06:41\n\n> Mend it.\n\n"
        "## 1 · Assistant · 15:06:42\n\nOn it.\n\n"
        "## 5 · Assistant · 15:06:46\n\nDone.\n"
    )


def test_compaction_references_are_adjusted_when_tools_are_omitted() -> None:
    making = Making()
    making.say(user("Mend it."))
    kept = making.say(assistant(tool_call("c", "read", {"path": "t.py"})))
    making.say(tool_result("c", "1"), assistant("Read."), Compaction("sum", first_kept=kept))
    making.say(assistant(tool_call("d", "read", {"path": "u.py"})))
    kept = making.say(tool_result("d", "2"))
    making.say(Compaction("all", first_kept=kept))
    told = without_tools(transcript_of(making.made())).lines
    kinds = [(line.role, line.first_kept) for line in told]
    first, last = ("compaction", 1), ("compaction", None)
    assert kinds == [("user", None), ("assistant", None), first, last]


def test_markdown_header_uses_the_singular_for_one_message() -> None:
    making = Making()
    making.say(user("Alone."))
    assert "- **Size:** 1 message\n" in written(making)


def test_every_entry_of_the_branch_is_shown_with_its_number() -> None:
    making = Making()
    making.say(ModelChange("a:b"), user("go"))
    making.say(assistant(tool_call("c", "run"), tool_call("d", "run")))
    making.say(tool_result("c", "one"), tool_result("d", "two"), assistant("done"))
    making.raw("message", b"")
    text = written(making)
    numbers = re.findall(r"^(?:## |\*|<summary>.*entry )(\d+)", text, re.MULTILINE)
    assert sorted(map(int, numbers)) == list(range(7))
    assert "## 6 · Message · 15:06:47\n\n(erased)\n" in text


def test_failures_media_and_unknown_parts_are_described() -> None:
    making = Making()
    making.note(SessionStarted(system_prompt="Be kind."))
    picture = MediaPart("image/png", "media://sha256-" + "0" * 64, 1_234, "a.png")
    making.say(user("see", picture))
    making.say(Message("assistant", (), stop_reason="error", error="it <broke>"))
    making.say(assistant(tool_call("c", "run"), tool_call("d", "run")))
    making.say(Message("tool", (ToolResultPart("c", "no", is_error=True, media=(picture,)),)))
    making.say(tool_result("lost", "", name="old"))
    making.say(Message("assistant", (UnknownPart(msgspec.Raw(b'{"type":"x"}')),)))
    making.say(CustomMessage("note", (TextPart("n"),), in_context=False), assistant())
    text = written(making)
    for piece in (
        "<summary>Instructions</summary>",
        "*[a.png, 1,234 bytes, not in this file]*",
        "**Error:** it \\<broke\\>",
        "<summary>run · failed · result: entry 4</summary>",
        "<summary>run · no result</summary>\n\n(no arguments)",
        "<summary>Result of old</summary>\n\n(no output)",
        "<summary>Data</summary>",
        "*note, never sent to a model*",
        "*(nothing said)*",
    ):
        assert piece in text
    assert markdown.losses_of(transcript_of(making.made())) == ["2 media are named, not shown"]


def test_markdown_of_a_compaction_says_which_messages_it_replaces() -> None:
    making = Making()
    kept = making.say(user("one"))
    making.say(Compaction("all"), Compaction("some", kept))
    making.note(CompactionUndone(), making.say(Compaction("none")))
    text = written(making)
    assert "it replaces everything before it.*" in text
    assert "it replaces everything before entry 0.*" in text
    assert "*Undone: it hides nothing.*" in text


def test_markdown_contains_other_branches_on_request() -> None:
    making = Making()
    first = making.say(user("one"))
    making.say(assistant("left"))
    making.say(assistant("right"), parent=first)
    making.say(user("second root"), parent=None)
    making.note(LeafMoved(first))
    assert "left" not in written(making)
    text = written(making, has_all_branches=True)
    assert text.count("# Another branch, after entry 0") == 2
    assert "# Another branch, from the beginning" in text
    assert all(text.count(said) == 1 for said in ("left", "right", "second root"))


def test_markup_in_text_is_escaped_with_minimal_changes() -> None:
    for text, inert in [
        ("<script>x</script>", "&lt;script>x&lt;/script>"),
        ("a < b and `List<int>`", "a < b and `List<int>`"),
        ("## A\nx", "#### A\nx"),
        ("###### A", "###### A"),
        ("A\n===\nB\n---", "A\n\\===\nB\n\\---"),
        ("```py\n<b>\n", "```py\n<b>\n\n```"),
        ("````\n```\n<b>\n````\n<b>", "````\n```\n<b>\n````\n&lt;b>"),
        ("- x\n  ```\n<b>", "- x\n\\```\n&lt;b>"),
        ("1. x\n   ```py\n   <b>\n   ```\n<b>", "1. x\n   ```py\n   <b>\n   ```\n&lt;b>"),
        ("a ` b\nc ` <b> ` d", "a ` b\nc ` &lt;b> ` d"),
        ("\\` <b> `", "\\` &lt;b> `"),
        ("| ` | <b> ` |", "| ` | &lt;b> ` |"),
        ("`a `` <b> `", "`a `` <b> `"),
        ("x\r\n<b>\r<i>", "x\n&lt;b>\n&lt;i>"),
        ("<!-- x", "&lt;!-- x"),
        ("![a](http://b/c.png)", "&#33;[a](http://b/c.png)"),
        ("[a](https://b) [c](d.md#e:f) m[k](n)", "[a](https://b) [c](d.md#e:f) m[k](n)"),
        ("[a](javascript:b)", "[a&#93;(javascript:b)"),
        ("[a](&#106;avascript&colon;b)", "[a&#93;(&#106;avascript&colon;b)"),
        ("[a]: <java&Tab;script:b>", "[a&#93;: &lt;java&Tab;script:b>"),
        ("[a](\njavascript:b)", "[a&#93;(\njavascript:b)"),
        ("[a](javascript\\:b)", "[a&#93;(javascript\\:b)"),
        ("`[a](data:b)`", "`[a](data:b)`"),
        ("[a](" + "&Tab;" * 200 + "javascript:b)", "[a&#93;(" + "&Tab;" * 200 + "javascript:b)"),
    ]:
        with case((text, inert)):
            assert markdown.inert(text) == inert


_lines = st.sampled_from(
    [
        *("```", "~~~~", "   ```", "\t```", "    ```", "  ```", "- ```", "> ```", "`", "``", "\\`"),
        *("<script>", "</details>", "    <b>", "+ <b>", "<!--", "`<i>`", "|"),
        *("[a](javascript:x)", "![b](http://x/y.png)", "[r]: JavaScript&colon;x", "[r][r]", "![r]"),
        *("[a](", "<java&Tab;script:x>)", "[a](java\\:x)", "![`](http://x/`)", "\\![c](http://x/)"),
        *("# User", "## 3 · User · 10:00:00", "===", "> x", "- a", "1. a", "   x", "text", ""),
    ]
)

_renderer = MarkdownIt("commonmark", {"html": True}).enable("table")
_renderer.validateLink = lambda url: True  # a renderer that trusts every link
_SAFE_LINK = re.compile(r"(?i)(?:https?|mailto):|[^:]*$|[^:]*[/?#]")
_OURS = re.compile(r"<details>\n<summary>[^<>]*</summary>\n?|</details>\n?")


@given(st.lists(_lines, max_size=8), st.lists(_lines, max_size=8))
def test_hostile_text_adds_no_heading_or_markup_to_markdown(
    said: list[str], given_back: list[str]
) -> None:
    making = Making()
    making.say(user("\n".join(said)), assistant("\n".join(said), tool_call("c", "t")))
    making.say(tool_result("c", "\n".join(given_back)), user("end"))
    tokens = _renderer.parse(written(making))
    headings = [
        f"{token.tag} {tokens[n + 1].content.partition(' · 1')[0]}"
        for n, token in enumerate(tokens)
        if token.type == "heading_open" and token.tag in ("h1", "h2")
    ]
    assert headings == ["h1 Tides", "h2 0 · User", "h2 1 · Assistant", "h2 3 · User"]
    every = [*tokens, *(child for token in tokens for child in token.children or ())]
    html = [token.content for token in every if token.type in ("html_block", "html_inline")]
    assert [each for each in html if not _OURS.fullmatch(each)] == []
    assert len(html) == 2
    assert [token for token in every if token.type == "image"] == []
    links = [str(token.attrs["href"]) for token in every if token.type == "link_open"]
    assert [each for each in links if not _SAFE_LINK.match(unquote(each))] == []
    assert [token.content for token in tokens if token.type == "inline"][-1] == "end"
