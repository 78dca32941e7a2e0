"""Each failure is reported by one sentence and an exit code, and never by a traceback."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from perdure.apps.cli.exits import EXITS
from perdure.errors import PerdureError
from tests.acceptance.cli.conftest import PATIENCE_S, PERDURE, SAMPLE, SAMPLE_ID, World
from tests.fakes.samples import case, sampled

IS_ROOT = os.geteuid() == 0


def test_every_exit_code_in_the_table_belongs_to_an_error() -> None:
    known: set[str] = set()
    waiting: list[type[PerdureError]] = [PerdureError]
    for place in ("chat.session", "server.access.tokens", "settings.servers"):
        __import__(f"perdure.apps.{place}")
    while waiting:
        kind = waiting.pop()
        known.add(kind.code)
        waiting += kind.__subclasses__()
    assert set(EXITS) <= known


@pytest.mark.parametrize(
    "words",
    [
        ("sessions", "lits"),
        ("sessions", "tree"),
        ("sessions", "list", "--limit", "many"),
        ("sessions", "list", "--nonsense"),
        ("nonsense",),
        ("sessions", "list", "--store", "ftp://x"),
        ("inbox", "--namespace", "x", "list"),
        ("sessions", "list", "--namespace", ""),
        ("sessions", "list", "--namespace", "\udcff"),
        ("sessions", "erase", "--subject", "", "--yes"),
        ("sessions", "erase", "0196", "--subject", "ann", "--yes"),
    ],
)
def test_error_for_an_invalid_value_lists_the_valid_values(
    sample: World, words: tuple[str]
) -> None:
    ended = sample.run(*words)
    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.startswith("perdure: ")
    assert len(ended.err.splitlines()) == 1
    as_json = sample.run(*words, "--json")
    assert as_json.code == 2
    assert set(as_json.error) >= {"code", "message"}


def test_command_group_without_a_command_shows_its_help_and_fails(world: World) -> None:
    for words in ((), ("sessions",), ("store",)):
        ended = world.run(*words)
        assert ended.code == 2
        assert ended.err.startswith("Usage: perdure")


def test_help_and_version_exit_with_success(world: World) -> None:
    assert world.ok("--version").out.startswith("perdure 0.")
    assert world.ok("-V").out == world.ok("--version").out
    text = world.ok("--help").out
    for command in ("demo", "chat", "sessions", "import", "export", "inbox", "store", "doctor"):
        assert f"\n  {command} " in text
    assert "--focus" in world.ok("sessions", "compact", "--help").out


def test_json_error_contains_its_fields(sample: World) -> None:
    ended = sample.run("sessions", "show", "missing", "--json")
    assert ended.code == 3
    assert ended.error == {
        "stream": "missing",
        "code": "session_not_found",
        "message": ended.error["message"],
    }


def test_file_that_is_not_a_store_is_rejected_and_not_modified(world: World) -> None:
    world.file.write_bytes(b"precious notes, no store\n" * 100)
    before = world.file.read_bytes()
    for words in (("sessions", "list"), ("import", str(SAMPLE)), ("chat", "-p", "hi")):
        ended = world.run(*words, "--json")
        assert (ended.code, ended.error["code"]) == (2, "not_a_store")
    assert world.file.read_bytes() == before
    assert world.run("doctor", "--json").code == 1


def test_verify_reports_damage_with_its_location(sample: World) -> None:
    content = sample.file.read_bytes()
    place = content.index(b'"type":"thinking","text":"An hour') + 26
    sample.file.write_bytes(content[:place] + b"x" + content[place + 1 :])
    ended = sample.run("store", "verify", "--json")
    assert ended.code == 1
    assert ended.json["ok"] is False
    (problem,) = [p for p in ended.json["problems"] if p["seq"] is not None]
    assert set(problem) == {"stream", "seq", "problem"}
    assert (problem["stream"], problem["seq"]) == (SAMPLE_ID, 4)
    assert f"{SAMPLE_ID}/4: " in sample.run("store", "verify").out
    assert sample.run("doctor").code == 1


@pytest.mark.skipif(IS_ROOT, reason="root may write everywhere")
def test_unwritable_folder_error_contains_its_path(world: World) -> None:
    closed = world.folder / "closed"
    closed.mkdir(mode=0o500)
    ended = world.run("import", str(SAMPLE), "--store", f"sqlite:///{closed}/x.db", "--json")
    assert (ended.code, ended.error["code"]) == (1, "store_read_only")


@pytest.mark.full_only
def test_error_for_a_locked_store_reports_the_waiting_time_and_setting(sample: World) -> None:
    settings = sample.folder / ".config" / "perdure" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("[store]\nlock_timeout_s = 0.25\n")
    rename = ("sessions", "rename", SAMPLE_ID, "mine")
    with closing(sqlite3.connect(sample.file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        ended = sample.run_anew(*rename)
        as_json = sample.run_anew(*rename, "--json")
    assert (ended.code, as_json.code) == (4, 4)
    assert "locked for too long; this call waited 0.25 s (store.lock_timeout_s in your" in ended.err
    assert (as_json.error["code"], as_json.error["waited_s"]) == ("store_locked", 0.25)


def test_internal_error_asks_for_a_report(world: World) -> None:
    code = (
        "import perdure.apps.cli.program as p, sys\n"
        "def broken(words): raise ZeroDivisionError('planted; password=hunter22xyz')\n"
        "p.run = broken\n"
        "from perdure.apps.cli.main import main\n"
        "sys.exit(main(['sessions', 'list', *sys.argv[1:]]))\n"
    )

    def run(*words: str, **extra: str) -> subprocess.CompletedProcess[str]:
        environment = {**world.environment, **extra}
        command = [sys.executable, "-c", code, *words]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    plain = run()
    assert plain.returncode == 1
    assert len(plain.stderr.splitlines()) == 1
    assert "a bug in perdure" in plain.stderr
    assert json.loads(run("--json").stderr)["error"]["code"] == "internal"
    traced = run(PERDURE_DEBUG="1").stderr
    assert "Traceback" in traced
    assert "planted" in plain.stderr
    assert "hunter22" not in plain.stderr + traced


def test_closed_pipe_is_not_an_error(sample: World) -> None:
    for words in (("sessions", "context", SAMPLE_ID), ("export", SAMPLE_ID), ("sessions", "list")):
        with sample.start(*words) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            error = process.stderr.read()
            assert (process.wait(PATIENCE_S), error) == (0, b"")


@pytest.mark.parametrize(
    "words", [("sessions", "list"), ("sessions", "list", "--json"), ("--help",)]
)
def test_full_output_device_is_reported_as_error(sample: World, words: tuple[str, ...]) -> None:
    for unbuffered in ("", "1"):
        with Path("/dev/full").open("wb") as full:
            ended = subprocess.run(
                [PERDURE, *words],
                stdout=full,
                stderr=subprocess.PIPE,
                env={**sample.environment, "PYTHONUNBUFFERED": unbuffered},
                cwd=sample.folder,
                timeout=PATIENCE_S,
                check=False,
            )
        said = ended.stderr.decode()
        assert ended.returncode == 1
        assert "the output could not be written: No space left on device" in said
        assert len(said.splitlines()) == 1


def test_ctrl_c_twice_at_the_prompt_exits(world: World) -> None:
    with world.start("chat") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"A new session" in process.stdout.readline()  # it listens now
        process.send_signal(signal.SIGINT)
        assert b"Ctrl-C again leaves" in process.stdout.readline() + process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert (process.wait(PATIENCE_S), process.stderr.read()) == (130, b"")


@pytest.mark.all_only
@sampled("locale", ["C", "en_US.ISO-8859-1", "POSIX"], kind=type)
def test_commands_work_in_a_limited_locale(sample: World, locale: str) -> None:
    poor = World(sample.folder, {"LC_ALL": locale, "LANG": locale})
    poor.ok("sessions", "tree", SAMPLE_ID)
    poor.ok("sessions", "label", SAMPLE_ID, "3", "Größe 🧭")
    tree = poor.ok("sessions", "tree", SAMPLE_ID, "--json").out
    assert "Größe 🧭" in tree
    assert poor.ok("chat", "-p", "漢字").code == 0


def test_tree_is_drawn_in_ascii_if_the_output_has_no_unicode(sample: World) -> None:
    ascii_only = World(sample.folder, {"PYTHONIOENCODING": "ascii:strict", "PYTHONUTF8": "0"})
    drawn = ascii_only.ok("sessions", "tree", SAMPLE_ID).out
    assert drawn.isascii()
    assert "|-* user" in drawn


def test_output_to_a_pipe_is_never_coloured(sample: World) -> None:
    coloured = World(sample.folder, {"TERM": "xterm-256color"})
    assert "\x1b" not in coloured.ok("sessions", "tree", SAMPLE_ID).out


def test_terminal_output_is_coloured_unless_no_color_is_set(sample: World) -> None:
    for extra, is_coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        environment = {**sample.environment, "TERM": "xterm-256color", **extra}
        shown = in_terminal(["sessions", "tree", SAMPLE_ID], environment, sample.folder)
        assert ("\x1b[" in shown) is is_coloured
        assert "two ways out" in shown


def in_terminal(words: list[str], environment: dict[str, str], folder: Path) -> str:
    """Return the output of the command at a terminal."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [PERDURE, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=folder
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            chunk = os.read(ours, 65_536)
        except OSError:  # the other side was closed
            break
        if not chunk:
            break
        shown += chunk
    os.close(ours)
    assert process.wait(PATIENCE_S) == 0
    return shown.decode()


