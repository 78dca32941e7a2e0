"""`FlowRun`: where a flow stands, in the field names its people know.

A value that ``fold`` makes of the flow's log; it is never stored. Its JSON is A-Society's state
file, and what ``perdure flow show --json`` prints.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from typing import Literal

import msgspec

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


class AwaitingHuman(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who waits for a person, and why."""

    role: str
    reason: AwaitingReason
    detail: str | None = None


FEEDBACK_ROLE = "a-society-feedback"
"""The role that writes the feedback; it is none of the workflow's."""

IMPROVEMENT_FILE = "improvement.yaml"
"""The file of the record folder with the order in which roles look back."""

ITSELF = ""
"""Stands for the flow among what waits, where nodes and roles have their names."""


class Asked(msgspec.Struct, frozen=True):
    """The entry that began a wait for a person, and when. Units: `at` is Unix milliseconds."""

    seq: int
    at: int
    offers: Offers | None = None


class HumanInput(msgspec.Struct, frozen=True, rename="camel"):
    """A reply that nobody has taken yet. `received_at` is ISO 8601 in UTC."""

    text: str
    received_at: str


class CommandGrant(msgspec.Struct, frozen=True, rename="camel"):
    """A command that may be run without asking, to the letter."""

    command: str
    granted_at: str


class ToolGrant(msgspec.Struct, frozen=True, rename="camel"):
    """An MCP tool that may be called without asking."""

    tool_name: str
    granted_at: str


class CommandGrants(msgspec.Struct, frozen=True, rename="camel"):
    """Shape: by exact command."""

    allowed_commands: dict[str, CommandGrant] = {}


class ToolGrants(msgspec.Struct, frozen=True, rename="camel"):
    """Shape: by name."""

    allowed_tools: dict[str, ToolGrant] = {}


class ConsentState(msgspec.Struct, frozen=True, rename="camel"):
    """What roles may do without asking. In ``no-access`` the grants are kept and do not count."""

    mode: ConsentMode = "no-access"
    bash: CommandGrants = CommandGrants()
    mcp: ToolGrants = ToolGrants()


class FeedbackContext(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What kind of flow it is, for the feedback at its end."""

    kind: FeedbackKind
    initialization_mode: InitializationMode | None = None
    update_from_version: str | None = None
    update_to_version: str | None = None


class ImprovementPhase(msgspec.Struct, frozen=True, rename="camel"):
    """How far the looking back has come.

    Shape: roles are role instances, that of the feedback left out; paths are relative to the
    workspace, absolute where a file is not in it. `improvement_workflow_path` is None before that
    file is there.
    """

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
    """Where a flow stands.

    Invariants: of `running_nodes` no two are of one role instance; a node is in at most one of
    `running_nodes`, `awaiting_human_nodes` and `awaiting_handoff`. Keys of handoffs are
    ``from=>to`` in the direction something went; paths of artifacts are relative to the record
    folder. `history_handoff` only grows.
    """

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
        """`path`, which is inside of the record folder, relative to the workspace."""
        place = f"{self.record_folder_path.rstrip('/')}/{path}"
        return place.removeprefix(f"{self.workspace_root.rstrip('/')}/")

    @cached_property
    def visited(self) -> frozenset[str]:
        """`visited_node_ids`, to look one up."""
        return frozenset(self.visited_node_ids)

    @cached_property
    def completed(self) -> frozenset[str]:
        """`completed_handoffs`, to look one up."""
        return frozenset(self.completed_handoffs)

    @cached_property
    def received(self) -> Mapping[str, tuple[str, ...]]:
        """The keys of `receiving_handoff` by the node for which it lies there, in their order."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for key in self.receiving_handoff:
            found[ends_of(key)[1]].append(key)
        return {node: tuple(keys) for node, keys in found.items()}


class RoleConfiguration(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a role instance works with."""

    model: str | None = None
    skills: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    is_automatic: bool = False


class Declined(msgspec.Struct, frozen=True):
    """A handoff that the person `by` declined, and why where that was noted."""

    targets: tuple[HandoffTarget, ...]
    by: str
    note: str | None = None


class FlowState(msgspec.Struct, frozen=True, dict=True):
    """A `FlowRun` with what deciding needs beside it.

    `start` are the nodes not yet claimed for the first time. `sessions` is role instance to the
    stream of its session. `repairs` is the newest repair that was asked for, by node (in the
    improvement: by role), until a turn of it ends in another way. `digests` are the hashes of what
    went along an edge, by `edge_key`. `improvement` is the order of the looking back. `stopping`
    are the nodes and roles whose turn a person wants to end. `document` is there where the flow
    runs a workflow document.
    """

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
    """Role instance -> the node it was last claimed for."""
    document: DocumentBound | None = None
    asked: dict[str, Asked] = {}
    """Node, role or `ITSELF` -> the newest wait of it, which may be over."""
    configuring: Configuring = "given"
    skills_configuring: Configuring | None = None
    """As `configuring`, of skills, where that differs."""
    selecting: dict[str, SelectorOpened] = {}
    """Role instance -> the selector that is to choose for it now."""
    selectors: dict[str, tuple[StreamId, ...]] = {}
    """Role instance -> the sessions of all its selectors, the oldest first."""
    consent_in_force: ConsentState | None = None
    """What roles may do unasked, where that is not what is recorded: in a received flow."""
    is_place_in_force: bool = True
    """Whether this user has said where the flow works, or began it there."""
    chosen_in_part: dict[str, RoleConfiguration] = {}
    """Role instance -> what a selector chose, of which a person has yet to choose the rest."""
    imported_record: dict[str, str] = {}
    """Path in the record folder -> blob hash of the file, of an imported flow."""
    former_record: str = ""
    """The record folder of an imported flow where it was exported, relative to its workspace."""
    declined: dict[str, Declined] = {}
    """Node -> its handoff that was declined, until the node is claimed again and told."""
    is_feedback_written: bool = False
    settings: RunSettings | None = None
    """What the flow was last run with, where that is in force."""

    @cached_property
    def owing(self) -> tuple[FlowNode, ...]:
        """The nodes that worked and have not handed over along every edge, in their order."""
        graph, completed = self.graph, self.run.completed
        return tuple(
            node
            for node in graph.in_order(self.run.visited)
            if not graph.keys_from(node.id) <= completed
        )

    def in_record(self, path: str) -> str:
        """Return an artifact's `path` relative to the record folder.

        A-Society writes paths relative to the workspace; those of its export name the former one.
        """
        return path.removeprefix(f"{self.former_record}/") if self.former_record else path

    @property
    def consent(self) -> ConsentState:
        """What roles may do unasked."""
        return self.run.consent_state if self.consent_in_force is None else self.consent_in_force

    @property
    def is_foreign(self) -> bool:
        """Whether it was received: its recorded consent, folder and open turns are not in force."""
        return self.consent_in_force is not None
