"""``perdure export`` in every format: its output, the files it replaces, its messages."""

from __future__ import annotations

import json
import re
import resource
from pathlib import Path

import pytest

from perdure.apps.cli.transfer import write_whole
from tests.acceptance.cli.conftest import SAMPLE_ID, World
from tests.fakes import operator_reader

FORMATS = ("perdure", "pi", "operator", "markdown", "html")


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_written_to_file_or_standard_output(sample: World, format: str) -> None:
    sample.ok("export", SAMPLE_ID, "--format", format, "-o", "out")
    out = sample.ok("export", SAMPLE_ID, "--format", format).out
    assert (sample.folder / "out").read_text("utf-8") == out
    assert "tide" in out


@pytest.mark.parametrize("format", FORMATS)
def test_redacted_value_does_not_appear_in_the_output(sample: World, format: str) -> None:
    sample.ok("sessions", "rename", SAMPLE_ID, "of /home/mira and AKIAIOSFODNN7EXAMPLE")
    ended = sample.ok("export", SAMPLE_ID, "--format", format, "--redact", "secrets,paths")
    assert "mira" not in ended.out
    assert "AKIA" not in ended.out
    assert "[cwd-1]" in ended.out or "\\[cwd-1\\]" in ended.out
    assert "replaced: aws-key 1, cwd 1, home 1" in ended.err
    only = sample.ok("export", SAMPLE_ID, "--format", format, "--redact", "secrets")
    assert "/home/mira" in only.out
    assert "replaced: aws-key 1" in only.err


def test_redact_option_with_an_unknown_value_is_a_usage_error(sample: World) -> None:
    ended = sample.run("export", SAMPLE_ID, "--redact", "faces")
    assert ended.code == 2
    assert "'faces' is none of secrets, paths" in ended.err


def test_redact_option_without_a_value_suggests_the_value_secrets(sample: World) -> None:
    for words in (("--redact", "-o", "r.html"), ("--redact", "--force", "-o", "r.html")):
        ended = sample.run("export", SAMPLE_ID, *words)
        assert (ended.code, ended.out) == (2, ""), words
        assert f"--redact needs a list before {words[1]}: write --redact secrets" in ended.err
        assert not (sample.folder / "r.html").exists()


def test_file_name_determines_the_format(sample: World) -> None:
    for name, begins in (("a.md", "#"), ("a.HTML", "<!doctype html>"), ("a.jsonl", "{")):
        sample.ok("export", SAMPLE_ID, "-o", name)
        assert (sample.folder / name).read_text().lower().startswith(begins), name
    sample.ok("export", SAMPLE_ID, "--format", "perdure", "-o", "b.md")
    assert (sample.folder / "b.md").read_text().startswith("{")


def test_export_contains_one_branch_unless_all_branches_are_requested(sample: World) -> None:
    branch = sample.ok("export", SAMPLE_ID, "--format", "markdown", "--leaf", "12")
    assert "Quick one first please" in branch.out
    assert "thorough" not in branch.out
    usual = sample.ok("export", SAMPLE_ID, "--format", "markdown")
    assert "Quick one first please" not in usual.out
    assert "6 entries of other branches left out; add --all-branches" in usual.err
    whole = sample.ok("export", SAMPLE_ID, "--format", "markdown", "--all-branches")
    assert "Quick one first please" in whole.out
    assert "thorough" in whole.out
    words = ("export", SAMPLE_ID, "--format", "operator", "--leaf", "12")
    alone = operator_reader.read(sample.ok(*words).out.encode())
    moved = operator_reader.read(sample.ok(*words, "--all-branches").out.encode())
    assert alone.context() == moved.context()
    assert len(alone.records) < len(moved.records)
    assert sample.run("export", SAMPLE_ID, "--leaf", "9999").code == 3


def test_redacted_copy_is_imported_as_a_second_session(sample: World) -> None:
    sample.ok("export", SAMPLE_ID, "--redact", "paths", "-o", "clean.jsonl")
    (report,) = sample.ok("import", "clean.jsonl", "--json").lines
    assert report["session"] == f"{SAMPLE_ID}.2"
    first = json.loads((sample.folder / "clean.jsonl").read_text("utf-8").splitlines()[0])
    assert first["stream"]["metadata"]["redacted"] == ["paths"]
    shown = sample.ok("sessions", "show", report["session"], "--json").out
    assert "mira" not in shown