def test_import_in_a_terminal_prints_the_imported_session(world: World) -> None:
    environment = {**world.environment, "TERM": "xterm-256color"}
    shown = in_terminal(["import", str(SAMPLE)], environment, world.folder)
    assert SAMPLE_ID in shown


@pytest.mark.parametrize("words", [("--json",), ()])
def test_argument_that_is_not_utf8_causes_no_traceback(
    sample: World, words: tuple[str, ...]
) -> None:
    done = _in_shell(sample, "perdure sessions show $(printf '\\377\\376') " + " ".join(words))
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    if words:
        error = json.loads(done.stderr)["error"]
        assert (error["code"], error["stream"]) == ("session_not_found", "\ufffd\ufffd")


@pytest.mark.all_only
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("sessions list --json >&-", 0),
        ("sessions list >&- 2>&- <&-", 0),
        ("sessions list 2>&-", 0),
        ("sessions show nope 2>&-", 3),
        ("sessions show nope --json 2>&-", 3),
    ],
)
def test_command_with_a_closed_standard_stream_ends_without_an_error(
    sample: World, command: str, code: int
) -> None:
    done = _in_shell(sample, f"perdure {command}")
    assert (done.returncode, done.stderr) == (code, "")
    is_shown = code == 0 and ">&-" not in command.replace("2>&-", "")
    assert (SAMPLE_ID[:8] in done.stdout) is is_shown


