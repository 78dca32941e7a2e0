"""The replies to the completion scripts of the shells."""

from __future__ import annotations

from typing import get_args

from perdure.apps.cli.surface.completion import Candidate, Completion
from perdure.apps.cli.surface.shells import Shell, answer, script_of, split_typed

BREAKS = " \t\n\"'@><=;|&(:"
ONE = Completion((Candidate("scripted:echo", "offline"),))
TWO = Completion((Candidate("12", "user: hello"), Candidate("17", "tool")))


def bash(line: str, found: Completion, kind: str = "9") -> list[str]:
    words = [BREAKS, kind, line]
    return list(answer("bash", words, split_typed("bash", words)[1], found))


def test_every_shell_has_a_script_that_calls_perdure() -> None:
    for shell in get_args(Shell):
        assert f" __complete {shell} " in script_of(shell)


def test_typed_words_of_each_shell_are_parsed() -> None:
    assert split_typed("bash", [BREAKS, "9", "perdure sessions 's"]) == (["sessions"], "s")
    assert split_typed("fish", ["sessions", "s"]) == (["sessions"], "s")
    assert split_typed("zsh", []) == ([], "")


def test_bash_completion_returns_only_the_text_after_the_last_word_break() -> None:
    assert bash("perdure chat -m scripted:e", ONE) == ["words", "echo"]
    assert bash("perdure chat -m s", ONE) == ["words", "scripted:echo"]
    assert bash("perdure chat --model=s", Completion((Candidate("--model=scripted:echo"),))) == [
        "words",
        "scripted:echo",
    ]


def test_bash_menu_completion_has_no_descriptions() -> None:
    assert bash("perdure x 1", TWO) == ["words", "12  (user: hello)", "17  (tool)"]
    assert bash("perdure x 1", TWO, kind="37") == ["words", "12", "17"]


def test_candidates_with_special_characters_are_quoted() -> None:
    assert bash("perdure x ", Completion((Candidate("not now"),))) == ["words", "'not now'"]


def test_completion_for_fish_and_zsh_contains_descriptions() -> None:
    assert list(answer("zsh", ["x"], "x", TWO)) == ["words", "12\tuser: hello", "17\ttool"]
    assert list(answer("fish", [""], "", Completion(mode="files"))) == ["files"]
    found = Completion((Candidate("0196"),), is_replacing=True)
    assert list(answer("fish", ["tide"], "tide", found)) == ["words found", "0196"]


def test_candidates_without_an_order_are_sorted() -> None:
    mixed = (Candidate("b"), Candidate("c"), Candidate("a"))
    for shell in get_args(Shell):
        words = [BREAKS, "9", "perdure "]
        assert list(answer(shell, words, "", Completion(mixed)))[1:] == ["a", "b", "c"]
        ordered = Completion(mixed, is_ordered=True)
        assert list(answer(shell, words, "", ordered))[1:] == ["b", "c", "a"]


def test_completion_output_has_no_control_characters() -> None:
    odd = Completion((Candidate("a\nb"), Candidate("\x1b[2J"), Candidate("12", "x\x1b[2J\ny\tz")))
    for shell in get_args(Shell):
        lines = list(answer(shell, [BREAKS, "9", "perdure "], "", odd))
        assert len(lines) == 2
        assert "\x1b" not in "".join(lines)
