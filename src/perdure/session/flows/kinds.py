"""Bodies of the entries of a flow's log: one kind for each event of a flow.

A flow's stream has no conversation, so all its entries are in the side lane. The entries record
decisions; ``fold`` computes the flow's state from them, and ``engine.flows`` makes the decisions.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from perdure.bounds.short_repr import ShortRepr, short_repr
from perdure.session.flows.graph import Graph
from perdure.session.ids import StreamId
from perdure.session.ledger import InterruptPolicy
from perdure.session.notes import SideBody

AwaitingReason = Literal[
    "prompt-human",
    "autonomous-abort",
    "consent",
    "consent-denied",
    "role-configuration",
    "handoff-approval",
]
ClaimCause = Literal["start", "reply", "handoff", "owed", "configuration", "resume"]
Configuring = Literal["given", "ask", "auto"]
ConsentMode = Literal["no-access", "partial-access", "full-access"]
Dimension = Literal["model", "skills"]
FeedbackKind = Literal["standard", "initialization", "update"]
GrantedTool = Literal["bash", "mcp"]
ImprovementMode = Literal["graph-based", "parallel", "none"]
InitializationMode = Literal["takeover", "greenfield"]
RepairCode = Literal[
    "missing_block",
    "yaml_parse",
    "invalid_target_shape",
    "missing_required_field",
    "artifact_unavailable",
    "invalid_transition",
    "unknown_signal_type",
    "workflow_parse",
    "runtime_health",
    "output_limit",
]

STATE_VERSION = "11"
"""State version written in exports for A-Society."""


class HandoffTarget(ShortRepr, frozen=True, omit_defaults=True):
    """A node that receives `artifact`, a path inside the record folder.

    `digest` is the hash of the artifact as handed over; the store has the artifact as a blob.
    """

    node: str
    artifact: str
    digest: str | None = None


class Offers(msgspec.Struct, frozen=True, omit_defaults=True):
    """The possible configurations of a role. Shape: `skills` maps a skill's name to its purpose."""

    __repr__ = short_repr

    models: tuple[str, ...] = ()
    skills: dict[str, str] = {}


class FlowStarted(SideBody, frozen=True, omit_defaults=True):
    """A flow starts. `start` are the nodes that are started first; all paths are absolute.

    `configuring` states how a role's configuration is chosen. ``given`` takes the configuration
    from the role's agent and files, ``ask`` asks a person before the role starts, and ``auto`` lets
    a selector choose. `skills_configuring` states how the role's skills are chosen, if that differs
    from `configuring`. `feedback`, `initialization_mode` and the two version fields become the
    flow's `FeedbackContext`.
    """

    kind: ClassVar[str] = "flow_started"
    event: ClassVar[str] = "flow:started"

    project: str
    workspace_root: str
    record_folder: str
    graph: Graph
    start: tuple[str, ...]
    consent: ConsentMode = "no-access"
    feedback: FeedbackKind = "standard"
    initialization_mode: InitializationMode | None = None
    update_from_version: str | None = None
    update_to_version: str | None = None
    configuring: Configuring = "given"
    skills_configuring: Configuring | None = None


class RunSettings(SideBody, frozen=True, omit_defaults=True):
    """The settings with which a program runs the flow, to be reused at the next run.

    `scenario` is an absolute path. If `commands` is empty, any command can be allowed for roles.
    The newest settings that this user wrote or trusts replace all others.
    """

    kind: ClassVar[str] = "flow_settings"
    event: ClassVar[str] = "flow:settings_changed"

    model: str | None = None
    scenario: str | None = None
    commands: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()


class WorkspaceBound(SideBody, frozen=True):
    """The flow continues in the folder where its files are now."""

    kind: ClassVar[str] = "flow_workspace"
    event: ClassVar[str] = "flow:workspace_bound"

    workspace_root: str
    record_folder: str


class WorkflowChanged(SideBody, frozen=True):
    """The new graph, as the workflow files of the record and the project define it."""

    kind: ClassVar[str] = "flow_workflow"
    event: ClassVar[str] = "flow:workflow_changed"

    graph: Graph


class NodeClaimed(SideBody, frozen=True, omit_defaults=True):
    """A node starts, or resumes, work in the session of its role.

    `delivered` are keys of edges: the message to the node contains the artifacts sent along these
    edges. `superseded` are the keys of the node's own forward handoffs that the claim withdraws.
    `text` is the person's reply that this claim consumes.
    """

    kind: ClassVar[str] = "node_claimed"
    event: ClassVar[str] = "flow:role_active"

    node: str
    role: str
    session: StreamId
    cause: ClaimCause
    delivered: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    text: str | None = None


class NodeParked(SideBody, frozen=True, omit_defaults=True):
    """A node waits for a person. `detail` is the reason, in a sentence.

    If the node waits for a configuration, `offers` are the possible configurations. `keeps_reply`
    means that the node could not start, so a person's queued reply stays queued.
    """

    kind: ClassVar[str] = "node_parked"
    event: ClassVar[str] = "flow:awaiting_human"

    node: str
    role: str
    reason: AwaitingReason
    detail: str | None = None
    offers: Offers | None = None
    keeps_reply: bool = False