def _in_shell(world: World, command: str) -> subprocess.CompletedProcess[str]:
    folder = str(PERDURE.parent)
    return subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        env={**world.environment, "PATH": f"{folder}:{world.environment['PATH']}"},
        cwd=world.folder,
        timeout=PATIENCE_S,
        check=False,
    )


def test_verify_reports_a_store_that_cannot_be_opened(sample: World) -> None:
    sample.file.write_bytes(sample.file.read_bytes()[:20_000])
    ended = sample.run("store", "verify", "--json")
    assert (ended.code, ended.err) == (1, "")
    assert set(ended.json) == {"ok", "streams", "entries", "erased", "cut_off", "problems"}
    assert ended.json["ok"] is False
    (problem,) = ended.json["problems"]
    assert (problem["stream"], problem["seq"]) == (None, None)
    assert problem["problem"]
    text = sample.run("store", "verify")
    assert (text.code, text.err) == (1, "")
    assert "perdure store verify" not in text.out
    assert "`perdure store repair`" in text.out


@pytest.mark.parametrize("said", ["", "  \n"])
def test_empty_message_is_refused_before_a_session_is_created(world: World, said: str) -> None:
    ended = world.run("chat", "-p", said)
    assert ended.code == 2
    assert "there is nothing to say after -p" in ended.err
    assert not world.file.exists()


NOT_UTF8 = "it is not UTF-8, and a log holds nothing else; convert it and try again"


def test_prompt_from_shell_that_is_not_utf8_is_rejected(sample: World) -> None:
    done = _in_shell(sample, "perdure chat -p $(printf '\\377')")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert NOT_UTF8 in done.stderr
    assert len(sample.ok("sessions", "list", "--json").json) == 1


def test_title_label_or_reason_that_is_not_utf8_is_rejected(sample: World) -> None:
    for words in (
        ("sessions", "rename", SAMPLE_ID),
        ("sessions", "label", SAMPLE_ID, "4"),
        ("sessions", "fork", SAMPLE_ID, "--title"),
        ("sessions", "end", SAMPLE_ID, "--reason"),
    ):
        with case(words):
            ended = sample.run(*words, os.fsdecode(b"\xff"))
            assert (ended.code, ended.out) == (2, "")
            assert len(ended.err.splitlines()) == 1
            assert NOT_UTF8 in ended.err
    assert len(sample.ok("sessions", "list", "--json").json) == 1


def test_number_with_thousands_of_digits_matches_no_entry(sample: World) -> None:
    ended = sample.run("sessions", "branch", SAMPLE_ID, "9" * 5000, "--json")
    assert (ended.code, ended.error["code"]) == (3, "entry_not_found")


def test_error_contains_the_path_of_a_missing_folder(world: World) -> None:
    gone = world.folder / "gone"
    gone.mkdir()
    words = ["sh", "-c", 'cd "$0" && rmdir "$0" && exec "$1" sessions list', str(gone), PERDURE]
    done = subprocess.run(words, capture_output=True, env=world.environment, check=False)
    assert done.returncode == 1
    assert done.stderr == b"perdure: the folder you are in is gone; go to another\n"


def test_ctrl_c_while_the_program_starts_ends_it_without_a_traceback(world: World) -> None:
    code = (
        "import runpy, sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'perdure.apps.cli.main': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "runpy.run_module('perdure', run_name='__main__')\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, env=world.environment, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
