"""`perdure import` of folders: the progress bar, the lines, and bad files among good ones."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import PATIENCE_S, PERDURE, SAMPLE, SAMPLE_ID, World
from tests.fakes.sources import claude_file, every_file

COUNT = 60


@pytest.fixture
def folder(world: World) -> Path:
    """Many histories of all programs, a packed history, and two files of other kinds."""
    folder = world.folder / "histories"
    folder.mkdir()
    contents = every_file()
    for number in range(COUNT):
        content = contents[number % len(contents)]
        (folder / f"{number:03}.jsonl").write_bytes(content)
    (folder / "005a.jsonl").write_bytes(b"no session\n")
    (folder / "040a.jsonl").write_bytes(b"")
    (folder / "050a.jsonl").write_bytes(b"\x1f\x8b packed")
    return folder


def test_import_of_many_files_reports_the_names_of_invalid_files(
    world: World, folder: Path
) -> None:
    ended = world.run("import", str(folder))
    assert ended.code == 1
    assert "1 file failed, 2 other files skipped: no sessions" in ended.out
    assert f"nothing new in {COUNT - len(every_file())} files\n" in ended.out
    assert "050a.jsonl" in ended.err
    for name in ("005a.jsonl", "040a.jsonl"):
        assert name not in ended.err
        assert world.run("import", str(folder / name)).code == 2
    assert world.ok("store", "verify", "--json").json["ok"] is True


def test_repeated_import_prints_changed_files_and_the_number_of_unchanged_files(
    world: World, folder: Path
) -> None:
    """An earlier version printed 2,000 lines for an import of 2,000 unchanged sessions."""
    world.run("import", str(folder))
    (folder / "changed.jsonl").write_bytes(SAMPLE.read_bytes())
    lines = world.run("import", str(folder)).out.splitlines()
    assert [line.rpartition("/")[2] for line in lines if ".jsonl" in line] == ["changed.jsonl"]
    assert f"nothing new in {COUNT} files" in lines
    assert len(world.run("import", str(folder), "--json").lines) == COUNT + 1


def test_import_from_several_programs_prints_a_total_for_each_program(
    world: World, folder: Path
) -> None:
    lines = world.run("import", str(folder)).out.splitlines()
    added = re.compile(r"([a-z-]+: )?(\d+) sessions?, ([\d,]+) entr(?:y|ies) added")
    sums = [found.groups() for found in map(added.match, lines) if found]
    *programs, (no_program, sessions, entries) = sums
    assert no_program is None
    assert len(programs) > 2
    assert [name for name, _, _ in programs] == sorted({name for name, _, _ in programs})
    for whole, number in ((sessions, 1), (entries, 2)):
        parts = [int(each[number].replace(",", "")) for each in programs]
        assert sum(parts) == int(whole.replace(",", ""))


def test_import_shows_progress_on_stderr_and_prints_results_on_stdout(
    world: World, folder: Path
) -> None:
    own, theirs = pty.openpty()
    with subprocess.Popen(
        [PERDURE, "import", str(folder)],
        env={**world.environment, "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=theirs,
        cwd=world.folder,
    ) as process:
        os.close(theirs)
        shown = _all_of(own)
        out, _ = process.communicate(timeout=PATIENCE_S)
    os.close(own)
    assert process.returncode == 1
    assert len(out.decode().splitlines()) > len(every_file()) + 1
    assert "importing" in shown
    assert "050a.jsonl" in shown


def test_import_of_a_claude_code_folder_includes_subagent_sessions(world: World) -> None:
    project = world.folder / ".claude" / "projects" / "-home-ana-orchard"
    session = "5a1d0c9e-0000-4000-8000-00000000c005"
    agents = project / session / "subagents"
    agents.mkdir(parents=True)
    (project / f"{session}.jsonl").write_bytes(claude_file("agents.jsonl"))
    (agents / "agent-ae267a1.jsonl").write_bytes(claude_file("agent-ae267a1.jsonl"))
    (agents / "agent-ae267a1.meta.json").write_text("{}", encoding="utf-8")
    snapshot = b'{"type":"file-history-snapshot","messageId":"m","snapshot":{}}\n'
    (project / "0a1d0c9e-0000-4000-8000-00000000c009.jsonl").write_bytes(snapshot)
    ended = world.ok("import", str(project.parent), "--json")
    reports = {report["session"]: report for report in ended.lines}
    agent = reports[f"{session}:agent-ae267a1"]
    assert (reports[session]["messages"], agent["messages"], len(reports)) == (4, 4, 3)
    listed = [each["id"] for each in world.ok("sessions", "list", "--json").json]
    assert session in listed
    assert agent["session"] not in listed


def test_import_does_not_read_a_special_file(world: World) -> None:
    os.mkfifo(world.folder / "pipe")
    for words in (("pipe",), ("/dev/zero",), (str(SAMPLE), "pipe"), ("pipe", "--watch")):
        ended = world.run("import", *words)
        assert ended.code == 2
        assert "is not a file or folder" in ended.err
        assert ended.out == ""


def test_import_exits_with_2_if_no_file_is_valid(
    world: World,
) -> None:
    (world.folder / "poem.txt").write_text("Roses are red\n", encoding="utf-8")
    alone = world.run("import", "poem.txt", "--json")
    assert (alone.code, alone.error["code"]) == (2, "unknown_format")
    several = world.run("import", "poem.txt", str(SAMPLE), "--json")
    assert (several.code, len(several.lines)) == (1, 1)


def test_import_that_finds_nothing_exits_3(world: World) -> None:
    (world.folder / "empty").mkdir()
    ended = world.run("import", "empty")
    assert (ended.code, ended.out) == (3, "")
    assert "no .jsonl file in empty" in ended.err
    as_json = world.run("import", "empty", "--json")
    assert (as_json.code, as_json.out, as_json.error["code"]) == (3, "", "nothing_to_import")
    flows = world.run("import", "empty", "--format", "a-society", "--json")
    assert (flows.code, flows.error["code"]) == (3, "nothing_to_import")


def test_import_from_the_folder_of_the_target_store_finds_nothing(world: World) -> None:
    store = f"jsonl:///{world.folder}/own?dialect=pi"
    (world.folder / "own").mkdir()
    (world.folder / "own" / "a.jsonl").write_bytes(SAMPLE.read_bytes())
    for _ in range(2):
        ended = world.run("import", "own", "--store", store, "--json")
        assert (ended.code, ended.error["code"]) == (3, "nothing_to_import")
    assert [file.name for file in (world.folder / "own").glob("*.jsonl")] == ["a.jsonl"]


def test_import_is_refused_if_no_line_matches_the_given_format(world: World) -> None:
    (world.folder / "claude.jsonl").write_bytes(claude_file("tools.jsonl"))
    ended = world.run("import", "claude.jsonl", "--format", "pi", "--json")
    assert (ended.code, ended.out) == (2, "")
    told = "no line of it is a record of pi; it is a session of claude-code"
    assert told in ended.error["message"]
    assert world.ok("sessions", "list", "--json").json == []


def test_erased_session_is_imported_only_with_the_again_option(sample: World) -> None:
    sample.ok("sessions", "erase", SAMPLE_ID, "--yes")
    ended = sample.ok("import", str(SAMPLE))
    assert f"session {SAMPLE_ID} was erased; nothing was imported" in ended.out
    assert "`perdure import --again`" in ended.out
    assert sample.ok("sessions", "list", "--json").json == []
    named = sample.run("sessions", "show", str(SAMPLE), "--json")
    assert (named.code, named.error["code"]) == (3, "erased")
    sample.ok("import", str(SAMPLE), "--again")
    (listed,) = sample.ok("sessions", "list", "--json").json
    assert listed["id"] == f"{SAMPLE_ID}.2"


@pytest.mark.parametrize("has_key", [False, True])
def test_refused_import_of_a_store_suggests_a_copy_command_that_works(
    world: World, has_key: bool
) -> None:
    mate = f"sqlite:///{world.folder / 'their store.db'}"
    theirs = world.ok("chat", "-p", "tea", "--store", mate, "--json").lines[0]["sessionId"]
    key = world.folder / "key"
    key.write_text("ab" * 32)
    key.chmod(0o600)
    mine = replace(world, extra={"PERDURE_KEY_FILE": str(key)}) if has_key else world
    mine.ok("chat", "-p", "coffee")

    refused = mine.run("import", "their store.db")

    assert (refused.code, refused.out) == (2, "")
    told = " ".join(refused.err.split())
    assert "their store.db is a store of perdure; to add its sessions to yours: " in told
    command = shlex.split(told.partition("to yours: ")[2])
    plain = command.index("perdure")
    unset = replace(mine, extra={**mine.extra, "PERDURE_KEY_FILE": None}) if plain else mine
    assert command[:plain] == (["env", "-u", "PERDURE_KEY_FILE"] if has_key else [])
    unset.ok(*command[plain + 1 :])
    assert theirs in mine.ok("sessions", "show", theirs).out


@pytest.mark.parametrize("has_file", [False, True])
def test_suggested_copy_command_reads_the_key_from_a_file(world: World, has_file: bool) -> None:
    """The command that an earlier version suggested did not unset the key.

    Without the key, the earlier command created a plain store.
    """
    mate = f"sqlite:///{world.folder / 'their.db'}"
    theirs = world.ok("chat", "-p", "tea", "--store", mate, "--json").lines[0]["sessionId"]
    keys = {"PERDURE_KEY": "ab" * 32, **({"PERDURE_KEY_FILE": "other"} if has_file else {})}
    mine = replace(world, extra=keys)

    told = " ".join(mine.run("import", "their.db").err.split())

    assert "to yours, write your key to KEYFILE (chmod 600) and run: env -u PERDURE_KEY " in told
    command = shlex.split(told.partition("and run: ")[2])
    start = command.index("perdure")
    unset = [word for name in keys for word in ("-u", name)]
    assert command[:start] == ["env", *unset]
    assert command[-2:] == ["--target-key-file", "KEYFILE"]
    plain = replace(mine, extra=dict.fromkeys(keys))
    assert plain.run(*command[start + 1 :]).code == 2  # there is no KEYFILE yet
    key = world.folder / "KEYFILE"
    key.write_text(keys["PERDURE_KEY"])
    key.chmod(0o600)
    plain.ok(*command[start + 1 :])
    assert theirs in mine.ok("sessions", "show", theirs).out


def test_suggested_copy_command_for_an_unencrypted_target_uses_no_key(world: World) -> None:
    mate = f"sqlite:///{world.folder / 'their.db'}"
    theirs = world.ok("chat", "-p", "tea", "--store", mate, "--json").lines[0]["sessionId"]
    mine = ("--store", f"jsonl:///{world.folder}/mine")
    keyed = replace(world, extra={"PERDURE_KEY": "ab" * 32})

    told = " ".join(keyed.run("import", "their.db", *mine).err.split())

    command = shlex.split(told.partition("to yours: ")[2])
    assert command[:4] == ["env", "-u", "PERDURE_KEY", "perdure"]
    world.ok(*command[4:])
    assert theirs in world.ok("sessions", "show", theirs, *mine).out


def test_import_of_a_store_and_a_file_imports_only_the_file(world: World) -> None:
    mate = f"sqlite:///{world.folder / 'their.db'}"
    world.ok("chat", "-p", "tea", "--store", mate)

    ended = world.run("import", "their.db", str(SAMPLE))

    assert ended.code == 1
    assert re.search(r"1 session, \d+ entries added, 1 file failed", ended.out)
    world.ok("sessions", "show", SAMPLE_ID)


def test_key_for_an_unencrypted_store_is_refused_with_a_remedy(
    world: World,
) -> None:
    world.ok("chat", "-p", "tea")
    keyed = replace(world, extra={"PERDURE_KEY": "ab" * 32})

    refused = keyed.run("sessions", "list")

    assert refused.code == 2
    told = " ".join(refused.err.split())
    assert "without the key: `env -u PERDURE_KEY -u PERDURE_KEY_FILE perdure ...`" in told


def test_again_option_is_refused_together_with_watch(world: World) -> None:
    (world.folder / "empty").mkdir()
    assert world.run("import", "empty", "--again", "--watch").code == 2


def test_path_of_a_session_file_selects_the_session(world: World) -> None:
    address = f"jsonl:///{world.folder}/sessions?dialect=pi"
    world.ok("chat", "-p", "hello", "-m", "scripted:echo", "--store", address)
    (path,) = (world.folder / "sessions").glob("*.jsonl")
    for named in (str(path), f"sessions/{path.name}"):
        tree = world.ok("sessions", "tree", named, "--store", address, "--json").json
        assert tree["roots"][0]["role"] == "user"
        assert world.ok("sessions", "show", named, "--store", address).err == ""


def _all_of(terminal: int) -> str:
    """The output to a terminal until no process has the terminal open."""
    pieces: list[bytes] = []
    while True:
        try:
            piece = os.read(terminal, 65_536)
        except OSError:  # how Linux says so
            piece = b""
        if not piece:
            return b"".join(pieces).decode(errors="replace")
        pieces.append(piece)


def test_import_without_path_finds_the_histories_of_known_programs(world: World) -> None:
    nothing = world.run("import", "--json")
    assert (nothing.code, nothing.error["code"]) == (3, "nothing_to_import")
    assert "~/.codex/sessions" in nothing.error["message"]
    claude = world.folder / ".claude" / "projects" / "home"
    pi = world.folder / ".pi" / "agent" / "sessions"
    for folder in (claude, pi):
        folder.mkdir(parents=True)
    (claude / "one.jsonl").write_bytes(claude_file("tools.jsonl"))
    (claude / "notes.jsonl").write_bytes(b"no session\n")
    (pi / "two.jsonl").write_bytes(SAMPLE.read_bytes())
    ended = world.ok("import")
    assert f"Claude Code: {claude.parent}" in ended.err
    assert f"pi: {pi}" in ended.err
    assert "2 sessions" in ended.out
    assert "1 other file skipped: no sessions" in ended.out
    assert len(world.ok("sessions", "list", "--json").json) == 2


def test_dry_run_of_an_import_creates_no_store(world: World, folder: Path) -> None:
    previewed = world.run("import", str(folder), "--dry-run")
    assert previewed.code == 1
    assert "dry run: nothing was written" in previewed.err
    assert not world.file.exists()
    reported = world.run("import", str(folder), "--dry-run", "--json").lines
    listed = {each["session"] for each in reported}
    real = world.run("import", str(folder))
    (sessions,) = re.findall(r"^(\d+ sessions), [\d,]+ entries added", real.out, re.MULTILINE)
    assert f"{sessions}, " in previewed.out.splitlines()[-1]
    assert f"{len(listed)} sessions" == sessions
    before = world.file.read_bytes()
    world.ok("import", str(folder / "000.jsonl"), "--dry-run")
    assert world.file.read_bytes() == before
    for words in (["--watch"], ["--format", "a-society"]):
        assert world.run("import", str(folder), "--dry-run", *words).code == 2
