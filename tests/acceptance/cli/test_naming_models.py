"""A chat uses the model that a person named; the offline model never answers by default."""

from __future__ import annotations

import pytest

from tests.acceptance.cli.conftest import SAMPLE, SAMPLE_ID, World


@pytest.fixture
def unnamed(world: World) -> World:
    """A world in which neither the environment nor a setting names a model."""
    made = World(world.folder, {"PERDURE_MODEL": "", "ANTHROPIC_API_KEY": "sk-test"})
    made.ok("import", str(SAMPLE))
    return made


@pytest.mark.parametrize("words", [("-p", "Hi"), (), ("-p", "Hi", "--json")])
def test_error_for_a_new_chat_without_a_model_lists_models(
    unnamed: World, words: tuple[str, ...]
) -> None:
    ended = unnamed.run("chat", *words, stdin="Hi\n")
    assert ended.code == 2
    for told in ("a new session needs a model", "-m PROVIDER:NAME", "PERDURE_MODEL", "chat.model"):
        assert told in ended.err
    assert "there are anthropic:NAME (configured), openai:NAME" in ended.err
    assert "scripted:echo (offline, no language model)" in ended.err
    assert len(unnamed.ok("sessions", "list", "--json").json) == 1


def test_chat_in_an_imported_session_without_a_model_needs_a_model_option(unnamed: World) -> None:
    ended = unnamed.run("chat", "--session", SAMPLE_ID, "-p", "Hi")
    assert ended.code == 2, ended.out
    assert "an imported session needs a model" in ended.err
    before = unnamed.ok("sessions", "show", SAMPLE_ID, "--json").json
    assert before["agent"] is None
    unnamed.ok("chat", "--session", SAMPLE_ID, "-m", "scripted:echo", "-p", "Hi")
    told = unnamed.ok("sessions", "show", SAMPLE_ID, "--json").json
    assert (told["agent"], told["model"]) == ("assistant", "scripted:echo")


def test_continued_session_uses_its_previous_model_by_default(unnamed: World) -> None:
    unnamed.ok("chat", "-m", "scripted:echo", "-p", "Hi")
    assert "you wrote “Again”" in unnamed.ok("chat", "--continue", "-p", "Again").out
    newest = unnamed.ok("sessions", "list", "--json").json[0]["id"]
    assert unnamed.ok("sessions", "context", newest, "--json").json["model"] == "scripted:echo"


@pytest.mark.parametrize("source", ["environment", "settings", "agent file"])
def test_model_named_by_environment_settings_or_agent_file_is_used(
    unnamed: World, source: str
) -> None:
    named = {**unnamed.extra, "PERDURE_MODEL": "scripted:echo" if source == "environment" else ""}
    if source == "settings":
        config = unnamed.folder / ".config" / "perdure" / "config.toml"
        config.parent.mkdir(parents=True)
        config.write_text('[chat]\nmodel = "scripted:echo"\n')
    file = unnamed.folder / "helper.agent.yaml"
    file.write_text("id: helper\nmodel: scripted:echo\nsystem_prompt: Help.\n")
    words = ("--agent", str(file)) if source == "agent file" else ()
    assert "you wrote “Hi”" in World(unnamed.folder, named).ok("chat", *words, "-p", "Hi").out
