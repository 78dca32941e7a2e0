"""Convert a session to a workflow. The code is pure: a session always gives the same document.

Each completed turn of the branch becomes an agent node; the nodes form a line from ``input`` to
``output``. The metadata contains the whole transcript. Sessions have no conditions or loops, so the
author adds conditions and loops to the workflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import cast

import msgspec

from perdure.interop.formats.bundles import branch_of, standing_of
from perdure.interop.formats.native import Bundle
from perdure.interop.reports import Dialect, Exported
from perdure.interop.workflow_export.agents import NO_AGENT, ExportedAgent, agent_of, agent_slug
from perdure.interop.workflow_export.slugs import ascii_slug, readable_slug
from perdure.interop.workflow_export.transcript import transcript_of
from perdure.secrets.references import unfilled_in
from perdure.session.clock import timestamp
from perdure.session.codec import readable
from perdure.session.ids import EntryId, StreamId
from perdure.session.notes import AgentBound, SessionStarted, WorkspaceChanged, in_workspace
from perdure.session.tree import BranchTurn, turns_of
from perdure.workflow.document import (
    NAME,
    AgentNode,
    ContextEntry,
    Edge,
    InputNode,
    OutputNode,
    Workflow,
)
from perdure.workflow.templates import context_names, neutralise, without_context
from perdure.workflow.writer import serialize

FORMAT = "workflow"

_KEYS: Mapping[Dialect, str] = {"perdure": "perdureExport", "relavium": "relaviumExport"}
_ENDINGS: Mapping[Dialect, str] = {"perdure": "workflow.yaml", "relavium": "relavium.yaml"}


class SessionWorkflow(msgspec.Struct, frozen=True):
    """The workflow document, and counts of the session's content that the document lacks.

    Shape: `left_out` counts the entries of other branches, `omitted` counts the turns of this
    branch without an answer, and `unknown` counts the unreadable parts of messages. `agent`
    describes settings of the session's agent that the document lacks.
    """

    workflow: Workflow
    left_out: int
    omitted: int
    unknown: int
    agent: ExportedAgent | None = None


def file_name(session: StreamId, dialect: Dialect) -> str:
    """Return the default file name for `session`."""
    return f"{session}.{_ENDINGS[dialect]}"


def render_workflow(bundle: Bundle, leaf: EntryId | None, dialect: Dialect) -> Exported:
    """Return the branch to `leaf` of the session in `bundle` as a file."""
    made = workflow_of(bundle, leaf, dialect)
    content = serialize(made.workflow).encode()
    return Exported(bundle.header.id, FORMAT, content, tuple(_remarks(made)))


def workflow_of(bundle: Bundle, leaf: EntryId | None, dialect: Dialect) -> SessionWorkflow:
    """Return the branch to `leaf` of the session in `bundle` as a workflow."""
    standing = standing_of(bundle)
    branch = branch_of(bundle, leaf)
    transcript = transcript_of(branch, bundle.header.id, standing.undone)
    bound = _last_binding(bundle)
    snapshot = None if bound is None else bound.agent
    agent = None if bound is None or snapshot is None else agent_of(snapshot, dialect)
    context = () if bound is None or dialect == "relavium" else context_of(bound)
    if agent is not None and bound is not None and dialect == "relavium":
        agent = with_resolved_prompt(agent, bound)
    slug = agent_slug(snapshot)
    turns = turns_of(branch)
    completed = [turn for turn in turns if turn.is_completed]
    nodes = (InputNode("input"), *_nodes(completed, slug), OutputNode("output"))
    at = bundle.header.created_at
    facts: dict[str, object] = {
        "source": "session",
        "sessionId": bundle.header.id,
        "agentSlug": slug,
        "createdAt": timestamp(at),
        "updatedAt": timestamp(max([at, *(entry.at for entry in branch)])),
        "messages": list(transcript.messages),
    }
    if standing.title:
        facts["title"] = standing.title
    name_of = ascii_slug if dialect == "relavium" else readable_slug
    workflow = Workflow(
        id=name_of(standing.title or ""),
        name=standing.title,
        agents=() if agent is None else (agent.definition,),
        context=context,
        nodes=nodes,
        edges=tuple(Edge(one.id, other.id) for one, other in pairwise(nodes)),
        metadata={_KEYS[dialect]: facts},
    )
    in_tree = sum(entry.lane == "tree" for entry in bundle.entries)
    return SessionWorkflow(
        workflow, in_tree - len(branch), len(turns) - len(completed), transcript.unknown, agent
    )


def _nodes(turns: list[BranchTurn], agent: str) -> list[AgentNode]:
    return [
        AgentNode(f"turn-{n}", agent, neutralise(turn.asked) or None, turn.tools)
        for n, turn in enumerate(turns, 1)
    ]


def _last_binding(bundle: Bundle) -> SessionStarted | AgentBound | None:
    """Return the last body that gave the session an agent, with the newest workspace.

    Return None if no entry gave the session an agent.
    """
    bound: SessionStarted | AgentBound | None = None
    for entry in bundle.entries:
        if entry.kind not in (SessionStarted.kind, AgentBound.kind, WorkspaceChanged.kind):
            continue
        body = readable(entry)
        if isinstance(body, SessionStarted | AgentBound) and body.agent is not None:
            bound = body
        elif isinstance(body, WorkspaceChanged) and bound is not None:
            bound = in_workspace(bound, body)
    return bound


def _remarks(made: SessionWorkflow) -> list[str]:
    remarks: list[str] = []
    if made.left_out:
        remarks.append(f"entries of other branches that are left out: {made.left_out}")
    if made.omitted:
        remarks.append(f"turns without an answer, in the transcript only: {made.omitted}")
    if made.unknown:
        remarks.append(f"parts of messages that could not be read and are left out: {made.unknown}")
    if made.agent is not None:
        if lost := ", ".join(made.agent.lost):
            remarks.append(f"settings of the agent that this format does not hold: {lost}")
        told = unfilled_in(str(made.agent.definition["system_prompt"]), "the agent's instructions")
        remarks += [] if told is None else [told]
    if not made.workflow.agents:
        remarks.append(f"the session has no agent: put yours in place of {NO_AGENT!r}")
    return remarks


def context_of(bound: SessionStarted | AgentBound) -> tuple[ContextEntry, ...]:
    """Return the variables, and the workspace values that the instructions use, sorted by name.

    A value must not be read as a template, so a space is inserted into each ``{{`` of a value. The
    working directory is left out, because every run has its own working directory.
    """
    workspace = bound.workspace or {}
    variables = _texts(workspace.get("variables"))
    used = context_names(_text((bound.agent or {}).get("instructions")))
    known = {name: _text(workspace.get(name)) for name in ("active_file", "git_ref")}
    known["selection"] = _selection(workspace.get("selection"))
    named = {name: known[name] for name in used if known.get(name)} | variables
    return tuple(
        ContextEntry(name, neutralise(value))
        for name, value in sorted(named.items())
        if NAME.fullmatch(name)
    )


def with_resolved_prompt(agent: ExportedAgent, bound: SessionStarted | AgentBound) -> ExportedAgent:
    """Return `agent` with the instructions that its model received, with all variables filled in.

    Dialects without context variables need instructions with the variables filled in. If a value
    contains a text like ``{{ctx.name}}``, a space is inserted so that a run does not replace the
    text.
    """
    prompt = bound.system_prompt
    if prompt is None:
        return agent
    return msgspec.structs.replace(
        agent, definition={**agent.definition, "system_prompt": without_context(prompt)}
    )


def _selection(selected: object) -> str:
    fields = cast("dict[str, object]", selected) if isinstance(selected, dict) else {}
    file, first, last = (fields.get(name) for name in ("file", "start_line", "end_line"))
    return f"{file}:{first}-{last}" if isinstance(file, str) else ""


def _texts(value: object) -> dict[str, str]:
    fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    return {name: text for name, text in fields.items() if isinstance(text, str)}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