class NodeContinued(SideBody, frozen=True):
    """A consent arrived during a node's turn: the node continues without a new delivery."""

    kind: ClassVar[str] = "node_continued"
    event: ClassVar[str] = "flow:role_continued"

    node: str


class HumanReplied(SideBody, frozen=True):
    """A person's reply to a node or to a reviewing role; the next claim consumes the reply."""

    kind: ClassVar[str] = "human_replied"
    event: ClassVar[str] = "flow:human_replied"

    target: str
    text: str
    by: str


class StopAsked(SideBody, frozen=True):
    """A person wants to stop the turn of a node or role; the process that runs the turn ends it."""

    kind: ClassVar[str] = "stop_asked"
    event: ClassVar[str] = "flow:stop_requested"

    target: str
    by: str


class HandoffMade(SideBody, frozen=True, omit_defaults=True):
    """A node hands its work over, to later or earlier nodes, and stops running.

    `approved_by` names the person who approved the handoff; `warnings` are for people to read.
    """

    kind: ClassVar[str] = "handoff_made"
    event: ClassVar[str] = "flow:handoff_applied"

    node: str
    targets: tuple[HandoffTarget, ...]
    approved_by: str | None = None
    warnings: tuple[str, ...] = ()


class HandoffAwaited(SideBody, frozen=True):
    """A node pauses until it receives a handoff."""

    kind: ClassVar[str] = "handoff_awaited"
    event: ClassVar[str] = "flow:handoff_awaited"

    node: str


class HandoffStaged(SideBody, frozen=True):
    """A handoff that a person has to approve."""

    kind: ClassVar[str] = "handoff_staged"
    event: ClassVar[str] = "flow:handoff_staged"

    node: str
    role: str
    targets: tuple[HandoffTarget, ...]
    warnings: tuple[str, ...] = ()


class HandoffDeclined(SideBody, frozen=True, omit_defaults=True):
    """The staged handoff of a node is dropped; the node waits for the person's reply."""

    kind: ClassVar[str] = "handoff_declined"
    event: ClassVar[str] = "flow:handoff_declined"

    node: str
    role: str
    by: str
    note: str | None = None


class RepairAsked(SideBody, frozen=True, omit_defaults=True):
    """A message tells an agent what was wrong when its turn ended; `attempt` counts from 1.

    `node` is the id of the node; in the review, `node` is the role. The next turn starts with
    `message`.
    """

    kind: ClassVar[str] = "repair_asked"
    event: ClassVar[str] = "flow:repair_requested"

    node: str
    role: str
    code: RepairCode
    summary: str
    message: str
    attempt: int


class ConsentChanged(SideBody, frozen=True, omit_defaults=True):
    """The flow's consent changed. `command` is an exact command, or the name of an MCP tool.

    Shape: the entry has `mode`, or `tool` together with `command`, or all three.
    """

    kind: ClassVar[str] = "flow_consent"
    event: ClassVar[str] = "flow:consent_changed"

    by: str
    mode: ConsentMode | None = None
    tool: GrantedTool | None = None
    command: str | None = None
    is_revoked: bool = False


class RoleConfigured(SideBody, frozen=True, omit_defaults=True):
    """The configuration of a role instance; a field that is None keeps the flow agent's setting.

    `by` is the person who chose the configuration; `selector` is the session in which a model chose
    it. `is_partial` means that a person must still choose the missing settings.
    """

    kind: ClassVar[str] = "role_configured"
    event: ClassVar[str] = "flow:role_configured"

    role: str
    model: str | None = None
    skills: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    is_automatic: bool = False
    by: str | None = None
    selector: StreamId | None = None
    is_partial: bool = False


class SelectorOpened(SideBody, frozen=True, omit_defaults=True):
    """A model selects a role instance's configuration from `offers`, in its own session.

    `attempt` counts from 1. `refused` is the reason why the previous attempt failed.
    """

    kind: ClassVar[str] = "selector_opened"
    event: ClassVar[str] = "flow:selector_opened"

    role: str
    session: StreamId
    attempt: int
    offers: Offers
    refused: str | None = None


class ForwardPassClosed(SideBody, frozen=True):
    """The owner's last node reports that the work is done."""

    kind: ClassVar[str] = "forward_pass_closed"
    event: ClassVar[str] = "flow:forward_pass_closed"

    node: str


class ImprovementChosen(SideBody, frozen=True, omit_defaults=True):
    """How the roles review the flow. `graph` is the order of the roles; None without a review."""

    kind: ClassVar[str] = "improvement_chosen"
    event: ClassVar[str] = "flow:improvement_chosen"

    mode: ImprovementMode
    by: str
    workflow_path: str | None = None
    graph: Graph | None = None


