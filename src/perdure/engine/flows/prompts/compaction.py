"""Build the texts that tell a role its place in the flow and its task after a compaction.

The model's summary describes the work so far. The texts around the summary repeat what the flow
knows: role, node, record, edges, the contract and inputs of the node, and an unanswered message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from perdure.context.tokens import estimate_tokens
from perdure.engine.flows.prompts.entry import (
    Contracts,
    RequiredText,
    contract_parts,
    edge_parts,
    received_part,
)
from perdure.engine.turns.environment import SummaryFrame, ToCompact
from perdure.session.flows.graph import FlowNode, ends_of
from perdure.session.flows.run import FlowState
from perdure.session.messages import user

MOST_OF_WINDOW = 0.25
"""Share of the context window that contents of inputs may use; other inputs are only named."""


def inputs_of(state: FlowState, node: FlowNode) -> dict[str, str]:
    """Map the key of each edge to the path of the artifact that `node` last received along it."""
    found: dict[str, str] = {}
    for key, paths in state.run.history_handoff.items():
        waiting = state.run.receiving_handoff.get(key, ())
        delivered = [path for path in paths if path not in waiting]
        if ends_of(key)[1] == node.id and delivered:
            found[key] = delivered[-1]
    return found


class NodeTexts(msgspec.Struct, frozen=True):
    """Texts for a node, read from files.

    `inputs` maps each path that `inputs_of` returns to the content of the file.
    """

    contracts: Contracts
    readings: tuple[RequiredText, ...] = ()
    inputs: Mapping[str, str] = {}


def node_frame(
    state: FlowState, role: str, node: FlowNode, texts: NodeTexts, compacted: ToCompact
) -> SummaryFrame:
    """Return the texts before and after the summary of what `role` did at `node`."""
    is_open = _is_open(state, node)
    before: list[str] = []
    if is_open:
        before += contract_parts(node, texts.contracts, texts.readings)
        before += _input_lines(state, node, texts.inputs, compacted.window_tokens)
    kept = compacted.kept or ""
    before = [part for part in before if part not in kept]
    before = [
        _place(state, role, f"You are at node `{node.id}`."),
        *before,
        *edge_parts(state, node),
        f"## Your work at node `{node.id}` until now",
    ]
    after = _after(state, node, compacted, is_open=is_open)
    return SummaryFrame("\n\n".join(before), "\n\n".join(after))


def reflection_frame(
    state: FlowState, role: str, message: str, compacted: ToCompact
) -> SummaryFrame:
    """Return the texts before and after the summary of a review that began with `message`."""
    before = [_place(state, role, "The work is closed, and you look back at it.")]
    if message not in (compacted.kept or ""):
        before.append(message)
    before.append("## Your work until now")
    after = [] if compacted.unanswered in (None, message) else [_unanswered_text(compacted)]
    after.append("Continue where it stopped.")
    return SummaryFrame("\n\n".join(before), "\n\n".join(after))


def _place(state: FlowState, role: str, told: str) -> str:
    run = state.run
    name = f" ({run.record_name})" if run.record_name else ""
    return (
        f"You are `{role}` in the flow `{run.flow_id}`{name}. {told} "
        f"Its record folder is `{run.record_folder_path}`."
    )


def _is_open(state: FlowState, node: FlowNode) -> bool:
    """Whether `node` still has work to do."""
    run = state.run
    busy = (*run.running_nodes, *run.awaiting_human_nodes, *run.awaiting_handoff)
    return node.id in busy or not run.completed.has_all(state.graph.keys_from(node.id))


def _input_lines(
    state: FlowState, node: FlowNode, inputs: Mapping[str, str], window_tokens: int | None
) -> Iterator[str]:
    left = None if window_tokens is None else window_tokens * MOST_OF_WINDOW
    for key, path in inputs_of(state, node).items():
        part = received_part(state, node, key, path, inputs.get(path, ""))
        tokens = estimate_tokens(user(part))
        if left is not None and tokens > left:
            title = part.partition("\n")[0]
            yield f"{title}\nRead the file again: it is too long to be shown here."
            continue
        left = None if left is None else left - tokens
        yield part


def _after(
    state: FlowState, node: FlowNode, compacted: ToCompact, *, is_open: bool
) -> Iterator[str]:
    said = compacted.unanswered
    if said is not None and not said.startswith(f"Node `{node.id}` "):  # which is stated above
        yield _unanswered_text(compacted)
    if compacted.kept is not None:
        yield "The message that follows is not answered yet."
    elif node.id in state.run.running_nodes:
        yield f"Continue the work at node `{node.id}` where it stopped."
    elif is_open:
        yield f"The work at node `{node.id}` continues with the next message."


def _unanswered_text(compacted: ToCompact) -> str:
    return f"## Said to you, and not answered yet\n{compacted.unanswered}"
