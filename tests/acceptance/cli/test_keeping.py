"""``perdure sessions erase``, ``store retention`` and ``store quota``, as the shell sees them."""

from __future__ import annotations

import json
import stat

from tests.acceptance.cli.conftest import SAMPLE, SAMPLE_ID, World


def test_erased_session_is_not_found_and_the_store_stays_valid(sample: World) -> None:
    file = sample.folder / "erased.json"

    told = sample.ok(
        "sessions", "erase", SAMPLE_ID, "--yes", "--by", "ann", "--certificate", str(file)
    )

    assert told.out.startswith("erased 1 session")
    certificate = json.loads(file.read_text())
    assert (certificate["by"], certificate["is_complete"]) == ("ann", True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert SAMPLE_ID not in sample.ok("sessions", "list", "--all").out
    erased = sum(each["entries"] for each in certificate["sessions"])
    assert sample.ok("store", "verify", "--json").json["erased"] == erased > 0
    shown = sample.run("sessions", "show", SAMPLE_ID)
    assert (shown.code, "was erased" in shown.err) == (3, True)
    assert sample.ok("sessions", "search", "tide", "--json").json == []
    listed = sample.ok("sessions", "erasures", "--json").json
    assert [each["id"] for each in listed] == [certificate["id"]]
    again = sample.ok("sessions", "erase", SAMPLE_ID, "--yes", "--json").json
    assert again["id"] == certificate["id"]


def test_refused_erasure_commands_change_nothing(sample: World) -> None:
    taken = sample.folder / "taken.json"
    taken.write_text("{}")

    for words, code in (
        (("sessions", "erase", SAMPLE_ID), 2),
        (("sessions", "erase", "--yes"), 2),
        (("sessions", "erase", SAMPLE_ID, "--everything", "--yes"), 2),
        (("sessions", "erase", SAMPLE_ID, "--keep-for-forks", "--with-forks", "--yes"), 2),
        (("sessions", "erase", "nobody", "--yes"), 3),
        (("sessions", "erase", SAMPLE_ID, "--yes", "--certificate", str(taken)), 4),
    ):
        ended = sample.run(*words)
        assert (ended.code, ended.out) == (code, ""), words

    assert SAMPLE_ID[:8] in sample.ok("sessions", "list").out
    assert taken.read_text() == "{}"


def test_erasing_a_session_with_forks_requires_an_option(sample: World) -> None:
    fork = sample.ok("sessions", "fork", SAMPLE_ID, "--json").json["session"]
    file = sample.folder / "erased.json"

    refused = sample.run("sessions", "erase", SAMPLE_ID, "--yes", "--certificate", str(file))
    assert (refused.code, fork in refused.err) == (4, True)
    assert not file.exists()
    sample.ok("sessions", "erase", SAMPLE_ID, "--yes", "--keep-for-forks")

    assert sample.ok("sessions", "context", fork, "--json").json["messages"]
    for format in ("perdure", "pi", "operator", "markdown", "html"):
        sample.ok("export", fork, "--format", format, "-o", str(sample.folder / f"out.{format}"))
    assert sample.ok("store", "verify").out.startswith("ok")


def test_file_of_an_erased_session_is_imported_only_with_the_again_option(sample: World) -> None:
    fork = sample.ok("sessions", "fork", SAMPLE_ID, "--json").json["session"]
    sample.ok("sessions", "erase", SAMPLE_ID, "--yes", "--keep-for-forks")

    assert f"{SAMPLE_ID} was erased; nothing" in sample.ok("import", str(SAMPLE)).out
    assert f"{SAMPLE_ID} was erased; this" in sample.ok("import", str(SAMPLE), "--again").out
    assert sample.ok("sessions", "show", str(SAMPLE), "--json").json["id"] == f"{SAMPLE_ID}.2"
    sample.ok("sessions", "erase", fork, "--yes")

    assert len(sample.ok("sessions", "list", "--json").json) == 1
    assert sample.ok("store", "verify").out.startswith("ok")


def test_retention_policy_is_set_previewed_and_applied(sample: World) -> None:
    assert "no limits: every session is kept" in sample.ok("store", "retention", "show").out
    policy = sample.ok("store", "retention", "set", "--max-sessions", "0", "--json").json
    assert policy["max_sessions"] == 0

    rehearsed = sample.ok("store", "retention", "apply", "--dry-run", "--json").json
    assert ([each["stream"] for each in rehearsed["plan"]["expiring"]], rehearsed["is_done"]) == (
        [SAMPLE_ID],
        False,
    )
    (session,) = sample.ok("sessions", "list", "--json").json
    (line, _) = sample.ok("store", "retention", "apply", "--dry-run").out.splitlines()
    assert line.startswith(SAMPLE_ID)
    assert line.endswith(f"  {session['title']}")
    assert sample.ok("store", "retention", "apply", "--json").json["sessions"] == 1
    assert SAMPLE_ID not in sample.ok("sessions", "list", "--all").out
    assert sample.run("store", "retention", "set", "--max-idle", "soon").code == 2


def test_commit_that_exceeds_the_quota_is_refused(sample: World) -> None:
    sample.ok("store", "quota", "set", "--max-sessions", "1")

    refused = sample.run("sessions", "fork", SAMPLE_ID)

    assert (refused.code, "no more sessions" in refused.err) == (4, True)
    shown = sample.ok("store", "quota", "show", "--json").json
    assert (shown["quota"]["max_sessions"], shown["usage"]["sessions"]) == (1, 1)
    sample.ok("store", "quota", "set", "--max-sessions", "none")
    sample.ok("sessions", "fork", SAMPLE_ID)


def test_single_entries_are_erased_and_shown_as_erased(sample: World) -> None:
    read = sample.ok("sessions", "read", SAMPLE_ID, "--json").json
    path = [each for each in read if each["kind"] == "message"]
    first, second = (each["id"].rpartition("/")[2] for each in path[:2])
    chosen = ("sessions", "erase", SAMPLE_ID, first, path[1]["id"])
    file = sample.folder / "erased.json"

    listed = sample.ok(*chosen, "--dry-run")
    assert listed.out.endswith(f"2 entries of {SAMPLE_ID}\n")
    assert listed.out.splitlines()[0].split()[0] == first
    assert sample.ok(*chosen, "--dry-run", "--json").json == [each["id"] for each in path[:2]]
    for words, code in (
        (chosen, 2),
        (("sessions", "erase", SAMPLE_ID[:8], first, "--yes"), 3),
        (("sessions", "erase", SAMPLE_ID, "999", "--yes"), 3),
        (("sessions", "erase", SAMPLE_ID, path[0]["id"][:-1], "--yes"), 3),
    ):
        assert sample.run(*words).code == code, words
    assert "(erased)" not in sample.ok("sessions", "show", SAMPLE_ID).out

    told = sample.ok(*chosen, "--yes", "--by", "ann", "--certificate", str(file)).out

    assert (told.startswith("erased "), SAMPLE_ID in told) == (True, True)
    certificate = json.loads(file.read_text())
    assert (certificate["by"], certificate["scope"]) == ("ann", "entries")
    shown = sample.ok("sessions", "show", SAMPLE_ID).out
    assert "(erased)" in shown
    assert "corrupt" not in shown
    for number in (first, second):
        assert "(erased)" in sample.ok("sessions", "read", SAMPLE_ID, number).out
    assert sample.ok("store", "verify").out.startswith("ok")


def test_entry_shared_with_a_fork_is_erased_only_with_an_option(sample: World) -> None:
    fork = sample.ok("sessions", "fork", SAMPLE_ID, "12", "--json").json["session"]
    chosen = ("sessions", "erase", SAMPLE_ID, "3", "--yes")

    refused = sample.run(*chosen)
    assert (refused.code, fork in refused.err) == (4, True)
    kept = sample.run(*chosen, "--keep-for-forks")
    assert (kept.code, kept.out) == (4, "")
    assert "use --with-forks to erase them in the forks too (nothing was erased)" in " ".join(
        kept.err.split()
    )
    assert "still contain" not in kept.err
    assert sample.ok("sessions", "erasures", "--json").json == []
    told = sample.ok(*chosen, "--with-forks").out

    assert f"  {fork} erased: nothing of its own" in told
    assert "it shares entries" not in told
    assert "erased 1 entry, and 2 that repeat it, " in told
    assert ": 1 entry, and 2 that repeat it\n" in sample.ok("sessions", "erasures").out
    assert "(erased)" in sample.ok("sessions", "show", fork).out
    assert sample.ok("store", "verify").out.startswith("ok")


def test_many_sessions_are_listed_before_they_are_erased(sample: World) -> None:
    sample.ok("chat", "-p", "tea")
    sample.ok("chat", "-p", "tea again")
    chosen = ("sessions", "erase", "--query", "tea")
    shown = sample.ok(*chosen, "--dry-run").out
    assert "tea again" in shown
    count = shown.splitlines()[-1]
    assert count.startswith("2 sessions, ")
    asked = sample.run(*chosen)
    assert (asked.code, count in asked.err) == (2, True)
    assert len(sample.ok("sessions", "list", "--json").json) == 3
    erased = sample.ok(*chosen, "--yes", "--json").json
    assert len(erased) == 2
    entries = sum(session["entries"] for each in erased for session in each["sessions"])
    assert count == f"2 sessions, {entries} entries"
    assert [row["id"] for row in sample.ok("sessions", "list", "--json").json] == [SAMPLE_ID]
    assert sample.ok(*chosen, "--yes").out == "0 sessions, 0 entries\n"
    sample.ok("sessions", "erase", "--source", "pi", "--until", "2020-01-01", "--yes")
    assert len(sample.ok("sessions", "list", "--json").json) == 1
    assert sample.run("sessions", "erase", "--dry-run").code == 2
    assert sample.run("sessions", "erase", SAMPLE_ID, "--query", "tea", "--yes").code == 2


def test_dry_run_erasure_of_one_session_lists_it_and_erases_nothing(sample: World) -> None:
    fork = sample.ok("sessions", "fork", SAMPLE_ID, "--json").json["session"]
    kept = ("sessions", "erase", SAMPLE_ID, "--dry-run")

    shown = sample.ok(*kept).out
    assert "0 sessions, 0 entries" in shown
    assert f"not erased: {SAMPLE_ID} has forks ({fork}): add --keep-for-forks or --with" in shown
    assert "cannot be undone" in sample.ok(*kept, "--with-forks").err
    assert set(sample.ok(*kept, "--with-forks", "--json").json) == {SAMPLE_ID, fork}
    assert sample.ok(*kept, "--keep-for-forks", "--json").json == [SAMPLE_ID]
    everything = sample.ok("sessions", "erase", "--everything", "--dry-run", "--json").json
    assert set(everything) == {SAMPLE_ID, fork}
    of_nobody = sample.ok("sessions", "erase", "--subject", "ann", "--dry-run")
    assert of_nobody.out == "0 sessions, 0 entries\n"

    short = sample.ok("sessions", "erase", SAMPLE_ID[:8], "--with-forks", "--dry-run", "--json")
    assert set(short.json) == {SAMPLE_ID, fork}
    assert f"erasing needs the whole id: perdure sessions erase {SAMPLE_ID}" in short.err
    assert sample.run(*kept, "--certificate", "erased.json").code == 2
    assert not (sample.folder / "erased.json").exists()
    assert len(sample.ok("sessions", "list", "--json").json) == 2
    assert sample.ok("sessions", "erasures", "--json").json == []
    assert sample.ok("sessions", "erasures").out == "No erasures found.\n"


def test_dry_run_and_erasure_count_the_same_entries(sample: World) -> None:
    fork = sample.ok("sessions", "fork", SAMPLE_ID, "--json").json["session"]
    part = sample.ok("sessions", "fork", SAMPLE_ID, "12", "--json").json["session"]
    sample.ok("chat", "-m", "scripted:echo", "--session", part, "-p", "one more")

    for session, options in ((fork, ()), (SAMPLE_ID, ("--keep-for-forks",)), (part, ())):
        chosen = ("sessions", "erase", session, *options)
        shown = sample.ok(*chosen, "--dry-run").out
        told = sample.ok(*chosen, "--yes")
        assert told.out.startswith("erased 1 session: ")
        entries = told.out.split()[3]
        assert f"1 session, {entries} entries\n" in shown
        kept = f"not erased: entries that {session} shares with {SAMPLE_ID}"
        assert (kept in shown, kept in told.err) == ((session != SAMPLE_ID,) * 2)


def test_erasure_counts_no_entries_that_are_already_erased(sample: World) -> None:
    sample.ok("sessions", "fork", SAMPLE_ID, "12")
    number = sample.ok("sessions", "read", SAMPLE_ID, "--json").json[-1]["id"].rpartition("/")[2]
    for each, options in (("3", ("--with-forks",)), (number, ())):
        sample.ok("sessions", "erase", SAMPLE_ID, each, "--yes", *options)
        again = ("sessions", "erase", SAMPLE_ID, each, "--dry-run", *options)
        assert f"0 entries of {SAMPLE_ID}\n" in sample.ok(*again).out
        assert sample.ok(*again, "--json").json == []

    chosen = ("sessions", "erase", SAMPLE_ID, "--keep-for-forks")
    shown = sample.ok(*chosen, "--dry-run").out
    certificate = sample.ok(*chosen, "--yes", "--json").json

    (line,) = certificate["sessions"]
    assert f"1 session, {line['entries']} entries\n" in shown


def test_entry_erasure_dry_run_prints_the_forks_with_that_entry(sample: World) -> None:
    fork = sample.ok("sessions", "fork", SAMPLE_ID, "12", "--json").json["session"]
    number = sample.ok("sessions", "read", SAMPLE_ID, "--json").json[-1]["id"].rpartition("/")[2]
    chosen = ("sessions", "erase", SAMPLE_ID, "3", number, "--dry-run")

    refused = sample.ok(*chosen)
    assert f"0 entries of {SAMPLE_ID}\n" in refused.out
    assert f"nothing is erased: forks ({fork}) share entry 3; add --with-forks" in refused.out
    kept = sample.ok(*chosen, "--keep-for-forks")
    assert f"1 entry of {SAMPLE_ID}\n" in kept.out
    assert f"not erased: entry 3, which forks share ({fork})" in kept.out
    erased = sample.ok(*chosen, "--with-forks")
    assert f"2 entries of {SAMPLE_ID}\nentry 3: erased in the forks too ({fork})" in erased.out
    assert "an erasure cannot be undone" in erased.err
    assert "undone" not in refused.err
    short = sample.ok("sessions", "erase", SAMPLE_ID[:8], number, "--dry-run")
    assert f"erasing needs the whole id: perdure sessions erase {SAMPLE_ID} {number}" in short.err


def test_error_for_erasing_an_inherited_entry_suggests_a_working_command(sample: World) -> None:
    fork = sample.ok("sessions", "fork", SAMPLE_ID, "--json").json["session"]

    refused = sample.run("sessions", "erase", fork, "3", "--yes")

    assert refused.code == 2
    told = " ".join(refused.err.split())
    command = told.split("`")[1]
    assert command == f"perdure sessions erase {SAMPLE_ID} 3 --with-forks"
    sample.ok(*command.split()[1:], "--yes")
    assert "(erased)" in sample.ok("sessions", "show", fork).out
    assert sample.run("sessions", "erase", fork, "999", "--yes").code == 3


def test_erasure_warns_of_another_entry_with_the_same_password(world: World) -> None:
    world.ok("chat", "-m", "scripted:echo", "-p", "My password is hunter2secret")
    session = world.ok("sessions", "list", "--json").json[0]["id"]
    world.ok("chat", "-m", "scripted:echo", "--session", session, "-p", "What is the weather?")
    chosen = ("sessions", "erase", session, "2")
    command = f"perdure sessions erase {session} 5\n"

    preview = world.ok(*chosen, "--dry-run")
    as_json = world.ok(*chosen, "--dry-run", "--json")
    asked = world.run(*chosen)

    told = f"entry 5 also contains text of these entries; erase it with: {command}"
    assert told in preview.err
    assert (as_json.json, told in as_json.err) == ([f"{session}/2"], True)
    assert (asked.code, told in asked.err) == (2, True)
    assert "hunter2" not in preview.err

    erased = world.ok(*chosen, "--yes")
    assert "entry 5 still contains text" in erased.err
    assert "entry" not in world.ok("sessions", "erase", session, "5", "--yes").err
    assert world.ok("sessions", "search", "hunter2secret", "--json").json == []


def test_erasure_of_both_similar_entries_gives_no_warning(world: World) -> None:
    world.ok("chat", "-m", "scripted:echo", "-p", "I live at 12 Baker Street in London")
    session = world.ok("sessions", "list", "--json").json[0]["id"]

    both = world.ok("sessions", "erase", session, "2", "5", "--yes")

    assert "entry" not in both.err


def test_erasure_of_a_short_text_gives_no_warning(world: World) -> None:
    world.ok("chat", "-m", "scripted:echo", "-p", "Thank you")
    session = world.ok("sessions", "list", "--json").json[0]["id"]

    erased = world.ok("sessions", "erase", session, "2", "--yes")

    assert "entry" not in erased.err


def test_erasure_preview_lists_the_forks_of_matching_sessions(sample: World) -> None:
    elsewhere = sample.folder / "elsewhere"
    elsewhere.mkdir()
    fork = sample.ok("sessions", "fork", SAMPLE_ID, "--cwd", str(elsewhere), "--json").json[
        "session"
    ]
    [info] = [
        each for each in sample.ok("sessions", "list", "--json").json if each["id"] == SAMPLE_ID
    ]
    chosen = ("sessions", "erase", "--cwd", info["cwd"], "--with-forks")
    shown = sample.ok(*chosen, "--dry-run").out
    assert SAMPLE_ID in shown
    assert fork in shown
    assert "2 sessions, " in shown
    told = sample.ok(*chosen, "--yes").out
    assert told.startswith("erased 2 sessions, ")


def test_erasure_preview_of_an_erased_session_lists_remaining_forks(sample: World) -> None:
    fork = sample.ok("sessions", "fork", SAMPLE_ID, "12", "--json").json["session"]
    sample.ok("chat", "-m", "scripted:echo", "--session", fork, "-p", "one more")
    sample.ok("sessions", "erase", SAMPLE_ID, "--keep-for-forks", "--yes")
    chosen = ("sessions", "erase", SAMPLE_ID, "--with-forks", "--dry-run")
    shown = sample.ok(*chosen).out
    assert fork in shown
    assert f"and the entries that the erased session {SAMPLE_ID} kept for its forks" in shown
    assert sample.ok(*chosen, "--json").json == [fork]
    everything = sample.ok("sessions", "erase", "--everything", "--dry-run").out
    assert "not erased" not in everything
    refused = sample.run("sessions", "erase", fork, f"{SAMPLE_ID}/3", "--dry-run")
    assert refused.code == 2
    assert f"`perdure sessions erase {SAMPLE_ID} --with-forks` erases what is left" in refused.err
