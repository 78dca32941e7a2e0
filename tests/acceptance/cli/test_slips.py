"""Typing mistakes and odd files cause a helpful message, and do no harm."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from perdure.apps.cli import doctor
from perdure.apps.maintenance import backup, restore
from tests.acceptance.cli.conftest import SAMPLE, SAMPLE_ID, World

EXAMPLE = Path(__file__).parents[3] / "examples" / "flows" / "single-owner" / "workflow.yaml"
MARK = b"\xef\xbb\xbf"


def test_model_option_accepts_a_scenario_file(world: World) -> None:
    (world.folder / "trip.yaml").write_text("sequence: [{text: Ahoy}, {text: Land}]\n")
    assert world.ok("chat", "-m", "scripted:trip.yaml", "-p", "hi").out == "Ahoy\n"
    assert world.ok("chat", "--continue", "-p", "and now?").out == "Land\n"
    refused = world.run("chat", "-m", "scripted:none.yaml", "-p", "hi", "--json")
    assert (refused.code, refused.error["code"]) == (2, "model_not_here")
    assert "none.yaml" in refused.error["message"]


def test_invalid_value_gets_a_message_without_library_terms(world: World) -> None:
    for words, told in (
        (
            ("sessions", "list", "--limit", "x"),
            "Invalid value for '--limit': 'x' is no whole number;",
        ),
        (("chat", "--approve", "no"), "Invalid value for '--approve': 'no' is not one of 'ask'"),
        (("sessions", "search", "a", "--since", "soon"), "--since': 'soon' is no date or time"),
    ):
        ended = world.run(*words)
        assert ended.code == 2
        assert told in ended.err
        assert "Value error" not in ended.err


def test_model_without_a_provider_is_refused_immediately(world: World) -> None:
    flow = ("flow", "run", str(EXAMPLE))
    for named in (
        ("chat", "-m", "gpt-5"),
        (*flow, "-m", "gpt-5"),
        (*flow, "--offer", "gpt-5"),
        (*flow, "-m", "scripted:echo", "--role", "owner model=gpt-5"),
    ):
        ended = world.run(*named)
        assert ended.code == 2
        assert "names no provider and model" in " ".join(ended.err.split())
    config = world.folder / ".config" / "perdure" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[chat]\n\nmodel = 'gpt-5'\n")
    ended = world.run("chat")
    assert ended.code == 2
    assert ":3: 'gpt-5' names no provider and model: write provider:name" in ended.err
    config.unlink()
    ended = World(world.folder, {"PERDURE_MODEL": "gpt-5"}).run("chat")
    assert ended.code == 2
    assert "$PERDURE_MODEL: 'gpt-5' names no provider" in ended.err


def test_empty_store_variable_is_an_error_instead_of_the_default_store(world: World) -> None:
    ended = World(world.folder, {"PERDURE_STORE": ""}).run("chat", "-p", "hello")
    assert ended.code == 2
    assert ended.err.startswith("perdure: PERDURE_STORE is empty: set it to the address of a store")
    assert list(world.folder.iterdir()) == []


def test_doctor_works_without_a_home_folder(world: World) -> None:
    nowhere = World(world.folder, {"HOME": "", "PERDURE_STORE": None})
    ended = nowhere.run("doctor", "--json")
    checks = {check["name"]: check for check in ended.json["checks"]}
    assert ended.code == 1
    assert checks["store"]["status"] == "fail"
    assert "set PERDURE_STORE" in checks["store"]["detail"]
    assert {"perdure", "python", "sqlite", "models"} <= checks.keys()


def test_doctor_reports_a_store_in_a_folder_without_permission(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_address: str) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", "/closed/x.db")

    monkeypatch.setattr(doctor, "is_missing", denied)
    ended = world.run("doctor", "--json")
    (check,) = [each for each in ended.json["checks"] if each["status"] == "fail"]
    assert (ended.code, check["name"]) == (1, "store")
    assert check["detail"] == "/closed/x.db: Permission denied"
    assert check["advice"] == "check the owner and permissions of file and folder"


def test_error_for_an_unwritable_folder_suggests_to_check_the_permissions(
    sample: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_folder: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    sample.ok("store", "backup", "kept")
    monkeypatch.setattr(backup, "sync_folder", denied)
    monkeypatch.setattr(restore, "alone_at", denied)
    new = f"sqlite:///{sample.folder}/copy"
    for words in (("backup", "copy"), ("restore", "kept", "--store", new)):
        ended = sample.run("store", *words, "--json")
        assert (ended.code, ended.error["code"]) == (1, "store_read_only")
        assert "copy cannot be written; check the permissions" in ended.error["message"]


def test_empty_backup_path_is_refused(sample: World) -> None:
    before = sorted(sample.folder.iterdir())
    for command in ("backup", "restore"):
        ended = sample.run("store", command, "")
        assert ended.code == 2
        assert "an empty path names nothing" in ended.err
    assert sorted(sample.folder.iterdir()) == before


def test_error_reports_a_file_given_instead_of_a_folder(world: World) -> None:
    file = world.folder / "file"
    file.write_text("mine")
    ended = world.run("sessions", "list", "--store", f"jsonl:///{file}")
    assert "a file is in its place" in ended.err
    assert "Errno" not in ended.err
    assert file.read_text() == "mine"


def test_byte_order_mark_causes_no_error(world: World) -> None:
    (world.folder / "marked.jsonl").write_bytes(MARK + SAMPLE.read_bytes())
    report = world.ok("import", "marked.jsonl", "--json").json
    assert (report["session"], report["skipped"], report["warnings"]) == (SAMPLE_ID, 0, [])


def test_empty_file_is_reported_as_damaged_and_unchanged(world: World) -> None:
    world.file.touch()
    checked = world.run("doctor", "--json")
    assert checked.code == 1
    (content,) = (c for c in checked.json["checks"] if c["name"] == "content")
    assert "it is empty: restore a backup" in content["detail"]
    for words in (("sessions", "list"), ("chat", "-p", "hi"), ("import", str(SAMPLE))):
        refused = world.run(*words)
        assert refused.code == 1
        assert "it is empty: restore a backup, or remove the file" in refused.err
    assert world.file.stat().st_size == 0


def test_retention_and_quota_limits_are_printed_as_they_were_entered(sample: World) -> None:
    told = sample.ok("store", "retention", "set", "--max-idle", "90d", "--max-bytes", "5GB").out
    assert "delete sessions without new messages after" in told
    assert "90d" in told
    assert "5GB" in told
    assert "idle s" not in told
    assert "of 2GB" in sample.ok("store", "quota", "set", "--max-bytes", "2GB").out


def test_id_prefix_selects_the_existing_session_and_not_the_erased_session(sample: World) -> None:
    sample.ok("sessions", "erase", SAMPLE_ID, "--yes")
    sample.ok("import", str(SAMPLE), "--again")
    (row,) = sample.ok("sessions", "list", "--json").json
    assert row["id"] != SAMPLE_ID
    shown = sample.ok("sessions", "show", SAMPLE_ID[:8], "--json").json
    assert shown["id"] == row["id"]


@pytest.mark.parametrize(("policy", "fate"), [("warn", "unchanged"), ("redact", "masked")])
def test_warning_about_a_typed_credential_explains_how_the_message_is_stored(
    world: World, policy: str, fate: str
) -> None:
    file = world.folder / "a.agent.yaml"
    text = "id: a\nmodel: scripted:echo\nsystem_prompt: hi\non_pasted: "
    file.write_text(text + policy)
    said = ("-p", "AKIAIOSFODNN7EXAMPLE")
    assert f"it is stored and sent {fate}" in world.ok("chat", "--agent", str(file), *said).err
    file.write_text(text + "refuse")
    refused = world.run("chat", "--agent", str(file), *said)
    assert (refused.code, "stored and sent" in refused.err) == (2, False)


def test_help_command_prints_the_same_text_as_the_help_option(
    world: World,
) -> None:
    assert world.ok("help", "sessions", "fork").out == world.ok("sessions", "fork", "-h").out
    assert world.ok("help").out == world.ok("--help").out
    for words, told in (
        (("search", "--help"), "use `perdure sessions search`\n"),
        (("serch", "-h"), "did you mean `perdure sessions search`?\n"),
    ):
        ended = world.run(*words)
        assert (ended.code, told in ended.err) == (2, True)
    ended = world.run("sessions", "delete", "--help")
    assert (ended.code, "use `perdure sessions erase`" in ended.err) == (2, True)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("nonsense", "unknown command 'nonsense'"),
        ("list", "there is no command 'list': use `perdure sessions list`"),
        ("sessions frok", "unknown command 'frok'. Did you mean 'fork'?"),
        ("sessions delete", "there is no command 'delete' of `perdure sessions`: use `perdure"),
        ("help", "there is no command 'help': use `perdure --help`"),
    ],
)
def test_help_of_an_unknown_command_reports_that_command(
    world: World, asked: str, told: str
) -> None:
    ended = world.run("help", *asked.split())
    assert (ended.code, told in ended.err) == (2, True), ended.err


def test_fork_command_rejects_two_different_entries(sample: World) -> None:
    by_argument = sample.ok("sessions", "fork", "0196", "3", "--json").json
    by_option = sample.ok("sessions", "fork", by_argument["parent"], "--at", "3", "--json").json
    assert by_argument["leaf"] == by_option["leaf"]
    assert by_argument["leaf"].endswith("/3")
    ended = sample.run("sessions", "fork", by_argument["parent"], "3", "--at", "4")
    assert (ended.code, "name one entry" in ended.err) == (2, True)


def test_command_group_without_a_command_prints_its_help(world: World) -> None:
    for group in ("memory", "grants", "schedule", "token", "cluster", "sessions", "flow"):
        ended = world.run(group)
        assert (ended.code, ended.out) == (2, ""), group
        assert f"perdure {group} COMMAND" in ended.err, group
        assert "Missing command" not in ended.err


def test_error_for_the_unknown_format_json_suggests_the_json_option(sample: World) -> None:
    for words in (
        ("sessions", "list", "--format", "json"),
        ("usage", "--output=json"),
        ("sessions", "show", SAMPLE_ID, "-o", "json"),
    ):
        ended = sample.run(*words)
        assert ended.code == 2
        assert "did you mean --json?" in ended.err, words
    assert "--json" not in sample.run("sessions", "list", "--format", "text").err


def test_label_removal_prints_the_text_of_the_label(sample: World) -> None:
    told = sample.ok("sessions", "label", SAMPLE_ID, "9").out
    assert "is no longer called 'two ways out'" in told
    told = sample.ok("sessions", "label", SAMPLE_ID, "9").out
    assert "has no label; add a text after the entry" in " ".join(told.split())


def test_option_without_effect_in_a_mode_is_refused(sample: World) -> None:
    show = ("flow", "show", "f", "--role", "owner", "--json")
    for words, told in (
        (("sessions", "read", SAMPLE_ID, "8", "--last", "2"), "--last the newest messages: leave"),
        (("import", ".", "--format", "a-society", "--subject", "ann"), "flows have no subject"),
        ((*show, "--limit", "2"), "with --json add --feed"),
        ((*show, "--after", "owner_1"), "with --json add --feed"),
    ):
        refused = sample.run(*words)
        assert (refused.code, refused.out) == (2, ""), words
        assert told in refused.err
    assert len(sample.ok("sessions", "read", SAMPLE_ID, "8", "--json").json) == 1


def test_error_for_a_typical_mistake_suggests_a_remedy(world: World) -> None:
    for words, told in (
        (("chat", "hello"), "unexpected argument: hello; a message goes after -p, in quotes"),
        (("sessions", "diff", "S"), "missing argument LEAF_A; `perdure sessions tree ID` lists"),
        (("store", "copy", "--to", "X"), "unknown option --to; TARGET has no option: `perdure"),
        (("continue-in", "S", "claude"), "'opencode'; did you mean claude-code?"),
        (("usage", "day"), "'sessions'; did you mean daily?"),
        (("schedule", "add", "S", "x", "--every", "week"), "--every; recurring messages are"),
        (("schedule", "add", "S", "x", "--cron=0 9"), "unknown option --cron; recurring"),
    ):
        ended = world.run(*words)
        assert (ended.code, len(ended.err.splitlines())) == (2, 1), words
        assert told in ended.err
