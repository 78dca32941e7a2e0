"""The read-only commands of ``perdure sessions``.

The commands that write are in ``changes``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.apps import session_rows
from perdure.apps.cli.options import MOST, SessionArgument
from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.cli.surface.groups import Group
from perdure.apps.terminal.outline import Line, Row, draw, lines_of
from perdure.apps.terminal.output import out_style, show, show_encoded, show_lines, width
from perdure.client.session import Session
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.tree import branch_to, tree_json, tree_of
from perdure.stores.access.lazy_modules import Later
from perdure.stores.session_store import SessionStore

if TYPE_CHECKING:
    from perdure.apps import session_costs
    from perdure.apps.terminal import contexts, reports
    from perdure.client.conversation import lineage
    from perdure.client.memory import last_turn
else:
    contexts = Later("perdure.apps.terminal.contexts")
    last_turn = Later("perdure.client.memory.last_turn")
    lineage = Later("perdure.client.conversation.lineage")
    reports = Later("perdure.apps.terminal.reports")
    session_costs = Later("perdure.apps.session_costs")

_PLACES = {
    "list": "perdure.apps.cli.sessions.overview:list_sessions",
    "read": "perdure.apps.cli.sessions.reader:read",
    "branch": "perdure.apps.cli.sessions.changes:branch",
    "fork": "perdure.apps.cli.sessions.changes:fork",
    "label": "perdure.apps.cli.sessions.changes:label",
    "rename": "perdure.apps.cli.sessions.changes:rename",
    "pin": "perdure.apps.cli.sessions.changes:pin",
    "unpin": "perdure.apps.cli.sessions.changes:unpin",
    "compact": "perdure.apps.cli.sessions.changes:compact",
    "uncompact": "perdure.apps.cli.sessions.changes:uncompact",
    "abandon": "perdure.apps.cli.sessions.changes:abandon",
    "end": "perdure.apps.cli.sessions.changes:end",
    "search": "perdure.apps.cli.sessions.search:search",
    "resume": "perdure.apps.chat.resumption:resume",
    "pick": "perdure.apps.picker.command:pick",
    "diff": "perdure.apps.cli.sessions.diff:diff",
    "erase": "perdure.apps.cli.sessions.erase:erase",
    "erasures": "perdure.apps.cli.sessions.erase:erasures",
    "tools": "perdure.apps.cli.sessions.tools:tools",
}

TREE_LINES = 200
"""Default number of lines into which `sessions tree` fits a tree."""

_READ_PER_LINE = 5
"""Number of entries that `sessions tree` reads for each line."""

HELP = """List, show, search and change sessions.

Name a session by its id, by the beginning of its id, or by the file it was imported from. Name an
entry by its number, which `perdure sessions tree` shows.

Examples:
    perdure sessions list
    perdure sessions pick  # choose one interactively
