"""Commands of ``perdure sessions`` that change the leaf, names or context of a session.

Nothing is overwritten: each command appends to the log and prints what it appended.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.cli.options import (
    ROOT,
    EntryArgument,
    ModelOption,
    SessionArgument,
    only_text,
    stored_path,
)
from perdure.apps.cli.store_options import CommonOptions, require_folder
from perdure.apps.terminal.advice import nothing_to_compact
from perdure.apps.terminal.output import count_of
from perdure.apps.terminal.previews import entry_name, preview_of
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.ids import EntryId
from perdure.session.kinds import Compaction

if TYPE_CHECKING:
    from perdure.context.compaction import LeftContext

_PREVIEW_CELLS = 60


def _focus(text: str | None) -> str | None:
    """Check ``--focus``, and return it. Raises: typer.BadParameter if it is empty or not UTF-8."""
    if text is not None and not text.strip():
        raise typer.BadParameter("it is empty; say what the summary must keep, or leave it out")
    return only_text(text)


FocusOption = Annotated[
    str | None,
    typer.Option(metavar="TEXT", callback=_focus, help="The topics that the summary must contain."),
]


async def branch(
    session: SessionArgument,
    entry: EntryArgument,
    *,
    is_summarised: Annotated[
        bool, typer.Option("--summarize", help="Add a summary of the abandoned branch at ENTRY.")
    ] = False,
    focus: FocusOption = None,
    model: ModelOption = None,
    common: CommonOptions,
) -> None:
    """Continue a session from another entry.

    The next message is appended after ENTRY. Nothing is deleted: the old branch stays in the
    tree, and you can return to it. "root" is the position before the first entry. With --summarize
    a model summarizes the old branch, and the conversation continues after that summary.

    Examples:
        perdure sessions branch 01jd 12    # continue from entry 12
        perdure sessions branch 01jd root  # start over in the same session
        perdure sessions branch 01jd 12 --summarize --focus "what did not work"

    Exit codes:
        1  the model did not answer
        4  a turn is running in the session
    """
    if not is_summarised and (focus is not None or model is not None):
        raise UsageMistake("--focus and --model are about the summary: add --summarize")

    async with common.opened_session(session) as (opened, handle):
        target = None if entry == ROOT else await handle.find(entry)
        if is_summarised:
            talking = importlib.import_module("perdure.apps.chat.session")
            branch_to: Any = talking.branch_session
            moved: Entry | None = await branch_to(opened, handle.id, target, model, focus)
        else:
            moved = await handle.branch(target)
        # Not `handle.leaf`: another process can move the leaf again before this command prints it.
        leaf = target if moved is None or moved.lane == "side" else moved.id
        place = await _place(handle, leaf)
    verb = "now continues" if moved else "already continues"
    common.show(
        {"session": handle.id, "leaf": leaf, "moved": moved is not None},
        f"{handle.id} {verb} from {place}.",
    )


async def _place(handle: Session, leaf: EntryId | None) -> str:
    if leaf is None:
        return "before its first entry"
    entry = (await handle.path(leaf, last=1))[-1]
    preview = preview_of(entry, _PREVIEW_CELLS)
    return f"entry {entry_name(entry.id, handle.id)} ({preview.who}: {preview.what})"


async def fork(
    session: SessionArgument,
    entry: Annotated[
        str | None,
        typer.Argument(
            metavar="ENTRY", help="Share only the path to this entry, not the whole tree."
        ),
    ] = None,
    *,
    at: Annotated[
        str | None, typer.Option(metavar="ENTRY", help="The same as the argument ENTRY.")
    ] = None,
    title: Annotated[
        str | None, typer.Option(metavar="TITLE", callback=only_text, help="The title of the fork.")
    ] = None,
    cwd: Annotated[
        Path | None,
        typer.Option(metavar="DIR", parser=stored_path, help="The folder in which the fork works."),
    ] = None,
    common: CommonOptions,
) -> None:
    """Fork a session into a new session.

    Nothing is copied: both sessions share the entries up to the fork, and each continues
    separately. The fork has no open turn.

    Examples:
        perdure sessions fork 01jd --title "Second try"
        perdure sessions fork 01jd 12  # only the path to entry 12
    """
    if entry is not None and at is not None:
        raise UsageMistake("name one entry: as the argument ENTRY, or after --at")
    chosen = at if entry is None else entry
    if chosen == ROOT:
        raise UsageMistake(
            f"a fork at {ROOT!r} would share nothing: name an entry, or leave it out to share the "
            "whole tree"
        )
    if cwd is not None:
        require_folder(cwd)
    async with common.opened_session(session) as (_, origin):
        place_at = None if chosen is None else await origin.find(chosen)
        made = await origin.fork(place_at, title=title, cwd=cwd)
        shared = count_of((await made.info()).messages, "message")
        place = await _place(made, made.leaf)
    common.show(
        {"session": made.id, "parent": origin.id, "leaf": made.leaf},
        f"{made.id} shares {shared} with {origin.id} and continues from {place}.",
    )


async def label(
    session: SessionArgument,
    entry: EntryArgument,
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXT",
            callback=only_text,
            help="The label to set; if you give no label, the label of the entry is removed.",
        ),
    ] = None,
    *,
    common: CommonOptions,
) -> None:
    """Label an entry, or remove its label.

    The tree shows labels, and a search finds them. An entry has one label at a time.

    Examples:
        perdure sessions label 01jd 12 "before the refactoring"
        perdure sessions label 01jd 12  # removes the label
    """
    if entry == ROOT:
        raise UsageMistake(
            f"{ROOT!r} is the place before the first entry, and only an entry can have a name: "
            f"`perdure sessions tree {session}` lists them"
        )
    async with common.opened_session(session) as (_, handle):
        found = await handle.find(entry)
        before = (await handle.labels()).get(found)
        about = (await handle.label(found, text)).about
        now = None if about is None else (await handle.labels()).get(about)
    if now:
        sentence = f"{about} is now called {now!r}."
    elif before:
        sentence = f"{about} is no longer called {before!r}: add that text to call it so again."
    else:
        sentence = f"{about} has no label; add a text after the entry to give it one."
    common.show({"session": handle.id, "entry_id": about, "label": now}, sentence)


async def rename(
    session: SessionArgument,
    title: Annotated[
        str,
        typer.Argument(metavar="TITLE", callback=only_text, help='The title; "" removes it.'),
    ],
    *,
    common: CommonOptions,
) -> None:
    """Set or remove the title of a session.

    Without a title, lists show the beginning of the first user message.

    Examples:
        perdure sessions rename 01jd "Trip to Lisbon"
    """
    async with common.opened_session(session) as (_, handle):
        await handle.rename(title)
        now = (await handle.info()).title
    sentence = f"{handle.id} is now called {now!r}." if now else f"{handle.id} has no title now."
    common.show({"session": handle.id, "title": now}, sentence)


async def pin(session: SessionArgument, entry: EntryArgument, *, common: CommonOptions) -> None:
    """Keep an entry in the context of the model.

    No compaction hides a pinned entry, and no budget leaves it out. The context also keeps the
    results of a pinned tool call, and the call of a pinned result. `perdure sessions unpin` removes
    the pin.

    Examples:
        perdure sessions pin 01jd 12
    """
    await _pin(session, entry, common, is_pinned=True)


async def unpin(session: SessionArgument, entry: EntryArgument, *, common: CommonOptions) -> None:
    """Remove the pin of an entry.

    A compaction can hide the entry again.

    Examples:
        perdure sessions unpin 01jd 12
    """
    await _pin(session, entry, common, is_pinned=False)


async def _pin(session: str, entry: str, common: CommonOptions, *, is_pinned: bool) -> None:
    if entry == ROOT:
        raise UsageMistake(f"{ROOT!r} is the place before the first entry, and says nothing to pin")
    async with common.opened_session(session) as (_, handle):
        found = await handle.find(entry)
        if not is_pinned and found not in await handle.pins():
            raise UsageMistake(f"{found} is not pinned")
        noted = await (handle.pin(found) if is_pinned else handle.unpin(found))
        tokens = (await handle.context()).tokens
    verb = "stays in the context" if is_pinned else "may leave the context"
    sent = f"about {count_of(tokens, 'token')} are sent"
    data = {"entry_id": noted.about, "is_pinned": is_pinned, "tokens": tokens}
    common.show({"session": handle.id, **data}, f"{noted.about} {verb}: {sent}.")


async def compact(
    session: SessionArgument,
    *,
    focus: FocusOption = None,
    model: ModelOption = None,
    common: CommonOptions,
) -> None:
    """Summarize older messages to shorten the context.

    A model writes the summary, which replaces the messages in the context. The compaction strategy
    of the session decides which messages are old. If the session belongs to a role of a flow, the
    flow adds facts about the role's node to the summary. The log keeps all messages: `perdure
    sessions uncompact` undoes the compaction.

    Examples:
        perdure sessions compact 01jd --focus "the decisions about the schema"

    Exit codes:
        1  the model did not answer
        4  a turn is running in the session
    """
    async with common.opened_session(session) as (opened, handle):
        # Imported lazily: loading models takes longer than the other commands take to run.
        talking = importlib.import_module("perdure.apps.chat.session")
        before = (await handle.context()).tokens
        made = await _compacted_role(opened, handle, model, focus)
        kept: int | None = None
        if made is None:
            made = (await talking.compact_session(opened, handle.id, model, focus),)
            kept = await talking.kept_tokens(opened, handle.id)
        data, sentence = await told_compaction(handle, made[0], before, kept)
    common.show({"session": handle.id, **data}, sentence)


async def _compacted_role(
    store: Store, handle: Session, model: str | None, focus: str | None
) -> tuple[Entry | None] | None:
    """Compact the session of a flow's role, and return the compaction in a tuple.

    Returns None if no flow owns the session.
    """
    header = (await store.backend.state(handle.id)).header
    if header.origin != "role" or header.parent is None:
        return None
    of_flows = importlib.import_module("perdure.apps.flow.compaction")
    return await of_flows.role_compacted(store, handle.id, header.parent, model, focus)


async def told_compaction(
    handle: Session, made: Entry | None, before: int, kept: int | None = None
) -> tuple[Mapping[str, object], str]:
    """Describe the compaction `made` as JSON data and as text; `before` is the old size in tokens.

    If `kept` is given, approximately the newest `kept` tokens are never summarized. If the session
    belongs to a role of a flow, `kept` is None, because all messages before the role's current node
    are summarized.
    """
    after = (await handle.context()).tokens
    if made is not None and isinstance(body := body_of(made), Compaction):
        # Their sizes include instructions and tools, which only the agent knows.
        before, after = body.tokens_before or before, body.tokens_after or after
    id_ = None if made is None else made.id
    data: dict[str, object] = {"compaction": id_, "tokens_before": before, "tokens": after}
    if id_ is None:
        return data, nothing_to_compact(before, kept)
    left = await handle.left_by(id_)
    assert left is not None
    data["left"] = {
        "entries": left.entries,
        "roles": left.roles,
        "tool_calls": left.tool_calls,
        "pinned": left.pinned,
    }
    sentence = f"Compaction {id_}: {before:,} → {count_of(after, 'token')}."
    return data, f"{sentence}\n{_left_context(left)}"


def _left_context(left: LeftContext) -> str:
    of = ", ".join(f"{count} {role}" for role, count in left.roles.items())
    gone = f"{count_of(len(left.entries), 'message')} left the context"
    kept = f"; {len(left.pinned)} stay because they are pinned" if left.pinned else ""
    return f"{gone} ({of}){kept}. The log keeps them: `perdure sessions uncompact`."


async def uncompact(session: SessionArgument, *, common: CommonOptions) -> None:
    """Undo the newest compaction.

    The summarized messages are in the context again. An earlier compaction takes effect again, and
    can be undone too.

    Examples:
        perdure sessions uncompact 01jd

    Exit codes:
        2  there is no compaction to undo
    """
    async with common.opened_session(session) as (_, handle):
        undone = await handle.uncompact()
        tokens = (await handle.context()).tokens
    about = None if undone is None else undone.about
    sentence = f"Compaction {about} is undone: about {count_of(tokens, 'token')} are sent."
    common.show({"session": handle.id, "undone": about, "tokens": tokens}, sentence)


async def abandon(session: SessionArgument, *, common: CommonOptions) -> None:
    """End an interrupted turn.

    The messages of the turn remain in the log, and the turn does not continue. To continue the turn
    instead, use `perdure chat --session ID`.

    Examples:
        perdure sessions abandon 01jd

    Exit codes:
        4  the process that runs the turn is alive
    """
    async with common.opened_session(session) as (_, handle):
        was_open = await handle.abandon_turn()
    sentence = f"The interrupted turn of {handle.id} is ended." if was_open else "No turn was open."
    common.show({"session": handle.id, "abandoned": was_open}, sentence)


async def end(
    session: SessionArgument,
    *,
    reason: Annotated[
        str | None,
        typer.Option(metavar="TEXT", callback=only_text, help="The reason, stored in the log."),
    ] = None,
    common: CommonOptions,
) -> None:
    """Close a session.

    The session stays in the store, and its next turn opens it again.

    Examples:
        perdure sessions end 01jd --reason "merged"

    Exit codes:
        4  a turn is running in the session
    """
    async with common.opened_session(session) as (_, handle):
        ended = await handle.end(reason)
    sentence = f"{handle.id} {'is' if ended else 'was'} ended{'' if ended else ' already'}."
    data = {"session": handle.id, "status": "ended", "changed": ended is not None}
    common.show(data, sentence)
