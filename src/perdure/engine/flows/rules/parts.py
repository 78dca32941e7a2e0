"""The two purposes of a turn in a flow: the work of a node, and a role's review of the flow.

The work of a node and the review of a role are both claimed in the first commit of the turn and
finished in its last commit, with different kinds of entries. `NodePart` and `ReflectionPart` have
the same methods; `NodePart` documents them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from perdure.engine.flows.rules.handoffs import Artifact
from perdure.engine.flows.rules.improvement import (
    FEEDBACK_ROLE,
    RoleWork,
    roles_to_look_back,
    writes_last,
)
from perdure.engine.flows.rules.node_end import Ended, artifacts_named, node_finished
from perdure.engine.flows.rules.ready_nodes import Work, runnable
from perdure.engine.flows.rules.reflection import assigned_path, role_finished
from perdure.session.flows.kinds import ImprovementClaimed, NodeClaimed, RepairAsked
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId
from perdure.session.notes import SideBody

Folder = Literal["record", "workspace"]


class NodePart(msgspec.Struct, frozen=True):
    """Decides what the turns of a node do in the flow.

    `work` is the work that the turn begins; None if the node already runs.

    `told` are the artifacts in the node's entry message; None if the node had no message yet.
    `is_resumed` is True if the turn continues a node that was running when its flow was imported.
    """

    role: str
    node: str
    session: StreamId
    work: Work | None = None
    told: tuple[str, ...] | None = None
    is_resumed: bool = False

    @property
    def folder(self) -> Folder:
        """The record folder, which contains the artifacts."""
        return "record"

    def is_running(self, state: FlowState) -> bool:
        """Return whether the log contains the beginning of the node's work, but not its end."""
        return self.node in state.run.running_nodes

    def claim(self, state: FlowState) -> SideBody | None:
        """Return the entry that begins the work; None if the flow would choose other work now."""
        if self.is_resumed:
            resumed = NodeClaimed(self.node, self.role, self.session, "resume")
            return resumed if self.is_running(state) else None
        work = self.work
        if work is None or work not in runnable(state):
            return None
        if self.told is not None and self.told != work.paths(state):
            return None  # another handoff arrived meanwhile on the same edge
        return NodeClaimed(
            work.node.id,
            work.node.role,
            self.session,
            work.cause,
            work.delivered,
            work.superseded,
            work.text,
        )

    def names(self, state: FlowState, ended: Ended) -> tuple[str, ...]:
        """Return the artifact paths in the answer's signal; `outcome` needs these artifacts."""
        return artifacts_named(ended.text)

    def is_closing(self, state: FlowState) -> bool:
        """Return whether the node closes the work, for which the project's own checks must pass.

        Only a node without successors closes the work.
        """
        return not state.graph.successors(self.node)

    def outcome(
        self,
        state: FlowState,
        ended: Ended,
        artifacts: Mapping[str, Artifact],
        unhealthy: tuple[str, ...],
    ) -> SideBody:
        """Return the effect of the turn's end on the flow. See `node_finished`."""
        return node_finished(state, self.node, ended, artifacts, unhealthy)

    def repair(self, state: FlowState) -> RepairAsked | None:
        """Return the repair request that begins the running node's next turn, if there is one."""
        return state.repairs.get(self.node) if self.is_running(state) else None


class ReflectionPart(msgspec.Struct, frozen=True):
    """Decides what the turns of a reviewing role do in the flow.

    `work` and `is_resumed` have the same meaning as in `NodePart`.
    """

    role: str
    session: StreamId
    work: RoleWork | None = None
    is_resumed: bool = False

    @property
    def folder(self) -> Folder:
        """The folder of the role's file: record folder for findings, workspace for feedback."""
        return "workspace" if self.role == FEEDBACK_ROLE else "record"

    def is_running(self, state: FlowState) -> bool:
        """Whether the role reviews the flow."""
        phase = state.run.improvement_phase
        return phase is not None and self.role in phase.running_roles

    def claim(self, state: FlowState) -> SideBody | None:
        """Return the entry that begins the review; None if the role can no longer begin it."""
        if self.is_resumed:
            resumed = ImprovementClaimed(self.role, self.session)
            return resumed if self.is_running(state) else None
        work = self.work
        if work is None or work not in roles_to_look_back(state):
            return None
        return ImprovementClaimed(self.role, self.session, work.text)

    def names(self, state: FlowState, ended: Ended) -> tuple[str, ...]:
        """Return the only path that the role must write to."""
        return (assigned_path(state, self.role),)

    def is_closing(self, state: FlowState) -> bool:
        """Return whether the project's own checks run after the review.

        The checks run only after the owner's review, because the owner can have changed the
        project's files.
        """
        return writes_last(self.role)

    def outcome(
        self,
        state: FlowState,
        ended: Ended,
        artifacts: Mapping[str, Artifact],
        unhealthy: tuple[str, ...],
    ) -> SideBody:
        """Return the effect of the turn's end on the flow. See `role_finished`."""
        return role_finished(state, self.role, ended, artifacts, unhealthy)

    def repair(self, state: FlowState) -> RepairAsked | None:
        """Return the repair request that begins the running role's next turn, if there is one."""
        return state.repairs.get(self.role) if self.is_running(state) else None


TurnPart = NodePart | ReflectionPart
"""What a turn does in its flow: the work of a node, or the review of a role."""


def running_parts(state: FlowState) -> tuple[TurnPart, ...]:
    """Return the nodes and the reviewing roles that run, according to the log.

    Shape: the session of a part is "" if its role has no session yet.
    """
    phase, sessions, none = state.run.improvement_phase, state.sessions, StreamId("")
    named = [(state.graph.role_of(node), node) for node in state.run.running_nodes]
    reviewing = () if phase is None else phase.running_roles
    return (
        *(NodePart(role, node, sessions.get(role, none)) for role, node in named),
        *(ReflectionPart(role, sessions.get(role, none)) for role in reviewing),
    )


def ready_work(state: FlowState) -> tuple[Work | RoleWork, ...]:
    """Return the work of nodes and the reviews of roles that can begin now, by priority."""
    return (*runnable(state), *roles_to_look_back(state))
