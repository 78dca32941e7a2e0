"""Offer a server's tools as tools of an agent, with the usual approvals, checks and limits."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, cast

import msgspec

from perdure.bounds.limits import limits
from perdure.errors import InvalidArguments, ToolError
from perdure.session.ledger import UnknownPolicy
from perdure.session.media.inline import InlineMedia, media
from perdure.tools.approval import Bound, hash_of
from perdure.tools.decorator import POLICY_BY_EFFECT
from perdure.tools.execution import shorten_text
from perdure.tools.mcp.connection import Connection
from perdure.tools.mcp.schemas import MAX_DESCRIPTION, UnsupportedSchema, misfit, portable_within
from perdure.tools.mcp.servers import McpServer
from perdure.tools.permissions import Permissions
from perdure.tools.spec import Run, Subject, ToolCall, ToolOutput, ToolSpec

_canonical = msgspec.json.Encoder(order="deterministic")


class LeftOut(msgspec.Struct, frozen=True):
    """A tool of a server that the agent does not get, and the reason."""

    tool: str
    reason: str


class Offer(msgspec.Struct, frozen=True):
    """The tools of a server that an agent gets, and the tools that it does not get.

    Shape: `tools` and `left_out` are in the server's order.
    """

    server: str
    tools: tuple[ToolSpec, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


async def offer_tools(connection: Connection, taken: Collection[str] = ()) -> Offer:
    """Return the usable tools of a server. `taken` are the names of the agent's other tools.

    Raises: McpUnavailable if the server is unreachable, or lacks a tool of its ``tools_allowlist``.
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
    # An approval is valid only for the server's configuration.
    bound = Bound({"server": server.name, "configuration": hash_of(_canonical.encode(server))})
    return ToolSpec(
        name=name,
        description=str(tool.description or tool.title or tool.name)[:MAX_DESCRIPTION],
        parameters=schema,
        run=_run(connection, name, str(tool.name), schema),
        effect=effect,
        on_unknown=policy,
        timeout_s=server.timeout_s,
        action=None if is_reading else "egress" if server.is_remote else "process",
        examine=partial(_examine, server, str(tool.name)),
        bind=lambda _: bound,
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


def _examine(server: McpServer, tool: str, args: Mapping[str, object], _: Permissions) -> Subject:
    """Describe a call to a person who approves it."""
    shown = f"{server.name}: {tool} {_canonical.encode(dict(args)).decode()}"
    return Subject(shown, shown)


def _run(connection: Connection, name: str, tool: str, schema: Mapping[str, Any]) -> Run:
    async def run(call: ToolCall) -> ToolOutput:
        args = _checked(name, schema, call.args)
        result = await connection.call(name, tool, args)
        try:
            content = [part.model_dump(by_alias=True, mode="json") for part in result.content]
            return output_of(
                content,
                result.structured_content,
                is_error=result.is_error is True,
                scrub=connection.secrets.scrub,
            )
        except (AttributeError, TypeError, ValueError):
            raise ToolError(name, "the answer of its server cannot be read") from None

    return run


MAX_TEXT_BYTES = 4 * 1024 * 1024
MAX_PARTS = 256
MAX_PICTURES = 16
MAX_PICTURE_BYTES = 256 * 1024
PICTURES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))

Content = Mapping[str, Any]


def output_of(
    content: list[Content],
    structured: object,
    *,
    is_error: bool,
    scrub: Callable[[str], str] = str,
) -> ToolOutput:
    """Convert a server's answer (its parts `content` and its value `structured`) to an output.

    `scrub` removes secrets from each text before the text is cut.
    """
    texts: list[str] = []
    pictures: list[InlineMedia] = []
    for part in content[:MAX_PARTS]:
        picture = _picture(part) if len(pictures) < MAX_PICTURES else None
        if picture is not None:
            pictures.append(picture)
        texts.append(_part_text(part, scrub))
    if len(content) > MAX_PARTS:
        texts.append(f"[{len(content) - MAX_PARTS} more parts were left out]")
    if structured is not None and not any(part.get("type") == "text" for part in content):
        texts.append(msgspec.json.encode(structured).decode())
    text = shorten_text(scrub("\n".join(texts)), MAX_TEXT_BYTES)
    return ToolOutput(text or "done", is_error=is_error, media=tuple(pictures))


def _part_text(part: Content, scrub: Callable[[str], str]) -> str:
    kind = str(part.get("type", "unknown"))
    if kind == "text":
        return str(part.get("text", ""))
    if kind == "resource":
        return _resource(part.get("resource"), scrub)
    return f"[{' '.join((kind, *_facts(part, scrub)))}]"


def _resource(given: object, scrub: Callable[[str], str]) -> str:
    resource: Content = cast("Content", given) if isinstance(given, Mapping) else {}
    marker = f"[{' '.join(('resource', *_facts(resource, scrub)))}]"
    text = resource.get("text")
    return f"{marker}\n{text}" if isinstance(text, str) else marker


def _facts(part: Content, scrub: Callable[[str], str]) -> Iterator[str]:
    """Yield texts that describe a part of an answer, such as its type and size, not its content."""
    for name in ("mimeType", "name", "uri"):
        if isinstance(part.get(name), str):
            yield scrub(str(part[name]))[:200]
    encoded = part.get("data", part.get("blob"))
    if isinstance(encoded, str):
        yield f"{len(encoded.rstrip('=')) * 3 // 4} bytes"


def _picture(part: Content) -> InlineMedia | None:
    kind, encoded = part.get("mimeType"), part.get("data")
    is_picture = part.get("type") == "image" and kind in PICTURES and isinstance(encoded, str)
    if not is_picture or len(str(encoded)) > MAX_PICTURE_BYTES * 4 // 3 + 4:
        return None
    try:
        content = base64.b64decode(str(encoded), validate=True)
        return media(content, str(kind))
    except (binascii.Error, ValueError):
        return None


MAX_NAME = 128
"""Maximum length of ``mcp_{server}_{tool}``; tools with longer names are dropped."""

SHOWN_NAME = 64
"""Maximum length of a tool name that all providers accept.

A longer name is cut and gets a hash of the whole name.
"""

_foreign = re.compile(r"[^A-Za-z0-9_-]")
_HASH_DIGITS = 8


def tool_name(prefix: str, tool: str) -> str | None:
    """Return the name of the server's tool in perdure; None if that name is too long or empty."""
    whole = prefix + tool
    if not tool or len(whole) > MAX_NAME:
        return None
    name = _foreign.sub("_", whole)
    if len(name) <= SHOWN_NAME:
        return name
    digest = hashlib.blake2b(whole.encode(), digest_size=_HASH_DIGITS // 2).hexdigest()
    return f"{name[: SHOWN_NAME - _HASH_DIGITS - 1]}_{digest}"


def assign_names(
    prefix: str, tools: Iterable[str], taken: Iterable[str] = ()
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Map names in perdure to usable tools, and unusable tools to the reasons.

    If two tools would have the same name, the first one gets it. `taken` are names of other tools.
    """
    used = set(taken)
    kept: dict[str, str] = {}
    refused: dict[str, str] = {}
    for tool in tools:
        name = tool_name(prefix, tool)
        if name is None:
            refused[tool[:MAX_NAME]] = f"its name is empty or longer than {MAX_NAME} characters"
        elif name in used:
            refused[tool] = f"there is another tool called {name}"
        else:
            used.add(name)
            kept[name] = tool
    return kept, refused
