"""The message that starts a node's work.

The contract of a node (its task and its readings) is included only when the role enters the node
for the first time. Received artifacts and the state of the node's handoffs are included every time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from perdure.engine.flows.rules.ready_nodes import Work
from perdure.session.clock import timestamp
from perdure.session.flows.graph import FlowNode, edge_key, ends_of
from perdure.session.flows.run import FlowState

INTERRUPTED = (
    "Your last turn was interrupted, and part of what it did may have taken effect. Check that "
    "before you do it again, then continue where it stopped."
)
"""The message that continues a node that was running when its flow was imported."""


class Contracts(msgspec.Struct, frozen=True):
    """The texts that perdure gives to the roles of flows, in one version (see ``data/flows``)."""

    handoff: str
    records: str
    workflow: str
    collaboration: str
    meta_analysis: str
    feedback: str


class RequiredText(msgspec.Struct, frozen=True):
    """A file that a role must read. `name` is the ``$NAME`` of the file in the index."""

    name: str
    path: str
    text: str


class Skill(msgspec.Struct, frozen=True):
    """A skill of a role.

    `path` is the path of the skill's file in the project; `text` is the content of this file.
    """

    name: str
    description: str
    path: str
    text: str


def entry_message(
    state: FlowState,
    work: Work,
    *,
    at: int,
    contracts: Contracts,
    artifacts: Mapping[str, str],
    readings: tuple[RequiredText, ...] = (),
) -> str:
    """Return the first message for the role of `work`.

    `artifacts` maps the paths of the delivered files to their contents; `readings` are the readings
    that the node requires. A person's reply is passed on unchanged; if the person declined a
    handoff, a note about the handoff precedes the reply.
    Units: `at` is Unix milliseconds.
    """
    node = work.node
    declined = _declined_lines(state, node)
    if work.text is not None:
        return "\n\n".join([*declined, work.text])
    is_first = node.id not in state.run.visited
    parts = [f"Node `{node.id}` {'started' if is_first else 'resumed'} at {timestamp(at)}."]
    parts += declined
    if is_first:
        parts += contract_parts(node, contracts, readings)
    parts += _input_lines(state, work, artifacts)
    parts += edge_parts(state, node, work.superseded)
    return "\n\n".join(parts)


def contract_parts(
    node: FlowNode, contracts: Contracts, readings: tuple[RequiredText, ...]
) -> Iterator[str]:
    """Yield the task of `node` and its required readings."""
    if node.has_human:
        yield contracts.collaboration.strip()
    if any("workflow" in line.lower() for line in node.work):
        yield contracts.workflow.strip()
    for title, lines in (
        ("Guidance", node.guidance),
        ("Work", node.work),
        ("Inputs", node.inputs),
        ("Outputs", node.outputs),
        ("Notes", node.notes),
    ):
        if lines:
            yield "\n".join([f"## {title}", *(f"- {line}" for line in lines)])
    for reading in readings:
        yield f"## Required reading {reading.name} ({reading.path})\n{reading.text.strip()}"


def _declined_lines(state: FlowState, node: FlowNode) -> list[str]:
    """Return the lines that tell the role that a person declined its handoff."""
    declined = state.declined.get(node.id)
    if declined is None:
        return []
    what = ", ".join(f"{target.artifact} to `{target.node}`" for target in declined.targets)
    why = f": {declined.note}" if declined.note else "."
    return [f"{declined.by} declined your handoff of {what}{why}\nNothing was handed over."]


def _input_lines(state: FlowState, work: Work, artifacts: Mapping[str, str]) -> Iterator[str]:
    for key in work.delivered:
        for path in state.run.receiving_handoff.get(key, ()):
            yield received_part(state, work.node, key, path, artifacts.get(path, ""))
    for key in work.superseded:
        paths = ", ".join(state.run.receiving_handoff.get(key, ()))
        yield (
            f"What you handed over along {key} was not read and is taken back: {paths}. "
            "Hand over a new file in its place."
        )


def received_part(state: FlowState, node: FlowNode, key: str, path: str, text: str) -> str:
    """Return the part of a message that shows an artifact received by `node`.

    The artifact has the path `path` and the content `text`; it came along the edge `key`.
    """
    source, _ = ends_of(key)
    is_forward = state.graph.has_edge(source, node.id)
    who = "predecessor" if is_forward else "successor, which asks for better work"
    return f"## Handed over by `{source}` ({who}): {path}\n{fence(text.rstrip())}"


def edge_parts(state: FlowState, node: FlowNode, superseded: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield texts that list the missing inputs and the open and finished handoffs of `node`.

    `superseded` are the edge keys of the handoffs that `node` withdraws.
    """
    id, graph, completed = node.id, state.graph, state.run.completed
    missing = [s for s in graph.predecessors(id) if edge_key(s, id) not in completed]
    if missing:
        yield (
            f"Still to be handed to you: from {', '.join(f'`{s}`' for s in missing)}. "
            "It will be given to you when it is there; do not look for its files."
        )
    taken_back = {ends_of(key)[1] for key in superseded}
    sent = [t for t in graph.successors(id) if edge_key(id, t) in completed and t not in taken_back]
    owed = [t for t in graph.successors(id) if t not in sent]
    if sent:
        yield f"You have handed over to: {', '.join(f'`{t}`' for t in sent)}."
    if owed:
        yield f"You have still to hand over to: {', '.join(f'`{t}`' for t in owed)}."
    if not graph.successors(id):
        yield "You hand over to nobody: close the work once it is done."


def fence(text: str) -> str:
    """Return `text` in a fence that the text itself cannot close."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"
