"""``perdure sessions``: what changes where a session goes on, its names, and what is sent of it.

Nothing here rewrites anything: each command appends to the log, and says what it appended.
"""

from __future__ import annotations

import importlib
from typing import Annotated

import typer

from perdure.apps.cli.options import (
    ROOT,
    EntryArgument,
    JsonOption,
    ModelOption,
    NamespaceOption,
    SessionArgument,
    StoreOption,
    only_text,
    run,
)
from perdure.apps.opening import NAMESPACE, existing_store
from perdure.apps.terminal.output import counted, show, show_json
from perdure.apps.terminal.previews import preview_of
from perdure.client.session import Session
from perdure.session.entries import Entry

_PREVIEW_CELLS = 60


def add_to(sessions: typer.Typer) -> None:
    """Add the commands to ``perdure sessions``."""
    sessions.command("branch")(branch)
    sessions.command("fork")(fork)
    sessions.command("label")(label)
    sessions.command("rename")(rename)
    sessions.command("compact")(compact)
    sessions.command("uncompact")(uncompact)
    sessions.command("abandon")(abandon)
    sessions.command("end")(end)


def branch(
    session: SessionArgument,
    entry: EntryArgument,
    *,
    store: StoreOption = None,
    namespace: NamespaceOption = NAMESPACE,
    as_json: JsonOption = False,
) -> int:
    """Go on from another entry. "root" is before the first one; nothing is deleted."""

    async def work() -> None:
        async with existing_store(store, namespace) as opened:
            handle = await opened.open(session)
            moved = await handle.branch(None if entry == ROOT else entry)
            await handle.info()
            place = await _place(handle)
        if as_json:
            show_json({"session": handle.id, "leaf": handle.leaf, "moved": moved is not None})
        else:
            verb = "now goes on" if moved else "goes on already"
            show(f"{handle.id} {verb} from {place}.")

    return run(work)


async def _place(handle: Session) -> str:
    if handle.leaf is None:
        return "before its first entry"
    return _named((await handle.path())[-1], handle)


def _named(entry: Entry, handle: Session) -> str:
    preview = preview_of(entry, _PREVIEW_CELLS)
    number = str(entry.seq) if entry.stream == handle.id else entry.id
    return f"entry {number} ({preview.who}: {preview.what})"


def fork(
    session: SessionArgument,
    *,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="ENTRY", help="Share only the path to this entry, not the whole tree."
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option(callback=only_text, help="A title of its own.")
    ] = None,
    cwd: Annotated[str | None, typer.Option(help="A folder of its own.")] = None,
    store: StoreOption = None,
    namespace: NamespaceOption = NAMESPACE,
    as_json: JsonOption = False,
) -> int:
    """Make a new session that shares this one. Nothing is copied."""

    async def work() -> None:
        async with existing_store(store, namespace) as opened:
            origin = await opened.open(session)
            made = await origin.fork(at, title=title, cwd=cwd)
            info = await made.info()
            place = await _place(made)
        if as_json:
            show_json({"session": made.id, "parent": origin.id, "leaf": made.leaf})
        else:
            shared = counted(info.messages, "message")
            show(f"{made.id} shares {shared} with {origin.id} and goes on from {place}.")

    return run(work)


def label(
    session: SessionArgument,
    entry: EntryArgument,
    text: Annotated[
        str | None,
        typer.Argument(metavar="[TEXT]", callback=only_text, help="Its name; left out: none."),
    ] = None,
    *,
    store: StoreOption = None,
    namespace: NamespaceOption = NAMESPACE,
    as_json: JsonOption = False,
) -> int:
    """Give an entry a name, or take its name away."""

    async def work() -> None:
        async with existing_store(store, namespace) as opened:
            handle = await opened.open(session)
            noted = await handle.label(entry, text)
            labels = await handle.labels()
        about = noted.about
        now = None if about is None else labels.get(about)
        if as_json:
            show_json({"session": handle.id, "entry_id": about, "label": now})
        else:
            show(f"{about} is now called {now!r}." if now else f"{about} has no label now.")

    return run(work)


