"""Display the context of a model in full: messages, sizes, entries and reasons.

Shape of the JSON: ``{"model", "thinking_level", "tokens", "messages": [{"role", "parts",
"entry_id"}], "dropped"}``, and ``"system"`` if an agent has instructions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from perdure.apps.terminal.output import count_of
from perdure.apps.terminal.previews import role_meaning
from perdure.apps.terminal.reports import Report
from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import safe
from perdure.context.build import Context
from perdure.context.emission import ContextMessage
from perdure.context.tokens import estimate_tokens
from perdure.session.fold import first_kept_by
from perdure.session.ids import EntryId
from perdure.session.messages import (
    MediaPart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)


def context_data(context: Context, system_prompt: str | None) -> dict[str, object]:
    """`context` as JSON data."""
    data: dict[str, object] = {
        "model": context.model,
        "thinking_level": context.thinking_level,
        "tokens": context.tokens,
        "messages": [
            {
                "role": each.message.role,
                "parts": each.message.parts,
                "entry_id": next(iter(each.entry_ids), None),
            }
            for each in context.messages
        ],
        "dropped": context.dropped,
    }
    return data if system_prompt is None else {"system": system_prompt, **data}


def context_lines(
    context: Context, report: Report, budget_tokens: int | None, style: Style
) -> Iterator[str]:
    """Format `context` for people: a summary with reasons, then the messages in full."""
    yield style.paint(_heading(context), "strong")
    yield from _reasons(context, report, budget_tokens)
    if report.system_prompt is not None:
        yield ""
        yield style.paint("system prompt", "system")
        yield safe(report.system_prompt)
    for each in context.messages:
        yield ""
        yield _message_heading(each, report, style)
        for part in each.message.parts:
            yield from _part_lines(part, style)


def _heading(context: Context) -> str:
    model = context.model or "no model yet"
    level = context.thinking_level or "off"
    messages = count_of(len(context.messages), "message")
    return f"{model}, thinking {level}: {messages}, about {count_of(context.tokens, 'token')}"


def _reasons(context: Context, report: Report, budget_tokens: int | None) -> Iterator[str]:
    compaction = report.window.state.compaction
    if compaction is not None:
        hidden = count_of(report.window.hidden, "entry", "entries")
        kept = first_kept_by(compaction)
        since = f" before {_short(kept, report)}" if kept is not None else ""
        yield (
            f"The summary of compaction {_short(compaction.id, report)} replaces {hidden}"
            f"{since}; `perdure sessions uncompact {report.info.id}` undoes it."
        )
    if context.dropped:
        dropped = count_of(context.dropped, "entry was", "entries were")
        room = "what the agent is sent" if budget_tokens is None else f"{budget_tokens:,} tokens"
        yield f"{dropped} left out, oldest first, to fit {room}."
    if context.skipped:
        yield f"{count_of(context.skipped, 'part')} cannot be read by this perdure and is not sent."


def _message_heading(each: ContextMessage, report: Report, style: Style) -> str:
    role = each.message.role
    entries = [_short(entry, report) for entry in each.entry_ids]
    source = f"entry {' + '.join(entries)}" if entries else "no entry: added to keep it valid"
    tokens = count_of(estimate_tokens(each.message), "token")
    return style.paint(role, role_meaning(role)) + style.paint(f"  {source}, ~{tokens}", "faint")


def _short(entry: EntryId, report: Report) -> str:
    """Return the number of an entry of this session, or the whole id of another session's entry."""
    stream, _, seq = entry.rpartition("/")
    return seq if stream == report.info.id else entry


def _part_lines(part: Part, style: Style) -> Iterator[str]:
    match part:
        case TextPart(text=text):
            yield safe(text)
        case ThinkingPart(text=text):
            yield style.paint(safe(text), "thinking")
        case ToolCallPart(id=call, name=name, args=args):
            shown = json.dumps(args, ensure_ascii=False)
            yield f"→ {safe(name)} {safe(shown)}" + style.paint(f"  {safe(call)}", "faint")
        case ToolResultPart(call_id=call, text=text, is_error=is_error):
            ended = "failed" if is_error else "result"
            yield style.paint(f"← {ended} of {safe(call)}", "faint")
            yield safe(text)
        case MediaPart(mime_type=kind, byte_length=length):
            yield f"[{safe(kind)}, {length:,} bytes]"
        case _:
            pass
