"""``perdure models``: the configured providers, and one small call to a real server."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

from tests.acceptance.cli.conftest import Ended, World
from tests.fakes.forked import preload
from tests.fakes.model_server import failing
from tests.fakes.openai_server import ServerAnswer, answering, openai_server

preload("perdure.models.providers.openai_responses")

SECRET = "sk-test-0123456789abcdef"


async def tried(folder: Path, url: str, *words: str) -> Ended:
    """``perdure models test`` against the server at `url`, which runs in this process."""
    world = World(folder, {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": SECRET})
    return await asyncio.to_thread(world.run, "models", "test", "openai:m", *words)


def test_every_provider_is_listed_with_its_missing_settings(tmp_path: Path) -> None:
    world = World(tmp_path, {"ANTHROPIC_API_KEY": SECRET, "OLLAMA_BASE_URL": "http://big:1/v1"})
    listed = world.ok("models")
    rows = {line.split()[0]: line for line in listed.out.splitlines()[1:]}
    assert "configured" in rows["anthropic"]
    assert "ANTHROPIC_API_KEY" in rows["anthropic"]
    assert "missing key" in rows["google"]
    assert "set GEMINI_API_KEY" in rows["google"]
    assert "configured" in rows["ollama"]
    assert "http://big:1/v1" in rows["ollama"]
    assert "default address" in rows["lmstudio"]
    assert SECRET not in listed.out + listed.err


def test_model_list_has_a_json_form(world: World) -> None:
    found = {state["name"]: state for state in world.ok("models", "--json").json}
    assert found["scripted"]["status"] == "configured"
    assert found["openai"] == {
        "name": "openai",
        "title": "OpenAI (chat completions)",
        "status": "missing key",
        "address": "https://api.openai.com/v1",
        "key": None,
        "remedy": "set OPENAI_API_KEY, or keep the key in the keyring",
    }


async def test_answer_of_model_is_reported_with_time_and_tokens(tmp_path: Path) -> None:
    async with openai_server() as server:
        server.will(answering(ServerAnswer(text="ready")))
        told = await tried(tmp_path, server.url)
        data = (await tried(tmp_path, server.url, "--json")).json
        assert server.refused == []
    assert told.code == 0
    assert told.out.splitlines()[0] == "ok  openai:m said 'ready' (stop)"
    assert "12 tokens in, 5 out; price unknown" in told.out
    assert (data["text"], data["usage"]["output_tokens"]) == ("ready", 5)
    assert 0 <= data["first_ms"] <= data["total_ms"]


async def test_error_of_a_refusing_model_does_not_contain_the_key(tmp_path: Path) -> None:
    async with openai_server() as server:
        server.will(failing(401, f"the key {SECRET} is wrong"))
        told = await tried(tmp_path, server.url)
        error = (await tried(tmp_path, server.url, "--json")).error
    assert told.code == 1
    assert told.err.startswith("perdure: openai:m: HTTP 401: the key [redacted] is wrong")
    assert (error["code"], error["status"]) == ("credentials_refused", 401)
    assert SECRET not in f"{told} {error}"


def test_model_test_command_reports_the_remedy_for_an_unconfigured_provider(world: World) -> None:
    ended = world.run("models", "test", "openai:m")
    assert ended.code == 2
    assert "set OPENAI_API_KEY" in ended.err


def test_options_before_the_subcommand_are_a_usage_error(world: World) -> None:
    ended = world.run("models", "--json", "test", "scripted:echo")
    assert ended.code == 2
    assert "after the command" in ended.err


def test_model_test_command_accepts_the_offline_model(world: World) -> None:
    assert "ok  scripted:echo said" in world.ok("models", "test", "scripted:echo").out


def test_provider_with_a_key_in_a_file_is_configured(tmp_path: Path) -> None:
    world = World(tmp_path, {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"})
    path = world.folder / ".config" / "perdure" / "keys" / "openai"
    refused = world.run("models", "set-key", "openai", stdin=SECRET)
    assert refused.code == 2
    assert refused.err == (
        "perdure: no keyring works here: set OPENAI_API_KEY, or add --file to keep the key "
        f"in {path}, which only you can read\n"
    )
    kept = world.ok("models", "set-key", "openai-responses:gpt-5", "--file", stdin=f" {SECRET}\n")
    assert kept.out.startswith(f"The key of OpenAI (responses) is kept in {path}.\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    found = {state["name"]: state for state in world.ok("models", "--json").json}
    assert (found["openai"]["status"], found["openai"]["key"]) == ("configured", "file")

    path.chmod(0o640)
    listed = world.ok("models")
    (row,) = (line for line in listed.out.splitlines() if line.startswith("openai "))
    assert "unusable key" in row
    assert "run chmod 600 /" in row
    assert SECRET not in listed.out + listed.err
    doctor = world.run("doctor")
    assert f"openai: run chmod 600 {path}: others may read this key file (mode 640)" in doctor.out
    assert (doctor.code, "set up: scripted\n" in doctor.out) == (1, True)
    other = world.ok("models", "set-key", "anthropic", "--file", stdin="anthropic-key")
    assert "Try it: perdure models test anthropic:MODEL" in other.out
    again = world.ok("models", "set-key", "openai", "--file", stdin="another-key")
    assert path.read_text() == "another-key\n"
    assert SECRET not in again.out

    assert str(path) in world.ok("models", "remove-key", "openai").out
    assert not path.exists()
    assert "No key of OpenAI" in world.ok("models", "remove-key", "openai").out


def test_provider_with_a_key_in_the_keyring_is_configured(tmp_path: Path) -> None:
    variables = {
        "PYTHON_KEYRING_BACKEND": "tests.fakes.file_keyring.FileKeyring",
        "PERDURE_TEST_KEYRING": str(tmp_path / "keyring.json"),
        "PYTHONPATH": str(Path(__file__).parents[3]),
    }
    world = World(tmp_path, variables)
    kept = world.ok("models", "set-key", "anthropic", stdin=SECRET)
    assert "is kept in the keyring" in kept.out
    found = {state["name"]: state for state in world.ok("models", "--json").json}
    assert (found["anthropic"]["status"], found["anthropic"]["key"]) == ("configured", "keyring")
    first = World(tmp_path, {**variables, "ANTHROPIC_API_KEY": "first"})
    told = first.ok("models", "set-key", "anthropic", stdin=SECRET)
    assert "Another key comes first, from ANTHROPIC_API_KEY" in told.out
    assert "is removed from the keyring" in world.ok("models", "remove-key", "anthropic").out


def test_key_in_a_locked_keyring_is_not_reported_as_absent(tmp_path: Path) -> None:
    variables = {
        "PYTHON_KEYRING_BACKEND": "tests.fakes.file_keyring.LockedKeyring",
        "PERDURE_TEST_KEYRING": str(tmp_path / "keyring.json"),
        "PYTHONPATH": str(Path(__file__).parents[3]),
    }
    world = World(tmp_path, variables)
    unknown = "perdure: the keyring could not be asked: unlock it, and run the command again\n"
    ended = world.run("models", "remove-key", "openai")
    assert (ended.code, ended.out, ended.err) == (1, "", unknown)
    world.ok("models", "set-key", "openai", "--file", stdin=SECRET)
    ended = world.run("models", "remove-key", "openai")
    assert (ended.code, ended.err) == (1, unknown)
    assert "The key of OpenAI (chat completions) is removed from /" in ended.out


def test_remove_key_command_reports_a_key_file_that_it_cannot_remove(tmp_path: Path) -> None:
    variables = {
        "PYTHON_KEYRING_BACKEND": "tests.fakes.file_keyring.FileKeyring",
        "PERDURE_TEST_KEYRING": str(tmp_path / "keyring.json"),
        "PYTHONPATH": str(Path(__file__).parents[3]),
    }
    world = World(tmp_path, variables)
    world.ok("models", "set-key", "openai", stdin=SECRET)
    (world.folder / ".config" / "perdure" / "keys" / "openai").mkdir(parents=True)
    ended = world.run("models", "remove-key", "openai")
    assert (ended.code, "is removed from the keyring." in ended.out) == (1, True)
    assert "cannot be removed" in ended.err


def test_invalid_key_is_refused_and_not_stored(world: World) -> None:
    for stdin, said in (("", "there is no key"), ("two words", "no key"), ("ключ", "no key")):
        ended = world.run("models", "set-key", "openai", "--file", stdin=stdin)
        assert (ended.code, said in ended.err) == (2, True)
    unknown = world.run("models", "set-key", "opnai", stdin=SECRET)
    assert (unknown.code, "known: openai, " in unknown.err) == (2, True)
    assert not (world.folder / ".config").exists()
