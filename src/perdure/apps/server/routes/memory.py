"""Memory: recall, facts, episodes."""

from __future__ import annotations

import logging
from typing import Annotated, Literal

from litestar import delete, get, patch, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from perdure.apps.server.access.caller import Caller
from perdure.apps.server.inputs import Correction, NewFact
from perdure.apps.server.routes.parameters import Limit, TheCaller, TheMemory
from perdure.apps.server.values import (
    EpisodeView,
    FactView,
    Page,
    RecalledView,
    Recollection,
    time_of,
    time_or_none,
)
from perdure.apps.server.views import view_of
from perdure.client.memory.recall import recall_anyway
from perdure.errors import FactNotFound
from perdure.events.wire import wire
from perdure.memory.scope import MemoryFilter
from perdure.session.memory.facts import Fact

MemoryScope = Annotated[
    Literal["namespace", "subject"] | None,
    QueryParameter(
        name="scope",
        description="`subject`: about exactly the person `subject`, or without `subject`, about no "
        "person. `namespace`: about anyone or no person. The default is `subject` if a `subject` "
        "is given, otherwise `namespace`.",
    ),
]

_log = logging.getLogger(__name__)


@get("/memory/recall")
async def recall(
    caller: TheCaller,
    memory: TheMemory,
    question: Annotated[str, QueryParameter(min_length=1, max_length=4_000)],
    subject: FromQuery[str | None] = None,
    limit: Limit = 10,
) -> Recollection:
    """Search the memory for a question, the best hits first.

    Each hit includes the reasons why it was found. Finds messages of earlier sessions, summaries
    and facts. With `subject`, the search finds only texts about exactly this person. Without
    `subject`, the search finds only texts about no person.
    """
    found, problem = await recall_anyway(
        memory,
        question,
        limit=limit,
        subject=caller.subject_or(subject),
        agent=caller.principal.agent,
    )
    if problem is not None and not caller.may_see_server:
        _log.warning("recall by words alone: %s", problem)
        problem = "compared by words alone; the log of the server has the reason"
    return Recollection(
        problem=problem,
        items=[
            view_of(
                RecalledView,
                hit,
                session=hit.session_id,
                at=time_of(hit.at),
                why=wire(hit.why),
            )
            for hit in found
        ],
    )


@get("/memory/facts")
async def list_facts(
    caller: TheCaller,
    *,
    subject: FromQuery[str | None] = None,
    whose: MemoryScope = None,
    past: FromQuery[bool] = False,
    limit: Annotated[int | None, QueryParameter(ge=1, le=500)] = None,
    after: FromQuery[str | None] = None,
) -> Page[FactView]:
    """List the facts that the caller may see, newest first.

    With `subject`, lists only facts about this person. Without `limit`, lists all facts.
    """
    within = _within(caller, subject, whose)
    found = await caller.store.memory.facts(
        subject=within.subject,
        agent=within.agent,
        scope=within.name,
        include_past=past,
        limit=None if limit is None else limit + 1,
        after=after,
    )
    return Page(
        items=[_fact(fact) for fact in found[:limit]],
        next=found[limit - 1].cursor if limit is not None and len(found) > limit else None,
    )


@post("/memory/facts", status_code=201, is_keyed=True)
async def remember(caller: TheCaller, data: JSONBody[NewFact]) -> FactView:
    """Remember a fact."""
    caller.require("write")
    sources = [await (await caller.session(_session_of(id))).entry(id) for id in data.sources]
    if data.agent is not None:
        caller.require_agent(data.agent)
    fact = await caller.store.memory.remember(
        data.text,
        subject=caller.subject_or(data.subject),
        agent=caller.principal.agent or data.agent,
        source=sources or None,
        idempotency_key=caller.key,
    )
    return _fact(fact)


@patch("/memory/facts/{stream:str}/{seq:int}", is_keyed=True)
async def correct(
    caller: TheCaller, stream: FromPath[str], seq: FromPath[int], data: JSONBody[Correction]
) -> FactView:
    """Replace the text of a fact; the history of the fact contains the earlier text."""
    fact = await _own(caller, f"{stream}/{seq}")
    return _fact(await caller.store.memory.correct(fact.id, data.text, idempotency_key=caller.key))


@delete("/memory/facts/{stream:str}/{seq:int}", status_code=204)
async def forget(caller: TheCaller, stream: FromPath[str], seq: FromPath[int]) -> None:
    """Permanently erase a fact. Backups and exports keep the text of the fact."""
    fact = await _own(caller, f"{stream}/{seq}")
    await caller.store.memory.forget(fact.id, by=caller.name)


@get("/memory/episodes")
async def list_episodes(
    caller: TheCaller,
    *,
    subject: FromQuery[str | None] = None,
    whose: MemoryScope = None,
    session: FromQuery[str | None] = None,
    limit: Limit = 50,
    after: FromQuery[str | None] = None,
) -> Page[EpisodeView]:
    """List the sessions that ended, newest first.

    With `subject`, lists only sessions about this person.
    """
    if session is not None:
        await caller.session(session)
    within = _within(caller, subject, whose)
    found = await caller.store.memory.episodes(
        subject=within.subject,
        agent=within.agent,
        scope=within.name,
        session=session,
        limit=limit + 1,
        after=after,
    )
    return Page(
        items=[
            view_of(
                EpisodeView,
                episode,
                started_at=time_of(episode.started_at),
                ended_at=time_of(episode.ended_at),
            )
            for episode in found[:limit]
        ],
        next=found[limit - 1].cursor if len(found) > limit else None,
    )


def _within(
    caller: Caller, subject: str | None, whose: Literal["namespace", "subject"] | None
) -> MemoryFilter:
    """Return the requested filter, restricted to what the caller may see."""
    own = caller.principal
    subject = caller.subject_or(subject)
    is_bound = own.subject is not None or own.is_visitor
    name = "subject" if is_bound else whose or ("namespace" if subject is None else "subject")
    return MemoryFilter(subject, own.agent, name)


async def _own(caller: Caller, id: str) -> Fact:
    """Return the fact `id` after checking that the caller may change it.

    Raises: FactNotFound if the fact does not exist, or if the caller may not see it; Problem 403 if
    the caller may not write.
    """
    caller.require("write")
    fact = await caller.store.memory.fact(id)
    allowed = caller.principal
    if allowed.subject not in (None, fact.subject) or allowed.agent not in (None, fact.agent):
        raise FactNotFound(id)
    return fact


def _session_of(entry: str) -> str:
    return entry.rpartition("/")[0]


def _fact(fact: Fact) -> FactView:
    return view_of(
        FactView,
        fact,
        valid_from=time_or_none(fact.valid_from),
        valid_to=time_or_none(fact.valid_to),
        at=time_of(fact.at),
        history=[version.text for version in fact.history],
    )
