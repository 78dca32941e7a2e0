"""``perdure memory``: facts that agents remember, and the episodes of sessions that ended."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.exits import (
    DONE,
    FAILED,
    EpisodeNotFound,
    PathNotFound,
    UsageMistake,
    WholeFactIdNeeded,
)
from perdure.apps.cli.options import (
    MOST,
    EmbedderOption,
    YesOption,
    confirm_erasure,
    only_subject,
    only_text,
)
from perdure.apps.cli.store_options import CommonOptions, named_session
from perdure.apps.memory.rows import (
    episode_data,
    episode_rows,
    fact_data,
    fact_rows,
    hit_data,
    hit_lines,
)
from perdure.apps.progress import progress_bar
from perdure.apps.terminal.output import count_of, out_style, remark, width
from perdure.apps.terminal.text import one_line, safe
from perdure.client.memory.handle import RECALLED
from perdure.client.store import Store
from perdure.errors import (
    AmbiguousId,
    FactNotFound,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from perdure.memory.episodes import Episode
from perdure.memory.question import has_content
from perdure.memory.reports import ImportedFolder
from perdure.memory.scope import ScopeName

memory = typer.Typer(
    help="""Search earlier sessions; list, remember, correct and forget facts; list episodes.

A fact belongs to a subject (the person it is about) or to no subject. An episode is the
record of a session that ended.

Examples:
    perdure memory search 'When did we choose the hotel?'
    perdure memory remember "Ana is allergic to nuts" --subject ana
    perdure memory facts --subject ana
