"""An approval of a command is not valid if a program that the command starts has changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from perdure.tools.permissions import Permissions
from tests.attacks.test_stale_approvals import RAN, RUNS, Case, Form, command, path_of_two, put

GOOD = put("../bin2/tool", "#!/bin/sh\ntrue\n", 0o755)
EARLIER = put("../bin1/tool", f"#!/bin/sh\n{RUNS}", 0o755)
EDITED = put("../bin2/tool", f"#!/bin/sh\n{RUNS}", 0o755)
LINES: Mapping[str, str] = {
    "env": "env tool now",
    "timeout": "timeout 5 tool",
    "nice": "nice -n 1 tool",
    "shell": "sh -c 'true; tool'",
    "substitution": "sh -c 'echo $(tool)'",
}
MAY = Permissions(allowed_commands=tuple(LINES.values()))
_ = path_of_two  # the fixture puts bin1 before bin2


@pytest.mark.parametrize("change", [EARLIER, EDITED], ids=["earlier", "edited"])
@pytest.mark.parametrize("name", LINES)
async def test_change_of_a_program_that_the_command_starts_requires_new_approval(
    tmp_path: Path, name: str, change: object
) -> None:
    assert callable(change)
    form = Form("run_command", command(LINES[name]), GOOD, change, RAN, permissions=MAY)
    case = Case(form, tmp_path)
    chat = await case.asked()
    (waiting,) = await chat.session.questions()
    assert "bin2/tool" in (waiting.question.bound or {})["starts tool"]
    change(case.folder)
    await chat.session.answer(waiting.id, "allow", by="me")
    await case.does_not_run(chat)
