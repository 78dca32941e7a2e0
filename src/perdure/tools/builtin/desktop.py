"""Desktop tools: read the clipboard and show notifications, with programs of the desktop."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from perdure.errors import ToolError, ToolUnavailable
from perdure.tools.builtin.proposal import proposing
from perdure.tools.decorator import tool
from perdure.tools.permissions import Permissions
from perdure.tools.processes import ProcessResult, run_program, small_environment
from perdure.tools.spec import Subject, ToolCall

TIMEOUT_S = 5.0
MAX_TEXT = 1000

_CLIPBOARDS: tuple[tuple[str, ...], ...] = (
    ("wl-paste", "--no-newline"),
    ("xclip", "-selection", "clipboard", "-out"),
    ("xsel", "--clipboard", "--output"),
    ("pbpaste",),
)
_DISPLAYS = (
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "XAUTHORITY",
)
_APPLE_SCRIPT = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)


def about_clipboard(args: Mapping[str, object], permissions: Permissions) -> Subject:
    """Describe the call to a person who approves it: it reads the clipboard.

    The answer "always" is not offered, because the clipboard can contain other data at each call.
    """
    return Subject("read the clipboard")


def about_note(args: Mapping[str, object], permissions: Permissions) -> Subject:
    """Describe the call to a person who approves it, with the text of the notification.

    The answer "always" allows only this text.
    """
    said = f"{args['title']!s}: {args['body']!s}"
    return Subject(said, msgspec.json.encode((args["title"], args["body"])).decode())


@proposing("os", about_clipboard, is_outside=True)
@tool(effect="read")
async def read_clipboard(*, call: ToolCall) -> str:
    """Read the text in the clipboard of the person's desktop."""
    ended = await _run(call, _CLIPBOARDS, ())
    return ended.stdout.decode(errors="replace") or "[the clipboard is empty]"


@proposing("os", about_note)
@tool(effect="external")
async def notify(
    title: Annotated[str, "A few words.", Meta(min_length=1, max_length=100)],
    body: Annotated[str, "One or two sentences.", Meta(max_length=MAX_TEXT)],
    *,
    call: ToolCall,
) -> str:
    """Show the person a note on their desktop."""
    script = tuple(word for line in _APPLE_SCRIPT for word in ("-e", line))
    programs = (("notify-send", "--app-name=perdure", "--"), ("osascript", *script, "--"))
    await _run(call, programs, (_plain(title), _plain(body)))
    return "shown"


async def _run(
    call: ToolCall, programs: Sequence[tuple[str, ...]], words: Sequence[str]
) -> ProcessResult:
    """Run the first installed program of `programs`.

    Raises: ToolUnavailable if none of the programs is installed.
    """
    environment = small_environment(os.environ, call.working_dir)
    environment |= {name: os.environ[name] for name in _DISPLAYS if name in os.environ}
    for program in programs:
        if shutil.which(program[0], path=environment["PATH"]) is None:
            continue
        ended = await run_program(
            (*program, *words),
            tool=call.tool,
            working_dir=call.working_dir,
            environment=environment,
            timeout_s=TIMEOUT_S,
        )
        if ended.code != 0:
            raise ToolError(call.tool, f"{program[0]} did not do it; is there a desktop here?")
        return ended
    known = ", ".join(program[0] for program in programs)
    raise ToolUnavailable(call.tool, f"this machine has none of: {known}")


def _plain(text: str) -> str:
    """Return `text` without characters that a desktop could read as markup or control codes."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
