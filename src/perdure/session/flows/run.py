"""`FlowRun`: the state of a flow, in A-Society's field names.

``fold`` computes a `FlowRun` from the flow's log; a `FlowRun` is never stored. The JSON of a
`FlowRun` is A-Society's state file, and the output of ``perdure flow show --json``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from typing import Literal

import msgspec

from perdure.bounds.short_repr import ShortRepr, short_repr
from perdure.session.flows.distinct import Distinct, distinct
from perdure.session.flows.graph import FlowNode, Graph, ends_of
from perdure.session.flows.kinds import (
    AwaitingReason,
    Configuring,
    ConsentMode,
    DocumentBound,
    FeedbackKind,
    HandoffTarget,
    ImprovementMode,
    InitializationMode,
    Offers,
    RepairAsked,
    RunSettings,
    SelectorOpened,
)
from perdure.session.ids import StreamId

FlowStatus = Literal[
    "running", "awaiting_improvement_choice", "awaiting_feedback_consent", "completed"
]
ImprovementStatus = Literal[
    "awaiting_choice", "running", "awaiting_feedback_consent", "completed", "skipped"
]
FeedbackConsent = Literal["pending", "granted", "denied"]


class AwaitingHuman(ShortRepr, frozen=True, omit_defaults=True):
    """A role that waits for a person, and the reason for the wait."""

    role: str
    reason: AwaitingReason
    detail: str | None = None


FEEDBACK_ROLE = "a-society-feedback"
"""The role that writes the feedback; it is not part of the workflow."""

IMPROVEMENT_FILE = "improvement.yaml"
"""The file in the record folder that defines the order of the review."""

ITSELF = ""
"""The key of the flow itself in maps whose other keys are nodes and roles."""


class Asked(ShortRepr, frozen=True):
    """The entry that started a wait for a person, and its time (Unix milliseconds)."""

    seq: int
    at: int
    offers: Offers | None = None


class HumanInput(ShortRepr, frozen=True, rename="camel"):
    """A person's reply that no claim has consumed yet.

    `received_at` is a time in ISO 8601, in UTC.
    """

    text: str
    received_at: str


class CommandGrant(ShortRepr, frozen=True, rename="camel"):
    """An exact command that a role is allowed to run without asking a person."""

    command: str
    granted_at: str


class ToolGrant(ShortRepr, frozen=True, rename="camel"):
    """An MCP tool that a role is allowed to call without asking a person."""

    tool_name: str
    granted_at: str


class CommandGrants(msgspec.Struct, frozen=True, rename="camel"):
    """The commands that roles are allowed to run without asking a person.

    Shape: each key is the exact command.
    """

    __repr__ = short_repr

    allowed_commands: dict[str, CommandGrant] = {}


class ToolGrants(msgspec.Struct, frozen=True, rename="camel"):
    """The MCP tools that roles are allowed to call without asking a person.

    Shape: each key is the name of a tool.
    """

    __repr__ = short_repr

    allowed_tools: dict[str, ToolGrant] = {}


class ConsentState(ShortRepr, frozen=True, rename="camel"):
    """The current consent of the roles.

    In the mode ``no-access``, the grants are stored but have no effect.
    """

    mode: ConsentMode = "no-access"
    bash: CommandGrants = CommandGrants()
    mcp: ToolGrants = ToolGrants()


class FeedbackContext(ShortRepr, frozen=True, omit_defaults=True, rename="camel"):
    """The kind of feedback that is requested at the flow's end, and the details of this kind."""

    kind: FeedbackKind
    initialization_mode: InitializationMode | None = None
    update_from_version: str | None = None
    update_to_version: str | None = None


class ImprovementPhase(msgspec.Struct, frozen=True, rename="camel"):
    """The progress of a flow's review.

    Shape: all roles are role instances; the role that gives the feedback is never among them. Paths
    are relative to the workspace, or absolute if they are outside of the workspace.
    `improvement_workflow_path` is None until the workflow file of the review exists.
    """

    __repr__ = short_repr

    status: ImprovementStatus
    completed_roles: tuple[str, ...] = ()
    running_roles: tuple[str, ...] = ()
    awaiting_human_roles: dict[str, AwaitingHuman] = {}
    pending_human_inputs: dict[str, HumanInput] = {}
    findings_produced: dict[str, str] = {}
    mode: ImprovementMode | None = None
    improvement_workflow_path: str | None = None
    feedback_artifact_path: str | None = None
    feedback_consent: FeedbackConsent | None = None
    single_role: bool = False


