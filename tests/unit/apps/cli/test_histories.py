"""Known programs and the location of their session files."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from perdure.apps.cli.histories import known_histories, places
from tests.fakes.unreadable import unreadable


def test_histories_are_found_in_the_default_folders_of_the_programs(tmp_path: Path) -> None:
    assert not list(known_histories(tmp_path, {}))
    for place in places().split(", ")[:-1]:
        (tmp_path / place.removeprefix("~/")).mkdir(parents=True)
    found = list(known_histories(tmp_path, {}))
    assert [each.program for each in found] == [
        *("Claude Code", "Codex", "Gemini CLI", "Qwen Code", "Copilot CLI"),
        *("Kimi CLI", "OpenHands", "Amp", "Goose", "Cursor"),
        *("Cursor on macOS", "Zed", "Zed on macOS"),
        *("pi", "Operator"),
    ]
    assert all(each.folder.is_dir() for each in found)


def test_unreadable_history_folder_is_reported_and_others_are_found() -> None:
    errors: list[OSError] = []
    with TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)  # its other folders are readable for the test's other user
        closed, codex = root / "closed", root / "codex"
        for folder in (closed, codex / "sessions"):
            folder.mkdir(parents=True)
        environment = {"XDG_DATA_HOME": str(closed), "CODEX_HOME": str(codex)}
        with unreadable(closed):
            found = list(known_histories(root, environment, closed / "here", errors.append))
    assert [each.program for each in found] == ["Codex"]
    assert [error.filename for error in errors] == [
        str(closed / place) for place in ("amp/threads", "goose/sessions", "zed/threads")
    ]


def test_variable_codex_home_sets_the_history_folder_of_codex(tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "sessions").mkdir(parents=True)
    (found,) = known_histories(tmp_path, {"CODEX_HOME": str(tmp_path / "elsewhere")})
    assert (found.program, found.folder) == ("Codex", tmp_path / "elsewhere" / "sessions")


def test_aider_histories_are_found_up_to_the_repository_folder(tmp_path: Path) -> None:
    repository = tmp_path / "outer" / "repository"
    deep = repository / "a" / "b"
    deep.mkdir(parents=True)
    for folder in (tmp_path, repository, deep):
        (folder / ".aider.chat.history.md").write_text("", encoding="utf-8")
    (repository / ".git").mkdir()
    found = [each.folder.parent for each in known_histories(tmp_path, {}, deep)]
    assert found == [deep, repository]
    named = {"AIDER_CHAT_HISTORY_FILE": str(tmp_path / ".aider.chat.history.md")}
    (only,) = known_histories(tmp_path, named, deep)
    assert (only.program, only.folder.parent) == ("Aider", tmp_path)
