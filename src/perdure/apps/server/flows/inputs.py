"""The request bodies of routes and messages about flows."""

from __future__ import annotations

from typing import Literal

from perdure.apps.server.access.tokens import Role
from perdure.apps.server.inputs import Input, NewId
from perdure.session.flows.kinds import Configuring, ConsentMode, GrantedTool

FlowMode = Literal["workflow", "takeover", "greenfield", "update"]


class NewFlow(Input, frozen=True, kw_only=True):
    """Starts a flow in the folder `workspace` of the server's machine.

    The `mode` "workflow" runs the file at the path `workflow` in `workspace`. "takeover" sets up an
    existing project, and "greenfield" sets up a new one. In both modes, the server writes the
    missing files of the project, and the role "owner" does the rest. "update" runs `workflow` to
    bring the project from one version to another. If you choose the `id`, you can repeat the
    request safely, because a second flow with the same id is rejected.
    """

    workspace: str
    id: NewId | None = None
    mode: FlowMode = "workflow"
    workflow: str = "workflow.yaml"
    record_folder: str | None = None
    consent: ConsentMode = "no-access"
    configuring: Configuring = "given"
    from_version: str | None = None
    to_version: str | None = None


def role_for(mode: ConsentMode | None) -> Role:
    """Return the role that a token needs to set the consent `mode`.

    With full-access, the roles of a flow can run any program as the operating system user of the
    server. A caller that starts a flow can run programs in the same way, so starting a flow and
    setting full-access need the token role admin.
    """
    return "admin" if mode == "full-access" else "write"


class FlowReply(Input, frozen=True, kw_only=True):
    """A reply to the node or role `to`; null means the only node or role that waits."""

    text: str
    to: str | None = None


class FlowTarget(Input, frozen=True, kw_only=True):
    """A node or role instance of a flow."""

    target: str


class NewConsent(Input, frozen=True, kw_only=True):
    """Changes the actions that roles can do without asking.

    Sets the `mode`, or grants or revokes one `command` or MCP tool.
    """

    mode: ConsentMode | None = None
    tool: GrantedTool = "bash"
    command: str | None = None
    is_revoked: bool = False


class ConfiguredRole(Input, frozen=True, kw_only=True):
    """Model, skills and tools of a role; null means the values from the role's agent and files."""

    model: str | None = None
    skills: list[str] | None = None
    tools: list[str] | None = None
