"""Commands without a shell."""

from __future__ import annotations

import shlex
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.tools.commands import NeedsShell, argv_of, canonical, is_allowed, rule_words, words_of

WORDS = st.lists(
    st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs"))), max_size=4
)


@settings(max_examples=max(40, settings().max_examples))
@given(WORDS)
def test_canonical_command_line_is_parsed_to_the_same_words(rest: list[str]) -> None:
    argv = ("run", *rest)
    assert words_of(canonical(argv)) == argv


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("git status", ("git", "status")),
        ("  git   log  -n 1 ", ("git", "log", "-n", "1")),
        ("echo 'a  b' \"c d\" e\\ f", ("echo", "a  b", "c d", "e f")),
        ("grep '$x|y' \"a;b\"", ("grep", "$x|y", "a;b")),
        ("find . -name '*.py'", ("find", ".", "-name", "*.py")),
    ],
)
def test_quotes_are_parsed_like_in_a_shell(line: str, words: tuple[str, ...]) -> None:
    assert words_of(line) == words


@pytest.mark.parametrize("argv", [[], [""], ["-x"], ["A=1", "x"], ["a b"], ["a\nb"], ["x", "a\0"]])
def test_invalid_word_lists_are_rejected(argv: list[str]) -> None:
    with pytest.raises(NeedsShell):
        argv_of(argv)


def test_command_rule_is_compared_word_by_word() -> None:
    assert is_allowed(("git", "status"), ("git status",), ())
    assert is_allowed(("git", "status"), ("git 'status'",), ())
    assert not is_allowed(("git", "push"), ("git",), ())
    assert not is_allowed(("git status",), ("git status",), ())
    assert not is_allowed(("echo", "a", "b"), ("echo 'a b'",), ())


def test_star_matches_one_argument_and_double_star_all_remaining_arguments() -> None:
    globs = ("pytest tests/* -q", "npm run **")
    assert is_allowed(("pytest", "tests/a", "-q"), (), globs)
    assert not is_allowed(("pytest", "tests/a", "-x", "-q"), (), globs)
    assert is_allowed(("npm", "run"), (), globs)
    assert is_allowed(("npm", "run", "x", "y"), (), globs)
    assert not is_allowed(("npm", "run", "x", "--", "y"), (), globs)
    assert not is_allowed(("npm", "install"), (), globs)


def test_double_star_alone_matches_every_command() -> None:
    assert is_allowed(("rm", "-rf", "../x"), (), ("**",))
    for rule in ("** -x", "*", "?"):
        with pytest.raises(ValueError, match="names a program"):
            rule_words(rule, is_glob=True)


def test_every_command_is_refused_if_no_rule_allows_commands() -> None:
    assert not is_allowed(("ls",), (), ())


def test_command_glob_matching_takes_linear_time() -> None:
    started = time.process_time()
    assert not is_allowed(("x", "a" * 30_000 + "b"), (), ("x *a*a*a*c",))
    assert time.process_time() - started < 5


@settings(max_examples=max(40, settings().max_examples))
@given(st.text(max_size=20))
def test_parsed_words_equal_those_of_a_shell(line: str) -> None:
    try:
        words = words_of(line)
    except NeedsShell:
        return
    assert list(words) == shlex.split(line)
