"""Hints for words that are not commands but name a task."""

from __future__ import annotations

import pytest

from perdure.apps.cli.program import COMMANDS, command_line, shape_of
from perdure.apps.cli.surface.tasks import TASKS, task_hint
from tests.fakes.samples import case


def test_each_task_is_an_existing_command_and_its_word_is_not() -> None:
    for word in TASKS:
        with case(word):
            assert word not in COMMANDS
            words = [each for each in TASKS[word].split() if not each.startswith("-")]
            if words:
                assert list(shape_of(command_line(words)).at(words).words) == words


def test_unknown_command_of_a_known_task_names_the_command() -> None:
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
def test_other_mistakes_get_no_hint(message: str, group: str) -> None:
    assert task_hint(message, group) is None


def test_task_word_in_a_group_suggests_another_command_than_alone() -> None:
    hint = task_hint("No such command 'archive'. Did you mean 'search'?", "sessions", ["search"])
    assert hint is not None
    assert "use `perdure sessions end`, which marks it" in hint
    alone = task_hint("No such command 'archive'.", "")
    assert alone == "there is no command 'archive': use `perdure export --all`"


def test_misspelled_task_suggests_its_command_unless_a_command_is_closer() -> None:
    commands = ("serve", "usage", "sessions")
    hint = task_hint("No such command 'serch'. Did you mean 'serve'?", "", commands)
    assert hint == "there is no command 'serch': use `perdure sessions search`"
    assert task_hint("No such command 'usgae'. Did you mean 'usage'?", "", commands) is None
    assert task_hint("No such command 'sreve'.", "", commands) is None
