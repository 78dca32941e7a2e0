"""Import and export: nothing is lost, duplicated or overwritten."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from perdure.client.lookup.store_files import data_folder
from tests.acceptance.cli.conftest import SAMPLE, SAMPLE_ID, World
from tests.fakes.sources import claude_file, codex_file, operator_file, pi_file

REPORT_KEYS = {"session", "format", "entries", "messages", "skipped", "warnings"}


def test_import_reports_added_items_and_a_second_import_adds_nothing(world: World) -> None:
    (first,) = world.ok("import", str(SAMPLE), "--json").lines
    assert set(first) == REPORT_KEYS
    assert first == {
        "session": SAMPLE_ID,
        "format": "pi",
        "entries": first["entries"],
        "messages": 35,
        "skipped": 0,
        "warnings": [],
    }
    (second,) = world.ok("import", str(SAMPLE), "--json").lines
    assert (second["session"], second["entries"], second["messages"]) == (SAMPLE_ID, 0, 0)
    assert "nothing new" in world.ok("import", str(SAMPLE)).out


def test_unchanged_import_is_exported_with_identical_bytes(sample: World) -> None:
    sample.ok("export", SAMPLE_ID, "--format", "pi", "-o", "out.jsonl")
    assert (sample.folder / "out.jsonl").read_bytes() == SAMPLE.read_bytes()
    assert (sample.folder / "out.jsonl").stat().st_mode & 0o777 == 0o600
    assert sample.ok("export", SAMPLE_ID, "--format", "pi").out == SAMPLE.read_text("utf-8")


def test_session_is_moved_between_stores_completely(sample: World) -> None:
    sample.ok("sessions", "branch", SAMPLE_ID, "9")
    sample.ok("sessions", "label", SAMPLE_ID, "3", "here")
    sample.ok("export", SAMPLE_ID, "-o", "moved.jsonl")
    other = f"sqlite:///{sample.folder / 'other.db'}"
    (report,) = sample.ok("import", "moved.jsonl", "--store", other, "--json").lines
    assert (report["session"], report["format"]) == (SAMPLE_ID, "perdure")
    for command in ("tree", "context"):
        words = ("sessions", command, SAMPLE_ID, "--json")
        assert sample.ok(*words, "--store", other).json == sample.ok(*words).json


def test_export_overwrites_a_file_only_with_the_force_option(sample: World) -> None:
    file = sample.folder / "precious"
    file.write_text("precious", encoding="utf-8")
    ended = sample.run("export", SAMPLE_ID, "-o", "precious", "--json")
    assert (ended.code, ended.error["code"]) == (4, "path_exists")
    assert "add --force" in ended.error["message"]
    assert file.read_text(encoding="utf-8") == "precious"
    written = sample.ok("export", SAMPLE_ID, "-o", "precious", "--force", "--json").json
    assert set(written) == {"session", "format", "output", "bytes", "warnings", "redacted"}
    assert written["bytes"] == file.stat().st_size
    assert json.loads(file.read_text(encoding="utf-8").splitlines()[0])["type"] == "perdure"
    assert [path.name for path in sample.folder.glob(".*.part")] == []


def test_export_error_mentions_the_unwritable_path(sample: World) -> None:
    ended = sample.run("export", SAMPLE_ID, "-o", "nowhere/out.jsonl", "--json")
    assert (ended.code, ended.error["code"]) == (3, "path_not_found")
    assert "nowhere" in ended.error["message"]
    assert sample.run("export", SAMPLE_ID, "--json").code == 2


def test_folder_import_continues_after_a_broken_file(world: World) -> None:
    folder = world.folder / "recorded" / "deep"
    folder.mkdir(parents=True)
    (folder / "a-broken.jsonl").write_bytes(b"\x1f\x8b packed")
    (folder / "b-good.jsonl").write_bytes(SAMPLE.read_bytes())
    (folder / "notes.txt").write_text("not looked at", encoding="utf-8")
    ended = world.run("import", str(folder.parent), "--json")
    assert ended.code == 1
    assert [report["session"] for report in ended.lines] == [SAMPLE_ID]
    assert ended.error["code"] == "format_error"
    assert "a-broken.jsonl" in ended.error["message"]
    ended = world.run("import", str(folder.parent), str(SAMPLE))
    assert ended.code == 1
    assert "1 session, 0 entries added, 1 file failed" in ended.out


def test_damaged_line_is_stored_counted_and_reported(world: World) -> None:
    lines = SAMPLE.read_bytes().splitlines(keepends=True)
    lines[6] = lines[6][:40] + b"\n"
    file = world.folder / "damaged.jsonl"
    file.write_bytes(b"".join(lines))
    (report,) = world.ok("import", "damaged.jsonl", "--json").lines
    assert report["skipped"] == 1
    text = world.ok("import", "damaged.jsonl", "--store", "memory:").out
    assert "1 line could not be read and was kept: 7" in text
    assert world.ok("export", report["session"], "--format", "pi").out.encode() == file.read_bytes()


def test_import_and_export_of_a_missing_path_exit_with_not_found(world: World) -> None:
    ended = world.run("import", "nowhere.jsonl", "--json")
    assert (ended.code, ended.error["code"]) == (3, "path_not_found")
    assert world.run("export", "nothing").code == 3
    assert not world.file.exists()


def test_import_accepts_a_known_format_name(world: World) -> None:
    assert world.run("import", str(SAMPLE), "--format", "word").code == 2
    world.ok("import", str(SAMPLE), "--format", "pi")


def test_import_and_export_of_every_pi_recording_preserve_all_bytes(
    world: World, recordings: Path
) -> None:
    ended = world.ok("import", str(recordings), "--json")
    files = sorted(recordings.rglob("*.jsonl"))
    assert len(ended.lines) == len(files)
    for file, report in zip(files, ended.lines, strict=True):
        context = world.ok("sessions", "context", report["session"], "--json").json
        assert context["messages"], file
        if report["format"] == "pi":
            out = world.ok("export", report["session"], "--format", "pi").out
            assert out.encode() == file.read_bytes()
    assert world.ok("store", "verify", "--json").json["ok"] is True


@pytest.mark.parametrize("name", ["with space.jsonl", "ünïcode-漢字.jsonl", "-dash.jsonl"])
def test_import_accepts_unusual_file_names(world: World, name: str) -> None:
    (world.folder / name).write_bytes(SAMPLE.read_bytes())
    (report,) = world.ok("import", "--json", "--", name).lines
    assert report["session"] == SAMPLE_ID


def test_continue_in_command_writes_the_opencode_file_into_the_data_folder(sample: World) -> None:
    report = sample.ok("continue-in", SAMPLE_ID, "opencode", "--json").json
    folder = data_folder(sample.environment, sys.platform) / "perdure" / "continued"
    assert Path(report["file"]).is_relative_to(folder)


CLAUDE_ID = "5a1d0c9e-0000-4000-8000-00000000c001"
CODEX_ID = "0199a213-81c0-7800-8aa1-bbab2a03c001"
PI_FILE = ".pi/agent/sessions/--home-ana-orchard--/2026-03-31_0f6f3f0e.jsonl"
OPERATOR_FILE = ".operator/profiles/ana/sessions/old.jsonl"
ORIGINALS = {
    "claude-code": (
        f".claude/projects/-home-ana-orchard/{CLAUDE_ID}.jsonl",
        claude_file("tools.jsonl"),
        f"claude --resume {CLAUDE_ID}",
    ),
    "codex": (
        f".codex/sessions/2026/04/01/rollout-2026-04-01T10-00-01-{CODEX_ID}.jsonl",
        codex_file("rollout.jsonl"),
        f"codex resume {CODEX_ID}",
    ),
    "pi": (PI_FILE, pi_file("v3.jsonl"), f"pi --session {{home}}/{PI_FILE}"),
    "operator": (
        OPERATOR_FILE,
        operator_file("current.jsonl"),
        f"operator --repl --session-file {{home}}/{OPERATOR_FILE}",
    ),
}
"""For each program: the path and content of a session file, and the command to resume it."""


def stored_original(world: World, program: str) -> tuple[Path, str, str]:
    """Import a session of `program`; return its file, its id and the program's command for it."""
    place, content, command = ORIGINALS[program]
    file = world.folder / place
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    (report,) = world.ok("import", str(file), "--json").lines
    return file, report["session"], command.format(home=world.folder)


