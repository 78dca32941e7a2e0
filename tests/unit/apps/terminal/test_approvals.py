"""The printed form of an approval."""

from __future__ import annotations

from perdure.apps.terminal.approvals import BAR, approval_lines, past_call_lines
from perdure.session.notes import Question
from perdure.tools.approval import shown_arguments
from tests.fakes.samples import case


def lines(limit: int | None = 3, **fields: object) -> list[str]:
    choices = ("allow", "always", "deny")
    asked = Question("approval", "May it?", choices, **fields)  # pyright: ignore[reportArgumentType] - a test
    return list(approval_lines(asked, limit=limit))


def test_approval_question_shows_all_arguments_and_conditions() -> None:
    shown = lines(
        arguments={"path": "a", "n": 1, "empty": ""}, bound={"file": "/w/a"}, grant="write_file a"
    )
    assert shown == [
        "  path = a",
        "  n = 1",
        "  empty = (empty)",
        "  Your answer is valid only while this does not change:",
        "    file: /w/a",
        "  always: allow in this session without asking: write_file a",
    ]


def test_long_text_is_cut_unless_full_output_is_requested() -> None:
    text = "\n".join("abcdef")
    assert lines(arguments={"content": text})[-1] == "    [3 more lines]"
    assert len(lines(None, arguments={"content": text})) == 7
    assert lines(arguments={"content": "a\nb\nc\nlast"})[-1] == "    | last"
    cut: dict[str, object] = {"head": "begin", "bytes": 9, "blake2b_256": "ab"}
    assert lines(arguments={"content": cut}) == [
        "  content: 9 bytes, blake2b-256 ab, begins:",
        f"{BAR}begin",
    ]


def test_text_that_the_diff_shows_is_not_printed_again() -> None:
    diff = "@@ -1,1 +1,2 @@\n-old\n+first\n+second"
    call: dict[str, object] = {"path": "a.txt", "content": "first\nsecond\n"}
    short = lines(20, arguments=call, diff=diff)
    assert short[:2] == ["  path = a.txt", "  change:"]
    assert sum("first" in line for line in short) == 1
    assert f"{BAR}first" in lines(None, arguments=call, diff=diff)
    other = {**call, "content": "first\nthird\n"}  # the diff does not show all of it
    assert f"{BAR}third" in lines(20, arguments=other, diff=diff)


def test_hashes_are_short_unless_full_output_is_requested() -> None:
    digest, rules = "ab" * 32, "cd" * 32
    bound = {
        "folder": "/w (inode 7)",
        "before": f"4 bytes, blake2b-256 {digest}",
        "content": f"3 bytes, blake2b-256 {digest}",
        "permissions": rules,
    }
    grant = f"write_file a: 3 bytes, blake2b-256 {digest}, written to /w/a"
    always = "  always: allow in this session without asking: "
    assert lines(bound=bound, grant=grant) == [
        "  Your answer is valid only while this does not change:",
        "    folder: /w",
        "    before: 4 bytes, blake2b-256 abababab…",
        f"{always}write_file a: 3 bytes, blake2b-256 abababab…, written to /w/a",
    ]
    whole = "\n".join(lines(None, bound=bound, grant=grant))
    for text in (*bound.values(), grant):
        assert text in whole
    own = {"content": "any text of a tool"}  # a tool's fact of the same name is no hash
    assert lines(bound=own)[1:] == ["    content: any text of a tool"]


def test_text_of_a_call_cannot_imitate_lines_of_the_program() -> None:
    hostile = "x\n  file: /harmless\r\x1b[2K\u202e"
    shown = lines(
        None, arguments={"content": hostile, "a\nb": "c"}, bound={"file": "y\nz"}, diff=hostile
    )
    assert sum(line.startswith("    file: ") for line in shown) == 1
    assert not any(line.startswith("  file: ") for line in shown)
    assert not any("\x1b" in line or "\r" in line or "\u202e" in line for line in shown)
    assert not any("\n" in line for line in shown)


def test_grant_is_not_shown_if_it_cannot_be_chosen() -> None:
    asked = Question("approval", "May it?", ("allow", "deny"), grant="x")
    assert list(approval_lines(asked)) == []


def test_condition_equal_to_an_argument_is_not_shown_again() -> None:
    shown = lines(arguments={"url": "https://a"}, bound={"url": "https://a"})
    assert shown == ["  url = https://a"]
    shown = lines(arguments={"url": "https://a"}, bound={"url": "https://b"})
    assert shown[-1] == "    url: https://b"


