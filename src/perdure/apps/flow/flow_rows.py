"""``perdure flow list``: lists the flows of a namespace with their states. Loads no agent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.terminal.advice import message_of
from perdure.apps.terminal.output import count_of, out_style, show, show_json, show_lines, width
from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import one_line
from perdure.client.flows.waits import waiting_in, workers_of
from perdure.client.store import Store
from perdure.engine.flows.continuation import can_continue
from perdure.engine.flows.journal import Journal, flows_in
from perdure.engine.flows.rules.flow_waits import FlowWait
from perdure.errors import PerdureError
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId


async def list_flows(*, common: CommonOptions) -> None:
    """List flows, newest first, each with the reason why it waits.

    Flows of a newer perdure are listed too, but cannot be opened. With --json, this and all other
    flow commands print the id of a flow in the field `flow`.

    Examples:
        perdure flow list
        perdure flow list --json
    """
    async with common.existing_store() as opened:
        rows = await list_rows(opened)
        backend = opened.backend
    if common.as_json:
        show_json([row_data(row) for row in rows])
    elif rows:
        show_lines(row_lines(rows, out_style(), width()))
    elif backend.capabilities.multi_stream_commit:
        show("There are no flows yet: `perdure flow run FILE` begins one.")
    else:
        kind = backend.address.partition(":")[0]
        show(f"A {kind} store cannot hold flows; name another store: --store sqlite:///FILE")


class Row(msgspec.Struct, frozen=True):
    """A flow in the list; if `state` is None, the flow cannot be opened and `problem` says why.

    `workers` are the processes that run the flow's nodes.
    """

    flow: str
    state: FlowState | None = None
    waiting: tuple[FlowWait, ...] = ()
    problem: str | None = None
    workers: tuple[str, ...] = ()


async def list_rows(store: Store) -> list[Row]:
    """Return every flow of the namespace, newest first."""
    return [await _row(store, stream) for stream in await flows_in(store.backend)]


async def _row(store: Store, stream: StreamId) -> Row:
    try:
        state = await Journal(store.backend, stream, store.outside.clock).state()
        workers = await workers_of(store, state) if can_continue(state) else ()
        return Row(stream, state, await waiting_in(store, state), workers=workers)
    except PerdureError as error:
        return Row(stream, problem=message_of(error))


def row_data(row: Row) -> dict[str, object]:
    """Return a row as JSON data."""
    if row.state is None:
        return {"flow": row.flow, "openable": False, "problem": row.problem}
    run = row.state.run
    return {
        "flow": row.flow,
        "openable": True,
        "name": run.record_name,
        "project": run.project_namespace,
        "status": run.status,
        "running": run.running_nodes,
        "workers": row.workers,
        "waiting": [each.text for each in row.waiting],
        "workspace": run.workspace_root,
    }


def row_lines(rows: Sequence[Row], style: Style, width: int) -> Iterator[str]:
    """Format a list for people, one flow per line."""
    for row in rows:
        if row.state is None:
            told = style.paint(f"cannot be opened: {row.problem}", "bad")
            yield f"{style.paint(row.flow, 'strong')}  {told}"
            continue
        run = row.state.run
        parts = [run.status.replace("_", " ")]
        if run.running_nodes:
            at_work = count_of(len(run.running_nodes), "node") + " at work"
            parts += [at_work] if row.workers else []
        queued = len(run.pending_human_inputs)
        parts += [f"{count_of(queued, 'reply', 'replies')} queued"] if queued else []
        parts += ["no process runs it"] if can_continue(row.state) and not row.workers else []
        parts += [f"waits for you: {len(row.waiting)}"] if row.waiting else []
        name = one_line(run.record_name or "", max(10, width - len(row.flow) - 50))
        yield f"{style.paint(row.flow, 'strong')}  {name}  {style.paint(', '.join(parts), 'faint')}"
