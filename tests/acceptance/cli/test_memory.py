"""``perdure memory``: facts and episodes from the command line."""

from __future__ import annotations

from tests.acceptance.cli.conftest import World
from tests.fakes.leaks import leaks_in

AT = "2026-01-01T10:00:00.000Z"
HEADER = f'{{"type":"session","version":3,"id":"p1","timestamp":"{AT}","cwd":"/w"}}'


def test_fact_is_remembered_corrected_and_deleted(world: World) -> None:
    made = world.ok("memory", "remember", "likes tea", "--subject", "ana", "--json").json
    assert (made["text"], made["subject"], made["said_by"]) == ("likes tea", "ana", "person")
    assert world.ok("memory", "facts", "--json").json == []
    assert "likes tea" in world.ok("memory", "facts", "--subject", "ana").out
    newer = world.ok("memory", "correct", made["id"], "likes coffee", "--json").json
    assert [version["text"] for version in newer["history"]] == ["likes tea"]
    assert world.ok("memory", "facts", "--all", "--json").json == [newer]
    assert "Forgot" in world.ok("memory", "forget", made["id"], "--yes").out
    assert world.ok("memory", "facts", "--all", "--past", "--json").json == []
    assert leaks_in(world.file, "likes") == []


def test_fact_list_page_begins_after_the_given_fact(world: World) -> None:
    for number in range(3):
        world.ok("memory", "remember", f"fact {number}")
    whole = world.ok("memory", "facts", "--json").json
    assert len(whole) == 3
    assert world.ok("memory", "facts", "--after", whole[0]["id"], "--json").json == whole[1:]
    assert world.run("memory", "facts", "--after", "nothing/0").code == 3


def test_memory_commands_report_unusable_input(world: World) -> None:
    world.ok("memory", "remember", "likes tea")
    missing = world.run("memory", "forget", "nothing/0", "--json")
    assert (missing.code, missing.error["code"]) == (3, "entry_not_found")
    assert "memory facts --all" in missing.error["message"]
    secret = world.run("memory", "remember", "use ghp_" + "a1B2" * 9)
    assert secret.code == 2
    assert "github-token" in secret.err
    assert world.run("memory", "facts", "--all", "--subject", "ana").code == 2
    assert world.run("memory", "remember", "x", "--source", "nothing/1").code == 3
    assert world.run("memory", "remember", "x", "--subject", " ").code == 2


def test_ended_session_is_listed_as_episode(world: World) -> None:
    world.ok("chat", "-p", "Hello there")
    (session,) = world.ok("sessions", "list", "--json").json
    assert world.ok("memory", "episodes").out.strip() == "No episodes found."
    world.ok("sessions", "end", session["id"])
    (episode,) = world.ok("memory", "episodes", "--json").json
    assert (episode["session"], episode["messages"], episode["turns"]) == (session["id"], 2, 1)
    by_session = world.ok("memory", "episodes", "--session", session["id"][:8], "--json").json
    assert by_session == [episode]
    assert world.ok("memory", "index", "--json").json == {"episodes": 0, "vectors": None}


def message(id: str, parent: str, text: str) -> str:
    """Return a line of a session file of pi."""
    said = f'{{"role":"user","content":"{text}","timestamp":1767261601000}}'
    head = (
        f'"type":"message","id":"{id}","parentId":{parent},"timestamp":"2026-01-01T10:00:01.000Z"'
    )
    return f'{{{head},"message":{said}}}'


def test_imported_session_is_indexed_again_only_after_it_grew(world: World) -> None:
    file = world.folder / "trip.jsonl"
    lines = [HEADER, message("a1", "null", "Hello")]
    file.write_text("\n".join(lines) + "\n")
    world.ok("import", str(file))
    assert world.ok("memory", "episodes", "--json").json == []
    assert world.ok("memory", "index", "--json").json == {"episodes": 1, "vectors": None}
    assert world.ok("memory", "index", "--json").json == {"episodes": 0, "vectors": None}
    (first,) = world.ok("memory", "episodes", "--json").json
    assert world.ok("memory", "episodes", "--after", first["id"], "--json").json == []
    assert (first["by"], first["messages"], first["first"]) == ("import", 1, 0)
    more = message("a2", '"a1"', "Bye")
    file.write_text("\n".join((*lines, more)) + "\n")
    world.ok("import", str(file))
    assert world.ok("memory", "index", "--json").json == {"episodes": 1, "vectors": None}
    both = world.ok("memory", "episodes", "--json").json
    assert world.ok("memory", "episodes", "--after", both[0]["id"], "--json").json == both[1:]
    assert world.run("memory", "episodes", "--after", f"{first['session']}/999").code == 3
    assert sorted(each["messages"] for each in both) == [1, 1]
    assert first in both


