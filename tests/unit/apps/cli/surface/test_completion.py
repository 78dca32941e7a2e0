"""The completions of a word that is being typed."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import typer

from perdure.apps.cli.program import COMMANDS, shape_of, whole_program
from perdure.apps.cli.surface.completion import Candidate, Completion, complete_words, split
from tests.fakes.samples import case

PROGRAM = shape_of(typer.main.get_command(whole_program()))


class Shelf:
    """A store with one session, one question and two entries."""

    def sessions(self, typed: str) -> Completion:
        return Completion((Candidate("0196", "Tide"),) if "0196".startswith(typed) else ())

    def entries(self, session: str) -> Iterable[Candidate]:
        return (Candidate("12", session), Candidate("7"))

    def questions(self) -> Iterable[Candidate]:
        return (Candidate("0196/17", "May I?"),)

    def grants(self, session: str) -> Iterable[Candidate]:
        return (Candidate("3fa2b1c0", session),)

    def choices(self, question: str) -> Iterable[Candidate]:
        return (Candidate("approve"), Candidate("deny"))

    def models(self) -> Iterable[Candidate]:
        return (Candidate("scripted:echo"),)

    def programs(self) -> Iterable[Candidate]:
        return (Candidate("claude-code"), Candidate("codex"))

    def agents(self) -> Iterable[Candidate]:
        return (Candidate("helper"), Candidate("limited"))


def values(line: str) -> list[str]:
    words, typed = split(line)
    return [each.value for each in complete_words(PROGRAM, words, typed, Shelf).candidates]


def test_completion_offers_matching_candidates() -> None:
    for line, expected in [
        ("sess", ["sessions"]),
        ("sessions dif", ["diff"]),
        ("sessions show 01", ["0196"]),
        ("sessions show --json 01", ["0196"]),
        ("sessions show x 01", []),
        ("sessions show --st", ["--store"]),
        ("sessions show --json --j", []),
        ("sessions show --store sqlite:///x.db 0", ["0196"]),
        ("sessions branch 0196 ", ["12", "7"]),
        ("sessions branch 0196 1", ["12"]),
        ("sessions diff 0196 12 7", ["7"]),
        ("sessions erase 0196 12 7", ["7"]),
        ("grants revoke 0196 3", ["3fa2b1c0"]),
        ("sessions fork 0196 --at 1", ["12"]),
        ("sessions search x --session ", ["0196"]),
        ("sessions search x --session 0196 --session ", ["0196"]),
        ("export 0196 --format m", ["markdown"]),
        ("export 0196 --format=m", ["--format=markdown"]),
        ("inbox answer ", ["0196/17"]),
        ("inbox answer 0196/17 d", ["deny"]),
        ("chat -m s", ["scripted:echo"]),
        ("chat --session ", ["0196"]),
        ("chat --agent l", ["limited"]),
        ("agents show h", ["helper"]),
        ("sessions list --source cl", ["claude-code"]),
        ("export --all --source=co", ["--source=codex"]),
        ("memory remember x --source co", []),
        ("sessions search x --o", ["--on-branch", "--off-branch"]),
        ("nonsense ", [*COMMANDS]),
        ("sessions list --limit ", []),
        ("sessions list --limit=5", []),
        ("sessions list -", None),
    ]:
        with case((line, expected)):
            found = values(line)
            if expected is None:
                assert {"--limit", "--query", "--json", "--help"} <= set(found)
            else:
                assert found == expected


@pytest.mark.parametrize(
    ("line", "mode"),
    [
        ("import ", "files"),
        ("import a.jsonl b", "files"),
        ("export 0196 -o ", "files"),
        ("sessions list --cwd ", "folders"),
        ("init ", "folders"),
        ("chat --agent ", "files"),
        ("sessions list ", "words"),
    ],
)
def test_files_and_folders_are_completed_by_the_shell(line: str, mode: str) -> None:
    words, typed = split(line)
    assert complete_words(PROGRAM, words, typed, Shelf).mode == mode


def test_every_command_is_offered_with_its_description() -> None:
    found = complete_words(PROGRAM, [], "", Shelf).candidates
    assert [each.value for each in found] == list(COMMANDS)
    assert all(each.help for each in found)


@pytest.mark.parametrize(
    ("line", "words", "typed"),
    [
        ("", [], ""),
        ("a", [], "a"),
        ("a ", ["a"], ""),
        ("a 'b c' d", ["a", "b c"], "d"),
        ('a "b c', ["a"], "b c"),
        (r"a b\ c", ["a"], "b c"),
        (r'a "b\"c" ""', ["a", 'b"c'], ""),
        ("a \\", ["a"], ""),
    ],
)
def test_line_is_split_like_in_a_shell(line: str, words: list[str], typed: str) -> None:
    assert split(line) == (words, typed)
