"""Displays the context of a model in full: messages, sizes, entries and reasons.

Shape of the JSON: ``{"model", "thinking_level", "tokens", "messages": [{"role", "parts",
"entry_id"}], "dropped", "last_turn"}``. If the session has an agent, the JSON also has ``"tools"``,
the names of the agent's tools, and ``"system"`` if the agent has instructions. The log contains no
schemas of tools, only hashes of them. ``"last_turn"`` is null before the first turn. After the
first turn, ``"last_turn"`` is ``{"turn", "recalled": [{"kind", "id", "text", "words", "why",
"score", "source"}], "problem", "trimmed"}``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from perdure.apps.terminal.output import count_of
from perdure.apps.terminal.previews import entry_name, role_meaning
from perdure.apps.terminal.reports import NOT_IN_FORCE, Report
from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import one_line, safe
from perdure.client.memory.last_turn import LastTurn
from perdure.context.build import Context, request_tokens
from perdure.context.emission import ContextMessage
from perdure.context.tokens import estimate_tokens, unscaled_around
from perdure.memory.knowledge import Source
from perdure.models.protocol import ToolDeclaration
from perdure.session.fold import first_kept_by
from perdure.session.ledger import Trimmed
from perdure.session.messages import (
    MediaPart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    user,
)

if TYPE_CHECKING:
    from perdure.client.agents.agent import Agent
    from perdure.client.agents.chat import Chat

_RECALLED = 200
"""Maximum number of characters of a recalled text."""

_LIMITS = {
    "max_working_tokens": "max_working_tokens",
    "window": "the model's window",
    "max_messages": "max_messages",
}


def context_data(
    context: Context,
    system_prompt: str | None,
    last: LastTurn | None = None,
    tools: Sequence[str] | None = None,
) -> dict[str, object]:
    """Return `context`, and the texts that the `last` turn recalled, as JSON data.

    `tools` is None if the session has no agent.
    """
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
        "last_turn": msgspec.to_builtins(last),
    }
    if tools is not None:
        data = {"tools": tools, **data}
    return data if system_prompt is None else {"system": system_prompt, **data}


def context_lines(
    context: Context,
    report: Report,
    budget_tokens: int | None,
    style: Style,
    last: LastTurn | None = None,
) -> Iterator[str]:
    """Format `context` for people: first a summary with reasons, then the messages in full.

    The lines on what the `last` turn recalled come before the messages.
    """
    yield style.paint(_heading(context), "strong")
    yield from _reasons(context, report, budget_tokens)
    if last is not None:
        yield from _last_turn_lines(last, style)
    yield from _agent_lines(report, style)
    names = tool_names(each.message for each in context.messages)
    for each in context.messages:
        yield ""
        yield _message_heading(each, report, style)
        for part in each.message.parts:
            yield from part_lines(part, style, names)


def _heading(context: Context) -> str:
    model = context.model or "no model yet"
    level = context.thinking_level or "off"
    messages = count_of(len(context.messages), "message")
    return f"{model}, thinking {level}: {messages}, about {count_of(context.tokens, 'token')}"


def _reasons(context: Context, report: Report, budget_tokens: int | None) -> Iterator[str]:
    compaction = report.window.state.compaction
    if compaction is not None:
        hidden = count_of(report.window.hidden, "entry", "entries")
        kept, own = first_kept_by(compaction), report.info.id
        since = f" before {entry_name(kept, own)}" if kept is not None else ""
        yield (
            f"The summary of compaction {entry_name(compaction.id, own)} replaces {hidden}"
            f"{since}; `perdure sessions uncompact {own}` undoes it."
        )
    if context.dropped:
        dropped = count_of(context.dropped, "entry was", "entries were")
        room = "what the agent is sent" if budget_tokens is None else f"{budget_tokens:,} tokens"
        yield f"{dropped} left out, oldest first, to fit {room}."
    if budget_tokens is not None and context.tokens > budget_tokens:
        yield (
            "Over budget: the newest exchange, pinned messages and the summary are always sent; "
            f"they need about {context.tokens:,} tokens."
        )
    if context.skipped:
        yield f"{count_of(context.skipped, 'part')} cannot be read by this perdure and is not sent."


def _last_turn_lines(last: LastTurn, style: Style) -> Iterator[str]:
    """Describe the texts that the last turn recalled, and those that were not sent."""
    if last.recalled:
        yield ""
        yield style.paint(f"recalled for turn {last.turn}", "strong")
    for each in last.recalled:
        score = "" if each.score is None else f"{each.score:.2f}"
        reasons: list[str] = [reason for reason in each.why if reason != "words"]
        if each.words:
            reasons.insert(0, f"words: {', '.join(each.words)}")
        facts = [each.kind, safe(each.id), score, safe("; ".join(reasons))]
        yield style.paint("  ".join(filter(None, facts)), "faint")
        shown = "(erased since)" if each.text is None else one_line(each.text, _RECALLED)
        place = "" if each.source is None else f"{_place(each.source)}: "
        yield f"  {safe(place)}{shown}"
    if last.problem is not None:
        yield f"Not all was recalled for turn {last.turn}: {safe(last.problem)}"
    if last.trimmed is not None:
        yield from _trimmed_lines(last.turn, last.trimmed)


def _place(source: Source) -> str:
    return ", ".join(filter(None, (source.path, source.heading)))


def _trimmed_lines(turn: int, trimmed: Trimmed) -> Iterator[str]:
    if trimmed.dropped:
        dropped = count_of(trimmed.dropped, "message was", "messages were")
        size = "" if trimmed.tokens is None else f" of {trimmed.tokens:,} tokens"
        limit = _LIMITS.get(trimmed.limit or "", "the limit of the request")
        yield f"Turn {turn}: {dropped} not sent, oldest first, to fit {limit}{size}."
    if trimmed.recalled:
        left = count_of(trimmed.recalled, "recalled text was", "recalled texts were")
        yield f"Turn {turn}: {left} not sent: they have a quarter of the request at most."


def _agent_lines(report: Report, style: Style) -> Iterator[str]:
    """Describe what the agent adds to each request: instructions, and tools by name."""
    yield ""
    if report.tools is None:
        yield style.paint("no agent yet: no system prompt and no tools", "faint")
        return
    withheld = report.authority.withheld
    note = "" if withheld is None else f"  not in force here: {NOT_IN_FORCE[withheld]}"
    if report.system_prompt is not None:
        yield style.paint("system prompt", "system") + style.paint(note, "faint")
        yield safe(report.system_prompt)
        yield ""
    source = "" if not report.tools else "  by name: the program of the agent has their schemas"
    yield style.paint("tools", "system") + style.paint(note or source, "faint")
    yield safe(", ".join(report.tools) or "(none)")


def _message_heading(each: ContextMessage, report: Report, style: Style) -> str:
    role = each.message.role
    entries = [entry_name(entry, report.info.id) for entry in each.entry_ids]
    source = f"entry {' + '.join(entries)}" if entries else "no entry: added to keep it valid"
    tokens = count_of(estimate_tokens(each.message), "token")
    return style.paint(role, role_meaning(role)) + style.paint(f"  {source}, ~{tokens}", "faint")


def part_lines(
    part: Part, style: Style, names: Mapping[str, str] = MappingProxyType({})
) -> Iterator[str]:
    """Return the whole content of `part`; `names` maps the ids of tool calls to tool names."""
    match part:
        case TextPart(text=text):
            yield safe(text)
        case ThinkingPart(text=text):
            yield style.paint(safe(text), "thinking")
        case ToolCallPart(id=call, name=name, args=args):
            shown = json.dumps(args, ensure_ascii=False)
            yield f"→ {safe(name)} {safe(shown)}" + style.paint(f"  {safe(call)}", "faint")
        case ToolResultPart(call_id=call, text=text, is_error=is_error, name=name):
            ended = "failed" if is_error else "result"
            tool = name or names.get(call)
            told = f"{safe(tool)}  {safe(call)}" if tool else safe(call)
            yield style.paint(f"← {ended} of {told}", "faint")
            yield safe(text)
        case MediaPart(mime_type=kind, byte_length=length):
            yield f"[{safe(kind)}, {length:,} bytes]"
        case _:
            pass


def tool_names(messages: Iterable[Message]) -> dict[str, str]:
    """Return the tool names of the calls in `messages`, by call id. Pure."""
    return {call.id: call.name for each in messages for call in each.tool_calls}


async def chat_context(chat: Chat) -> Context:
    """Return the context of `chat`; `tokens` includes the agent's instructions and tools."""
    context = await chat.session.context()
    around = unscaled_around(chat.agent.instructions, declared_tools(chat.agent))
    return msgspec.structs.replace(context, tokens=request_tokens(context, around))


def declared_tools(agent: Agent) -> list[ToolDeclaration]:
    """Return the tools of `agent` in the form that a model receives."""
    return [ToolDeclaration(*each) for each in agent.registry.declarations()]


def context_part_lines(agent: Agent, recalled: Sequence[str], context: Context) -> Iterator[str]:
    """Yield a line with the estimated total, then a line with the tokens of each request part."""
    tools = declared_tools(agent)
    parts = (
        ("instructions", _size(agent.instructions or ""), ""),
        ("tools", math.ceil(unscaled_around(None, tools)), count_of(len(tools), "tool")),
        ("recalled", sum(map(_size, recalled)), count_of(len(recalled), "text")),
        (
            "history",
            sum(estimate_tokens(each.message) for each in context.messages),
            count_of(len(context.messages), "message"),
        ),
    )
    wide = max(len(f"{tokens:,}") for _, tokens, _ in parts)
    yield f"by its parts, estimated: {sum(tokens for _, tokens, _ in parts):,} tokens"
    for name, tokens, what in parts:
        yield f"  {name:<12}  {tokens:>{wide},}  {what}".rstrip()


def _size(text: str) -> int:
    return estimate_tokens(user(text)) if text else 0
