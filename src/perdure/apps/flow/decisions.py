"""Commands with which people make decisions in a flow, from any process.

When a command returns, its decision is stored in the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Literal

import typer

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.cli.options import only_text
from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.flow.flow_access import opened_flow
from perdure.apps.flow.options import ByOption, FlowArgument, person
from perdure.client.flows.flow import Flow
from perdure.client.flows.role_setup import no_tool
from perdure.errors import ConfigError
from perdure.session.flows.kinds import ConsentMode, ImprovementMode
from perdure.session.flows.run import FlowState
from perdure.tools.builtin.catalogue import BUILTIN

Decide = Callable[[Flow], Awaitable[FlowState]]


async def _decide(common: CommonOptions, flow: str, decide: Decide, told: str) -> None:
    """Open the flow, record a person's decision with `decide`, and print `told`."""
    async with opened_flow(common, flow) as (_, handle):
        state = await decide(handle)
    hint = f"; if no process runs the flow, `perdure flow resume {handle.id}` continues it"
    text = told if state.run.status == "completed" else told + hint
    common.show({"flow": handle.id, "status": state.run.status}, text)


async def reply(
    flow: FlowArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", callback=only_text, help="Your reply.")],
    *,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="NODE",
            help="The node that waits, or its role; default: the only node that waits.",
        ),
    ] = None,
    by: ByOption = None,
    common: CommonOptions,
) -> None:
    """Reply to a node that asks, has stopped, or waits for a handoff.

    Examples:
        perdure flow reply 20260527T14 "Take the night train."
        perdure flow reply 20260527T14 "Go on." --to build

    Exit codes:
        4  the node does not wait for a reply, or already has one
    """
    if not text.strip():
        raise UsageMistake("the reply is empty; write it in quotes")
    await _decide(common, flow, lambda handle: handle.reply(text, to, by=person(by)), "Replied")


async def approve(
    flow: FlowArgument,
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="NODE",
            help="The node whose handoff waits; default: the only node whose handoff waits.",
        ),
    ] = None,
    *,
    is_declined: Annotated[
        bool,
        typer.Option("--decline", help="Decline the handoff; the node then waits for a reply."),
    ] = False,
    note: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", callback=only_text, help="The reason for declining the handoff."
        ),
    ] = None,
    by: ByOption = None,
    common: CommonOptions,
) -> None:
    """Approve a handoff that waits for you, or decline it.

    Examples:
        perdure flow approve 20260527T14
        perdure flow approve 20260527T14 plan --decline --note "Ask the hotel first."

    Exit codes:
        4  no handoff of the node waits for approval
    """
    if note is not None and not is_declined:
        raise UsageMistake("--note is the reason for declining a handoff: add --decline")

    async def decide(handle: Flow) -> FlowState:
        if is_declined:
            return await handle.decline(node, note, by=person(by))
        return await handle.approve(node, by=person(by))

    told = "Declined" if is_declined else "Approved"
    await _decide(common, flow, decide, told)


async def stop(
    flow: FlowArgument,
    target: Annotated[
        str, typer.Argument(metavar="NODE", help="The node that is at work, or its role.")
    ],
    *,
    by: ByOption = None,
    common: CommonOptions,
) -> None:
    """End the turn of a node, whichever process runs it; the node then waits for a reply.

    Examples:
        perdure flow stop 20260527T14 build

    Exit codes:
        4  the node is not at work
    """
    await _decide(
        common,
        flow,
        lambda handle: handle.stop(target, by=person(by)),
        f"{target} is being stopped",
    )


async def improve(
    flow: FlowArgument,
    mode: Annotated[
        ImprovementMode, typer.Argument(metavar="MODE", help="One of graph-based, parallel, none.")
    ],
    *,
    by: ByOption = None,
    common: CommonOptions,
) -> None:
    """Choose how the roles review a flow whose work is closed.

    graph-based: each role reviews after the roles to which it handed work, and reads their
    findings. parallel: all roles review at the same time, except the owner, who reviews last. none:
    the flow is completed without a review.

    Examples:
        perdure flow improve 20260527T14 graph-based

    Exit codes:
        4  the flow does not wait for the choice of a review
    """
    await _decide(
        common,
        flow,
        lambda handle: handle.choose_improvement(mode, by=person(by)),
        f"Improvement: {mode}",
    )


async def feedback(
    flow: FlowArgument,
    choice: Annotated[
        Literal["grant", "deny"], typer.Argument(metavar="CHOICE", help="One of grant, deny.")
    ],
    *,
    by: ByOption = None,
    common: CommonOptions,
) -> None:
    """Allow or deny that feedback is written from the findings of the roles.

    Examples:
        perdure flow feedback 20260527T14 deny

    Exit codes:
        4  the flow does not wait for a decision about feedback
    """
    await _decide(
        common,
        flow,
        lambda handle: handle.decide_feedback(is_granted=choice == "grant", by=person(by)),
        "Feedback is written" if choice == "grant" else "No feedback is written",
    )


