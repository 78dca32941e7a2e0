"""The rows of a list of flows, those included that cannot be opened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from perdure.apps.terminal.advice import message_of
from perdure.apps.terminal.output import count_of
from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import one_line
from perdure.client.flows.flows import Flows
from perdure.client.store import Store
from perdure.engine.flows.rules.pending import FlowWait
from perdure.engine.flows.runner import can_continue
from perdure.errors import PerdureError
from perdure.session.flows.kinds import FlowImported, FlowStarted
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId


class Row(msgspec.Struct, frozen=True):
    """A flow; without `state` one that cannot be opened, and `problem` says why.

    `workers` are the processes that have nodes of it at work.
    """

    flow: str
    state: FlowState | None = None
    waiting: tuple[FlowWait, ...] = ()
    problem: str | None = None
    workers: tuple[str, ...] = ()


async def list_rows(store: Store, flows: Flows) -> list[Row]:
    """Every flow of the namespace, the newest first."""
    kinds = (FlowStarted.kind, FlowImported.kind)
    streams = dict.fromkeys(note.stream for note in await store.backend.notes_of_all(kinds))
    return [await _row(flows, stream) for stream in sorted(streams, reverse=True)]


async def _row(flows: Flows, stream: StreamId) -> Row:
    try:
        flow = flows.look(stream)
        state = await flow.state()
        workers = await flow.workers() if can_continue(state) else ()
        return Row(stream, state, await flow.waiting(), workers=workers)
    except PerdureError as error:
        return Row(stream, problem=message_of(error))


def row_data(row: Row) -> dict[str, object]:
    """A row for a program."""
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
    """A list for people: a flow a line."""
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
