"""The messages of the WebSocket for flows, with the names that A-Society uses."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from perdure.apps.server.flows.inputs import FlowMode, NewFlow
from perdure.apps.server.flows.values import FeedItemView, FlowSummary, FlowView
from perdure.session.flows.kinds import ConsentMode, ImprovementMode

Text = Annotated[str, msgspec.Meta(max_length=1_000_000)]


class FromClient(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True
):
    """A message from a client. If the message fails, the error message contains this `id`."""

    id: str | None = None


class OpenFlow(FromClient, frozen=True, tag="open_flow", kw_only=True):
    """Follow this flow instead of the previous one. Starts nothing."""

    flow_id: str


class ResumeFlow(FromClient, frozen=True, tag="resume_flow", kw_only=True):
    """Follow a flow, and run it if no process does."""

    flow_id: str


class StartFlow(FromClient, frozen=True, tag="start_initialized_flow", kw_only=True):
    """Start the workflow of a project that is set up, and follow the flow.

    The message type determines the `mode`.
    """

    mode: ClassVar[FlowMode] = "workflow"

    flow: NewFlow


class StartTakeover(FromClient, frozen=True, tag="start_takeover_initialization", kw_only=True):
    """Start setting up a project that exists, and follow the flow."""

    mode: ClassVar[FlowMode] = "takeover"

    flow: NewFlow


class StartGreenfield(FromClient, frozen=True, tag="start_greenfield_initialization", kw_only=True):
    """Start setting up a new project, and follow the flow."""

    mode: ClassVar[FlowMode] = "greenfield"

    flow: NewFlow


class StartUpdate(FromClient, frozen=True, tag="start_update_flow", kw_only=True):
    """Start a workflow that brings a project from one version to another, and follow the flow."""

    mode: ClassVar[FlowMode] = "update"

    flow: NewFlow


class StopTurn(FromClient, frozen=True, tag="stop_active_turn", kw_only=True):
    """Stop the turn of a node or role."""

    target: str


class CompactContext(FromClient, frozen=True, tag="compact_context", kw_only=True):
    """Summarize the work of a role at its node."""

    role: str
    focus: Text | None = None


class HumanInput(FromClient, frozen=True, tag="human_input", kw_only=True):
    """Reply to the waiting node or role `to`; null means the only node or role that waits."""

    text: Text
    to: str | None = None


class ImprovementInput(FromClient, frozen=True, tag="improvement_human_input", kw_only=True):
    """Reply to a role that waits in the improvement phase."""

    role: str
    text: Text


class HandoffApproval(FromClient, frozen=True, tag="handoff_approval", kw_only=True):
    """Approve or decline the handoff of `node` that waits for approval.

    If `node` is null, the decision is about the only handoff that waits.
    """

    decision: Literal["approve", "decline"]
    node: str | None = None
    note: Text | None = None


class ImprovementChoice(FromClient, frozen=True, tag="improvement_choice", kw_only=True):
    """Choose how the roles review the flow."""

    mode: ImprovementMode


class FeedbackChoice(FromClient, frozen=True, tag="feedback_consent_choice", kw_only=True):
    """Decide whether the roles write feedback after the improvement phase."""

    is_granted: bool


class ConsentResponse(FromClient, frozen=True, tag="consent_response", kw_only=True):
    """Answer the question about a role's tool call.

    `question` is the question's id in the inbox.
    """

    question: str
    answer: Text
    note: Text | None = None


class SetConsent(FromClient, frozen=True, tag="consent_mode", kw_only=True):
    """Change which actions roles may do without asking."""

    mode: ConsentMode


class ConfigureRole(FromClient, frozen=True, tag="role_configuration", kw_only=True):
    """Set model, skills and tools of a role; they apply from the role's next turn."""

    role: str
    model: str | None = None
    skills: list[str] | None = None
    tools: list[str] | None = None


Following = OpenFlow | ResumeFlow
Starting = StartFlow | StartTakeover | StartGreenfield | StartUpdate
Changing = CompactContext | ConsentResponse | SetConsent | ConfigureRole
Deciding = (
    StopTurn
    | HumanInput
    | ImprovementInput
    | HandoffApproval
    | ImprovementChoice
    | FeedbackChoice
    | Changing
)
ClientMessage = Following | Starting | Deciding


class FromServer(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A message from the server."""


class FlowSummaries(FromServer, frozen=True, tag="flow_summaries", kw_only=True):
    """A message from the server that lists all flows, newest first.

    The server sends this message first on each new socket.
    """

    flows: list[FlowSummary]


class FeedReplay(FromServer, frozen=True, tag="feed_replay", kw_only=True):
    """New and changed items of a role's feed; an item replaces an earlier one with the same id.

    After `open_flow`, the server sends the whole feed, in several messages if the feed is long.
    Later messages contain only new and changed items.
    """

    role: str
    items: list[FeedItemView]
    has_more: bool


class FlowStateMessage(FromServer, frozen=True, tag="flow_state", kw_only=True):
    """The flow with its open questions; it is sent again after each change."""

    flow: FlowView


class OperatorEvent(FromServer, frozen=True, tag="operator_event", kw_only=True):
    """A durable event of the flow, in the form of `GET /v1/events`."""

    event: dict[str, Any]


class RequestSent(FromServer, frozen=True, tag="request_sent", kw_only=True):
    """A request was sent to a model for a role."""

    role: str


class ReceivingResponse(FromServer, frozen=True, tag="receiving_response", kw_only=True):
    """The model has begun an answer.

    `text` is the answer so far; it is not empty if the client connected after the answer began.
    """

    role: str
    text: str = ""


class OutputText(FromServer, frozen=True, tag="output_text", kw_only=True):
    """The next piece of an answer."""

    role: str
    text: str


class ResponseEnd(FromServer, frozen=True, tag="response_end", kw_only=True):
    """The answer has ended; the feed now contains it."""

    role: str


class InputText(FromServer, frozen=True, tag="input_text", kw_only=True):
    """A message that a role received."""

    role: str
    text: str


class Failed(FromServer, frozen=True, tag="error", kw_only=True):
    """Reports a message from the client that could not be executed.

    `id` is the id of the client's message.
    """

    code: str
    message: str
    id: str | None = None


_decoder = msgspec.json.Decoder(ClientMessage)


def read(data: str) -> ClientMessage:
    """Return the message that `data` encodes. Raises: msgspec.DecodeError."""
    return _decoder.decode(data)


def written(message: FromServer) -> str:
    """Return `message` as JSON."""
    return msgspec.json.encode(message).decode()