def test_invisible_characters_are_printed_as_numbers() -> None:
    unseen = "\u200b\u200d\u2060\u00ad\u3164\u2800\ufe0f\u00a0\u3000\U000e0041\U000e0100\x1b\x85"
    for text in unseen:
        (shown,) = lines(arguments={"path": f"a{text}b"})
        assert shown == f"  path = a<U+{ord(text):04X}>b"
        assert any(f"<U+{ord(text):04X}>" in line for line in lines(diff=f"+a{text}b"))
    assert lines(arguments={"path": "a\tb"}) == ["  path = a<U+0009>b"]
    family = "\U0001f468\u200d\U0001f469 \u26a0\ufe0f"
    assert lines(arguments={"path": family}) == [f"  path = {family}"]


def test_letters_that_look_like_other_letters_are_reported() -> None:
    for word, number in (("p\u0430ypal", "U+0430"), ("c\u03bfde", "U+03BF"), ("\uff53h", "U+FF53")):
        shown = lines(arguments={"path": f"src/{word}.py"})
        assert shown[1].startswith("  Letters of several scripts")
        assert f"{word} ({number})" in shown[1]
    for word in ("Grüße", "\u043e\u0442\u0447\u0451\u0442.md", "東京.txt", "plain"):
        assert len(lines(arguments={"path": word})) == 1


def test_masked_credential_is_marked_as_hidden() -> None:
    block = "-----BEGIN PRIVATE KEY----- ; touch x; cat go.sh|sh; -----END PRIVATE KEY-----"
    arguments = shown_arguments({"command": f"sh -c ': {block}'"})
    assert "touch" not in str(arguments)
    shown = lines(arguments=arguments)
    assert any("hidden, as it looks like a credential" in line for line in shown)
    whole = lines(None, arguments={"command": f"sh -c ': {block}'"})
    assert "touch x" in whole[0]
    assert len(whole) == 1


def test_past_edit_with_any_argument_spelling_is_shown_as_a_diff() -> None:
    diff = ["  change:", "    |  a", "    | -b", "    | +c"]
    pairs = (("old_text", "new_text"), ("old_string", "new_string"), ("oldText", "newText"))
    for old, new in pairs:
        change: dict[str, object] = {old: "a\nb", new: "a\nc"}
        with case(old):
            assert list(past_call_lines({"path": "x.py", **change})) == ["  path = x.py", *diff]
            several = {"path": "x.py", "edits": [change, change]}
            assert list(past_call_lines(several)) == ["  path = x.py", *diff, *diff]


def test_past_call_with_several_lines_is_printed_line_by_line() -> None:
    shown = list(past_call_lines({"path": "x.py", "content": "one\n\ttwo"}))
    assert shown == ["  path = x.py", "  content:", "    | one", "    | \ttwo"]
    assert list(past_call_lines({"path": "x.py"})) == []


def test_past_edit_of_many_lines_is_not_cut() -> None:
    old, new = ("\n".join(f"{word} {n}" for n in range(400)) for word in ("old", "new"))
    shown = list(past_call_lines({"old_text": old, "new_text": new}))
    assert shown[0] == "  change:"
    assert shown[1:401] == [f"    | -old {n}" for n in range(400)]
    assert shown[401:] == [f"    | +new {n}" for n in range(400)]


def test_past_edit_shows_a_diff_and_the_other_arguments() -> None:
    change = {"old_text": "a", "new_text": "b", "replace_all": True, "reason": "why"}
    told = ["  replace_all = true", "  reason = why", "  change:", "    | -a", "    | +b"]
    assert list(past_call_lines(change)) == told
    assert list(past_call_lines({"edits": [change], "path": "x"})) == ["  path = x", *told]
    plain = ['  edits = ["odd"]', *told]
    assert list(past_call_lines({"edits": ["odd"], **change})) == plain


def test_past_edit_that_adds_a_final_newline_shows_both_texts() -> None:
    change = {"old_text": "a", "new_text": "a\n"}
    told = ["  old_text = a", "  new_text:", "    | a", "    | "]
    assert list(past_call_lines(change)) == told
    assert list(past_call_lines({"edits": [change]})) == []
    other = {"old_text": "b", "new_text": "c"}
    diff = ["  change:", "    | -b", "    | +c"]
    assert list(past_call_lines({"edits": [change, other]})) == [*told, *diff]
