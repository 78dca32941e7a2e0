"""Suggests the right command after an unknown command such as ``grep``, and after other mistakes.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches

TASKS: Mapping[str, str] = {
    **dict.fromkeys(("list", "ls", "history", "recent", "log", "logs"), "sessions list"),
    **dict.fromkeys(("search", "find", "grep"), "sessions search"),
    **dict.fromkeys(("read", "cat", "view", "open", "print"), "sessions read"),
    **dict.fromkeys(("resume", "continue"), "chat --continue"),
    **dict.fromkeys(("delete", "remove", "rm", "erase", "forget-session"), "sessions erase"),
    **dict.fromkeys(("show", "info"), "sessions show"),
    **dict.fromkeys(("move", "mv"), "sessions fork --cwd"),
    "archive": "export --all",
    "compare": "sessions diff",
    "undo": "sessions branch",
    "sync": "import",
    **dict.fromkeys(("pick", "choose", "select"), "sessions pick"),
    **dict.fromkeys(("interrupted", "crashed"), "sessions list --interrupted"),
    **{
        name: f"sessions {name}"
        for name in ("tree", "fork", "branch", "label", "rename", "pin", "diff", "context", "tools")
    },
    **dict.fromkeys(("compact", "summarize"), "sessions compact"),
    **dict.fromkeys(("end", "close", "finish"), "sessions end"),
    **dict.fromkeys(("questions", "approvals"), "inbox"),
    **dict.fromkeys(("approve", "answer", "deny", "allow"), "inbox answer"),
    **dict.fromkeys(("cost", "costs", "tokens", "spend", "price", "billing"), "usage"),
    **dict.fromkeys(("files", "changes"), "edits"),
    **dict.fromkeys(("yesterday", "recap", "standup"), "activity --since=yesterday"),
    **{
        name: f"store {name}"
        for name in ("backup", "restore", "verify", "repair", "stats", "copy", "migrate", "vacuum")
    },
    **dict.fromkeys(("reindex", "index"), "store reindex"),
    **dict.fromkeys(("encrypt", "decrypt", "key"), "store rekey"),
    **dict.fromkeys(("console", "server", "web", "ui", "dashboard", "browser"), "serve"),
    **dict.fromkeys(("run", "workflow", "workflows", "flows"), "flow"),
    **{name: f"memory {name}" for name in ("remember", "forget", "facts", "episodes", "recall")},
    **dict.fromkeys(("providers", "model", "login"), "models"),
    **dict.fromkeys(("settings", "configure", "set", "get"), "config explain"),
    **dict.fromkeys(("check", "status", "health", "diagnose"), "doctor"),
    "recall": "memory search",
    "agent": "agents list",
    "new": "chat",
    "ask": "chat -p",
    "version": "--version",
    "help": "--help",
}
"""A word that people type as a command -> the command for that task."""

_REMOVALS = ("delete", "remove", "rm")

_OF_GROUPS: Mapping[str, Mapping[str, str]] = {
    "sessions": {
        **dict.fromkeys(("archive", "hide"), "sessions end"),
        **dict.fromkeys(("erase-entry", "erase-entries", "redact"), "sessions erase ID ENTRY"),
        **dict.fromkeys(("new", "create", "start"), "chat"),
        "export": "export ID",
        "import": "import FILE",
    },
    "token": dict.fromkeys(_REMOVALS, "token revoke ID"),
    "grants": dict.fromkeys(_REMOVALS, "grants revoke GRANT"),
    "schedule": dict.fromkeys(_REMOVALS, "schedule cancel ID"),
    "memory": dict.fromkeys(_REMOVALS, "memory forget ID"),
    "flow": dict.fromkeys(_REMOVALS, "flow delete ID"),
}
"""Group -> a table like `TASKS`, for words with another meaning after the name of the group."""

_ALSO: Mapping[str, str] = {
    "sessions end": ", and list without the ended ones: `perdure sessions list --hide-ended`; "
    "`perdure export ID` writes a file",
    "chat --continue": ", or `perdure chat --session ID` for another session",
}
"""Command -> text that follows the suggestion of the command."""

_RECURRING = "recurring messages are written in an agent file: docs/guides/schedules.md"

_PIN = "a pin keeps one entry in the context of the model, and does not mark the session"

_REMEDIES: Mapping[tuple[str, str], str] = {
    ("chat", "unexpected argument"): "a message goes after -p, in quotes",
    ("sessions diff", "missing argument LEAF_A"): "`perdure sessions tree ID` lists the entries",
    ("sessions pin", "missing argument ENTRY"): _PIN,
    ("store copy", "unknown option --to"): "TARGET has no option: `perdure store copy TARGET`",
    **{
        ("schedule add", f"unknown option {option}"): _RECURRING
        for option in ("--cron", "--every", "--repeat", "--daily", "--weekly")
    },
}
"""Command and mistake -> what to do."""

_NO_CHOICE = re.compile(r"Invalid value for '.*?': '([^']+)' is not one of (.*)", re.DOTALL)
_UNKNOWN = re.compile(r"No such command '([^']*)'")
_LIKE = 0.75
"""Minimum similarity, from 0 to 1, of a typed word to a known word for a suggestion."""


def task_hint(message: str, group: str, commands: Collection[str] = ()) -> str | None:
    """Return the error for an unknown command that is the common word for a task, such as ``grep``.

    For a word that is only similar to a common word, the error asks if you meant that task. Returns
    None if `message` reports another error, or if no command does this task. `group` is the group
    that lacks the command ("" is the program), and `commands` are the commands of the group.
    """
    unknown = _UNKNOWN.match(message)
    if unknown is None:
        return None
    known = {word: task for word, task in TASKS.items() if task.startswith(group and f"{group} ")}
    known.update(_OF_GROUPS.get(group, {}))
    word = unknown[1]
    place = f" of `perdure {group}`" if group else ""
    told = f"there is no command {word!r}{place}"
    if word not in known:
        long = [each for each in (*known, *commands) if len(each) > 2]  # `rum` is not `rm`
        like = get_close_matches(word, long, 1, _LIKE)
        if not like or like[0] in commands:
            return None
        return f"{told}; did you mean `perdure {known[like[0]]}`?"
    task = known[word]
    return f"{told}: use `perdure {task}`{_ALSO.get(task, '')}"


def commands_hint(message: str, group: str, commands: Collection[str]) -> str | None:
    """Return the error for an unknown command of a group; the error lists the group's `commands`.

    Returns None if `message` reports another error, if `message` already suggests a command, or if
    `group` is the program itself ("").
    """
    unknown = _UNKNOWN.match(message)
    if unknown is None or not group or message.endswith("?"):
        return None
    if unknown[1] == "help":
        return f"`perdure {group} --help` prints the help of the group"
    known = ", ".join(commands)
    return f"there is no command {unknown[1]!r} of `perdure {group}`; its commands: {known}"


def remedy_for(message: str, command: str) -> str | None:
    """Return `message` with a remedy for `command`; None if no specific remedy is known."""
    said = message.partition(" (Possible options")[0].rstrip(".")
    for (place, mistake), remedy in _REMEDIES.items():
        if place == command and (said == mistake or said.startswith(f"{mistake}:")):
            return f"{said}; {remedy}"
    wrong = _NO_CHOICE.match(message)
    if wrong is None:
        return None
    choices = re.findall(r"'([^']+)'", wrong[2])
    typed = wrong[1].lower()
    longer = [each for each in choices if each.startswith(typed)]
    like = longer if len(longer) == 1 else get_close_matches(typed, choices, 1, _LIKE)
    return f"{said}; did you mean {like[0]}?" if like else None
