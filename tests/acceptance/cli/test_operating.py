"""``perdure store`` backup, restore, copy, repair and stats, and leftovers that doctor reports."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.cli.conftest import SAMPLE_ID, World


def address(path: Path) -> str:
    return f"sqlite:///{path}"


def test_store_is_backed_up_and_restored(sample: World) -> None:
    folder, again = sample.folder / "backup", sample.folder / "again.db"
    entries = sample.ok("store", "info", "--json").json["entries"]
    assert sample.ok("store", "backup", str(folder), "--json").json["entries"] == entries
    assert sample.run("store", "backup", str(folder)).code == 4
    kept = ("--store", address(folder / "store.sqlite"))
    before = (folder / "store.sqlite").read_bytes()
    assert sample.ok("store", "verify", *kept, "--json").json["ok"]
    assert sample.ok("sessions", "list", "--all", *kept).out
    assert sample.ok("sessions", "search", "the", *kept).code == 0
    assert "cannot be written" in sample.run("sessions", "label", SAMPLE_ID, "1", "x", *kept).err
    assert (folder / "store.sqlite").read_bytes() == before
    done = sample.ok("store", "restore", str(folder), "--store", address(again), "--json").json
    assert done["entries"] == entries
    assert sample.ok("store", "verify", "--store", address(again), "--json").json["ok"]

    refused = sample.run("store", "restore", str(folder), "--store", address(again))
    assert (refused.code, "--force" in refused.err) == (4, True)
    forced = sample.ok("store", "restore", str(folder), "--store", address(again), "--force")
    assert "again.db-before-restore" in forced.out
    assert sample.run("store", "restore", str(sample.folder / "nothing")).code == 3
    assert sample.run("store", "restore", str(folder), "--until", "soon").code == 2


def test_store_is_copied_to_session_files_and_back(sample: World) -> None:
    there, back = f"jsonl:///{sample.folder / 'files'}", address(sample.folder / "back.db")
    first = sample.ok("store", "copy", there, "--json").json
    second = sample.ok("store", "copy", back, "--store", there, "--session", SAMPLE_ID, "--json")
    assert first["ok"]
    hashes = {each["stream"]: each["hash"] for each in first["sessions"]}
    assert second.json["sessions"][0]["hash"] == hashes[SAMPLE_ID]
    assert "0 new entries" in sample.ok("store", "copy", there).out
    assert sample.run("store", "copy", address(sample.file)).code == 2


def test_copy_verify_and_info_commands_report_the_same_number_of_logs(sample: World) -> None:
    sample.ok("memory", "remember", "Ana likes tea", "--subject", "ana")
    erased = sample.ok("chat", "-p", "for a moment", "--json").lines[0]["sessionId"]
    sample.ok("sessions", "erase", erased, "--yes")
    there = f"jsonl:///{sample.folder / 'files'}"

    told = sample.ok("store", "copy", there).out

    assert told.startswith("2 logs, ")
    assert f"{erased}: erased: " in told
    for command in ("info", "verify"):
        assert sample.ok("store", command, "--store", there, "--json").json["streams"] == 2


def test_damaged_store_is_repaired_and_the_original_is_kept(sample: World) -> None:
    content = bytearray(sample.file.read_bytes())
    content[content.index(b'"type":"text","text":"') + 24] ^= 4  # in a body
    sample.file.write_bytes(content)
    assert sample.run("store", "verify").code == 1

    done = sample.run("store", "repair", "--json")
    assert done.code == 1
    assert [loss["stream"] for loss in done.json["losses"]] == [SAMPLE_ID]
    assert sample.ok("store", "verify", "--json").json["ok"]
    assert Path(done.json["aside"], sample.file.name).read_bytes() == content
    assert "left alone" in sample.ok("store", "repair").out


def test_repair_reports_the_number_of_lost_entries_first(sample: World) -> None:
    content = bytearray(sample.file.read_bytes())
    mark, at = b'"type":"text","text":"', 0
    while (at := content.find(mark, at)) >= 0:
        at += len(mark) + 2
        content[at] ^= 4
    sample.file.write_bytes(content)

    done = sample.run("store", "repair")

    first, *more = done.out.splitlines()
    assert done.code == 1
    lost = int(first.split(" ", 1)[0])
    assert lost > 3
    assert first == f"{lost} entries are lost; the rest of {address(sample.file)} is whole again"
    ranges = [
        line.split()[1].rstrip(":").rpartition("/")[2] for line in more if line.startswith("  lost")
    ]
    ends = [[int(part) for part in each.split("-")] for each in ranges]
    assert sum(each[-1] - each[0] + 1 for each in ends) == lost
    assert sample.ok("store", "verify").out.startswith("ok")


def test_store_commands_accept_relative_addresses(sample: World) -> None:
    near = ("--store", f"sqlite:///{sample.file.name}")
    assert "left alone" in sample.ok("store", "repair", *near).out
    assert "nothing to do" in sample.ok("store", "migrate", "--dry-run", *near).out
    sample.ok("store", "backup", "near", *near)
    sample.ok("store", "restore", "near", "--store", "sqlite:///again.db")
    sample.ok("store", "rekey", "--plain", "--store", "sqlite:///again.db")
    sample.ok("store", "copy", "sqlite:///copied.db", *near)
    assert sample.ok("store", "verify", "--store", "sqlite:///copied.db").out.startswith("ok")


def test_store_stats_prints_sizes_and_counts(sample: World) -> None:
    found = sample.ok("store", "stats", "--json").json
    (namespace,) = found["namespaces"]
    assert namespace["largest"][0]["stream"] == SAMPLE_ID
    assert namespace["entries"] == sample.ok("store", "info", "--json").json["entries"]
    assert found["file"]["file"] == sample.file.stat().st_size
    assert "largest" in sample.ok("store", "stats").out


def test_doctor_reports_leftover_files(sample: World) -> None:
    for name in ("store.db-restoring", "store.db-repairing", "store.db-damaged"):
        (sample.folder / name).mkdir()
    told = {check["name"]: check for check in sample.ok("doctor", "--json").json["checks"]}
    assert told["restore"]["status"] == "warn"
    assert told["repair"]["status"] == "warn"
    assert "store.db-damaged" in told["damaged"]["detail"]


def test_listing_and_copying_forks_includes_forks_of_forks(sample: World) -> None:
    fork = sample.ok("sessions", "fork", SAMPLE_ID, "3", "--json").json["session"]
    inner = sample.ok("sessions", "fork", fork, "--json").json["session"]
    sample.ok("chat", "-p", "a session of its own")
    listed = sample.ok("sessions", "list", "--forks-of", SAMPLE_ID, "--json").json
    assert {row["id"] for row in listed} == {fork, inner}
    assert sample.ok("sessions", "list", "--forks-of", inner).out == "No forks found.\n"

    alone, whole = (address(sample.folder / name) for name in ("alone.db", "whole.db"))
    one = sample.ok("store", "copy", alone, "--session", SAMPLE_ID, "--json").json
    assert {each["stream"] for each in one["sessions"]} == {SAMPLE_ID}
    copy = ("store", "copy", whole, "--session", SAMPLE_ID, "--with-forks", "--json")
    three = sample.ok(*copy).json
    assert {each["stream"] for each in three["sessions"]} == {SAMPLE_ID, fork, inner}
    refused = sample.run("store", "copy", whole, "--with-forks")
    assert (refused.code, "needs --session" in refused.err) == (2, True)


def test_list_and_copy_commands_find_forks_in_session_files(sample: World) -> None:
    files = f"jsonl:///{sample.folder}/files"
    sample.ok("store", "copy", files, "--session", SAMPLE_ID)
    there = ("--store", files, "--json")
    fork = sample.ok("sessions", "fork", SAMPLE_ID, "3", *there).json["session"]
    inner = sample.ok("sessions", "fork", fork, *there).json["session"]
    sample.ok("chat", "-p", "a session of its own", "--store", files)
    listed = sample.ok("sessions", "list", "--forks-of", SAMPLE_ID, *there).json
    assert {row["id"] for row in listed} == {fork, inner}
    copy = ("store", "copy", address(sample.folder / "whole.db"), "--session", SAMPLE_ID)
    copied = sample.ok(*copy, "--with-forks", *there).json
    assert {each["stream"] for each in copied["sessions"]} == {SAMPLE_ID, fork, inner}


def test_command_suggested_by_doctor_encrypts_the_store(sample: World) -> None:
    plain = World(sample.folder, {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"})
    told = {check["name"]: check for check in plain.ok("doctor", "--json").json["checks"]}
    advice = told["encryption"]["advice"]
    assert advice.endswith("no keyring works here")
    command = advice.split("`")[1].replace("~", str(sample.folder)).split()
    assert command[0] == "perdure"
    assert "is encrypted with its new key" in plain.ok(*command[1:]).out
    keyed = World(sample.folder, {"PERDURE_KEY_FILE": str(sample.folder / ".perdure.key")})
    told = {check["name"]: check for check in keyed.ok("doctor", "--json").json["checks"]}
    assert told["encryption"]["status"] == "ok"