RevokeOption = Annotated[
    bool,
    typer.Option("--revoke", help="Remove the grants that --allow-command and --allow-tool name."),
]


async def consent(
    flow: FlowArgument,
    mode: Annotated[
        ConsentMode | None,
        typer.Argument(metavar="MODE", help="One of no-access, partial-access, full-access."),
    ] = None,
    *,
    commands: Annotated[
        list[str] | None,
        typer.Option("--allow-command", metavar="LINE", help="Allow this exact command."),
    ] = None,
    tools: Annotated[
        list[str] | None,
        typer.Option("--allow-tool", metavar="NAME", help="Allow this MCP tool."),
    ] = None,
    is_revoked: RevokeOption = False,
    by: ByOption = None,
    common: CommonOptions,
) -> None:
    """Change the permission of a flow's roles to act without asking.

    no-access: roles ask for everything. partial-access: roles write files, and run exactly those
    commands and MCP tools that were allowed. full-access: roles ask for nothing. If the new
    permission allows a call that waits for an answer, the call is approved.

    Examples:
        perdure flow consent 20260527T14 partial-access
        perdure flow consent 20260527T14 --allow-command "make test"
        perdure flow consent 20260527T14 --allow-command "make test" --allow-command "make docs"
        perdure flow consent 20260527T14 --allow-command "make test" --revoke

    Exit codes:
        2  no role can run the command, the mode is no-access, or there is no grant to revoke
    """
    _check_named(commands, "--allow-command")
    _check_named(tools, "--allow-tool")
    if commands and tools:
        raise UsageMistake("--allow-command and --allow-tool are two decisions: make one")
    if mode is None and not commands and not tools:
        raise UsageMistake("name a mode or something to allow; see --help")
    if is_revoked and not commands and not tools:
        raise UsageMistake("--revoke needs --allow-command or --allow-tool: name what to revoke")
    await _decide(
        common,
        flow,
        lambda handle: handle.consent(
            mode,
            command=tuple(tools or commands or ()) or None,
            tool="mcp" if tools else "bash",
            is_revoked=is_revoked,
            by=person(by),
        ),
        "Consent changed",
    )


def _check_named(names: Sequence[str] | None, option: str) -> None:
    """Raises: UsageMistake if one of `names` is empty."""
    if any(not name.strip() for name in names or ()):
        raise UsageMistake(f'{option} is empty; name what to allow, e.g. {option} "make test"')


async def configure(
    flow: FlowArgument,
    role: Annotated[str, typer.Argument(metavar="ROLE", help="A role instance.")],
    *,
    model: Annotated[
        str | None,
        typer.Option(
            "-m", "--model", metavar="MODEL", help="The model of the role, as provider:name."
        ),
    ] = None,
    tools: Annotated[
        list[str] | None,
        typer.Option(
            "--tool",
            metavar="NAME",
            help="A tool that the role can use; the role cannot use tools that you do not name.",
        ),
    ] = None,
    skills: Annotated[
        list[str] | None,
        typer.Option(
            "--skill",
            metavar="NAME",
            help="A skill for the role; --skill none removes all skills of the role.",
        ),
    ] = None,
    by: ByOption = None,
    common: CommonOptions,
) -> None:
    """Set the model, tools and skills of a role, from its next turn on.

    Choose skills before the role begins, because they are part of its first prompt. Without
    options, the role uses the model and tools of its agent, and the skills in the role's
    `skills.yaml`.

    Examples:
        perdure flow configure 20260527T14 developer_2 -m openai:gpt-5
        perdure flow configure 20260527T14 reviewer --tool read_file --skill careful-reading
        perdure flow configure 20260527T14 reviewer  # keep the defaults, if it waits for a choice

    Exit codes:
        2  unknown skill, tool or model
        4  the role is not in the workflow, or it has begun, so its skills are fixed
    """
    taught = None if skills is None else [name for name in skills if name != "none"]

    async def decide(handle: Flow) -> FlowState:
        if tools and role not in (await handle.state()).sessions:
            _check_tools(role, tools)
        return await handle.configure(
            role, model=model, tools=tools or None, skills=taught, by=person(by)
        )

    await _decide(common, flow, decide, f"{role} is configured")


def _check_tools(role: str, names: Sequence[str]) -> None:
    """Check that `names` are built-in tools, the only tools that this command knows.

    Raises: ConfigError.
    """
    unknown = [name for name in names if name not in BUILTIN]
    if unknown:
        told = no_tool(role, unknown, BUILTIN)
        raise ConfigError(f"{told}; tools of a program are named in it, with `Flow.configure`")