def test_memory_search_finds_messages_and_explains_each_match(world: World) -> None:
    world.ok("chat", "-p", "Which hotel near the river did we choose?")
    found = world.ok("memory", "search", "what about the hotels?", "--json").json
    assert {hit["role"] for hit in found} <= {"user", "assistant"}
    best = found[0]
    assert best["entry_id"].startswith(best["session"])
    assert "hotels" in [*best["why"].get("terms", ()), *best["why"].get("neighbours", ())]
    assert best["title"] == "Which hotel near the river did we choose?"
    shown = world.ok("memory", "search", "what about the hotels?", "--limit", "1").out
    assert "hotels" in shown
    assert "“Which hotel near the river did we choose?”" in shown
    assert world.ok("memory", "search", "zebra").out.strip() == "Nothing found."
    assert world.ok("memory", "search", "hotel", "--subject", "ana").out.strip() == "Nothing found."
    assert world.run("memory", "search", "?!").code == 2
    assert "add a word for what you look for" in world.ok("memory", "search", "the of").err
    assert world.ok("memory", "search", "of the hotel").err == ""
    others = world.ok("memory", "search", "hotel", "--all", "--agent", "nobody").out
    assert others.strip() == "Nothing found."


def test_search_explains_a_hit_that_lacks_the_query_words(world: World) -> None:
    texts = ["The hotel by the river", *(f"other words {number}" for number in range(9))]
    parents = ["null", *(f'"{number}"' for number in range(9))]
    lines = [message(str(n), parents[n], text) for n, text in enumerate(texts)]
    (world.folder / "trip.jsonl").write_text("\n".join((HEADER, *lines)) + "\n")
    world.ok("import", str(world.folder / "trip.jsonl"))
    shown = world.ok("memory", "search", "which hotel?", "--limit", "10").out
    assert "words: hotel" in shown
    assert "its session is about the question" in shown


def test_folder_and_file_of_facts_are_imported(world: World) -> None:
    docs = world.folder / "docs"
    docs.mkdir()
    (docs / "travel.md").write_text("# Travel\n\n## Hotels\n\nWe book the Aurora.\n")
    first = world.ok("memory", "import", str(docs))
    assert first.out.strip() == "1 files, 2 passages: 1 new"
    assert "nothing changed" in world.ok("memory", "import", str(docs)).out
    assert "travel.md, Travel / Hotels" in world.ok("memory", "search", "which hotel?").out
    (hit, *_) = world.ok("memory", "search", "which hotel?", "--json").json
    assert (hit["kind"], hit["source"]["path"]) == ("knowledge", "travel.md")
    (docs / "bad.txt").write_bytes(b"\xff")
    failed = world.run("memory", "import", str(docs))
    assert failed.code == 1
    assert failed.err.splitlines() == ["bad.txt: it is not UTF-8 (byte 0)"]
    facts = world.folder / "facts.jsonl"
    facts.write_text('{"text": "likes tea"}\nnonsense\n')
    failed = world.run("memory", "import", str(facts), "--subject", "ana")
    assert failed.code == 1
    (told,) = failed.err.splitlines()
    assert told.startswith("line 2: ")
    (fact,) = world.ok("memory", "facts", "--subject", "ana", "--json").json
    assert fact["text"] == "likes tea"
    wrong = world.run("memory", "import", str(docs), "--subject", "a", "--agent", "b")
    assert wrong.code == 2


def test_short_fact_id_selects_one_fact(world: World) -> None:
    text = "Ana books the quiet room on the second floor of the hotel at the harbour. " * 8
    fact = world.ok("memory", "remember", text, "--json").json["id"]
    other = world.ok("memory", "remember", "Ben drives", "--json").json["id"]
    assert text.strip() in world.ok("memory", "facts").out
    stream, _, number = fact.rpartition("/")
    assert stream == other.rpartition("/")[0]
    for named in (f"{stream[:12]}/{number}", number):
        corrected = world.ok("memory", "correct", named, f"corrected by {named}", "--json").json
        assert (corrected["id"], corrected["text"]) == (fact, f"corrected by {named}")
    ambiguous = world.run("memory", "correct", "m", "no")
    assert (ambiguous.code, "ambiguous" in ambiguous.err) == (2, True)


def test_fact_is_forgotten_only_by_its_whole_id(world: World) -> None:
    fact = world.ok("memory", "remember", "Ana likes tea", "--json").json["id"]
    stream, _, number = fact.rpartition("/")
    for part in ("m", number, f"{stream[:12]}/{number}", stream):
        refused = world.run("memory", "forget", part)
        assert refused.code == 3
        assert f"forgetting needs the whole id of a fact; '{part}' only matches {fact}" in (
            refused.err
        )
    assert [each["id"] for each in world.ok("memory", "facts", "--json").json] == [fact]
    assert world.ok("memory", "forget", fact, "-y", "--json").json == {"forgotten": fact}


def test_fact_is_not_forgotten_without_a_confirmation(world: World) -> None:
    fact = world.ok("memory", "remember", "Ana likes tea", "--json").json["id"]
    refused = world.run("memory", "forget", fact, stdin="y\n")
    assert (refused.code, "erasing cannot be undone: add --yes" in refused.err) == (2, True)
    assert [each["id"] for each in world.ok("memory", "facts", "--json").json] == [fact]
