"""The result of a handoff: it is made, staged for a person's approval, or returned for repair.

All checks run before anything is changed. The caller reads the artifacts from disk; the state
determines everything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from perdure.engine.flows.rules.signals import Fault
from perdure.engine.flows.rules.structure import edge_faults
from perdure.session.flows.edge_history import newest_edge_with
from perdure.session.flows.graph import edge_key, ends_of
from perdure.session.flows.kinds import HandoffMade, HandoffStaged, HandoffTarget
from perdure.session.flows.run import FlowState


class Artifact(msgspec.Struct, frozen=True):
    """A file that is handed over.

    `path` is the canonical path of the file, relative to the record folder. `digest` is the hash of
    the file's content. `problem` is the reason why the file cannot be handed over.
    """

    path: str
    digest: str | None = None
    problem: str | None = None


def decide_handoff(
    state: FlowState,
    node: str,
    targets: Sequence[HandoffTarget],
    artifacts: Mapping[str, Artifact],
) -> HandoffMade | HandoffStaged | Fault:
    """Return the outcome of a handoff from `node` to `targets`.

    `artifacts` describes the file at each path that a target names. If the node has a human
    (`has_human`), a person has to approve its forward handoffs.
    """
    fault = (
        _target_fault(state, node, targets)
        or _unavailable(targets, artifacts)
        or _repetition_fault(targets)
        or _reuse_fault(state, node, targets, artifacts)
        or _sent_back_too_early(state, node, targets)
    )
    if fault is not None:
        return fault
    placed = tuple(
        HandoffTarget(t.node, artifacts[t.artifact].path, artifacts[t.artifact].digest)
        for t in targets
    )
    known = state.graph.node(node)
    is_forward = any(state.graph.has_edge(node, target.node) for target in targets)
    warnings = _look_alikes(state, placed)
    if known is not None and known.has_human and is_forward:
        return HandoffStaged(node, known.role, placed, warnings)
    return HandoffMade(node, placed, warnings=warnings)


def restage(state: FlowState, node: str, artifacts: Mapping[str, Artifact]) -> HandoffStaged | None:
    """Return the staged handoff of `node` with the current files; None if they did not change.

    `artifacts` describes the current file at each path. If a file cannot be read, the handoff keeps
    the file's staged content, which is in the store.
    """
    known = state.graph.node(node)
    staged = state.run.pending_handoff_approvals.get(node, ())
    now = tuple(
        msgspec.structs.replace(target, digest=artifacts[target.artifact].digest)
        if target.digest is not None and artifacts[target.artifact].problem is None
        else target
        for target in staged
    )
    return None if known is None or now == staged else HandoffStaged(node, known.role, now)


def approved_contents(state: FlowState, key: str) -> dict[str, str]:
    """Map the paths of a handoff along the edge `key` to the approved content hashes.

    The result is empty if no approval is needed.
    """
    source, target = ends_of(key)
    node = state.graph.node(source)
    if node is None or not node.has_human or not state.graph.has_edge(source, target):
        return {}
    paths = state.run.receiving_handoff.get(key, ())
    digests = state.digests.get(key, ())[-len(paths) :] if paths else ()
    return dict(zip(paths, digests, strict=True)) if len(paths) == len(digests) else {}


def _target_fault(state: FlowState, node: str, targets: Sequence[HandoffTarget]) -> Fault | None:
    for target in targets:
        if state.graph.node(target.node) is None:
            known = ", ".join(each.id for each in state.graph.nodes)
            return _invalid(f"there is no node {target.node!r}; the workflow has: {known}")
        problem = edge_faults(state.graph, node, target.node)
        if problem is not None:
            return _invalid(problem)
    return None


def _unavailable(
    targets: Sequence[HandoffTarget], artifacts: Mapping[str, Artifact]
) -> Fault | None:
    for target in targets:
        problem = artifacts[target.artifact].problem
        if problem is not None:
            return Fault(
                "artifact_unavailable",
                f"the artifact {target.artifact!r} cannot be handed over: {problem}",
                f"The artifact `{target.artifact}` cannot be handed over: {problem}. Write the "
                "file into the record folder first, then hand over its path.",
            )
    return None


def _repetition_fault(targets: Sequence[HandoffTarget]) -> Fault | None:
    nodes = [target.node for target in targets]
    for node in nodes:
        if nodes.count(node) > 1:
            return _invalid(f"node {node!r} is named twice; give each target once")
    return None


def _reuse_fault(
    state: FlowState,
    node: str,
    targets: Sequence[HandoffTarget],
    artifacts: Mapping[str, Artifact],
) -> Fault | None:
    sent = state.run.history_handoff
    former = f"{state.former_record}/" if state.former_record else ""
    for target in targets:
        artifact = artifacts[target.artifact]
        names = {artifact.path, f"{former}{artifact.path}"}
        if any(newest_edge_with(sent, name) for name in names):
            return _invalid(
                f"the artifact {artifact.path!r} was handed over before; write a new file"
            )
        key = edge_key(node, target.node)
        if artifact.digest is not None and artifact.digest in state.digests.get(key, ()):
            return _invalid(
                f"the artifact {artifact.path!r} says the same as one that went along {key} "
                "before; hand over what has changed"
            )
    return None


def _sent_back_too_early(
    state: FlowState, node: str, targets: Sequence[HandoffTarget]
) -> Fault | None:
    for target in targets:
        forward = edge_key(target.node, node)
        is_back = not state.graph.has_edge(node, target.node)
        if is_back and forward not in state.run.completed:
            return _invalid(
                f"{target.node} has handed nothing over to {node} that could be sent back"
            )
    return None


def _look_alikes(state: FlowState, targets: Sequence[HandoffTarget]) -> tuple[str, ...]:
    return tuple(
        f"{target.artifact} says the same as what went along {key}"
        for target in targets
        if target.digest is not None
        and (key := newest_edge_with(state.digests, target.digest)) is not None
    )


def _invalid(why: str) -> Fault:
    return Fault(
        "invalid_transition",
        f"the handoff is not possible: {why}",
        f"Your handoff was not made: {why}. Correct it and end with a new handoff block.",
    )