@pytest.mark.parametrize("program", list(ORIGINALS))
def test_continue_in_command_prints_the_original_file_of_an_unchanged_import(
    world: World, program: str
) -> None:
    """An earlier version wrote a copy with another id next to the original."""
    file, session, command = stored_original(world, program)
    ended = world.ok("continue-in", session, program)
    assert ended.out == f"cd /home/ana/orchard && {command}\n"
    assert f"in its original file: {file}" in ended.err
    report = world.ok("continue-in", session, program, "--json").json
    assert (report["file"], report["session"]) == (str(file), session)
    top = world.folder / Path(ORIGINALS[program][0]).parts[0]
    assert [each for each in top.rglob("*") if each.is_file()] == [file]


@pytest.mark.parametrize("program", ["claude-code", "operator"])
def test_continue_in_command_writes_a_copy_if_the_original_file_differs(
    world: World, program: str
) -> None:
    file, session, _ = stored_original(world, program)

    def handed(*options: str) -> str:
        return world.ok("continue-in", session, program, "--json", *options).json["file"]

    leaf = world.ok("sessions", "show", session, "--json").json["leaf"]
    assert handed("--leaf", leaf) != str(file)
    with file.open("ab") as grown:
        grown.write(b"{}\n")
    assert handed() == str(file)
    file.write_bytes(b"{}\n" + file.read_bytes())
    copy = handed()
    assert copy != str(file)
    file.write_bytes(ORIGINALS[program][1])
    world.ok("chat", "--session", session, "-p", "and more")
    assert handed() not in (copy, str(file))
