"""``!command`` in a chat: run a command of the user, and record the command for the model.

The command is the user's own, so it runs in the user's shell without an approval. The output is
part of the conversation, unless the command was typed with ``!!``.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from perdure.apps.chat.attachments import fenced
from perdure.codecs.pi.words import BASH
from perdure.session.kinds import CustomMessage
from perdure.session.messages import TextPart
from perdure.tools.processes import run_program

MOST_CHARACTERS = 30_000
"""Maximum length of recorded output; of longer output, only the beginning and end are recorded."""

TIMEOUT_S = 600.0


class ShellRun(msgspec.Struct, frozen=True):
    """A finished command. `code` is None if the shell command took too long and was killed."""

    command: str
    output: str
    code: int | None
    is_cut: bool = False

    @property
    def ending(self) -> str:
        """A text that describes how the command ended."""
        return "timed out" if self.code is None else f"exit code {self.code}"

    def message(self, *, in_context: bool) -> CustomMessage:
        """Return the entry that records the command; it has the same fields as in pi."""
        told = [f"I ran this command: `{self.command}`"]
        told.append(fenced(self.output) if self.output else "It printed nothing.")
        if self.code != 0:
            told.append(f"It ended with {self.ending}.")
        details = {
            "command": self.command,
            "output": self.output,
            "exitCode": self.code,
            "cancelled": self.code is None,
            "truncated": self.is_cut,
            "excludeFromContext": not in_context,
        }
        parts = (TextPart("\n\n".join(told)),)
        return CustomMessage(BASH, parts, in_context=in_context, details=details)


async def run_shell(command: str, folder: Path) -> ShellRun:
    """Run `command` in the user's shell in `folder`, with empty standard input.

    Raises: ToolError if the shell cannot be started.
    """
    shell = os.environ.get("SHELL") or "/bin/sh"
    ended = await run_program(
        [shell, "-c", command],
        tool="!",
        working_dir=folder,
        environment={"PATH": os.defpath, **os.environ, "TERM": "dumb", "PAGER": "cat"},
        timeout_s=TIMEOUT_S,
    )
    text = b"\n".join(filter(None, (ended.stdout.rstrip(), ended.stderr.rstrip()))).decode(
        errors="replace"
    )
    is_cut = ended.left_out > 0 or len(text) > MOST_CHARACTERS
    if len(text) > MOST_CHARACTERS:
        half = MOST_CHARACTERS // 2
        left = len(text) - 2 * half
        text = f"{text[:half]}\n[{left:,} characters left out]\n{text[-half:]}"
    return ShellRun(command, text, ended.code, is_cut)
