"""Every command line, built: the processes that are forked from this one need not build theirs."""

from __future__ import annotations

from perdure.apps.cli.program import COMMANDS, command_line

command_line([])
for name in COMMANDS:
    command_line([name])
