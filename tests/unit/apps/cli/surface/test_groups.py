"""A group of commands loads only the modules of the needed commands, and preserves their order."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import typer

from perdure.apps.cli.program import command_line, shape_of
from perdure.apps.cli.surface.groups import Group, commands_of

_LOADED = """
import json, os, sys
from perdure.apps.cli.program import command_line
for line in sys.argv[1:]:
    if os.fork() == 0:
        command_line(line.split())
        names = [name for name in sys.modules if name.startswith("perdure.")]
        print(json.dumps(names), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0, line
"""


def own() -> None:
    """Return a command of the group itself."""


def test_group_returns_the_named_command_or_all_commands_in_order() -> None:
    group = Group({"later": "perdure.apps.flow.init:init", "never": "perdure.missing:none"})
    group.command("own")(own)
    assert [each.name for each in group.commands("own")] == ["own"]
    assert [each.name for each in group.commands("later")] == ["later"]
    with pytest.raises(ModuleNotFoundError):
        group.commands("unknown")
    plain = typer.Typer()
    plain.command("a")(own)
    plain.command("b")(own)
    assert [each.name for each in commands_of(plain, "b")] == ["b"]
    plain.command("b")(own)  # for another program
    assert [each.name for each in commands_of(plain, "b")] == ["b"]
    assert [each.name for each in commands_of(plain, "unknown")] == ["a", "b"]


def test_only_the_given_command_of_a_group_is_loaded() -> None:
    words = ["flow", "validate"]
    command = command_line([*words, "workflow.yaml"])
    alone = shape_of(command).at(["flow"])
    assert [each.words for each in alone.commands] in ([("flow", "validate")], whole_flow())
    assert shape_of(command).at(words).arguments


def test_command_line_of_a_command_is_built_only_once() -> None:
    assert command_line(["export", "01jd"]) is command_line(["export", "01je", "-o", "x"])
    assert command_line(["memory", "unknown"]) is command_line(["memory", "unknown too"])


def whole_flow() -> list[tuple[str, ...]]:
    return [each.words for each in shape_of(command_line(["flow"])).at(["flow"]).commands]


@pytest.mark.full_only
def test_command_loads_only_the_code_that_it_needs() -> None:
    unneeded = {
        "store info": ("apps.maintenance.copy", "interop.formats.native", "engine.turns.machine"),
        "sessions list": ("client.memory.last_turn", "engine.turns.machine", "tools.permissions"),
        "flow validate": ("apps.flow.compaction", "apps.flow.flow_access", "client.agents.runtime"),
        "models": ("apps.wiring", "client.agents.agent"),
    }
    told = subprocess.run(
        [sys.executable, "-c", _LOADED, *unneeded], capture_output=True, text=True, check=True
    )
    for (line, names), printed in zip(unneeded.items(), told.stdout.splitlines(), strict=True):
        loaded = set(json.loads(printed))
        assert loaded
        assert not loaded & {f"perdure.{name}" for name in names}, line