"""

sessions = Group(_PLACES, help=HELP, no_args_is_help=True)


@sessions.command("show")
async def show_session(session: SessionArgument, *, common: CommonOptions) -> None:
    """Show a session and its current branch.

    Prints the title, folder, times, program, agent, number of messages, open questions, tokens and
    cost (as in `perdure usage sessions`), and the messages of the current branch, with older
    messages collapsed. `perdure sessions context` prints the agent's instructions and tools. Of a
    long branch only the newest 400 entries are shown; --json prints all entries.

    Examples:
        perdure sessions show 01jd                # by the beginning of its id
        perdure sessions show ~/old/session.jsonl  # by a file that was imported

    Exit codes:
        3  session not found, or the file was not imported
    """
    async with common.opened_session(session) as (opened, handle):
        most = None if common.as_json else reports.MOST_READ
        with session_costs.prices_in_force() as prices:
            calls = await opened.usage("model", session=handle.id, prices=prices)
        spent = session_costs.sum_of(calls)
        report = await reports.report_of(handle, opened.backend, most, spent)
        state = (await session_rows.states_of(opened, [report.info]))[report.info.id]
    data = {**reports.report_data(report), "state": state}
    common.show(data, reports.report_lines(report, width(), out_style()))


@sessions.command("tree")
async def show_tree(
    session: SessionArgument,
    *,
    is_all: Annotated[bool, typer.Option("--all", help="Show every entry.")] = False,
    limit: Annotated[
        int,
        typer.Option(
            min=1,
            max=MOST,
            metavar="LINES",
            help="Collapse entries until the tree has about this many lines.",
        ),
    ] = TREE_LINES,
    depth: Annotated[
        int | None,
        typer.Option(min=0, max=MOST, metavar="N", help="Collapse branches below this depth."),
    ] = None,
    common: CommonOptions,
) -> None:
    """Draw the tree of a session.

    Shows every branch, label and compaction. If the session is long, only the newest entries are
    read (five for each line of the tree). --all shows every entry. The current branch is drawn as a
    straight line, with the other branches to the right of the line. Use the printed numbers to name
    entries in other commands.

    Examples:
        perdure sessions tree 01jd
        perdure sessions tree 01jd --all  # every entry
    """
    async with common.opened_session(session) as (opened, handle):
        last = None if is_all or common.as_json else limit * _READ_PER_LINE
        entries = await handle.tree_entries(last)
        roots = tree_of(entries, await handle.labels())
        children = await lineage.children_of(opened.backend, handle.id, last)
        earlier = await _earlier(handle, opened.backend, entries) if last else 0
    if common.as_json:
        show_encoded(tree_json(roots, handle.leaf))
        return
    lines = lines_of(roots, handle.leaf, limit=None if is_all else limit, depth=depth)
    if earlier:
        show(reports.earlier_line(earlier, "--all"))
    show_lines(draw(lines, handle.id, width(), out_style()))
    show_lines(_foreign(lines, handle.id))
    show_lines(reports.children_lines(children, out_style()))
    if not lines:
        show("This session has no messages yet.")


async def _earlier(session: Session, store: SessionStore, entries: Sequence[Entry]) -> int:
    """Count the entries of the current branch that are not in `entries`."""
    window = await store.context_window(session.id, session.leaf, 1)
    length = window.hidden + window.earlier + len(window.entries)
    return length - len(branch_to(session.leaf, {entry.id: entry for entry in entries}))


def _foreign(lines: Sequence[Line], own: StreamId) -> Iterator[str]:
    """Explain the ids of those entries in `lines` that do not belong to the session `own`."""
    streams = dict.fromkeys(line.entry.stream for line in lines if isinstance(line, Row))
    for stream in streams:
        if stream != own:
            text = f"entries of {stream} are shared; their ids are {stream}/NUMBER"
            yield out_style().paint(text, "faint")


@sessions.command("context")
async def show_context(
    session: SessionArgument,
    *,
    budget: Annotated[
        int | None,
        typer.Option(min=1, max=MOST, metavar="TOKENS", help="The maximum size of the context."),
    ] = None,
    common: CommonOptions,
) -> None:
    """Show the context that a model would receive now.

    Prints the agent's instructions, the names of its tools, every message with its size and
    entries, and the messages that a compaction hides or a budget leaves out. The schemas of the
    tools are not printed, because the log does not contain them. Before the messages, prints the
    texts that were recalled for the last turn, with scores and reasons, and the recalled texts that
    were not sent to the model.

    Examples:
        perdure sessions context 01jd
        perdure sessions context 01jd --budget 8000  # what would be left out
    """
    async with common.opened_session(session) as (opened, handle):
        context = await handle.context(budget)
        report = await reports.report_of(handle, opened.backend, 1)
        last = await last_turn.last_turn_of(opened.backend, handle.id)
    common.show(
        contexts.context_data(context, report.system_prompt, last, report.tools),
        contexts.context_lines(context, report, budget, out_style(), last),
    )
