"""Limits on outside input; a person or a program can change each limit.

The limits apply to the whole process. `use_input_limits` sets the limits; the command line reads
the limits from the table ``[limits]`` of the user's settings. A project's settings cannot change
the limits.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from perdure.bounds.short_repr import ShortRepr
from perdure.errors import LimitExceeded, WrongArgument

_Count = Annotated[int, Meta(ge=1, le=2**40)]


class InputLimits(ShortRepr, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Limits on sizes and counts.

    Units: a limit whose name ends in ``_bytes``, ``_characters`` or ``_s`` is a number of bytes,
    characters or seconds. All other limits are counts.
    """

    document_bytes: Annotated[
        _Count,
        Meta(
            description="A file with settings, an agent, a workflow, a flow, a skill or a scenario."
        ),
    ] = 1024 * 1024
    message_bytes: Annotated[
        _Count, Meta(description="A message that is appended or sent, without its media.")
    ] = 16 * 1024 * 1024
    title_characters: Annotated[_Count, Meta(description="The title of a session.")] = 1_000
    name_characters: Annotated[
        _Count, Meta(description="A label, the name of a workflow, or the id of an agent.")
    ] = 200
    artifact_bytes: Annotated[
        _Count, Meta(description="A file that a node of a flow hands over.")
    ] = 8 * 1024 * 1024
    import_file_bytes: Annotated[
        _Count, Meta(description="A file to import, if its format must be read as a whole.")
    ] = 256 * 1024 * 1024
    import_line_bytes: Annotated[_Count, Meta(description="One line of a file to import.")] = (
        64 * 1024 * 1024
    )
    import_folders: Annotated[
        _Count, Meta(description="The number of files and folders that an import of flows scans.")
    ] = 100_000
    template_bytes: Annotated[
        _Count,
        Meta(
            description="A filled template of a workflow or one value in it; "
            "the variables of a session."
        ),
    ] = 4 * 1024 * 1024
    glob_characters: Annotated[_Count, Meta(description="A glob pattern in a tool call.")] = 1_000
    mcp_tools: Annotated[_Count, Meta(description="The number of tools of one MCP server.")] = 500
    mcp_schema_parts: Annotated[
        _Count, Meta(description="The number of parts in the schema of one tool of an MCP server.")
    ] = 2_000
    mcp_server_parts: Annotated[
        _Count, Meta(description="The number of parts in all schemas of one MCP server.")
    ] = 50_000
    mcp_schema_depth: Annotated[
        Annotated[int, Meta(ge=1, le=64)],
        Meta(description="The number of nested levels in the schema of a tool of an MCP server."),
    ] = 16
    mcp_answer_bytes: Annotated[
        _Count, Meta(description="One answer of an MCP server, or one line of its program.")
    ] = 16 * 1024 * 1024
    model_answer_bytes: Annotated[_Count, Meta(description="One answer of a model's provider.")] = (
        64 * 1024 * 1024
    )
    model_silence_s: Annotated[
        Annotated[float, Meta(gt=0, le=86_400)],
        Meta(description="How long a model's provider can be silent during an answer."),
    ] = 600.0

    def __post_init__(self) -> None:
        defaults = zip(self.__struct_fields__, self.__struct_defaults__, strict=True)
        changed = {name for name, default in defaults if getattr(self, name) is not default}
        # Defaults are valid, and reading the types of the fields is slow.
        for field in msgspec.structs.fields(type(self)) if changed else ():
            if field.name not in changed:
                continue
            given: object = getattr(self, field.name)
            try:
                msgspec.convert(given, field.type)
            except msgspec.ValidationError as error:
                told = f"InputLimits takes a number in range as {field.name}"
                kind = f"{given}" if isinstance(given, int | float) else type(given).__name__
                raise WrongArgument(
                    f"{told}, not {kind}", argument=field.name, takes="a number"
                ) from error


_in_force = [InputLimits()]


def limits() -> InputLimits:
    """Return the limits of this process."""
    return _in_force[0]


def use_input_limits(given: InputLimits) -> None:
    """Set the limits of this process for all following work.

    Raises: WrongArgument if `given` is not an `InputLimits`.
    """
    if not isinstance(given, InputLimits):  # pyright: ignore[reportUnnecessaryIsInstance] - of others
        told = f"use_input_limits takes InputLimits as given, not {type(given).__name__}"
        raise WrongArgument(told, argument="given", takes="InputLimits")
    _in_force[0] = given


def require_within(limit: str, size: int, what: str) -> None:
    """Reject `what` if its `size` exceeds the limit called `limit`.

    Raises: LimitExceeded.
    """
    most = getattr(limits(), limit)
    if size > most:
        raise LimitExceeded(what, limit, most)