@pytest.mark.parametrize("words", [("--force",), ()])
def test_export_does_not_replace_a_folder_by_a_file(sample: World, words: tuple[str, ...]) -> None:
    (sample.folder / "kept").mkdir()
    before = sorted(sample.folder.iterdir())
    ended = sample.run("export", SAMPLE_ID, "-o", "kept", *words)
    assert (ended.code, ended.err) == (2, "perdure: kept is a folder; name a file\n")
    assert sorted(sample.folder.iterdir()) == before


@pytest.mark.parametrize("words", [("--force",), ()])
def test_export_error_shows_the_missing_output_folder_as_it_was_typed(
    sample: World, words: tuple[str, ...]
) -> None:
    ended = sample.run("export", SAMPLE_ID, "-o", "nowhere/out", *words)
    assert (ended.code, ended.err) == (3, "perdure: no such file or folder: nowhere\n")


@pytest.mark.parametrize("is_forced", [True, False])
def test_export_above_the_file_size_limit_leaves_no_file(
    tmp_path: Path, *, is_forced: bool
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            write_whole(tmp_path / "out", b"x" * 100_000, is_forced=is_forced)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.filename == str(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_failed_export_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "out", b"x", is_forced=True)
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


def test_export_that_would_overwrite_the_store_file_is_refused(sample: World) -> None:
    whole = sample.file.read_bytes()
    (sample.folder / "link").symlink_to(sample.file)
    for name in (sample.file.name, "link", f"{sample.file.name}-wal"):
        refused = sample.run("export", SAMPLE_ID, "-o", name, "--force")
        assert (refused.code, "part of the store" in refused.err) == (2, True)
    assert sample.file.read_bytes() == whole


def test_export_to_a_link_writes_to_the_target_of_the_link(sample: World) -> None:
    shown = sample.ok("export", SAMPLE_ID).out
    assert sample.ok("export", SAMPLE_ID, "-o", "-").out == shown
    (sample.folder / "nowhere").symlink_to("/dev/null")
    sample.ok("export", SAMPLE_ID, "-o", "nowhere", "--force")
    assert Path("/dev/null").is_char_device()
    (sample.folder / "real").write_text("old")
    (sample.folder / "link").symlink_to("real")
    sample.ok("export", SAMPLE_ID, "-o", "link", "--force")
    assert (sample.folder / "link").is_symlink()
    assert (sample.folder / "real").read_text() == shown


def test_many_sessions_are_exported_as_an_archive_with_an_index(sample: World) -> None:
    sample.ok("chat", "-p", "tea with sk-ant-api03-" + "a" * 93 + "AA")
    made = sample.ok(
        "export", "--all", "--format", "html", "-o", "all", "--redact", "secrets,paths", "--json"
    ).json
    folder = sample.folder / "all"
    assert made["sessions"] == 2
    assert len(list(folder.iterdir())) == 3
    index = (folder / "index.html").read_text()
    assert f"{SAMPLE_ID}.html" in index
    assert "sk-ant" not in index
    assert str(sample.folder) not in index
    again = sample.run("export", "--all", "--format", "html", "-o", "all", "--json")
    assert (again.code, again.error["code"]) == (4, "path_exists")
    sample.ok("export", "--query", "tide", "-o", "some")
    assert len(list((sample.folder / "some").iterdir())) == 2
    fork = sample.ok("sessions", "fork", SAMPLE_ID, "--json").json["session"]
    sample.ok("export", "--with-forks", SAMPLE_ID, "--format", "html", "-o", "family")
    names = {path.name for path in (sample.folder / "family").iterdir()}
    assert names == {"index.html", f"{SAMPLE_ID}.html", f"{fork}.html"}
    assert sample.run("export", "--with-forks", "nope", "--format", "html", "-o", "no").code == 3
    html = ("--format", "html", "-o", "x")
    for words, told in (
        (("--all", "--format", "pi", "-o", "x"), "omit --format"),
        (("--all",), "-o DIR"),
        ((SAMPLE_ID, "--all", *html), "omit the ID"),
        ((), "name a session, or add --all"),
        (("--all", "--with-forks", SAMPLE_ID, *html), "--all and --with-forks exclude each other"),
    ):
        ended = sample.run("export", *words)
        assert ended.code == 2
        assert told in ended.err


def test_archive_with_an_empty_or_unknown_filter_is_refused(sample: World) -> None:
    for words, code, told in (
        (("--all", "--cwd", "nowhere"), 3, "no such file or folder: "),
        (("--query", "tide", "--source", "codx"), 2, "did you mean codex?"),
        (("--query", ""), 2, "--query is empty; name what to export, or leave it out"),
        (("--all", "--source", " "), 2, "--source is empty; name what to export"),
    ):
        ended = sample.run("export", *words, "-o", "pages")
        assert (ended.code, ended.out) == (code, "")
        assert told in " ".join(ended.err.split())
        assert not (sample.folder / "pages").exists()


def test_many_sessions_are_exported_as_markdown_or_perdure_files(sample: World) -> None:
    sample.ok("chat", "-p", "tea with sk-ant-api03-" + "a" * 93 + "AA")
    words = ("export", "--all", "--format", "markdown")
    ended = sample.ok(*words, "--redact", "secrets", "--no-instructions", "-o", "texts")
    assert "texts: 2 sessions, " in ended.err
    ids = {each["id"] for each in sample.ok("sessions", "list", "--json").json}
    files = {file.stem: file.read_text() for file in (sample.folder / "texts").glob("*.md")}
    assert files.keys() == ids
    assert "sk-ant" not in "".join(files.values())
    one = sample.ok("export", SAMPLE_ID, "--format", "markdown", "--no-instructions").out
    assert files[SAMPLE_ID] == one
    made = sample.ok("export", "--all", "--format", "perdure", "-o", "dump", "--json").json
    assert (made["folder"], made["index"], made["sessions"]) == ("dump", None, 2)
    there = ("--store", f"sqlite:///{sample.folder}/other.db")
    reports = sample.ok("import", "dump", "--json", *there).lines
    assert {each["session"] for each in reports} == ids
    assert sample.run(*words, "-o", "dump").code == 4


def test_export_into_a_nonempty_folder_reports_the_number_of_other_files(sample: World) -> None:
    pages = sample.folder / "pages"
    sample.ok("export", "--all", "-o", "pages")
    refused = sample.run("export", "--all", "-o", "pages")
    assert "add --force to write into it and keep its other files" in refused.err
    assert "still contains" not in sample.ok("export", "--all", "-o", "pages", "--force").err
    (pages / "older.html").write_text("older")
    words = ("export", "--all", "-o", "pages", "--force")
    told = "pages still contains 1 other file, not written by this export"
    assert told in sample.ok(*words).err
    assert sample.ok(*words, "--json").json["others"] == 1
    texts = sample.ok(*words, "--format", "markdown")
    assert "still contains 3 other files" in texts.err
    assert (pages / "older.html").read_text() == "older"


def test_export_of_an_archive_prints_each_kind_of_warning_once(world: World) -> None:
    sessions: list[str] = []
    for number in range(3):
        record = {
            "type": "user",
            "uuid": f"u{number}",
            "sessionId": f"s{number}",
            "timestamp": "2026-01-01T00:00:00Z",
            "gitBranch": "main",
            "message": {"role": "user", "content": f"hello {number}"},
        }
        file = world.folder / f"s{number}.jsonl"
        file.write_text(json.dumps(record) + "\n")
        sessions.append(world.ok("import", str(file), "--json").json["session"])
    ended = world.ok("export", "--all", "-o", "pages")
    told = [line for line in ended.err.splitlines() if "git_branch" in line]
    assert len(told) == 1, ended.err
    match = re.fullmatch(r"(?:perdure: )?(.*): 3 sessions, such as (\S+)", told[0])
    assert match is not None
    assert match[1] == "not exported: session field 'git_branch' (1)"
    assert match[2] in sessions
    listed = world.ok("export", "--all", "-o", "again", "--json").json["warnings"]
    assert len([each for each in listed if "git_branch" in each]) == 3


def test_archive_index_shows_titles_without_markdown_escapes(sample: World) -> None:
    sample.ok("sessions", "rename", SAMPLE_ID, "multiply_numbers(a: int) -> int")
    sample.ok("export", "--all", "--format", "html", "-o", "pages")
    index = (sample.folder / "pages" / "index.html").read_text()
    assert "multiply_numbers(a: int)" in index
    assert "multiply\\" not in index


def test_index_of_an_archive_searches_the_exported_text(sample: World) -> None:
    sample.ok("chat", "-p", "escape a\\*b, <b>, x_y\n# one heading")
    sample.ok("export", "--all", "--format", "html", "-o", "pages")
    index = (sample.folder / "pages" / "index.html").read_text()
    found = re.search(r'id="data">(.*?)</script>', index)
    assert found is not None
    (said,) = [row["text"] for row in json.loads(found[1]) if "heading" in row["text"]]
    assert "escape a\\*b, <b>, x_y\n# one heading" in said
    assert "&lt;" not in said


@pytest.mark.parametrize("name", ["backup.jsonl", "backup.JSON", "all.md"])
def test_archive_path_with_the_extension_of_a_file_format_is_refused(
    sample: World, name: str
) -> None:
    refused = sample.run("export", "--all", "-o", name)
    assert refused.code == 2
    ending = name[name.index(".") :].lower()
    assert f"is a folder of HTML pages: end its name without {ending}" in " ".join(
        refused.err.split()
    )
    assert not (sample.folder / name).exists()
    sample.ok("export", "--all", "--format", "html", "-o", name)
    assert (sample.folder / name / "index.html").is_file()
    sample.ok("export", "--all", "-o", name, "--force")


@pytest.mark.parametrize("options", [(), ("--format", "html")])
@pytest.mark.parametrize("name", ["all.zip", "all.TGZ"])
def test_archive_path_that_ends_in_zip_or_tgz_is_refused(
    sample: World, name: str, options: tuple[str, ...]
) -> None:
    refused = sample.run("export", "--all", "-o", name, *options)
    assert refused.code == 2
    ending = name[name.index(".") :].lower()
    assert f"end its name without {ending}, and pack the folder afterwards" in refused.err
    assert not (sample.folder / name).exists()


def test_markdown_export_and_commands_use_the_same_entry_numbers(sample: World) -> None:
    text = sample.ok("export", SAMPLE_ID, "--format", "markdown").out
    number = re.findall(r"(?m)^## (\d+) · User", text)[-1]
    (entry,) = sample.ok("sessions", "read", SAMPLE_ID, number, "--json").json
    assert (entry["id"], entry["body"]["role"]) == (f"{SAMPLE_ID}/{number}", "user")


def test_file_with_an_unknown_extension_is_refused(sample: World) -> None:
    for name in ("trip.pdf", "trip.docx", "trip.txt"):
        refused = sample.run("export", SAMPLE_ID, "-o", name)
        assert refused.code == 2
        assert f"no format has files that end with {name[4:]}" in refused.err
        assert "markdown, html" in " ".join(refused.err.split())
        assert not (sample.folder / name).exists()
    sample.ok("export", SAMPLE_ID, "--format", "markdown", "-o", "trip.txt")
    sample.ok("export", "--all", "--format", "html", "-o", "pages.2026")


def test_markdown_export_omits_tools_and_instructions(world: World) -> None:
    (world.folder / "a.txt").write_text("content of the file")
    world.ok("chat", "-p", '/tool read_file {"path": "a.txt"}')
    id = world.ok("sessions", "list", "--json").json[0]["id"]
    words = ("export", id, "--format", "markdown")
    whole = world.ok(*words).out
    assert "<summary>read_file a.txt" in whole
    assert "<summary>Instructions</summary>" in whole
    assert "<summary>Instructions</summary>" in world.ok(*words, "--no-tools").out
    assert "<details>" not in world.ok(*words, "--no-tools", "--no-instructions").out
    assert world.run("export", id, "--no-tools").code == 2
