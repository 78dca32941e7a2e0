"""``/inbox`` in a chat: list, show and answer the open questions of all sessions and flows."""

from __future__ import annotations

import getpass
from collections.abc import Callable

import msgspec

from perdure.apps.cli.inbox import continuation, details, resolve_question
from perdure.apps.terminal.approvals import FEW_LINES, approval_lines
from perdure.apps.terminal.text import one_line, safe
from perdure.client.lookup.identifiers import find_question
from perdure.client.reads import OpenQuestion
from perdure.client.store import Store
from perdure.session.ids import entry_place

_CELLS = 100
_ANSWER_CELLS = 60


async def use_inbox(store: Store, words: str, remark: Callable[..., None]) -> None:
    """List the open questions, or show or answer one, depending on `words`.

    Without `words`, all open questions are listed. An id alone shows the question in full; an id
    with an answer answers the question.
    Raises: QuestionNotFound if no open question matches; AmbiguousId if several match.
    Raises: AlreadyAnswered or QuestionClosed if the question is no longer open; InvalidEntry if the
    answer does not fit.
    Raises: UsageMistake if the answer allows a call, but the number of the question is missing.
    """
    asked = await store.questions()
    id, _, answer = words.partition(" ")
    if answer.strip():
        remark(await _answer(store, id, answer.strip(), asked))
        return
    if id:
        named = find_question(id, asked)
        found = next(each for each in asked if each.id == named)
        whole = await details.in_full(store.backend, found)
        asked = [msgspec.structs.replace(found, question=whole)]
    for each in asked:
        remark(*await _lines(store, each, is_whole=bool(id)))
    if not asked:
        remark("nothing waits for you")


async def _answer(store: Store, typed: str, answer: str, asked: list[OpenQuestion]) -> str:
    """Answer the question that `typed` names; return the text to print.

    The answer to a question with choices can include a note.
    """
    id = await resolve_question(store, typed, answer.partition(" ")[0])
    choices = next((each.question.choices for each in asked if each.id == id), ())
    choice, note = answer, ""
    if choices:
        choice, _, note = answer.partition(" ")
    entry = await store.answer(id, choice, by=getpass.getuser(), note=note.strip() or None)
    advice = await continuation(
        store, entry, "If no process runs the turn, `/resume {}` continues it."
    )
    return f"answered {one_line(choice, _ANSWER_CELLS)!r}: {advice}"


async def _lines(store: Store, asked: OpenQuestion, *, is_whole: bool) -> tuple[str, ...]:
    stream = asked.flow or entry_place(asked.id)[0]
    info = (await store.backend.state(stream)).info
    text = safe(asked.question.text) if is_whole else one_line(asked.question.text, _CELLS)
    choices = "|".join(asked.question.choices) or "TEXT"
    return (
        f"{asked.id}  {text}",
        f"  of {one_line(info.name, _ANSWER_CELLS) or info.id}",
        *approval_lines(asked.question, limit=None if is_whole else FEW_LINES),
        f"  /inbox {asked.id} {choices}",
    )
