"""``perdure inbox``: list and answer the open questions of all sessions and flows."""

from __future__ import annotations

import getpass
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.cli.options import only_text
from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.session_rows import waiting_sessions
from perdure.apps.terminal.approvals import approval_lines
from perdure.apps.terminal.output import count_of, local_time, out_style
from perdure.apps.terminal.text import one_line, safe
from perdure.client.clock import SystemClock
from perdure.client.lookup.identifiers import find_question, stream_asking
from perdure.client.reads import OpenQuestion, program_question
from perdure.client.store import Store
from perdure.errors import QuestionNotFound, SessionNotFound
from perdure.session.clock import timestamp
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.ids import StreamId, entry_place
from perdure.session.info import SessionInfo
from perdure.session.notes import Question
from perdure.stores.access.lazy_modules import Later

if TYPE_CHECKING:
    from perdure.client.inbox import details
else:
    details = Later("perdure.client.inbox.details")

_TEXT_CELLS = 200
"""Maximum width, in cells, of a question and of its session's title in the list."""

_RESUME = "If no process runs the turn, `perdure sessions resume {}` continues it."

QuestionArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The question: its id, or the beginning of its id.")
]

inbox = typer.Typer(invoke_without_command=True)


class WaitingQuestions(msgspec.Struct, frozen=True):
    """A question, and the session or flow that asked it."""

    info: SessionInfo
    asked: OpenQuestion


@inbox.callback()
def inbox_itself(
    context: typer.Context,
    *,
    common: CommonOptions,
) -> Coroutine[None, None, None] | None:
    """List open questions, and answer them.

    One list for all sessions and flows of a namespace: approvals of tool calls, calls with an
    unknown outcome, and questions of agents and flows.

    Examples:
        perdure inbox
        perdure inbox show 01jd/17
        perdure inbox answer 01jd/17 allow --note "go on"
    """
    if context.invoked_subcommand is not None:
        if common.as_json or common.store is not None or _is_typed(context, "namespace"):
            name = context.invoked_subcommand
            raise UsageMistake(f"write the options after the command: perdure inbox {name} ...")
        return None
    return list_questions(common=common)


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


@inbox.command("list")
async def list_questions(*, common: CommonOptions) -> None:
    """List the open questions, oldest first.

    Prints each question with its age, its session, and the commands that show the question in full
    and answer it. The last line counts the interrupted turns (`perdure sessions list
    --interrupted`).

    Examples:
        perdure inbox list
        perdure inbox list --json
    """
    async with common.existing_store() as opened:
        waiting = await _waiting(opened)
        asking = await waiting_sessions(opened)
        interrupted = await opened.recent(None, status="interrupted")
    lines = list(_list_lines(waiting)) if waiting else ["Nothing waits for you."]
    if cut := [info for info in interrupted if info.id not in asking]:
        lines.append(f"{count_of(len(cut), 'turn')} interrupted: `perdure sessions resume --all`")
    common.show([_data(each) for each in waiting], lines)


@inbox.command("show")
async def show_question(
    question: QuestionArgument,
    *,
    common: CommonOptions,
) -> None:
    """Print one question in full: all arguments, the whole diff, and the scope of the answer.

    Examples:
        perdure inbox show 01jd/17
        perdure inbox show 01jd/17 --json

    Exit codes:
        3  no open question has that id
    """
    async with common.existing_store() as opened:
        waiting = await _waiting(opened)
        id = find_question(question, [each.asked for each in waiting])
        found = next(each for each in waiting if each.asked.id == id)
        whole = await details.in_full(opened.backend, found.asked)
    found = WaitingQuestions(found.info, msgspec.structs.replace(found.asked, question=whole))
    common.show(_data(found), _lines_in_full(found))


@inbox.command("answer")
async def answer(
    question: QuestionArgument,
    choice: Annotated[
        str,
        typer.Argument(
            metavar="ANSWER",
            callback=only_text,
            help="One of the choices of the question; if the question has no choices, your text.",
        ),
    ],
    *,
    note: Annotated[
        str | None,
        typer.Option(metavar="TEXT", callback=only_text, help="A note stored with the answer."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", callback=only_text, help="The person who answers; default: you."
        ),
    ] = None,
    common: CommonOptions,
) -> None:
    """Answer a question.

    Only the first answer to a question is valid. The turn or flow continues when it is resumed, on
    any machine. If a role of a flow asks to run a tool, the answers are allow, allow-flow (which is
    valid for the rest of the flow) and deny. If a question has no choices, the answer is your text.
    If a session has only one open question, you can deny the question without its number.

    Examples:
        perdure inbox answer 01jd/17 allow
        perdure inbox answer 01jd/19 deny --note "not on a Friday"
        perdure inbox answer 20260527T14/9 "Take the night train."

    Exit codes:
        3  no open question has that id
        4  conflict: the question was answered, was withdrawn or has expired, or its turn has ended
    """
    async with common.existing_store() as opened:
        id = await resolve_question(opened, question, choice)
        entry = await opened.answer(id, choice, by=by or getpass.getuser(), note=note)
        resume = await continuation(opened, entry, _RESUME)
    common.show(
        {"session": entry.stream, "question": id, "choice": choice},
        f"Answered {one_line(choice, 60)!r}. {resume}",
    )