class FlowRun(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, dict=True):
    """State of a flow.

    Invariants: no two of `running_nodes` belong to one role instance; a node is in at most one of
    `running_nodes`, `awaiting_human_nodes` and `awaiting_handoff`. Keys of handoffs are
    ``from=>to`` in the direction of the handoff; paths of artifacts are relative to the record
    folder. `history_handoff` only grows.
    """

    __repr__ = short_repr

    flow_id: StreamId
    state_version: str
    project_namespace: str
    workspace_root: str
    record_folder_path: str
    status: FlowStatus
    running_nodes: tuple[str, ...]
    awaiting_human_nodes: dict[str, AwaitingHuman]
    pending_human_inputs: dict[str, HumanInput]
    visited_node_ids: tuple[str, ...]
    completed_handoffs: tuple[str, ...]
    receiving_handoff: dict[str, tuple[str, ...]]
    history_handoff: dict[str, tuple[str, ...]]
    awaiting_handoff: tuple[str, ...]
    consent_state: ConsentState
    feedback_context: FeedbackContext
    record_name: str | None = None
    record_summary: str | None = None
    pending_handoff_approvals: dict[str, tuple[HandoffTarget, ...]] = {}
    improvement_phase: ImprovementPhase | None = None

    def in_workspace(self, path: str) -> str:
        """Convert `path` in the record folder to a path relative to the workspace."""
        place = f"{self.record_folder_path.rstrip('/')}/{path}"
        return place.removeprefix(f"{self.workspace_root.rstrip('/')}/")

    @property
    def visited(self) -> Distinct:
        """Return `visited_node_ids` with constant-time lookup."""
        return distinct(self.visited_node_ids)

    @property
    def completed(self) -> Distinct:
        """Return `completed_handoffs` with constant-time lookup."""
        return distinct(self.completed_handoffs)

    @cached_property
    def received(self) -> Mapping[str, tuple[str, ...]]:
        """Return a map from a node to the keys of `receiving_handoff` whose target is this node.

        The keys of each node are in the order of `receiving_handoff`.
        """
        found: defaultdict[str, list[str]] = defaultdict(list)
        for key in self.receiving_handoff:
            found[ends_of(key)[1]].append(key)
        return {node: tuple(keys) for node, keys in found.items()}


class RoleConfiguration(ShortRepr, frozen=True, omit_defaults=True):
    """The model, skills and tools of a role instance; None keeps the setting of its agent."""

    model: str | None = None
    skills: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    is_automatic: bool = False


class Declined(ShortRepr, frozen=True):
    """A handoff that the person `by` declined, and the reason if one was given."""

    targets: tuple[HandoffTarget, ...]
    by: str
    note: str | None = None


class FlowState(msgspec.Struct, frozen=True, dict=True):
    """A `FlowRun`, and the additional state on which decisions depend.

    `start` are those first nodes of the flow that no claim has started yet. `sessions` maps a role
    instance to the stream of its session. `repairs` maps a node to its newest repair request. A
    repair request is removed when a turn of the node ends without a new repair request, or when the
    node is claimed with a person's reply. During the review, the keys of `repairs` are roles
    instead of nodes. `digests` maps each `edge_key` to the hashes of the artifacts sent along that
    edge. `improvement` is the order in which the roles review the flow. `stopping` are the nodes
    and roles whose turn a person wants to stop. `document` is set if the flow runs a workflow
    document.
    """

    __repr__ = short_repr

    run: FlowRun
    graph: Graph
    start: tuple[str, ...]
    head: int
    sessions: dict[str, StreamId] = {}
    roles: dict[str, RoleConfiguration] = {}
    repairs: dict[str, RepairAsked] = {}
    digests: dict[str, tuple[str, ...]] = {}
    improvement: Graph | None = None
    stopping: tuple[str, ...] = ()
    at_node: dict[str, str] = {}
    """Role instance -> the node for which the role instance was last claimed."""
    document: DocumentBound | None = None
    asked: dict[str, Asked] = {}
    """Node, role or `ITSELF` -> the start of its newest wait for a person, which may be over."""
    configuring: Configuring = "given"
    skills_configuring: Configuring | None = None
    """How the skills are configured, if that differs from `configuring`; otherwise None."""
    selecting: dict[str, SelectorOpened] = {}
    """Role instance -> the selector that currently chooses its configuration."""
    selectors: dict[str, tuple[StreamId, ...]] = {}
    """Role instance -> the sessions of all its selectors, oldest first."""
    consent_in_force: ConsentState | None = None
    """The consent in force in a received flow; None if the recorded consent is in force."""
    is_place_in_force: bool = True
    """True if this user confirmed the flow's folder, or started the flow in that folder."""
    chosen_in_part: dict[str, RoleConfiguration] = {}
    """Role instance -> a selector's partial choice; a person must choose the missing settings."""
    imported_record: dict[str, str] = {}
    """Path in the record folder -> blob hash of the file; for imported flows."""
    former_record: str = ""
    """The path that an imported flow's record folder had at the export, relative to the workspace.
    """
    declined: dict[str, Declined] = {}
    """Node -> its declined handoff, until a new claim informs the node."""
    is_feedback_written: bool = False
    settings: RunSettings | None = None
    """The settings of the flow's last run, from the newest entry that the user wrote or trusts."""
    owing_ids: frozenset[str] = frozenset()
    """The nodes that worked and still owe a handoff along an edge."""

    @property
    def owing(self) -> tuple[FlowNode, ...]:
        """Return the nodes of `owing_ids`, in the order of the graph."""
        return tuple(self.graph.in_order(self.owing_ids))

    def in_record(self, path: str) -> str:
        """Return an artifact's `path` relative to the record folder.

        A-Society writes paths relative to the workspace, so in a flow that A-Society exported, a
        `path` begins with the former record folder.
        """
        return path.removeprefix(f"{self.former_record}/") if self.former_record else path

    @property
    def consent(self) -> ConsentState:
        """Return the current consent of the roles."""
        return self.run.consent_state if self.consent_in_force is None else self.consent_in_force

    @property
    def is_foreign(self) -> bool:
        """Return True for a received flow; its recorded consent, folder and turns are not used."""
        return self.consent_in_force is not None
