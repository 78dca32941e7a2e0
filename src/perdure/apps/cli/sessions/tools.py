"""``perdure sessions tools``: the record of tool calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.options import MOST
from perdure.apps.cli.store_options import CommonOptions, named_session
from perdure.apps.session_rows import short_ids
from perdure.apps.terminal.output import local_time, out_style, width
from perdure.apps.terminal.text import Column, one_line, table
from perdure.session.clock import timestamp
from perdure.session.records import ToolCallRecord

_TEXT = 400
"""Maximum number of characters of an input, output or error in a line."""


async def tools(
    session: Annotated[
        str | None, typer.Argument(metavar="ID", help="The session; default: all sessions.")
    ] = None,
    *,
    tool: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only calls of this tool.")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only calls that failed.")] = False,
    last: Annotated[
        int,
        typer.Option(min=0, max=MOST, metavar="N", help="List at most the newest N; 0: all calls."),
    ] = 100,
    common: CommonOptions,
) -> None:
    """List tool calls with input, result and duration, oldest first.

    Calls in imported sessions have no duration. --json prints whole inputs and outputs.

    Examples:
        perdure sessions tools 01jd
        perdure sessions tools --failed --last 20
        perdure sessions tools --tool run_command --json
    """
    async with common.existing_store() as opened:
        found = await opened.tool_calls(
            session=None if session is None else await named_session(opened, session),
            tool=tool,
            failed=failed or None,
            last=last or None,
        )
        streams = list({call.session for call in found}) if session is None else []
        ids = await short_ids(opened, streams)
    common.show(
        [_data(call) for call in found],
        _rows(found, ids) if found else "No tool calls found.",
    )


def _data(call: ToolCallRecord) -> dict[str, object]:
    return {**msgspec.structs.asdict(call), "called_at": timestamp(call.called_at)}


def _rows(found: Sequence[ToolCallRecord], ids: Mapping[str, str]) -> Iterator[str]:
    """Return the table; it has a column SESSION if `ids` (session id -> short id) is not empty."""
    columns = [
        Column("CALLED AT", "faint"),
        Column("TOOL", "strong"),
        Column("RESULT"),
        Column("MS", is_right=True),
        Column("INPUT", gives_way=True),
        Column("OUTPUT", gives_way=True),
    ]
    rows = [list(_row(call)) for call in found]
    if ids:
        columns.insert(0, Column("SESSION"))
        rows = [[ids[call.session], *row] for call, row in zip(found, rows, strict=True)]
    return table(columns, rows, width(), out_style())


def _row(call: ToolCallRecord) -> Iterator[str]:
    yield local_time(call.called_at)
    yield one_line(call.name, _TEXT)
    yield _result(call)
    yield "" if call.duration_ms is None else f"{call.duration_ms:,}"
    yield one_line(msgspec.json.encode(call.input).decode(), _TEXT)
    yield one_line(call.error or call.output or "", _TEXT)


def _result(call: ToolCallRecord) -> str:
    if call.success is None:
        return "no result"
    return call.outcome or ("ok" if call.success else "error")