async def resolve_question(store: Store, typed: str, choice: str) -> str:
    """Return the id of the open question that `typed` names, to answer it with `choice`.

    To allow a call, `typed` must include the number of the question, because the session might have
    asked a new question since the person read the list. To deny the only open question, no number
    is needed.
    Raises: QuestionNotFound if no open question matches; AmbiguousId if several match; UsageMistake
    if the number of the question is missing.
    """
    stream = stream_asking(typed)
    if stream is not None:
        with suppress(SessionNotFound):
            state = await store.backend.state(stream)
            if state.header.kind != "flow":
                entry = await (await store.open(state.header.id)).entry(typed)
                if not isinstance(body_of(entry), Question):
                    raise QuestionNotFound(typed)
            return typed
    asked = await store.questions()
    id = find_question(typed, asked)
    is_approval = any(each.id == id and each.question.topic == "approval" for each in asked)
    if is_approval and "/" not in typed and choice != "deny":
        raise UsageMistake(f"say which question you answer, with its number: {id}")
    return id


async def _waiting(store: Store) -> list[WaitingQuestions]:
    """Return the open questions of the namespace, oldest first."""
    asked = await store.questions()
    streams = dict.fromkeys(_stream(each) for each in asked)
    infos = {stream: (await store.backend.state(stream)).info for stream in streams}
    return [WaitingQuestions(infos[_stream(each)], each) for each in asked]


def _stream(asked: OpenQuestion) -> StreamId:
    return asked.flow or entry_place(asked.id)[0]


async def continuation(store: Store, answered: Entry, of_session: str) -> str:
    """Return a sentence on how the session, flow or program continues after the answer `answered`.

    `of_session` is the sentence to use for a session, with ``{}`` in place of the session id.
    """
    stream = answered.stream
    header = (await store.backend.state(stream)).header
    asking = None if header.kind == "flow" else answered.about
    if asking is not None and program_question(await store.entry(asking)) is not None:
        return "The program that asked reads the answer."
    while header.origin == "subagent" and header.parent is not None:
        # The session that invoked this agent waits for it and continues it.
        stream = header.parent
        header = (await store.backend.state(stream)).header
    flow = stream if header.kind == "flow" else header.parent if header.origin == "role" else None
    if flow is not None:
        return f"If no process runs the flow, `perdure flow resume {flow}` continues it."
    return of_session.format(stream)


def _data(waiting: WaitingQuestions) -> dict[str, object]:
    question = waiting.asked.question
    return {
        "id": waiting.asked.id,
        "session": waiting.info.id,
        "title": waiting.info.name or None,
        "asked_at": timestamp(waiting.asked.at),
        "topic": question.topic,
        "text": question.text,
        "choices": question.choices,
        "about": waiting.asked.about or waiting.asked.target,
        "call_id": question.call_id,
        "tool": question.tool,
        "args_hash": question.args_hash,
        "arguments": question.arguments,
        "bound": question.bound,
        "diff": question.diff,
        "always": question.grant if "always" in question.choices else None,
        "expires_at": None if question.expires_at is None else timestamp(question.expires_at),
        "flow": waiting.asked.flow,
        "target": waiting.asked.target,
        "answer": _command(waiting.asked),
    }


def _invoker(info: SessionInfo) -> str:
    if info.origin != "subagent" or info.parent is None:
        return ""
    return f"  (of an agent that session {info.parent} has invoked)"


def _command(asked: OpenQuestion) -> str:
    """Return the command that answers the question."""
    if asked.question.choices:
        # Quote free text; choices need no quotes.
        return f"perdure inbox answer {asked.id} {'|'.join(asked.question.choices)}"
    return f'perdure inbox answer {asked.id} "..."'


def _list_lines(waiting: list[WaitingQuestions]) -> Iterator[str]:
    """Return a few lines for each question."""
    style, now = out_style(), SystemClock().now_ms()
    for each in waiting:
        asked = each.asked
        text = one_line(asked.question.text, _TEXT_CELLS)
        yield style.paint(asked.id, "strong") + style.paint(f"  {_age(now - asked.at)}", "faint")
        yield f"  {text}"
        yield f"  in: {one_line(each.info.name, _TEXT_CELLS) or '(no title)'}{_invoker(each.info)}"
        if text.endswith("…") or any(approval_lines(asked.question)):
            yield f"  perdure inbox show {asked.id}  prints it in full"
        yield f"  {_command(asked)}"


def _age(passed_ms: int) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if passed_ms >= size:
            return f"{passed_ms // size} {unit} ago"
    return "just now"


def _lines_in_full(waiting: WaitingQuestions) -> Iterator[str]:
    asked = waiting.asked
    style = out_style()
    yield style.paint(asked.id, "strong") + style.paint(f"  {local_time(asked.at)}", "faint")
    yield f"  {safe(waiting.info.name) or '(no title)'}{_invoker(waiting.info)}"
    yield f"  {safe(asked.question.text)}"
    yield from approval_lines(asked.question, limit=None)
    yield f"  {_command(asked)}"
