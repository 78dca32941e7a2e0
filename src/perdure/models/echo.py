"""The offline model ``scripted:echo``: deterministic answers for trying things out.

The echo model's answers say that it is not a language model. The model calls the tools that a
message names, reports their results, and writes a summary with the usual sections when a compaction
requests one. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from perdure.models.protocol import ModelRequest
from perdure.models.scenario import (
    CallTools,
    Reply,
    Say,
    ScriptedCall,
    Situation,
    Step,
    Think,
    situation_of,
)

NAME = "echo"
OPENING = "offline scripted model:"
HOW_TO = (
    "No language model is connected, so nothing here is a real answer. "
    'Write `/tool NAME {"argument": "value"}` to have a tool called (several lines call several '
    "at once), or choose a real model with `-m openai:NAME`."
)

_COMMAND = re.compile(r"/tool(?<=^/tool)[ \t]+(\S+)[ \t]*", re.MULTILINE)
_QUOTED_CHARS = 400
_LINE_CHARS = 200
_SUMMARY_LINES = 8


def echo(request: ModelRequest) -> Reply:
    """Return the echo model's reply to `request`."""
    situation = situation_of(request)
    if situation.asks_summary:
        return Reply(steps=(Say(summary_of(request.messages[-1].text)),))
    return Reply(steps=(*_thoughts(request), *_answer(situation)))


def summary_of(text: str) -> str:
    """Return a summary that consists of selected lines of the transcript in `text`.

    The result is deterministic.
    Shape: the summary has the same sections as every summary. `text` is a compaction's request: the
    transcript between ``<conversation>`` tags and the previous summary, if any, in
    ``<previous-summary>``.
    """
    lines = [line.strip() for line in _between("conversation", text).splitlines() if line.strip()]
    before = _between("previous-summary", text).strip()
    done = "\n".join(f"- [x] {_clipped(line, _LINE_CHARS)}" for line in _sample(lines))
    first = _clipped(lines[0], _QUOTED_CHARS) if lines else "(nothing was said)"
    last = _clipped(lines[-1], _QUOTED_CHARS) if lines else "(nothing was said)"
    context = [f"- {len(lines)} lines were summarised offline by picking some of them, unread."]
    if before:
        context.append(f"- The summary before this one: {_clipped(before, 4 * _QUOTED_CHARS)}")
    sections = (
        ("Goal", first),
        ("Constraints & Preferences", "(none)"),
        ("Progress", f"### Done\n{done or '(none)'}"),
        ("Key Decisions", "(none)"),
        ("Next Steps", f"1. Go on from: {last}"),
        ("Critical Context", "\n".join(context)),
    )
    return "\n\n".join(f"## {title}\n{body}" for title, body in sections)


def _answer(situation: Situation) -> tuple[Step, ...]:
    if situation.results:
        return (Say(_report(situation)),)
    calls = _commands(situation.user_text)
    if calls:
        plural = "s" if len(calls) > 1 else ""
        return (Say(f"{OPENING} calling {len(calls)} tool{plural}."), CallTools(calls))
    said = f"{OPENING} you wrote “{_clipped(situation.user_text, _QUOTED_CHARS)}”."
    return (Say(said if situation.answers else f"{said} {HOW_TO}"),)


def _thoughts(request: ModelRequest) -> tuple[Step, ...]:
    if request.thinking_level == "off":
        return ()
    seen = f"{len(request.messages)} messages and {len(request.tools)} tools"
    return (Think(f"{OPENING} thinking level {request.thinking_level}; I see {seen}."),)


def _report(situation: Situation) -> str:
    reports: list[str] = []
    for result, tool in zip(situation.results, situation.result_tools, strict=True):
        verb = "failed" if result.is_error else "answered"
        reports.append(f"{OPENING} {tool or 'the tool'} {verb}:\n{_clipped(result.text, 2_000)}")
    return "\n\n".join(reports)


def _commands(text: str) -> tuple[ScriptedCall, ...]:
    """Return the tool calls in `text`; each begins a line and ends before the next call."""
    found = list(_COMMAND.finditer(text))
    ends = [*(match.start() for match in found[1:]), len(text)][: len(found)]
    return tuple(
        ScriptedCall(match[1], text[match.end() : end].strip() or "{}")
        for match, end in zip(found, ends, strict=True)
    )


def _between(tag: str, text: str) -> str:
    _, _, rest = text.partition(f"<{tag}>")
    return rest.rpartition(f"</{tag}>")[0]


def _sample(lines: Sequence[str]) -> Sequence[str]:
    """Return at most `_SUMMARY_LINES` of `lines`, evenly spread."""
    if len(lines) <= _SUMMARY_LINES:
        return lines
    return [lines[index * len(lines) // _SUMMARY_LINES] for index in range(_SUMMARY_LINES)]


def _clipped(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