class ImprovementClaimed(SideBody, frozen=True, omit_defaults=True):
    """A role reviews the flow, in the role's own session.

    `text` is the person's reply that this claim consumes.
    """

    kind: ClassVar[str] = "improvement_claimed"
    event: ClassVar[str] = "flow:improvement_role_active"

    role: str
    session: StreamId
    text: str | None = None


class ImprovementParked(SideBody, frozen=True, omit_defaults=True):
    """A reviewing role waits for a person.

    `keeps_reply` means that the role could not start, so a person's queued reply stays queued.
    """

    kind: ClassVar[str] = "improvement_parked"
    event: ClassVar[str] = "flow:improvement_awaiting_human"

    role: str
    reason: AwaitingReason
    detail: str | None = None
    keeps_reply: bool = False


class FindingsMade(SideBody, frozen=True, omit_defaults=True):
    """A role finished its review. `findings` is a path inside the record folder."""

    kind: ClassVar[str] = "findings_made"
    event: ClassVar[str] = "flow:findings_produced"

    role: str
    findings: str
    digest: str | None = None


class FeedbackAsked(SideBody, frozen=True):
    """All findings exist; a person decides whether feedback is written to `artifact`."""

    kind: ClassVar[str] = "feedback_asked"
    event: ClassVar[str] = "flow:feedback_consent_requested"

    artifact: str


class FeedbackDecided(SideBody, frozen=True):
    """A person decided whether feedback is written."""

    kind: ClassVar[str] = "feedback_decided"
    event: ClassVar[str] = "flow:feedback_consent_resolved"

    is_granted: bool
    by: str


class FlowCompleted(SideBody, frozen=True):
    """The flow is complete."""

    kind: ClassVar[str] = "flow_completed"
    event: ClassVar[str] = "flow:completed"


class NeededAgent(ShortRepr, frozen=True, omit_defaults=True):
    """An agent that the worker of a flow must have: its id, and the hash of each tool's schema."""

    agent: str
    tools: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    servers: tuple[str, ...] = ()


class FlowRequested(SideBody, frozen=True, omit_defaults=True):
    """A program requests workers to run the flow.

    The request ends with a ``flow_request_closed`` entry about it. `agents` are the agents of the
    flow's roles. `folders` are the flow's workspace and record folder, which the worker must have.
    `offered` and `on_interrupt` are the options of the program's `Flows`.
    """

    kind: ClassVar[str] = "flow_requested"
    event: ClassVar[str] = "flow:requested"

    agents: tuple[NeededAgent, ...]
    folders: tuple[str, str]
    offered: tuple[str, ...] = ()
    on_interrupt: InterruptPolicy = "continue"


class FlowRequestClosed(SideBody, frozen=True, omit_defaults=True):
    """Workers no longer run the flow for the ``flow_requested`` entry to which `about` refers.

    `code` is ``completed``, ``replaced`` (by a later request), or an error code.
    """

    kind: ClassVar[str] = "flow_request_closed"
    event: ClassVar[str] = "flow:request_closed"

    code: str
    error: str | None = None


class FlowImported(SideBody, frozen=True, omit_defaults=True):
    """An imported flow, with the state that it had at the import.

    Shape: `run` is the content of A-Society's ``flow.json``, unchanged. `sessions` maps a role
    instance to the stream of its session. If the review had started, `improvement` is the order of
    the review. `record` maps each path in the record folder to the blob hash of the file. `at_node`
    maps a role instance to the node that it worked at in the imported state.
    """

    kind: ClassVar[str] = "flow_imported"
    event: ClassVar[str] = "flow:imported"

    run: dict[str, object]
    graph: Graph
    sessions: dict[str, StreamId]
    improvement: Graph | None = None
    record: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    at_node: dict[str, str] = msgspec.field(default_factory=dict[str, str])


class DocumentBound(SideBody, frozen=True, omit_defaults=True):
    """The flow runs a workflow document, which defines the prompts and agents of the nodes.

    `workflow` has the fields of ``perdure.workflow.document``, without the document's metadata.
    `passive` are the nodes without an agent: the flow's inputs and outputs. `inputs` are given, and
    `context` is computed, at the start of the flow; templates can refer to both. `agents` maps the
    agent names that the nodes use to snapshots of the agents.
    """

    kind: ClassVar[str] = "flow_document"
    event: ClassVar[str] = "flow:document_bound"

    workflow: dict[str, object]
    passive: tuple[str, ...]
    inputs: dict[str, object] = msgspec.field(default_factory=dict[str, object])
    context: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    agents: dict[str, dict[str, object]] = msgspec.field(
        default_factory=dict[str, dict[str, object]]
    )


class NodePassed(SideBody, frozen=True, omit_defaults=True):
    """A node without an agent is done, and hands its input to its successors."""

    kind: ClassVar[str] = "node_passed"
    event: ClassVar[str] = "flow:node_passed"

    node: str
    targets: tuple[HandoffTarget, ...] = ()


FLOW_BODIES: tuple[type[SideBody], ...] = tuple(
    [body for body in SideBody.__subclasses__() if body.__module__ == __name__]
)
"""The body classes of all kinds of entries in a flow's log."""
