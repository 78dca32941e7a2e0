"""Formats a flow for people: header, graph, and open questions with their answer commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from perdure.apps.flow.picture.render import LOOKS, NodeStanding, lines, symbol_of
from perdure.apps.terminal.style import Meaning, Style
from perdure.apps.terminal.text import one_line, safe
from perdure.engine.flows.rules.flow_waits import ASKS, FlowWait
from perdure.session.flows.feed import FeedItem, FeedItemType
from perdure.session.flows.run import FlowState, ImprovementPhase

_MARKS: Mapping[FeedItemType, tuple[str, Meaning]] = {
    "assistant": ("says", "assistant"),
    "user": ("you", "user"),
    "event": ("event", "note"),
    "error": ("error", "bad"),
    "handoff": ("handoff", "good"),
    "resume": ("resume", "note"),
    "repair": ("repair", "warning"),
    "reasoning": ("thinks", "thinking"),
    "tool": ("tool …", "tool"),
    "tool-success": ("tool ok", "tool"),
    "tool-error": ("tool !!", "bad"),
    "activation": ("begins", "strong"),
}


def head(state: FlowState, style: Style) -> Iterator[str]:
    """Format the id, status and folders of a flow."""
    run = state.run
    yield f"{style.paint(safe(run.record_name or state.graph.name), 'strong')}  {run.flow_id}"
    status = run.status.replace("_", " ")
    yield style.paint(f"{status} · consent {state.consent.mode}", "faint")
    if state.is_foreign and run.consent_state.mode != state.consent.mode:
        told = f"the flow came with consent {run.consent_state.mode}, which is not in force"
        yield style.paint(f"{told}; `perdure flow consent` changes it", "warning")
    yield style.paint(f"record {safe(run.record_folder_path)}", "faint")


def picture(
    state: FlowState,
    waiting: Sequence[FlowWait],
    style: Style,
    width: int,
    said: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Format a flow: header, graph with the texts `said`, and open questions and decisions."""
    yield from head(state, style)
    yield ""
    yield from lines(state.graph, style, width, state, said)
    yield from _looking_back(state, style)
    if waiting:
        yield ""
        yield style.paint("Waiting for you:", "strong")
        yield from waits(state.run.flow_id, waiting, said)


def _looking_back(state: FlowState, style: Style) -> Iterator[str]:
    phase = state.run.improvement_phase
    if phase is None or phase.mode is None:
        return
    yield ""
    status = phase.status.replace("_", " ")
    yield f"{style.paint('Improvement', 'strong')}  {phase.mode} · {status}"
    order = state.improvement
    for role in [node.id for node in order.nodes] if order is not None else []:
        yield _reflecting(phase, role, style)
    if phase.feedback_artifact_path is not None:
        consent = phase.feedback_consent or ""
        yield f"  feedback {consent}: {safe(phase.feedback_artifact_path)}"


def _reflecting(phase: ImprovementPhase, role: str, style: Style) -> str:
    """Return the status of a role during the improvement phase."""
    stands: NodeStanding = "pending"
    told = ""
    if role in phase.completed_roles:
        stands, told = "completed", phase.findings_produced[role]
    elif role in phase.running_roles:
        stands, told = "active", "at work"
    elif role in phase.awaiting_human_roles:
        stands = told = "awaiting human"
        if role in phase.pending_human_inputs:
            told = f"reply queued: {phase.pending_human_inputs[role].text}"
    line = f"  {symbol_of(stands, style)} {role}  {one_line(told, 200)}".rstrip()
    return style.paint(line, LOOKS[stands].colour)


def waits(
    flow: str, waiting: Sequence[FlowWait], said: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Format each question that waits for a person, with the command that answers it."""
    for each in waiting:
        yield f"  {safe(each.text)}"
        words = _said_before(each, said or {})
        if words:
            yield f"    “{one_line(words, 200)}”"
        yield f"    {answer(flow, each)}"


def _said_before(each: FlowWait, said: Mapping[str, str]) -> str:
    """Return the text that the agent wrote before its question."""
    is_asking = each.topic == "prompt-human" and each.text.endswith(ASKS)
    return said.get(each.role or "", "") if is_asking else ""


def answer(flow: str, each: FlowWait) -> str:
    """Return the command that answers `each`, such as `perdure flow reply`."""
    if each.session is not None or (each.topic == "consent" and each.question is not None):
        return f"perdure inbox answer {each.question} {'|'.join(each.choices)}"
    target = shlex.quote(each.target or "")
    match each.topic:
        case "handoff-approval":
            return f"perdure flow approve {flow} {target}   (or with --decline)"
        case "role-configuration":
            return f"perdure flow configure {flow} {each.role or 'ROLE'} --model MODEL"
        case "improvement-choice":
            return f"perdure flow improve {flow} {'|'.join(each.choices)}"
        case "feedback-consent":
            return f"perdure flow feedback {flow} grant|deny"
        case _:
            return f'perdure flow reply {flow} --to {target} "..."'


def wait_data(flow: str, each: FlowWait) -> dict[str, object]:
    """Return the question or decision `each` as JSON data, with the command that answers it."""
    return {**msgspec.to_builtins(each), "answer": answer(flow, each)}


def feed_lines(items: Sequence[FeedItem], style: Style, width: int) -> Iterator[str]:
    """Format a role's feed, one item per line."""
    for item in items:
        mark, meaning = _MARKS[item.type]
        text = spoken(item.text) if item.type == "assistant" else item.text
        if text:
            yield f"{style.paint(f'{mark:<8}', meaning)} {one_line(text, width - 9)}"


def newest_words(items: Sequence[FeedItem]) -> str:
    """Return the newest text of a feed in one line."""
    told = [item for item in items if item.type != "reasoning" and item.text]
    if not told:
        return ""
    words = told[-1].text if told[-1].type != "assistant" else spoken(told[-1].text)
    return words or next((item.text for item in reversed(told[:-1])), "")


def spoken(text: str) -> str:
    """Return `text` without its handoff block."""
    return text.partition("```handoff")[0].strip()


def lost_lines(lost: Mapping[str, str], style: Style) -> Iterator[str]:
    """Return lines that report the roles whose sessions are `lost`, each with the reason."""
    for role, why in lost.items():
        yield ""
        yield style.paint(f"{safe(role)}: {safe(why)}", "warning")
