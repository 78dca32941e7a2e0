"""Hints for words that are not commands but name a task."""

from __future__ import annotations

import pytest

from perdure.apps.cli.program import COMMANDS, command_line, shape_of
from perdure.apps.cli.surface.tasks import TASKS, remedy_for, task_hint
from tests.fakes.samples import case


def test_every_suggested_command_exists() -> None:
    for word in TASKS:
        with case(word):
            assert word not in COMMANDS
            words = [each for each in TASKS[word].split() if not each.startswith("-")]
            if words:
                assert list(shape_of(command_line(words)).at(words).words) == words


def test_error_for_unknown_command_search_suggests_sessions_search() -> None:
    hint = task_hint("No such command 'search'.", "")
    assert hint == "there is no command 'search': use `perdure sessions search`"
    hint = task_hint("No such command 'delete'. Did you mean 'list'?", "sessions")
    assert (
        hint == "there is no command 'delete' of `perdure sessions`: use `perdure sessions erase`"
    )


@pytest.mark.parametrize(
    ("message", "group"),
    [
        ("No such command 'nonsense'.", ""),
        ("No such option '--search'.", ""),
        ("No such command 'backup'.", "sessions"),
    ],
)
def test_unrelated_error_suggests_no_command(message: str, group: str) -> None:
    assert task_hint(message, group) is None


def test_suggestion_for_unknown_command_archive_depends_on_the_group() -> None:
    hint = task_hint("No such command 'archive'. Did you mean 'search'?", "sessions", ["search"])
    assert hint is not None
    assert "use `perdure sessions end`, and list without the ended ones: `perdure sessions" in hint
    alone = task_hint("No such command 'archive'.", "")
    assert alone == "there is no command 'archive': use `perdure export --all`"


def test_error_for_misspelled_command_search_suggests_sessions_search() -> None:
    commands = ("serve", "usage", "sessions")
    hint = task_hint("No such command 'serch'. Did you mean 'serve'?", "", commands)
    assert hint == "there is no command 'serch'; did you mean `perdure sessions search`?"
    hint = task_hint("No such command 'nope'.", "")
    assert hint == "there is no command 'nope'; did you mean `perdure sessions read`?"
    assert task_hint("No such command 'usgae'. Did you mean 'usage'?", "", commands) is None
    assert task_hint("No such command 'sreve'.", "", commands) is None
    assert task_hint("No such command 'rum'.", "flow", ("run", "show")) is None
    assert task_hint("No such command 'delet'.", "flow", ("run", "show")) is not None


def test_invalid_choice_suggests_a_similar_choice() -> None:
    said = "Invalid value for 'PROGRAM': {} is not one of 'claude-code', 'codex', 'pi'."
    for typed, meant in (("claude", "claude-code"), ("Codx", "codex"), ("p", "pi")):
        told = remedy_for(said.format(repr(typed)), "continue-in")
        assert told is not None
        assert told.endswith(f"'pi'; did you mean {meant}?")
    for typed in ("c", "nope"):
        assert remedy_for(said.format(repr(typed)), "continue-in") is None


def test_advice_for_an_option_is_not_given_for_another_option() -> None:
    told = remedy_for("unknown option --to (Possible options: --json, --store)", "store copy")
    assert told == "unknown option --to; TARGET has no option: `perdure store copy TARGET`"
    assert remedy_for("unknown option --tokens", "store copy") is None
    assert remedy_for("unknown option --to", "store backup") is None
