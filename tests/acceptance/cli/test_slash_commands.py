"""Commands and texts typed in a chat that reads lines, as the full-screen chat handles them.

`tests/integration/tui` types the same in the full-screen chat.
"""

from __future__ import annotations

from tests.acceptance.cli.conftest import World

KEY = "sk-ant-api03-" + "Zx9Qw3Lm7Vb2Nc8K" * 3


def typed(world: World, *lines: str, session: str | None = None) -> str:
    """Type `lines` in a chat; return its output."""
    words = () if session is None else ("--session", session)
    return world.ok("chat", *words, stdin="\n".join(lines)).out


def newest(world: World) -> str:
    """Return the id of the newest session."""
    newest_id: str = world.ok("sessions", "list", "--json").json[0]["id"]
    return newest_id


def test_fork_command_explains_how_to_fork_only_one_branch(world: World) -> None:
    typed(world, "first")
    origin = newest(world)
    out = typed(world, "/fork", "second", session=origin)
    assert ", a fork of " in out
    assert "with all its branches" not in out
    fork = newest(world)
    assert fork != origin
    leaf = f"{origin}/2"
    out = typed(world, f"/branch {leaf}", "/fork", session=fork)
    assert f"with all its branches; /fork {leaf} shares only this branch" in out
    out = typed(world, f"/fork {leaf}", session=fork)
    assert ", a fork of " in out
    assert "with all its branches" not in out


def test_export_in_the_chat_accepts_the_redaction_option_first_or_last(world: World) -> None:
    forms = ("--redact secrets,paths '{}'", "--redact=secrets,paths '{}'", "'{}' --redact secrets")
    files = [world.folder / f"my talk {number}.md" for number in range(len(forms))]
    exports = [f"/export {form.format(file)}" for form, file in zip(forms, files, strict=True)]
    out = typed(world, f"use {KEY} for the test", *exports)
    assert out.count("; replaced: ") == len(forms)
    assert not [file for file in files if KEY[:20] in file.read_text()]


def test_secret_or_attached_file_of_a_typed_message_is_not_in_the_session_title(
    world: World,
) -> None:
    typed(world, f"use {KEY} for the test", f"/export {world.folder}/talk.html --redact names")
    assert not (world.folder / "talk.html").exists()
    (world.folder / "sea.py").write_text("print('sea')\n")
    out = typed(world, "hello @sea.py")
    assert "attached: sea.py" in out
    titles = [each["title"] for each in world.ok("sessions", "list", "--json").json]
    assert titles == ["hello @sea.py", "use [redacted] for the test"]
