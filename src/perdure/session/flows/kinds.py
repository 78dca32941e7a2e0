"""Bodies of the entries of a flow's log: one kind for each thing that can happen to a flow.

A flow stream has no conversation, so all of them are of the side lane. They say what was decided;
``fold`` says what that makes of the flow, and ``engine.flows`` decides.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from perdure.session.flows.graph import Graph
from perdure.session.ids import StreamId
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
"""Version of the state that exports for A-Society say."""


class HandoffTarget(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node that gets an artifact, a path inside the record folder.

    `digest` is the hash of the artifact as it was handed over; the store keeps it as a blob.
    """

    node: str
    artifact: str
    digest: str | None = None


class Offers(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a role can be configured with. Shape: `skills` is a skill's name -> what it is for."""

    models: tuple[str, ...] = ()
    skills: dict[str, str] = {}


class FlowStarted(SideBody, frozen=True, omit_defaults=True):
    """A flow begins. `start` are the nodes that are claimed first; paths are absolute.

    `configuring` says who decides what a role works with: ``given``, its agent and its own files;
    ``ask``, a person, before it begins; ``auto``, a selector. `skills_configuring` says it of its
    skills, where that is somebody else.
    `feedback` and the fields after it say what kind of flow it is, for the feedback at its end.
    """

    kind: ClassVar[str] = "flow_started"

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
    """What a program runs the flow with, so that it runs with the same again.

    `scenario` is an absolute path; without `commands` roles may be allowed any command. The newest
    counts as a whole, if this user's perdure wrote it.
    """

    kind: ClassVar[str] = "flow_settings"

    model: str | None = None
    scenario: str | None = None
    commands: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()


class WorkspaceBound(SideBody, frozen=True):
    """The flow goes on where its files now lie."""

    kind: ClassVar[str] = "flow_workspace"

    workspace_root: str
    record_folder: str


class WorkflowChanged(SideBody, frozen=True):
    """The graph from now on, as the record's workflow file and the project's give it."""

    kind: ClassVar[str] = "flow_workflow"

    graph: Graph


class NodeClaimed(SideBody, frozen=True, omit_defaults=True):
    """A node begins, or begins again, to work in the session of its role.

    `delivered` are the edge keys whose artifacts its entry message carries, `superseded` those of
    its own forward handoffs that it takes back. `text` is the person's reply it consumes.
    """

    kind: ClassVar[str] = "node_claimed"

    node: str
    role: str
    session: StreamId
    cause: ClaimCause
    delivered: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    text: str | None = None


class NodeParked(SideBody, frozen=True, omit_defaults=True):
    """A node waits for a person. `detail` says why, in a sentence.

    `offers` is what its role can be configured with, where it waits for that. `keeps_reply`: the
    node could not begin, and a queued reply stays queued.
    """

    kind: ClassVar[str] = "node_parked"

    node: str
    role: str
    reason: AwaitingReason
    detail: str | None = None
    offers: Offers | None = None
    keeps_reply: bool = False


class NodeContinued(SideBody, frozen=True):
    """What a node waited for came in mid-turn (a consent): it runs on, nothing was delivered."""

    kind: ClassVar[str] = "node_continued"

    node: str


class HumanReplied(SideBody, frozen=True):
    """What a person says to a node, or in the improvement to a role; taken when it is claimed."""

    kind: ClassVar[str] = "human_replied"

    target: str
    text: str
    by: str


class StopAsked(SideBody, frozen=True):
    """A person wants the turn of a node, or of a role, to end; whoever runs it ends it."""

    kind: ClassVar[str] = "stop_asked"

    target: str
    by: str


class HandoffMade(SideBody, frozen=True, omit_defaults=True):
    """A node hands over, forward and backward, and no longer runs.

    `approved_by` names the person who let it pass; `warnings` are for people to read.
    """

    kind: ClassVar[str] = "handoff_made"

    node: str
    targets: tuple[HandoffTarget, ...]
    approved_by: str | None = None
    warnings: tuple[str, ...] = ()


class HandoffAwaited(SideBody, frozen=True):
    """A node stops until something is handed to it."""

    kind: ClassVar[str] = "handoff_awaited"

    node: str


class HandoffStaged(SideBody, frozen=True):
    """A handoff that a person has to approve."""

    kind: ClassVar[str] = "handoff_staged"

    node: str
    role: str
    targets: tuple[HandoffTarget, ...]
    warnings: tuple[str, ...] = ()


class HandoffDeclined(SideBody, frozen=True, omit_defaults=True):
    """The staged handoff of a node is dropped; the node waits for what the person says."""

    kind: ClassVar[str] = "handoff_declined"

    node: str
    role: str
    by: str
    note: str | None = None


class RepairAsked(SideBody, frozen=True, omit_defaults=True):
    """An agent is told what was wrong with how its turn ended; `attempt` counts from 1.

    `node` names the node, in the improvement the role. `message` is what its next turn begins with.
    """

    kind: ClassVar[str] = "repair_asked"

    node: str
    role: str
    code: RepairCode
    summary: str
    message: str
    attempt: int


class ConsentChanged(SideBody, frozen=True, omit_defaults=True):
    """What roles may do without asking. `command` is an exact command, or the name of an MCP tool.

    Shape: either `mode`, or `tool` with `command`, or all three.
    """

    kind: ClassVar[str] = "flow_consent"

    by: str
    mode: ConsentMode | None = None
    tool: GrantedTool | None = None
    command: str | None = None
    is_revoked: bool = False


class RoleConfigured(SideBody, frozen=True, omit_defaults=True):
    """What a role instance works with; None leaves what the flow's agent says.

    `by` is the person who said so, `selector` the session in which a model did. A person has yet to
    choose the rest where it `is_partial`.
    """

    kind: ClassVar[str] = "role_configured"

    role: str
    model: str | None = None
    skills: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    is_automatic: bool = False
    by: str | None = None
    selector: StreamId | None = None
    is_partial: bool = False


class SelectorOpened(SideBody, frozen=True, omit_defaults=True):
    """A model is to choose what a role instance works with, from `offers`, in a session of its own.

    `attempt` counts from 1. `refused` is why the attempt before it came to nothing.
    """

    kind: ClassVar[str] = "selector_opened"

    role: str
    session: StreamId
    attempt: int
    offers: Offers
    refused: str | None = None


class ForwardPassClosed(SideBody, frozen=True):
    """The owner's last node says that the work is done."""

    kind: ClassVar[str] = "forward_pass_closed"

    node: str


class ImprovementChosen(SideBody, frozen=True, omit_defaults=True):
    """How the roles look back at the flow. `graph` is the order they do it in; None without."""

    kind: ClassVar[str] = "improvement_chosen"

    mode: ImprovementMode
    by: str
    workflow_path: str | None = None
    graph: Graph | None = None


class ImprovementClaimed(SideBody, frozen=True, omit_defaults=True):
    """A role looks back, in its own session. `text` is the person's reply it consumes."""

    kind: ClassVar[str] = "improvement_claimed"

    role: str
    session: StreamId
    text: str | None = None


class ImprovementParked(SideBody, frozen=True, omit_defaults=True):
    """A role that looks back waits for a person. `keeps_reply` is as in `NodeParked`."""

    kind: ClassVar[str] = "improvement_parked"

    role: str
    reason: AwaitingReason
    detail: str | None = None
    keeps_reply: bool = False


class FindingsMade(SideBody, frozen=True, omit_defaults=True):
    """A role has looked back. `findings` is a path inside the record folder."""

    kind: ClassVar[str] = "findings_made"

    role: str
    findings: str
    digest: str | None = None


class FeedbackAsked(SideBody, frozen=True):
    """All findings are there; a person decides whether feedback is written to `artifact`."""

    kind: ClassVar[str] = "feedback_asked"

    artifact: str


class FeedbackDecided(SideBody, frozen=True):
    """Whether feedback is written."""

    kind: ClassVar[str] = "feedback_decided"

    is_granted: bool
    by: str


class FlowCompleted(SideBody, frozen=True):
    """Nothing is left to do."""

    kind: ClassVar[str] = "flow_completed"


class FlowImported(SideBody, frozen=True, omit_defaults=True):
    """A flow that began elsewhere: where it stood when it was imported.

    Shape: `run` is a ``flow.json`` of A-Society's as it was read; `sessions` is role instance to
    the stream of its session, `improvement` the order in which its roles look back, where they had
    begun to. `record` is path in its record folder to the blob hash of the file. `at_node` is role
    instance to the node it was at.
    """

    kind: ClassVar[str] = "flow_imported"

    run: dict[str, object]
    graph: Graph
    sessions: dict[str, StreamId]
    improvement: Graph | None = None
    record: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    at_node: dict[str, str] = msgspec.field(default_factory=dict[str, str])


class DocumentBound(SideBody, frozen=True, omit_defaults=True):
    """The flow runs a workflow document: what its nodes are told and by whom it is done.

    `workflow` is the document in the fields of ``perdure.workflow.document``, without its
    metadata. `passive` are the nodes that no agent works on: where inputs come in and outputs
    come out. `inputs` and `context` are what templates are filled with, as it was given and worked
    out once; `agents` are the snapshots of its agents, by the names its nodes use.
    """

    kind: ClassVar[str] = "flow_document"

    workflow: dict[str, object]
    passive: tuple[str, ...]
    inputs: dict[str, object] = msgspec.field(default_factory=dict[str, object])
    context: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    agents: dict[str, dict[str, object]] = msgspec.field(
        default_factory=dict[str, dict[str, object]]
    )


class NodePassed(SideBody, frozen=True, omit_defaults=True):
    """A node that no agent works on is done, and hands over what it has, if that goes anywhere."""

    kind: ClassVar[str] = "node_passed"

    node: str
    targets: tuple[HandoffTarget, ...] = ()


FLOW_BODIES: tuple[type[SideBody], ...] = (
    *(FlowStarted, RunSettings, WorkspaceBound, WorkflowChanged),
    *(NodeClaimed, NodeParked, NodeContinued),
    *(
        HumanReplied,
        StopAsked,
        HandoffMade,
        HandoffAwaited,
        HandoffStaged,
        HandoffDeclined,
        RepairAsked,
    ),
    *(ConsentChanged, RoleConfigured, ForwardPassClosed, ImprovementChosen, ImprovementClaimed),
    *(ImprovementParked, FindingsMade, FeedbackAsked, FeedbackDecided, FlowCompleted),
    *(FlowImported, DocumentBound, NodePassed, SelectorOpened),
)
"""Every kind of a flow's log."""
