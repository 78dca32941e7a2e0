"""Build a selector's message: the role, its task, the choices, and the form of the answer."""

from __future__ import annotations

from perdure.engine.flows.prompts.entry import fence
from perdure.session.flows.graph import FlowNode
from perdure.session.flows.kinds import Offers, SelectorOpened

INSTRUCTIONS = """You choose what a role of a flow works with before it begins. You have no tools \
and do none of the role's work. You are told the role, its task, and what there is to choose from. \
Choose what this task needs and nothing else. Answer with the one line you are asked for: no other \
word, no code fence, no reason."""

LONGEST_ROLE = 4_000
"""Maximum characters of a role's own document that a selector sees; a selector needs no more."""


def selection_message(
    opened: SelectorOpened, flow: str, node: FlowNode | None, document: str | None
) -> str:
    """Return the first message of a selector. `document` describes the role; `node` is its task.

    If `node` is None, the role's task is to review its work.
    """
    parts = [f"Role instance `{opened.role}` of the flow {flow!r} is about to begin."]
    if opened.refused is not None:
        parts.append(f"The answer before was refused: {opened.refused}")
    if document is not None:
        parts.append(f"## The role\n{fence(document[:LONGEST_ROLE])}")
    parts.append(_task(node))
    if opened.offers.models:
        parts.append("\n".join(["## Models", *(f"- {name}" for name in opened.offers.models)]))
    if opened.offers.skills:
        told = (f"- {name}: {what}" for name, what in opened.offers.skills.items())
        parts.append("\n".join(["## Skills", *told]))
    parts.append(f"Answer with this line, filled in:\n{answer_form(opened.offers)}")
    return "\n\n".join(parts)


def answer_form(offers: Offers) -> str:
    """Return the line that a selector has to fill in to choose from `offers`."""
    words = ["model=NAME"] if offers.models else []
    words += ["skills=NAME,NAME (or skills=none)"] if offers.skills else []
    return " ".join(words)


def _task(node: FlowNode | None) -> str:
    if node is None:
        return "## Its task\nIt looks back at the work it did."
    told = [*node.work, *node.guidance]
    lines = [f"- {each}" for each in told] or ["Nothing is said but the node's name."]
    return "\n".join([f"## Its task: node `{node.id}`", *lines])
