"""A server's tools as tools of an agent, with the usual approvals, checks and limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, cast

import msgspec

from perdure.bounds.limits import limits
from perdure.errors import InvalidArguments, ToolError
from perdure.session.ledger import UnknownPolicy
from perdure.tools.approval import Bound, hash_of
from perdure.tools.decorator import POLICY_BY_EFFECT
from perdure.tools.mcp.connection import Connection
from perdure.tools.mcp.results import output_of
from perdure.tools.mcp.schemas import MAX_DESCRIPTION, UnsupportedSchema, misfit, portable_within
from perdure.tools.mcp.servers import McpServer
from perdure.tools.mcp.tool_names import assign_names
from perdure.tools.permissions import Permissions
from perdure.tools.spec import Run, Subject, ToolCall, ToolOutput, ToolSpec

_canonical = msgspec.json.Encoder(order="deterministic")


class LeftOut(msgspec.Struct, frozen=True):
    """A tool of a server that an agent does not get, and the reason."""

    tool: str
    reason: str


class Offer(msgspec.Struct, frozen=True):
    """The tools of a server for an agent. Shape: both in the server's order."""

    server: str
    tools: tuple[ToolSpec, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


async def offer_tools(connection: Connection, taken: Collection[str] = ()) -> Offer:
    """Return the usable tools of a server; `taken` are the names of other tools.

    Raises: McpUnavailable if it is unreachable, or lacks a tool of its ``tools_allowlist``.
    """
    server = connection.server
    listed = {str(tool.name): tool for tool in await connection.tools()}
    if server.tools_allowlist is not None:
        wanted = [name for name in server.tools_allowlist if name in listed]
        if missing := sorted(set(server.tools_allowlist) - set(wanted)):
            raise connection.lacks(missing)
        listed = {name: listed[name] for name in wanted}
    kept, refused = assign_names(server.prefix, listed, taken)
    left_out = [LeftOut(tool, reason) for tool, reason in refused.items()]
    specs: list[ToolSpec] = []
    most, left = limits().mcp_tools, [limits().mcp_server_parts]
    for number, (name, tool) in enumerate(kept.items()):
        if number >= most:
            reason = f"its server has more than limits.mcp_tools = {most} tools; name those to use"
            left_out.append(LeftOut(f"{tool} and {len(kept) - number - 1} more", reason))
            break
        await asyncio.sleep(0)  # let other tasks run between many schemas
        try:
            specs.append(_spec(connection, name, listed[tool], left))
        except UnsupportedSchema as error:
            left_out.append(LeftOut(tool, f"its schema cannot be used: {error}"))
    return Offer(server.name, tuple(specs), tuple(left_out))


def _spec(connection: Connection, name: str, tool: Any, left: list[int]) -> ToolSpec:
    server = connection.server
    schema = portable_within(cast("Mapping[str, Any]", tool.input_schema), left)
    hints = tool.annotations if server.trusts_annotations else None
    is_reading = hints is not None and hints.read_only_hint is True
    effect = "read" if is_reading else "external"
    policy: UnknownPolicy = server.on_unknown or POLICY_BY_EFFECT[effect]
    if server.on_unknown is None and hints is not None and hints.idempotent_hint is True:
        policy = "retry"
    return ToolSpec(
        name=name,
        description=str(tool.description or tool.title or tool.name)[:MAX_DESCRIPTION],
        parameters=schema,
        run=_run(connection, name, str(tool.name), schema),
        effect=effect,
        on_unknown=policy,
        timeout_s=server.timeout_s,
        action=None if is_reading else "egress" if server.is_remote else "process",
        examine=_examine(server, str(tool.name)),
        bind=_bind(server),
        arguments=partial(_checked, name, schema),
        is_outside=True,
    )


def _checked(
    name: str, schema: Mapping[str, Any], args: Mapping[str, object]
) -> Mapping[str, object]:
    reason = misfit(schema, dict(args))
    if reason is not None:
        raise InvalidArguments(name, reason)
    return args


def _examine(
    server: McpServer, tool: str
) -> Callable[[Mapping[str, object], Permissions], Subject]:
    def examine(args: Mapping[str, object], permissions: Permissions) -> Subject:
        shown = f"{server.name}: {tool} {_canonical.encode(dict(args)).decode()}"
        return Subject(shown, shown)

    return examine


def _bind(server: McpServer) -> Callable[[ToolCall], Bound]:
    """Bind an approval to the server's current configuration."""
    facts = {"server": server.name, "configuration": hash_of(_canonical.encode(server))}

    def bind(call: ToolCall) -> Bound:
        return Bound(facts)

    return bind


def _run(connection: Connection, name: str, tool: str, schema: Mapping[str, Any]) -> Run:
    async def run(call: ToolCall) -> ToolOutput:
        args = _checked(name, schema, call.args)
        result = await connection.call(name, tool, args)
        try:
            content = [part.model_dump(by_alias=True, mode="json") for part in result.content]
            output = output_of(content, result.structured_content, is_error=result.is_error is True)
        except (AttributeError, TypeError, ValueError):
            raise ToolError(name, "the answer of its server cannot be read") from None
        text = connection.secrets.scrub(output.text)
        return msgspec.structs.replace(output, text=text)

    return run