""",
    no_args_is_help=True,
)

_CANDIDATES = 5
"""Maximum number of matching ids that an error about an ambiguous id names."""

FactArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        callback=only_text,
        help="The id of the fact; the beginning of the id with the number of the fact is enough.",
    ),
]
WholeFactArgument = Annotated[
    str, typer.Argument(metavar="ID", callback=only_text, help="The whole id of the fact.")
]
TextArgument = Annotated[
    str, typer.Argument(metavar="TEXT", callback=only_text, help="What to remember.")
]
SubjectOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        callback=only_subject,
        help="Only memories about this person; default: memories without a subject.",
    ),
]
AboutOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        callback=only_subject,
        help="The person that the text is about.",
    ),
]
AgentOption = Annotated[
    str | None,
    typer.Option(metavar="ID", callback=only_text, help="Only memories of this agent."),
]
SourceOption = Annotated[
    list[str] | None,
    typer.Option(metavar="ENTRY", help="The full id of an entry that states the fact."),
]
EverySubject = Annotated[
    bool, typer.Option("--all", help="Include memories of any subject, and of none.")
]
FromOption = Annotated[
    datetime | None,
    typer.Option("--from", metavar="TIME", help="The time from which the fact is true."),
]
ToOption = Annotated[
    datetime | None, typer.Option("--to", metavar="TIME", help="When the fact stops being true.")
]
LimitOption = Annotated[
    int, typer.Option(min=0, max=MOST, metavar="N", help="Maximum number to list; 0: all.")
]


@memory.command("search")
async def search(
    question: Annotated[
        str,
        typer.Argument(metavar="QUESTION", callback=only_text, help="A question, in your words."),
    ],
    *,
    subject: SubjectOption = None,
    agent: AgentOption = None,
    every: EverySubject = False,
    session: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Search only this session.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=MOST, metavar="N", help="Maximum number of hits.")
    ] = RECALLED,
    embedder: EmbedderOption = None,
    common: CommonOptions,
) -> None:
    """Search the memory for a question, the best hits first.

    Finds messages of earlier sessions, summaries of sessions, and facts. Also finds texts without
    any word of the question if they are next to a matching text, or if the question names the date
    or the speaker of the text. `perdure sessions search` finds exact words.

    Examples:
        perdure memory search 'When did we choose the hotel?'
        perdure memory search 'what did we decide about lock files last week' --limit 3 --json
        perdure memory search 'where did we stay?' --embedder static:models/words

    Exit codes:
        2  the question contains no word
    """
    scope = _scope(subject, every=every)
    async with common.existing_store() as opened:
        sessions = [await named_session(opened, each) for each in session or ()]
        with suppress(StoreReadOnly, StoreFull, StoreUnavailable):
            await opened.index(progress_bar("index"))
        found = await opened.memory.with_embedder(embedder).recall(
            question,
            limit=limit,
            subject=subject,
            agent=agent,
            scope=scope,
            sessions=sessions or None,
        )
        said = [hit.session_id for hit in found if hit.kind in ("said", "episode")]
        titles = {
            each: (await opened.backend.state(each)).info.name for each in dict.fromkeys(said)
        }
    if not has_content(question):
        remark("every word of the question is a common one: add a word for what you look for")
    common.show(
        [hit_data(hit, titles) for hit in found],
        hit_lines(found, titles, width(), out_style()) if found else "Nothing found.",
    )


@memory.command("facts")
async def facts(
    *,
    subject: SubjectOption = None,
    agent: AgentOption = None,
    every: EverySubject = False,
    past: Annotated[
        bool, typer.Option("--past", help="List also facts that are not true now.")
    ] = False,
    limit: LimitOption = 50,
    after: Annotated[
        str | None, typer.Option(metavar="FACT", help="List the facts after this fact (next page).")
    ] = None,
    common: CommonOptions,
) -> None:
    """List facts, newest first.

    Examples:
        perdure memory facts --subject ana
        perdure memory facts --all --past --json

    Exit codes:
        3  the fact of --after does not exist
    """
    scope = _scope(subject, every=every)
    async with common.existing_store() as opened:
        last = None
        if after is not None:
            last = await opened.memory.fact(await _whole_id(opened, after))
        found = await opened.memory.facts(
            subject=subject,
            agent=agent,
            scope=scope,
            include_past=past,
            limit=limit or None,
            after=last,
        )
    common.show(
        [fact_data(fact) for fact in found], fact_rows(found) if found else "No facts found."
    )


@memory.command("remember")
async def remember(
    text: TextArgument,
    *,
    subject: AboutOption = None,
    agent: Annotated[
        str | None,
        typer.Option(metavar="ID", callback=only_text, help="Only this agent remembers the fact."),
    ] = None,
    source: SourceOption = None,
    valid_from: FromOption = None,
    valid_to: ToOption = None,
    common: CommonOptions,
) -> None:
    """Store a fact about a person.

    Without --subject, the fact is about the person whose session contains the --source entries. If
    there is no such person, the fact is about no person.

    Examples:
        perdure memory remember "Ana is allergic to nuts" --subject ana
        perdure memory remember "prefers tea" --source 01jd5zk2v9/4

    Exit codes:
        3  no entry has the id in --source
    """
    async with common.writable_store() as opened:
        fact = await opened.memory.remember(
            text,
            subject=subject,
            agent=agent,
            source=source,
            valid_from=valid_from,
            valid_to=valid_to,
        )
    common.show(fact_data(fact), f"Remembered as {safe(fact.id)}.")


@memory.command("correct")
async def correct(
    fact: FactArgument,
    text: TextArgument,
    *,
    source: SourceOption = None,
    valid_from: FromOption = None,
    valid_to: ToOption = None,
    common: CommonOptions,
) -> None:
    """Replace the text of a fact; its history contains the earlier text.

    Examples:
        perdure memory correct memory-1f2e/0 "Ana is allergic to peanuts"

    Exit codes:
        3  no fact has that id
    """
    async with common.existing_store() as opened:
        found = await opened.memory.correct(
            await _whole_id(opened, fact),
            text,
            source=source,
            valid_from=valid_from,
            valid_to=valid_to,
        )
    common.show(fact_data(found), f"Corrected {safe(found.id)}.")


@memory.command("forget")
async def forget(
    fact: WholeFactArgument, *, is_sure: YesOption = False, common: CommonOptions
) -> None:
    """Permanently erase a fact, with its history.

    An erasure cannot be undone, so a part of an id is rejected; the error prints the whole id.
    Without --yes, the command asks first. Backups and exports keep the text of the fact.

    Examples:
        perdure memory forget memory-1f2e0d4c8b7a69533c2d1e0f4a5b6c7d/0
        perdure memory forget memory-1f2e0d4c8b7a69533c2d1e0f4a5b6c7d/0 --yes

    Exit codes:
        2  not confirmed
        3  no fact has that whole id
    """
    async with common.existing_store() as opened:
        try:
            known = await opened.memory.fact(fact)
        except FactNotFound:
            if matching := await _matching(opened, fact):
                raise WholeFactIdNeeded(fact, matching) from None
            raise
        confirm_erasure(f"the fact “{one_line(known.text, 60)}”", is_sure=is_sure)
        await opened.memory.forget(fact)
    common.show({"forgotten": fact}, f"Forgot {safe(fact)}.")


@memory.command("episodes")
async def episodes(
    *,
    subject: SubjectOption = None,
    agent: AgentOption = None,
    every: EverySubject = False,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="Only episodes of this session.")
    ] = None,
    limit: LimitOption = 50,
    after: Annotated[
        str | None,
        typer.Option(metavar="EPISODE", help="List the episodes after this episode (next page)."),
    ] = None,
    common: CommonOptions,
) -> None:
    """List episodes: sessions that ended, the latest end first.

    Examples:
        perdure memory episodes --subject ana
        perdure memory episodes --session 01jd --json

    Exit codes:
        3  no session, or no episode, has that id
    """
    scope = _scope(subject, every=every)
    async with common.existing_store() as opened:
        found = await opened.memory.episodes(
            subject=subject,
            agent=agent,
            scope=scope,
            session=None if session is None else await named_session(opened, session),
            limit=limit or None,
            after=None if after is None else await _episode(opened, after),
        )
    common.show(
        [episode_data(each) for each in found],
        episode_rows(found) if found else "No episodes found.",
    )


@memory.command("import")
async def import_(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A folder to index, or a .jsonl file of facts.")
    ],
    *,
    subject: AboutOption = None,
    agent: Annotated[
        str | None,
        typer.Option(metavar="ID", callback=only_text, help="Only this agent recalls the text."),
    ] = None,
    common: CommonOptions,
) -> int:
    """Index a folder of Markdown and text files, or remember the facts of a file.

    Recall then finds the passages of the files, with path and heading. Import the folder again
    after changes; this also erases the passages of deleted files. Each line of a file of facts is
    JSON: {"text": "Ana likes tea", "subject": "ana", "from": "2026-11-23"}; subject, agent, from
    and to are optional.

    Examples:
        perdure memory import docs --agent helper
        perdure memory import facts.jsonl --subject ana

    Exit codes:
        1  a file or a line could not be read; the other files and lines are imported
    """
    if not path.exists():
        raise PathNotFound(str(path))
    if subject is not None and agent is not None and path.is_dir():
        raise UsageMistake("a folder belongs to --agent or to --subject, not to both")
    async with common.writable_store() as opened:
        if path.is_dir():
            folder = await opened.memory.import_folder(path, subject=subject, agent=agent)
            problems = [f"{safe(each.path)}: {safe(each.reason)}" for each in folder.problems]
            told = _folder_line(folder)
            data = msgspec.to_builtins(folder)
        else:
            facts = await opened.memory.import_facts(path, subject=subject, agent=agent)
            problems = [f"line {each.line}: {safe(each.reason)}" for each in facts.problems]
            told = f"{facts.added:,} facts added, {facts.known:,} known already"
            data = msgspec.to_builtins(facts)
    for each in problems:
        remark(each)
    common.show(data, told)
    return FAILED if problems else DONE


def _folder_line(folder: ImportedFolder) -> str:
    changes = [
        f"{len(names):,} {what}"
        for names, what in (
            (folder.added, "new"),
            (folder.changed, "changed"),
            (folder.removed, "removed"),
        )
        if names
    ]
    told = ", ".join(changes) or "nothing changed"
    return f"{folder.files:,} files, {folder.passages:,} passages: {told}"


@memory.command("index")
async def index(
    *,
    embedder: EmbedderOption = None,
    only: Annotated[
        bool, typer.Option("--only", help="Remove the vectors of other embedders.")
    ] = False,
    common: CommonOptions,
) -> None:
    """Record the missing episodes of imported sessions and of sessions that ended.

    The episode of an imported session covers the entries that the session has now. If the session
    gets new entries, the next run records another episode. With an embedder, every text without a
    vector gets a vector, so that recalls can compare meanings.

    Examples:
        perdure memory index
        perdure memory index --embedder static:models/words
    """
    if only and embedder is None:
        raise UsageMistake("--only needs --embedder: the one whose vectors stay")
    async with common.existing_store() as opened:
        count = await opened.memory.index()
        memory = opened.memory.with_embedder(embedder)
        vectors = None if embedder is None else await memory.embed(is_only=only)
    said = f"Recorded {count_of(count, 'episode')}."
    if vectors is not None:
        said += f" {count_of(vectors, 'text')} got a vector."
    common.show({"episodes": count, "vectors": vectors}, said)


def _scope(subject: str | None, *, every: bool) -> ScopeName:
    if every and subject is not None:
        raise UsageMistake("--all covers every subject: leave out --subject")
    return "namespace" if every else "subject"


async def _episode(opened: Store, named: str) -> Episode:
    """Return the episode with the id `named`. Raises: EpisodeNotFound; SessionNotFound."""
    session = named.rpartition("/")[0]
    own = await opened.memory.episodes(session=session, limit=None) if session else []
    found = next((each for each in own if each.id == named), None)
    if found is None:
        raise EpisodeNotFound(named)
    return found


async def _whole_id(opened: Store, named: str) -> str:
    """Return the complete id of the fact that `named` identifies; `named` if no fact matches.

    Raises: AmbiguousId.
    """
    with suppress(FactNotFound):
        return (await opened.memory.fact(named)).id
    found = await _matching(opened, named)
    if len(found) > 1:
        raise AmbiguousId(named, found[:_CANDIDATES])
    return found[0] if found else named


async def _matching(opened: Store, named: str) -> tuple[str, ...]:
    """Return the ids of the facts that match `named`, which is a part of an id."""
    every = await opened.memory.facts(scope="namespace", include_past=True, limit=None)
    return tuple(fact.id for fact in every if _is_named(fact.id, named))


def _is_named(fact: str, named: str) -> bool:
    """Return whether `named` matches the id `fact`.

    `named` is the beginning of the id, the number at its end, or both, such as ``memory-1f/3``.
    """
    stream, _, number = fact.rpartition("/")
    begin, slash, end = named.rpartition("/")
    if slash:
        return stream.startswith(begin) and number == end
    return number == named if named.isdecimal() else fact.startswith(named)
