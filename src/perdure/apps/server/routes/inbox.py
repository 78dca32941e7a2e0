"""The inbox: all questions that wait for a person."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from litestar import get, post
from litestar.params import FromPath, JSONBody

from perdure.apps.server.inputs import Answer
from perdure.apps.server.routes.parameters import SessionId, TheCaller, TheConversations, TheRuns
from perdure.apps.server.values import EntryView, Page, QuestionView, time_of
from perdure.apps.server.views import entry_view, view_of
from perdure.client.inbox.details import in_full
from perdure.client.reads import OpenQuestion
from perdure.client.store import Store
from perdure.errors import EntryNotFound, QuestionNotFound, SessionNotFound
from perdure.events.wire import wire
from perdure.secrets.mask import mask_secrets
from perdure.session.codec import body_of
from perdure.session.ids import StreamId, entry_place
from perdure.session.notes import PROGRAM, Question, QuestionTopic


@get("/inbox")
async def list_questions(caller: TheCaller) -> Page[QuestionView]:
    """List the open questions, oldest first.

    A long argument of a tool call is replaced by an object with the argument's beginning (`head`),
    its size (`bytes`) and a hash. Secrets are masked, and a long diff is cut.
    """
    found = await caller.store.questions()
    return Page(items=[_view(each) for each in found if await caller.sees(_session_of(each))])


@get("/inbox/{session_id:str}/{seq:int}")
async def show_question(
    caller: TheCaller, *, session_id: SessionId, seq: FromPath[int]
) -> QuestionView:
    """Show an open question in full: all arguments of the call and the whole diff, uncut."""
    id = f"{session_id}/{seq}"
    if await caller.sees(StreamId(session_id)):
        for each in await caller.store.questions():
            if each.id == id:
                whole = await in_full(caller.store.backend, each)
                return _view(msgspec.structs.replace(each, question=whole))
    raise QuestionNotFound(id)


@post("/inbox/{session_id:str}/{seq:int}/answer", status_code=200)
async def answer_question(
    caller: TheCaller,
    conversations: TheConversations,
    runs: TheRuns,
    *,
    session_id: SessionId,
    seq: FromPath[int],
    data: JSONBody[Answer],
) -> EntryView:
    """Answer a question.

    If no process runs the turn or the flow that asked, this server continues it. If a program asked
    the question, the server continues nothing, because the program reads the answer itself.
    """
    caller.require("write")
    id = f"{session_id}/{seq}"
    if not await caller.sees(StreamId(session_id)):
        raise QuestionNotFound(id)
    asked = [each for each in await caller.store.questions() if each.id == id]
    topic = asked[0].question.topic if asked else None
    if not asked:
        topic = await _earlier_topic(caller.store, session_id, id)
    answered = await caller.store.answer(id, data.answer, by=caller.name, note=data.note)
    if topic == PROGRAM:
        return entry_view(answered)
    flow = asked[0].flow if asked and asked[0].flow else await runs.flow_of(session_id)
    if flow is None:
        await conversations.continue_turn(session_id)
    else:
        await runs.go_on(flow)
    return entry_view(answered)


@post("/inbox/{question:str}/answer", include_in_schema=False, is_keyed=True)
async def reject_incomplete_id(caller: TheCaller, question: FromPath[str]) -> None:
    """Reject an id without ``/``, for which the router would answer 405."""
    caller.require("write")
    raise QuestionNotFound(question)


async def _earlier_topic(store: Store, asking: str, id: str) -> QuestionTopic | None:
    """Return the topic of the question `id`, which `asking` asked; None if a flow asked it.

    Raises: QuestionNotFound if the session `asking` never asked the question; Erased if the
    question was erased.
    """
    try:
        if (await store.backend.state(StreamId(asking))).header.kind == "flow":
            return None  # its rules find a question that is over
        if isinstance(body := body_of(await store.entry(id)), Question):
            return body.topic
    except (SessionNotFound, EntryNotFound):
        pass
    raise QuestionNotFound(id)


def _session_of(question: OpenQuestion) -> StreamId:
    return entry_place(question.id)[0]


def _view(question: OpenQuestion) -> QuestionView:
    asked = question.question
    if asked.diff is not None:  # it has lines of a file of this machine
        asked = msgspec.structs.replace(asked, diff=mask_secrets(asked.diff))
    shown = cast("dict[str, Any]", wire(asked))
    return view_of(
        QuestionView,
        question,
        session=_session_of(question),
        at=time_of(question.at),
        question=shown,
    )
