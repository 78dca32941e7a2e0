"""``perdure chat --cwd`` and ``--var``, and ``sessions fork --cwd``: the agent's folder changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import SAMPLE, SAMPLE_ID, World

SELLER = """\
id: seller
model: scripted:echo
system_prompt: "Sell {{ctx.shop}} in {{ctx.working_dir}}."
tools: [read_file]
"""
READ = '/tool read_file {"path": "f.txt"}'


@pytest.fixture
def shop(world: World) -> World:
    """Two folders with the same file, an agent file, and a session in the first folder."""
    for name in ("one", "two"):
        (world.folder / name).mkdir()
        (world.folder / name / "f.txt").write_text(f"in {name}")
    (world.folder / "seller.agent.yaml").write_text(SELLER)
    words = ("--agent", "seller.agent.yaml", "--var", "shop=tea", "--cwd", "one", "-p", READ)
    assert "in one" in world.ok("chat", *words).out
    return world


def newest(world: World) -> str:
    return json.loads(world.ok("sessions", "list", "--json").out)[0]["id"]


def prompt_of(world: World, session: str) -> str:
    return world.ok("sessions", "context", session, "--json").json["system"]


def test_chat_moves_the_session_to_another_folder_only_with_the_cwd_option(shop: World) -> None:
    session = newest(shop)
    assert prompt_of(shop, session) == f"Sell tea in {shop.folder / 'one'}."
    assert "in one" in shop.ok("chat", "--session", session, "-p", READ).out
    assert "in two" in shop.ok("chat", "--session", session, "--cwd", "two", "-p", READ).out
    assert "in two" in shop.ok("chat", "--session", session, "-p", READ).out
    assert prompt_of(shop, session) == f"Sell tea in {shop.folder / 'two'}."
    shown = shop.ok("sessions", "show", session, "--json").json
    assert shown["cwd"] == shown["authority"]["working_dir"] == str(shop.folder / "two")
    again = shop.ok("chat", "--continue", "--cwd", "two", "-p", READ).out
    assert "in two" in again


def test_agent_of_a_fork_reads_files_in_the_given_folder(shop: World) -> None:
    session = newest(shop)
    forked = shop.ok("sessions", "fork", session, "--cwd", "two", "--json").json
    fork = forked.get("session", forked.get("id"))
    assert "in two" in shop.ok("chat", "--session", fork, "-p", READ).out
    assert prompt_of(shop, fork) == f"Sell tea in {shop.folder / 'two'}."
    assert "in one" in shop.ok("chat", "--session", session, "-p", READ).out


def test_missing_workspace_folder_causes_a_warning_with_the_remedy(shop: World) -> None:
    session = newest(shop)
    (shop.folder / "one").rename(shop.folder / "three")
    ended = shop.ok("chat", "--session", session, "-p", READ)
    assert f"{shop.folder / 'one'} does not exist: --cwd DIR moves" in ended.err
    ended = shop.ok("chat", "--session", session, "--cwd", "three", "-p", READ)
    assert "does not exist" not in ended.err
    assert "in one" in ended.out


def test_variable_option_changes_the_instructions_but_not_the_folder(shop: World) -> None:
    session = newest(shop)
    shop.ok("chat", "--session", session, "--var", "shop={{ctx.x}} = y", "-p", "hi")
    assert prompt_of(shop, session) == f"Sell {{{{ctx.x}}}} = y in {shop.folder / 'one'}."
    shop.ok("export", session, "--format", "workflow", "-o", "w.yaml")
    assert '{ {ctx.x}} = y"' in (shop.folder / "w.yaml").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--var", "shop"), "'shop' has no value: write --var NAME=VALUE"),
        (("--var", "=x"), "'=x' has no name: write --var NAME=VALUE"),
        (("--var", "a b=x"), "'a b' is no name"),
        (("--var", "a=1", "--var", "a=2"), "--var a is there twice"),
        (("--var", "working_dir=x"), "choose another name"),
        (("--var", "key=AKIAIOSFODNN7EXAMPLE"), "key"),
        (("--agent", "seller.agent.yaml"), "{{ctx.shop}}"),
    ],
)
def test_invalid_var_option_is_a_usage_error(
    shop: World, words: tuple[str, ...], message: str
) -> None:
    ended = shop.run("chat", *words, "-p", "hi")
    assert ended.code == 2
    assert message in ended.err
    assert "IOSFODNN7EXAMPLE" not in ended.err


def test_folder_that_is_missing_or_a_file_is_refused(shop: World) -> None:
    session = newest(shop)
    file = shop.folder / "one" / "f.txt"
    for words in (
        ("chat", "-p", "hi"),
        ("chat", "--session", session, "-p", "hi"),
        ("sessions", "fork", session),
    ):
        ended = shop.run(*words, "--cwd", str(file))
        assert (ended.code, ended.err) == (
            2,
            f"perdure: {file} is a file: name a folder after --cwd\n",
        )
        ended = shop.run(*words, "--cwd", "gone")
        assert (ended.code, ended.err) == (
            3,
            "perdure: no such file or folder: gone\n",
        )
    assert newest(shop) == session
    assert prompt_of(shop, session) == f"Sell tea in {shop.folder / 'one'}."


def test_cwd_option_of_chat_moves_an_imported_session_to_that_folder(
    world: World,
) -> None:
    (world.folder / "two").mkdir()
    world.ok("import", str(SAMPLE))
    world.ok("chat", "--session", SAMPLE_ID, "--cwd", "two", "-m", "scripted:echo", "-p", "hi")
    shown = world.ok("sessions", "show", SAMPLE_ID, "--json").json
    assert shown["cwd"] == shown["authority"]["working_dir"] == str(world.folder / "two")
    (found,) = json.loads(world.ok("sessions", "list", "--cwd", "two", "--json").out)
    assert found["id"] == SAMPLE_ID


def test_chat_warns_of_a_secret_in_instructions(world: World) -> None:
    (world.folder / "a.agent.yaml").write_text(
        "id: a\nmodel: scripted:echo\nsystem_prompt: Use {{secrets.KEY}}.\n"
    )
    ended = world.ok("chat", "--agent", "a.agent.yaml", "-p", "hi")
    assert "the instructions of agent 'a' contain {{secrets.KEY}}" in ended.err


@pytest.mark.parametrize(
    "words",
    [
        ("import", str(SAMPLE), "--subject", ""),
        ("sessions", "list", "--subject", " "),
        ("sessions", "erase", "--subject", "", "--yes"),
    ],
)
def test_empty_subject_is_a_usage_error(world: World, words: tuple[str, ...]) -> None:
    ended = world.run(*words)
    assert ended.code == 2
    assert "--subject" in ended.err
    assert "it is empty" in ended.err


def test_empty_folder_option_is_rejected_and_moves_no_session(shop: World) -> None:
    session = newest(shop)
    before = shop.ok("sessions", "show", session, "--json").out
    for words in (("chat", "--session", session, "-p", "hi"), ("sessions", "fork", session)):
        ended = shop.run(*words, "--cwd", "")
        assert (ended.code, "an empty path names nothing" in ended.err) == (2, True), ended.err
    assert shop.ok("sessions", "show", session, "--json").out == before


def test_chat_prints_the_folder_in_use_if_the_session_folder_is_missing(sample: World) -> None:
    words = ("chat", "--session", SAMPLE_ID, "-m", "scripted:echo", "-p", "hi")
    told = " ".join(sample.ok(*words).err.split())
    assert (
        f"the session's folder /home/mira/tidepool does not exist here: its tools work in "
        f"{sample.folder}; --cwd DIR moves the session"
    ) in told
    assert "does not exist here" not in sample.ok(*words).err


def test_folder_of_an_imported_session_changes_only_with_the_cwd_option(
    sample: World,
) -> None:
    words = ("chat", "--session", SAMPLE_ID, "-m", "scripted:echo", "-p", "hi")
    for more, listed in (
        ((), "/home/mira/tidepool"),
        (("--cwd", "."), str(sample.folder)),
        (("--cwd", "."), str(sample.folder)),
    ):
        sample.ok(*words, *more)
        told = sample.ok("sessions", "show", SAMPLE_ID, "--json").json
        assert told["authority"]["working_dir"] == str(sample.folder)
        assert told["cwd"] == listed
        (row,) = sample.ok("sessions", "list", "--cwd", Path(listed).name, "--json").json
        assert row["id"] == SAMPLE_ID
    ended = sample.ok("chat", "--continue", "-m", "scripted:echo", "-p", "hi again")
    assert "no session of this folder yet" not in ended.err


def test_compaction_of_an_imported_session_keeps_its_folder(world: World) -> None:
    file = world.folder / "pi.jsonl"
    asked = "0.14 s! Which tests did you run?"
    file.write_text(SAMPLE.read_text().replace(asked, asked + " And the tide" * 20_000))
    world.ok("import", str(file))
    made = world.ok("sessions", "compact", SAMPLE_ID, "-m", "scripted:echo", "--json").json
    assert made["compaction"] is not None
    assert world.ok("sessions", "show", SAMPLE_ID, "--json").json["cwd"] == "/home/mira/tidepool"


def test_chat_started_in_another_folder_keeps_the_folder_of_an_imported_session(
    world: World,
) -> None:
    there = world.folder / "there"
    there.mkdir()
    file = world.folder / "pi.jsonl"
    file.write_text(SAMPLE.read_text().replace("/home/mira/tidepool", str(there)))
    world.ok("import", str(file))
    words = ("chat", "--session", SAMPLE_ID, "-m", "scripted:echo", "-p", "hi")
    told = " ".join(world.ok(*words).err.split())
    assert f"the session's folder is {there}: its tools work in {world.folder}" in told
    assert "its tools work in" not in world.ok(*words).err
    shown = world.ok("sessions", "show", SAMPLE_ID, "--json").json
    assert (shown["cwd"], shown["authority"]["working_dir"]) == (str(there), str(world.folder))
    World(there, {"PERDURE_STORE": f"sqlite:///{world.file}"}).ok(*words)
    shown = world.ok("sessions", "show", SAMPLE_ID, "--json").json
    assert shown["cwd"] == shown["authority"]["working_dir"] == str(there)
