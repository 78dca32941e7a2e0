"""The messages of the WebSocket of flows, under A-Society's names."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from perdure.apps.server.flows.inputs import NewFlow
from perdure.apps.server.flows.values import FeedItemView, FlowSummary, FlowView
from perdure.session.flows.kinds import ConsentMode, ImprovementMode

Text = Annotated[str, msgspec.Meta(max_length=1_000_000)]


class FromClient(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True
):
    """A message of a client. `id` is returned in the answer of a message that fails."""

    id: str | None = None


class OpenFlow(FromClient, frozen=True, tag="open_flow", kw_only=True):
    """Follow a flow instead of the previous one. Starts nothing."""

    flow_id: str


class ResumeFlow(FromClient, frozen=True, tag="resume_flow", kw_only=True):
    """Follow a flow, and run it if no process does."""

    flow_id: str


class StartFlow(FromClient, frozen=True, tag="start_initialized_flow", kw_only=True):
    """Start the workflow of an initialized project, and follow it. Its type replaces the mode."""

    flow: NewFlow


class StartTakeover(FromClient, frozen=True, tag="start_takeover_initialization", kw_only=True):
    """Start the set-up of a project that exists, and follow it."""

    flow: NewFlow


class StartGreenfield(FromClient, frozen=True, tag="start_greenfield_initialization", kw_only=True):
    """Start the set-up of a new project, and follow it."""

    flow: NewFlow


class StartUpdate(FromClient, frozen=True, tag="start_update_flow", kw_only=True):
    """Start a workflow that brings a project from one version to another, and follow it."""

    flow: NewFlow


class StopTurn(FromClient, frozen=True, tag="stop_active_turn", kw_only=True):
    """Stop the turn of a node or role."""

    target: str


class CompactContext(FromClient, frozen=True, tag="compact_context", kw_only=True):
    """Summarize the work of a role at its node."""

    role: str
    focus: Text | None = None


class HumanInput(FromClient, frozen=True, tag="human_input", kw_only=True):
    """Reply to the waiting node or role `to`; null: the only one that waits."""

    text: Text
    to: str | None = None


class ImprovementInput(FromClient, frozen=True, tag="improvement_human_input", kw_only=True):
    """Reply to a role that waits in the improvement phase."""

    role: str
    text: Text


class HandoffApproval(FromClient, frozen=True, tag="handoff_approval", kw_only=True):
    """Decide about the staged handoff of `node`; null: the only one."""

    decision: Literal["approve", "decline"]
    node: str | None = None
    note: Text | None = None


class ImprovementChoice(FromClient, frozen=True, tag="improvement_choice", kw_only=True):
    """Choose how the roles review the flow."""

    mode: ImprovementMode


class FeedbackChoice(FromClient, frozen=True, tag="feedback_consent_choice", kw_only=True):
    """Decide whether feedback is written."""

    is_granted: bool


class ConsentResponse(FromClient, frozen=True, tag="consent_response", kw_only=True):
    """Answer the question of a role's tool call; `question` is its id in the inbox."""

    question: str
    answer: Text
    note: Text | None = None


class SetConsent(FromClient, frozen=True, tag="consent_mode", kw_only=True):
    """Change the permission of roles to act without asking."""

    mode: ConsentMode


class ConfigureRole(FromClient, frozen=True, tag="role_configuration", kw_only=True):
    """Set model, skills and tools of a role from its next turn."""

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
    """A message of the server."""


class FlowSummaries(FromServer, frozen=True, tag="flow_summaries", kw_only=True):
    """All flows, newest first. The first message of a socket."""

    flows: list[FlowSummary]


class FeedReplay(FromServer, frozen=True, tag="feed_replay", kw_only=True):
    """New and changed items of a role's feed; an item replaces an earlier item with the same id.

    After `open_flow` the whole feed is sent, in several messages if it is long; then only
    additions.
    """

    role: str
    items: list[FeedItemView]
    has_more: bool


class FlowStateMessage(FromServer, frozen=True, tag="flow_state", kw_only=True):
    """The flow, with its open questions; sent again after each change."""

    flow: FlowView


class OperatorEvent(FromServer, frozen=True, tag="operator_event", kw_only=True):
    """A durable event of the flow, in the form of `GET /v1/events`."""

    event: dict[str, Any]


class RequestSent(FromServer, frozen=True, tag="request_sent", kw_only=True):
    """A model was called for a role."""

    role: str


class ReceivingResponse(FromServer, frozen=True, tag="receiving_response", kw_only=True):
    """An answer has begun. `text` is the answer so far, for a client that connected later."""

    role: str
    text: str = ""


class OutputText(FromServer, frozen=True, tag="output_text", kw_only=True):
    """More of an answer."""

    role: str
    text: str


class ResponseEnd(FromServer, frozen=True, tag="response_end", kw_only=True):
    """An answer has ended; the feed contains it."""

    role: str


class InputText(FromServer, frozen=True, tag="input_text", kw_only=True):
    """A message that a role received."""

    role: str
    text: str


class Failed(FromServer, frozen=True, tag="error", kw_only=True):
    """A message that could not be executed. `id` is the message's."""

    code: str
    message: str
    id: str | None = None


ServerMessage = (
    FlowSummaries
    | FeedReplay
    | FlowStateMessage
    | OperatorEvent
    | RequestSent
    | ReceivingResponse
    | OutputText
    | ResponseEnd
    | InputText
    | Failed
)

_decoder = msgspec.json.Decoder(ClientMessage)


def read(data: str) -> ClientMessage:
    """Return the message in `data`. Raises: msgspec.DecodeError."""
    return _decoder.decode(data)


def written(message: ServerMessage) -> str:
    """Return `message` as JSON."""
    return msgspec.json.encode(message).decode()
