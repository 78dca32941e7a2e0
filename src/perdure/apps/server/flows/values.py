"""The API values of flows."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from perdure.apps.server.values import Value
from perdure.session.flows.kinds import ConsentMode, ImprovementMode
from perdure.session.flows.run import FeedbackConsent, FlowStatus, ImprovementStatus

NodeState = Literal["pending", "active", "waiting", "backward", "completed"]
"""``waiting``: waits for a person.

``backward``: waits for better work, or must improve its own work.
"""

EdgeState = Literal["plain", "done", "unread", "back"]
"""``unread``: the artifact was handed over and is not read yet. ``back``: work was handed back."""


class FlowNodeView(Value, frozen=True, kw_only=True):
    """A node of a flow's graph.

    `reason` explains why the node waits for a person; `session` is the session of the node's role.
    """

    id: str
    role: str
    state: NodeState
    reason: str | None = None
    session: str | None = None


class FlowEdgeView(Value, frozen=True, kw_only=True):
    """An edge, and the newest artifact sent along it."""

    source: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    state: EdgeState
    artifact: str | None = None


class FlowRoleView(Value, frozen=True, kw_only=True):
    """A role instance. `session` is null until the role begins."""

    role: str
    state: NodeState
    session: str | None


class FlowWaitView(Value, frozen=True, kw_only=True):
    """A node or role that waits for a person.

    `question` is the id of the question in the inbox; if there are no `choices`, the reply is text.
    """

    topic: str
    target: str | None
    role: str | None
    text: str
    choices: list[str]
    question: str | None
    models: list[str]
    skills: dict[str, str]


class HandedFile(Value, frozen=True, kw_only=True):
    """A file of a handoff that waits for approval; `to` lists the nodes that would receive it.

    `text` is null if the file is large or binary, or if its content is not in the store; `diff` is
    null if no earlier version was staged.
    """

    path: str
    to: list[str]
    size_bytes: int | None
    text: str | None
    diff: str | None


class FlowConsentView(Value, frozen=True, kw_only=True):
    """Which actions roles may do without asking."""

    mode: ConsentMode
    commands: list[str]
    tools: list[str]


class FindingsView(Value, frozen=True, kw_only=True):
    """A role that reviews the flow, and the file with its findings."""

    role: str
    state: NodeState
    session: str | None
    findings: str | None


class ImprovementView(Value, frozen=True, kw_only=True):
    """How the roles review the flow. `edges` define the order in which the roles review."""

    mode: ImprovementMode | None
    status: ImprovementStatus
    roles: list[FindingsView]
    edges: list[FlowEdgeView]
    feedback_path: str | None
    feedback_consent: FeedbackConsent | None


class FlowSummary(Value, frozen=True, kw_only=True):
    """A flow in a list of flows.

    `nodes` counts the flow's nodes by state; `waits` counts the nodes and roles that wait for
    people.
    """

    id: str
    name: str
    status: FlowStatus
    is_running: bool
    waits: int
    nodes: dict[NodeState, int]
    workspace: str
    started_at: str


class FlowView(Value, frozen=True, kw_only=True):
    """A flow. `can_resume` is true if the flow could continue and no process runs it.

    `faults` contains the errors of the flow's workflow file; a file with errors is not used.
    `error` is the reason why the flow's last run in this server failed.
    """

    id: str
    name: str
    status: FlowStatus
    head: int
    is_running: bool
    can_resume: bool
    workspace: str
    record_folder: str
    nodes: list[FlowNodeView]
    edges: list[FlowEdgeView]
    roles: list[FlowRoleView]
    waits: list[FlowWaitView]
    consent: FlowConsentView
    improvement: ImprovementView | None
    faults: list[str]
    error: str | None


class RoleView(Value, frozen=True, kw_only=True):
    """A role instance, with its configuration.

    A null value means that the agent of the role decides.

    Units: `context_tokens` and `context_window` are tokens; null if the number is unknown.
    """

    role: str
    session: str | None
    model: str | None
    skills: list[str] | None
    tools: list[str] | None
    context_tokens: int | None
    context_window: int | None


class FeedItemView(Value, frozen=True, kw_only=True):
    """An item of a role's feed, with the entry that created or last changed the item."""

    id: str
    type: str
    label: str
    text: str
    is_redacted: bool
    at: str
    entry_id: str


class FeedPage(Value, frozen=True, kw_only=True):
    """New and changed items of a feed. An item replaces an earlier one with the same id.

    The next read starts at `cursor`; `has_more` is true if more items exist already.
    """

    items: list[FeedItemView]
    cursor: str
    has_more: bool


class Begun(Value, frozen=True, kw_only=True):
    """A flow that was started."""

    id: str


class Compacted(Value, frozen=True, kw_only=True):
    """The entry of a compaction; null if there were no messages to summarize."""

    entry: dict[str, Any] | None
