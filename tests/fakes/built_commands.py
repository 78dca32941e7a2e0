"""Build every command line once, so that processes forked from this one reuse the command lines."""

from __future__ import annotations

from perdure.apps.cli.program import COMMANDS, command_line

command_line([])
for name in COMMANDS:
    command_line([name])
