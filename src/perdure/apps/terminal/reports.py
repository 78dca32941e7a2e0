"""The report on one session, shown as text or JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import cast

import msgspec

from perdure.apps.session_rows import row_data
from perdure.apps.terminal.costs import cost_text
from perdure.apps.terminal.outline import draw, lines_of
from perdure.apps.terminal.output import count_of, local_time
from perdure.apps.terminal.previews import entry_data
from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import one_line
from perdure.client.conversation.agent_binding import BINDING_KINDS, context_settings_in, tool_names
from perdure.client.conversation.authority import Authority, Withheld, authority_of
from perdure.client.conversation.lineage import Child, children_of, invocation_of
from perdure.client.reads import OpenQuestion
from perdure.client.session import Session
from perdure.context.build import Context, build_context
from perdure.context.tokens import reported_tokens
from perdure.engine.turns.recovery import lost_effect, open_turn
from perdure.errors import SessionError
from perdure.session.clock import timestamp
from perdure.session.codec import body_of, encode
from perdure.session.entries import Entry
from perdure.session.fold import ContextWindow
from perdure.session.ids import EntryId
from perdure.session.info import SessionInfo
from perdure.session.ledger import Interrupted
from perdure.session.messages import Usage
from perdure.session.notes import Invocation, SessionExported
from perdure.session.records import UsageTotal
from perdure.session.tree import index_of, nodes_of
from perdure.stores.session_store import SessionStore

BRANCH_LINES = 40
"""Number of lines to which the display of a branch is shortened."""

MOST_READ = 400
"""Maximum number of entries of a branch, and of a tree, that are read to display a session."""

_LOG_OF_TREE = 5
"""Number of log entries that are searched for invoked agents, per tree entry that is read."""

NOTHING_SPENT = UsageTotal("", 0, Usage(), 0, 0)

NOT_IN_FORCE: Mapping[Withheld, str] = {
    "imported": "it was imported",
    "unknown": "your perdure did not write it, or entries of it were erased",
}
"""Reasons why the settings that came with a session are not in force on this machine."""


class ReportedExport(msgspec.Struct, frozen=True):
    """A file to which the session was exported. Units: `at` is Unix milliseconds."""

    at: int
    path: str
    format: str
    dialect: str | None


class Report(msgspec.Struct, frozen=True):
    """The state of a session at one moment.

    Shape: `branch` contains the entries in the order root -> leaf; `system_prompt` is the system
    prompt of the agent. `tools` are the names of the agent's tools; None if the session has no
    agent. `cut` is the partial answer after the last message of the branch; the context does not
    include it. `branches` is the number of branch ends in the tree. `spent` is the usage of the
    calls in the session's own log. `earlier` is the number of entries of the branch that come
    before the entries in `branch`. If `newest` is given, `branches` counts only the branch ends
    among the `newest` newest entries of the tree. If `is_context_larger` is True, the context has
    more tokens than the report states.
    """

    info: SessionInfo
    head: int
    leaf: EntryId | None
    has_open_turn: bool
    window: ContextWindow
    context: Context
    branch: tuple[Entry, ...]
    branches: int
    labels: Mapping[EntryId, str]
    spent: UsageTotal
    questions: tuple[OpenQuestion, ...]
    agent: str | None = None
    system_prompt: str | None = None
    tools: tuple[str, ...] | None = None
    invoked_by: Invocation | None = None
    children: tuple[Child, ...] = ()
    authority: Authority = Authority(None)
    cut: str | None = None
    exports: tuple[ReportedExport, ...] = ()
    earlier: int = 0
    newest: int | None = None
    is_context_larger: bool = False


async def report_of(
    session: Session,
    store: SessionStore,
    last: int | None = None,
    spent: UsageTotal = NOTHING_SPENT,
) -> Report:
    """Return the report on `session`, whose log is in `store` and whose usage is `spent`.

    With `last`, at most the newest `last` entries of the tree and of the branch are read.
    """
    state = await store.state(session.id)
    entries = await store.tree(session.id, None if last is None else last + 1)
    tree = index_of(entries if last is None else entries[-last:])
    authority = await authority_of(store, session.id)
    bound = authority.bound
    branch = tuple(await store.branch(session.id, state.leaf, limit=last))
    window = await store.context_window(session.id, state.leaf, last)
    context, is_least = await _context_of(session, store, window)
    calls = None if last is None else last * _LOG_OF_TREE
    return Report(
        info=state.info,
        head=state.head,
        leaf=state.leaf,
        has_open_turn=state.open_turn is not None,
        window=window,
        context=context,
        branch=branch,
        branches=sum(1 for id_ in tree.by_id if not tree.children.get(id_)),
        labels=await session.labels(),
        spent=spent,
        questions=tuple(await session.questions()),
        agent=None if bound is None else str((bound.agent or {}).get("id", "")),
        system_prompt=None if bound is None else bound.system_prompt,
        tools=None if bound is None else tool_names(bound.agent or {}),
        invoked_by=await invocation_of(store, state),
        children=tuple(await children_of(store, session.id, calls)),
        authority=authority,
        cut=await cut_answer(session, store, branch[-1] if branch else None),
        exports=tuple([each async for each in _exports(session, store)]),
        earlier=window.hidden + window.earlier + len(window.entries) - len(branch),
        newest=len(tree.by_id) if last is not None and len(entries) > last else None,
        is_context_larger=is_least,
    )


async def _context_of(
    session: Session, store: SessionStore, window: ContextWindow
) -> tuple[Context, bool]:
    """Return the context of `session`, and whether it really has more tokens than `Context.tokens`.

    If `window` leaves out earlier entries, `tokens` is exact only if a message in the window
    reports its usage.
    """
    if not window.earlier:
        return await session.context(), False
    shaping = context_settings_in(await store.notes(session.id, BINDING_KINDS))
    end = build_context(msgspec.structs.replace(window, earlier=0), history=shaping.history)
    small = await session.context(1)
    is_least = not any(reported_tokens(each.message) for each in end.messages)
    return msgspec.structs.replace(small, tokens=end.tokens), is_least


async def cut_answer(session: Session, store: SessionStore, last: Entry | None) -> str | None:
    """Return the text of the partial answer after `last`, or None; `last` is the end of the branch.

    If a turn is open, the partial answer belongs to this turn, whose process was killed or still
    receives the answer. For a damaged turn, the result is None.
    """
    try:
        turn = await open_turn(store, session.id)
        if turn is not None:
            is_answer = turn.open_call is not None and turn.open_call.purpose == "answer"
            arrived = (await lost_effect(store, turn)).partial if is_answer else None
            return None if arrived is None else arrived.text or None
        notes = await store.notes(session.id, (Interrupted.kind,))
        if not notes or last is None or last.stream != session.id or notes[-1].seq < last.seq:
            return None
        body = body_of(notes[-1])
    except SessionError:
        return None
    return body.partial.text if isinstance(body, Interrupted) else None


async def _exports(session: Session, store: SessionStore) -> AsyncIterator[ReportedExport]:
    """Yield the files to which the session itself was exported, oldest first."""
    for note in await store.notes(session.id, (SessionExported.kind,)):
        try:
            body = body_of(note)
        except SessionError:
            continue
        if isinstance(body, SessionExported) and note.stream == session.id:
            yield ReportedExport(note.at, body.path, body.format, body.dialect)


def report_data(report: Report) -> dict[str, object]:
    """Return `report` as JSON data, including the fields of a row in a session list."""
    info = report.info
    context = report.context
    return {
        **row_data(info),
        "origin": info.origin,
        "turns": info.turns,
        "head": report.head,
        "leaf": report.leaf,
        "open_turn": report.has_open_turn,
        "agent": report.agent,
        "model": context.model,
        "thinking_level": context.thinking_level,
        "context_tokens": context.tokens,
        "usage": usage_data(report.spent.usage),
        "unpriced_calls": report.spent.unpriced_calls,
        "branches": report.branches,
        "labels": report.labels,
        "questions": len(report.questions),
        "invoked_by": None
        if report.invoked_by is None
        else {"session": report.invoked_by.session, "call_id": report.invoked_by.call_id},
        "children": [
            {"session": child.info.id, "agent": child.agent, "call_id": child.call_id}
            for child in report.children
        ],
        "authority": authority_data(report.authority),
        "cut_answer": report.cut,
        "exports": [
            {**msgspec.structs.asdict(each), "at": timestamp(each.at)} for each in report.exports
        ],
        "branch": [entry_data(entry, report.labels) for entry in report.branch],
    }


def authority_data(authority: Authority) -> dict[str, object]:
    """Return the settings that came with a session, and whether each is in force, as JSON data."""
    bound = authority.bound
    agent = {} if bound is None or bound.agent is None else bound.agent
    workspace = {} if bound is None or bound.workspace is None else bound.workspace
    return {
        "in_force": authority.withheld is None,
        "reason": authority.withheld,
        "open_turn_in_force": authority.turn is None,
        "agent_in_force": authority.agent is None,
        "permissions": agent.get("permissions") or {},
        "tools": list(tool_names(agent)),
        "mcp_servers": agent.get("mcp_servers") or [],
        "working_dir": workspace.get("working_dir"),
        "system_prompt": None if bound is None else bound.system_prompt,
    }


def _authority_facts(authority: Authority) -> Iterator[tuple[str, str]]:
    """Return a line for each setting that came with the session and is not in force."""
    if authority.withheld is None:
        return
    yield "not in force", f"what came with it: {NOT_IN_FORCE[authority.withheld]}"
    data = authority_data(authority)
    permissions = data["permissions"]
    is_named = isinstance(permissions, Mapping)
    named = cast("Mapping[str, object]", permissions if is_named else {})
    told = {
        **named,
        **{name: data[name] for name in ("tools", "mcp_servers", "working_dir", "system_prompt")},
    }
    for name, value in told.items():
        if value:
            shown = value if isinstance(value, str) else encode(value).decode()
            yield "", f"{name}: {shown}"


def usage_data(usage: Usage) -> dict[str, object]:
    """Return `usage` as JSON data with every field, including fields that are zero."""
    return {**msgspec.structs.asdict(usage), "total_tokens": usage.total_tokens}


def report_lines(report: Report, width: int, style: Style) -> Iterator[str]:
    """Format `report` for people: the session, the usage, and the branch."""
    yield style.paint(one_line(report.info.name, width) or "(nothing said yet)", "strong")
    facts = _facts(report)
    name_width = max(len(name) for name, _ in facts)
    for name, value in facts:
        yield f"  {style.paint(name.ljust(name_width), 'faint')}  {one_line(value, width)}"
    yield from children_lines(report.children, style)
    for question in report.questions:
        yield style.paint(f"  waits for you: {one_line(question.question.text, width)}", "warning")
    if report.branch:
        yield ""
        if report.earlier:
            yield style.paint(
                earlier_line(report.earlier, f"perdure sessions tree {report.info.id} --all"),
                "faint",
            )
        chain = nodes_of(index_of(report.branch), report.labels)  # a tree of only the branch
        rows = lines_of(chain, report.leaf, limit=BRANCH_LINES)
        yield from draw(rows, report.info.id, width, style)
    if report.cut:
        yield style.paint(f"  cut, not in the context: {one_line(report.cut, width)}", "faint")


def earlier_line(count: int, how: str) -> str:
    """Return the line about the `count` oldest entries of a branch; `how` says how to show them."""
    return f"{count_of(count, 'earlier entry', 'earlier entries')} of this branch not shown: {how}"


def children_lines(children: Iterable[Child], style: Style) -> Iterator[str]:
    """Return a line for each session of an invoked agent."""
    for child in children:
        told = f"  invoked {child.agent or 'an agent'}: perdure sessions show {child.info.id}"
        yield style.paint(told, "faint")


def _origin(report: Report) -> str:
    info, call = report.info, report.invoked_by
    if call is not None:
        return f"{info.origin}, invoked by call {call.call_id} of {call.session}"
    if info.is_role:
        return f"{info.origin} of flow {info.parent}"
    if info.source is not None:
        return f"import from {info.source}"
    return f"{info.origin}{f', forked from {info.parent}' if info.parent else ''}"


def _facts(report: Report) -> list[tuple[str, str]]:
    info, spent = report.info, report.spent
    context = report.context
    about = "more than about" if report.is_context_larger else "about"
    facts = [
        ("id", info.id),
        ("folder", info.cwd or "(none)"),
        ("created", local_time(info.created_at)),
        ("last active", f"{local_time(info.updated_at)}, {_lasted(info)} after it was created"),
        ("status", f"{info.status}{', a turn is open' if report.has_open_turn else ''}"),
        ("origin", _origin(report)),
        *([("about", info.subject)] if info.subject else []),
        ("log", f"{count_of(info.entries, 'entry', 'entries')}, {count_of(info.turns, 'turn')}"),
        ("tree", f"{count_of(info.messages, 'message')}, {_branches(report)}"),
        ("model", f"{context.model or '(none yet)'}, thinking {context.thinking_level or 'off'}"),
        *_agent_facts(report),
        ("context", f"{about} {count_of(context.tokens, 'token')} would be sent now"),
    ]
    if spent.calls:
        missing = count_of(spent.unpriced_calls, "call")
        more = f", {missing} without a price" if spent.unpriced_calls else ""
        facts.append(("used", _usage_text(spent.usage)))
        facts.append(("cost", cost_text(spent) + more))
    for each in report.exports:
        form = each.format if each.dialect is None else f"{each.format}, {each.dialect}"
        facts.append(("exported", f"{each.path} ({form}, {local_time(each.at)})"))
    return [*facts, *_authority_facts(report.authority)]


def _agent_facts(report: Report) -> Iterator[tuple[str, str]]:
    """Return a line on the agent in force; `_authority_facts` reports settings not in force."""
    if report.tools is None or report.authority.withheld is not None:
        return
    instructions = "no instructions" if report.system_prompt is None else "instructions"
    yield "agent", f"{report.agent}, {instructions}, {count_of(len(report.tools), 'tool')}"


def _branches(report: Report) -> str:
    labels = count_of(len(report.labels), "label")
    if report.newest is not None:
        return labels
    return f"{count_of(report.branches, 'branch end')}, {labels}"


def _usage_text(usage: Usage) -> str:
    used = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
    cached = (
        f"{usage.cache_read_tokens:,} cached, {usage.cache_write_tokens:,} written to the cache"
    )
    has_cached = usage.cache_read_tokens or usage.cache_write_tokens
    return f"{used}, {cached}" if has_cached else used


def _lasted(info: SessionInfo) -> str:
    """Return the time between creation and last activity, in the two largest units."""
    seconds = max(info.updated_at - info.created_at, 0) // 1000
    units = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)]
    parts: list[str] = []
    for unit, size in units:
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "less than 1 s"