def rename(
    session: SessionArgument,
    title: Annotated[
        str,
        typer.Argument(metavar="TITLE", callback=only_text, help='The title; "" takes it away.'),
    ],
    *,
    store: StoreOption = None,
    namespace: NamespaceOption = NAMESPACE,
    as_json: JsonOption = False,
) -> int:
    """Give a session a title, or take it away."""

    async def work() -> None:
        async with existing_store(store, namespace) as opened:
            handle = await opened.open(session)
            await handle.rename(title)
            now = (await handle.info()).title
        if as_json:
            show_json({"session": handle.id, "title": now})
        else:
            show(f"{handle.id} is now called {now!r}." if now else f"{handle.id} has no title now.")

    return run(work)


def compact(
    session: SessionArgument,
    *,
    focus: Annotated[
        str | None,
        typer.Option(metavar="TEXT", callback=only_text, help="What the summary must keep."),
    ] = None,
    model: ModelOption = None,
    store: StoreOption = None,
    namespace: NamespaceOption = NAMESPACE,
    as_json: JsonOption = False,
) -> int:
    """Let a summary stand for what is old. The log keeps all of it."""

    async def work() -> None:
        # By name: what runs models takes longer to load than the other commands take to run.
        talking = importlib.import_module("perdure.apps.chat.answering")
        async with existing_store(store, namespace) as opened:
            handle = await opened.open(session)
            before = (await handle.context()).tokens
            made: Entry | None = await talking.compacted(opened, handle.id, model, focus)
            after = (await handle.context()).tokens
        if as_json:
            id_ = None if made is None else made.id
            facts = {"compaction": id_, "tokens_before": before, "tokens": after}
            show_json({"session": handle.id, **facts})
        elif made is None:
            show(f"Nothing to compact: all of {counted(before, 'token')} is recent.")
        else:
            show(f"{made.id} is a summary now: {before:,} → {counted(after, 'token')}.")

    return run(work)


def uncompact(
    session: SessionArgument,
    *,
    store: StoreOption = None,
    namespace: NamespaceOption = NAMESPACE,
    as_json: JsonOption = False,
) -> int:
    """Take the newest compaction back. What it hid is in the context again."""

    async def work() -> None:
        async with existing_store(store, namespace) as opened:
            handle = await opened.open(session)
            undone = await handle.uncompact()
            context = await handle.context()
        about = None if undone is None else undone.about
        if as_json:
            show_json({"session": handle.id, "undone": about, "tokens": context.tokens})
        else:
            show(f"{about} hides nothing now: about {counted(context.tokens, 'token')} are sent.")

    return run(work)


def abandon(
    session: SessionArgument,
    *,
    store: StoreOption = None,
    namespace: NamespaceOption = NAMESPACE,
    as_json: JsonOption = False,
) -> int:
    """Give up a turn that was interrupted. What was said of it stays; nothing more of it is done.

    `perdure chat --session ID` goes on with it instead.
    """

    async def work() -> None:
        async with existing_store(store, namespace) as opened:
            handle = await opened.open(session)
            was_open = await handle.abandon_turn()
        if as_json:
            show_json({"session": handle.id, "abandoned": was_open})
        else:
            show(f"The turn of {handle.id} is given up." if was_open else "No turn was open.")

    return run(work)


def end(
    session: SessionArgument,
    *,
    reason: Annotated[
        str | None, typer.Option(callback=only_text, help="Why; kept in the log.")
    ] = None,
    store: StoreOption = None,
    namespace: NamespaceOption = NAMESPACE,
    as_json: JsonOption = False,
) -> int:
    """Close a session. Its next turn opens it again."""

    async def work() -> None:
        async with existing_store(store, namespace) as opened:
            handle = await opened.open(session)
            ended = await handle.end(reason)
        if as_json:
            show_json({"session": handle.id, "status": "ended", "changed": ended is not None})
        else:
            show(f"{handle.id} {'is' if ended else 'was'} ended{'' if ended else ' already'}.")

    return run(work)
