"""``perdure store rekey``, ``vacuum`` and ``migrate``, and messages about encryption."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import SAMPLE, SAMPLE_ID, World

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden" / "sqlite" / "schema-11.sqlite"
UNRELEASED_USES = (
    ("sessions", "list"),
    ("store", "verify"),
    ("store", "info"),
    ("store", "migrate"),
    ("store", "repair"),
    ("store", "backup", "backup"),
    ("chat", "-m", "scripted:echo", "-p", "hello"),
)
KEY = "5a" * 32
NO_KEYRING = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}


def with_key(world: World, key: str = KEY) -> World:
    return replace(world, extra={**world.extra, "PERDURE_KEY": key})


def with_file(world: World, file: Path) -> World:
    return replace(world, extra={**world.extra, "PERDURE_KEY_FILE": str(file)})


def with_keyring(world: World) -> World:
    """A world whose system has a keyring that works."""
    extra = {
        "PYTHON_KEYRING_BACKEND": "tests.fakes.file_keyring.FileKeyring",
        "PYTHONPATH": str(ROOT),
        "PERDURE_TEST_KEYRING": str(world.folder / "keyring.json"),
    }
    return replace(world, extra={**world.extra, **extra})


def is_readable(world: World) -> bool:
    return SAMPLE_ID[:8] in world.ok("sessions", "list").out


def holds_plain_text(world: World) -> bool:
    return b"tide table" in world.file.read_bytes()


@pytest.fixture
def plain(sample: World) -> World:
    """A world with the sample in an unencrypted store, on a system without a keyring."""
    return replace(sample, extra=NO_KEYRING)


def test_store_made_with_a_key_is_encrypted(world: World) -> None:
    keyed = with_key(world)
    keyed.ok("import", str(SAMPLE))

    assert is_readable(keyed)
    assert not holds_plain_text(world)
    info = keyed.ok("store", "info", "--json").json
    assert (info["is_encrypted"], info["cipher"]) == (True, "AEGIS-256")
    assert "encrypted with AEGIS-256" in keyed.ok("store", "info").out
    checks = {check["name"]: check for check in keyed.ok("doctor", "--json").json["checks"]}
    assert checks["encryption"]["status"] == "ok"
    assert "AEGIS-256" in checks["encryption"]["detail"]


def test_command_without_the_key_reports_the_missing_key(world: World) -> None:
    with_key(world).ok("import", str(SAMPLE))
    headless = replace(world, extra=NO_KEYRING)

    ended = headless.run("sessions", "list", "--json")
    assert (ended.code, ended.error["code"]) == (2, "key_missing")
    ended = with_key(headless, "00" * 32).run("sessions", "list", "--json")
    assert (ended.code, ended.error["code"]) == (2, "key_wrong")
    assert "00" * 32 not in ended.err + ended.out
    assert headless.run("doctor").code == 1
    assert "is encrypted" in headless.run("doctor").out


def test_rekey_with_a_key_encrypts_an_unencrypted_store(plain: World) -> None:
    keyed = with_key(plain)
    ended = keyed.run("sessions", "list", "--json")
    assert (ended.code, ended.error["code"]) == (2, "store_not_encrypted")
    assert "perdure store rekey" in ended.error["message"]

    assert "is encrypted" in keyed.ok("store", "rekey").out

    assert is_readable(keyed)
    assert not holds_plain_text(plain)
    assert plain.run("sessions", "list").code == 2


def test_generated_key_is_written_into_the_new_key_file(plain: World) -> None:
    file = plain.folder / "key"
    ended = plain.ok("store", "rekey", "--generate", "--new-key-file", str(file))

    key = file.read_text().strip()
    assert len(key) == 64
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert f"PERDURE_KEY_FILE={file}" in ended.out
    assert key not in ended.out + ended.err
    assert is_readable(with_file(plain, file))

    again = with_file(plain, file).run("store", "rekey", "--generate", "--new-key-file", str(file))
    assert (again.code, file.read_text().strip()) == (4, key)


def test_encrypted_store_can_be_rekeyed_and_decrypted(plain: World) -> None:
    first, second = plain.folder / "first", plain.folder / "second"
    plain.ok("store", "rekey", "--generate", "--new-key-file", str(first))
    second.write_text(KEY)
    second.chmod(0o600)
    keyed = with_file(plain, first)

    assert keyed.run("store", "rekey").code == 2
    told = keyed.ok("store", "rekey", "--new-key-file", str(second), "--json").json
    assert told["is_encrypted"] is True
    assert (told["key"], told["key_file"]) == ("file", str(second))
    assert keyed.run("sessions", "list").code == 2
    assert is_readable(with_key(plain))

    with_key(plain).ok("store", "rekey", "--plain")
    assert holds_plain_text(plain)
    assert is_readable(plain)


@pytest.mark.all_only
def test_new_store_key_is_stored_in_a_working_keyring(plain: World) -> None:
    world = with_keyring(plain)

    ended = world.ok("store", "rekey", "--generate")

    kept = json.loads((world.folder / "keyring.json").read_text())
    assert list(kept) == [f"perdure sqlite:///{world.file.resolve()}"]
    assert next(iter(kept.values())) not in ended.out + ended.err
    assert is_readable(world)
    world.ok("store", "rekey", "--generate")
    assert kept != json.loads((world.folder / "keyring.json").read_text())
    assert is_readable(world)
    world.ok("store", "rekey", "--plain")
    assert json.loads((world.folder / "keyring.json").read_text()) == {}
    assert is_readable(world)


def test_new_key_without_a_keyring_needs_a_key_file(plain: World) -> None:
    ended = plain.run("store", "rekey", "--generate", "--json")
    assert (ended.code, ended.error["code"]) == (2, "usage")
    assert "--new-key-file" in ended.error["message"]
    assert is_readable(plain)


@pytest.mark.parametrize("words", [["--plain", "--generate"], ["--plain", "--new-key-file", "f"]])
def test_contradictory_options_are_refused(plain: World, words: list[str]) -> None:
    assert plain.run("store", "rekey", *words).code == 2
    assert is_readable(plain)


def test_rekey_of_a_store_in_use_is_refused(plain: World) -> None:
    file = plain.folder / "key"
    with plain.start("chat", "-m", "scripted:echo") as chat:
        assert chat.stdin is not None
        assert chat.stdout is not None
        chat.stdin.write(b"hello\n")
        chat.stdin.flush()
        while b"hello" not in chat.stdout.readline():
            assert chat.poll() is None
        words = ("--generate", "--new-key-file", str(file), "--json")
        ended = plain.run("store", "rekey", *words)
        chat.stdin.close()
        chat.wait(60)

    assert (ended.code, ended.error["code"]) == (4, "store_in_use")
    assert not file.exists()
    assert is_readable(plain)


def test_doctor_finds_leftovers_of_an_interrupted_rekey(plain: World) -> None:
    plain.file.with_name(plain.file.name + "-rekey").write_bytes(b"half a copy")
    checks = {check["name"]: check for check in plain.ok("doctor", "--json").json["checks"]}
    assert checks["rekey"]["status"] == "warn"


def test_maintenance_command_on_a_missing_store_is_refused(world: World) -> None:
    for words in (["rekey", "--plain"], ["vacuum"], ["migrate"]):
        assert world.run("store", *words).code == 3
    assert world.run("store", "rekey", "--plain", "--store", "memory:").code == 1


def test_vacuum_keeps_referenced_contents(sample: World) -> None:
    done = sample.ok("store", "vacuum", "--json").json
    assert done["blobs"] == 0
    assert sample.ok("store", "vacuum").out.startswith("removed 0 unused contents, 0 bytes")
    assert sample.ok("store", "verify", "--json").json["ok"] is True


def test_current_store_needs_no_migration(sample: World) -> None:
    plan = sample.ok("store", "migrate", "--dry-run", "--json").json
    assert (plan["steps"], plan["current"]) == ([], plan["latest"])
    assert "nothing to do" in sample.ok("store", "migrate", "--dry-run").out
    assert sample.ok("store", "migrate", "--json").json["steps"] == []


def test_store_of_an_unreleased_schema_can_only_be_copied(world: World) -> None:
    world.file.write_bytes(GOLDEN.read_bytes())
    for words in UNRELEASED_USES:
        refused = world.run(*words)
        assert refused.code == 1, words
        assert f"perdure store copy sqlite:///NEW.db --store sqlite:///{world.file}" in refused.err
    assert world.file.read_bytes() == GOLDEN.read_bytes()

    new = f"sqlite:///{world.file.with_name('new.db')}"
    assert "Every head hash was compared." in world.ok("store", "copy", new).out
    copied = world.ok("sessions", "list", "--all", "--store", new, "--json").json
    assert {each["id"] for each in copied} >= {"first", "tree", "open"}
    assert world.ok("store", "verify", "--store", new, "--json").json["ok"] is True
    assert world.file.read_bytes() == GOLDEN.read_bytes()
