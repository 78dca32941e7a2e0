"""``perdure inbox``: everything that waits for a person, in every session, and answering it."""

from __future__ import annotations

import getpass
import importlib
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer

from perdure.apps.cli.exits import DONE, QuestionNotFound, UsageMistake
from perdure.apps.cli.options import (
    JsonOption,
    NamespaceOption,
    StoreOption,
    only_text,
    run,
)
from perdure.apps.opening import NAMESPACE, existing_store
from perdure.apps.terminal.output import iso, local_time, out_style, show, show_json, show_lines
from perdure.apps.terminal.text import safe
from perdure.client.reading import OpenQuestion
from perdure.client.store import Store
from perdure.errors import AmbiguousId
from perdure.session.flows.kinds import FlowImported, FlowStarted
from perdure.session.ids import StreamId, entry_place
from perdure.session.info import SessionInfo

inbox = typer.Typer(invoke_without_command=True)

_FLOWS = (FlowStarted.kind, FlowImported.kind)


class Waiting(msgspec.Struct, frozen=True):
    """A question and the session it belongs to."""

    info: SessionInfo
    asked: OpenQuestion


def add_to(program: typer.Typer) -> None:
    """Make ``perdure inbox`` known."""
    program.add_typer(inbox, name="inbox")


@inbox.callback()
def inbox_itself(
    context: typer.Context,
    *,
    store: StoreOption = None,
    namespace: NamespaceOption = NAMESPACE,
    as_json: JsonOption = False,
) -> int:
    """List what waits for a person, and answer it.

    Approvals of tools, outcomes nobody knows, what an agent asks, what a flow waits for: every
    session's, in one list.

    Examples:
        perdure inbox
        perdure inbox answer 01jd approve --note "go on"
    """
    if context.invoked_subcommand is not None:
        if as_json or store is not None or _is_typed(context, "namespace"):
            name = context.invoked_subcommand
            raise UsageMistake(f"write the options after the command: perdure inbox {name} ...")
        return DONE
    return list_questions(store=store, namespace=namespace, as_json=as_json)


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


@inbox.command("list")
def list_questions(
    *,
    store: StoreOption = None,
    namespace: NamespaceOption = NAMESPACE,
    as_json: JsonOption = False,
) -> int:
    """List the questions nobody has answered, oldest first.

    Each with the session it is of, and the command that answers it.

    Examples:
        perdure inbox list
        perdure inbox list --json
    """

    async def work() -> None:
        async with existing_store(store, namespace) as opened:
            waiting = await _waiting(opened)
            of_flows = await _of_flows(opened)
        if as_json:
            show_json([*(_data(each) for each in waiting), *of_flows])
        elif waiting or of_flows:
            show_lines([*_lines(waiting), *_flow_lines(of_flows)])
        else:
            show("Nothing waits for you.")

    return run(work)


@inbox.command("answer")
def answer(
    question: Annotated[
        str, typer.Argument(metavar="ID", help="The question: its id, or how it begins.")
    ],
    choice: Annotated[str, typer.Argument(metavar="CHOICE", help="One of its choices.")],
    *,
    note: Annotated[
        str | None,
        typer.Option(metavar="TEXT", callback=only_text, help="Kept with the answer."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="NAME", callback=only_text, help="Who answers; you, if left out."),
    ] = None,
    store: StoreOption = None,
    namespace: NamespaceOption = NAMESPACE,
    as_json: JsonOption = False,
) -> int:
    """Answer a question.

    The first answer counts, whoever gives it. The turn goes on when it is resumed, here or
    elsewhere.

    Examples:
        perdure inbox answer 01jd approve
        perdure inbox answer 01jd/17 deny --note "not on a Friday"

    Exit codes:
        3  no open question has that id
        4  somebody gave another answer before
    """

    async def work() -> None:
        async with existing_store(store, namespace) as opened:
            session_id = await _session_of(opened, question)
            handle = await opened.open(session_id)
            entry = await handle.answer(question, choice, by=by or getpass.getuser(), note=note)
        if as_json:
            show_json({"session": handle.id, "question": entry.about, "choice": choice})
        else:
            show(
                f"Answered {choice!r}. `perdure chat --session {handle.id}` goes on with the turn."
            )

    return run(work)


async def _waiting(store: Store) -> list[Waiting]:
    """Every open question of the namespace, oldest first."""
    asked = await store.questions()
    sessions = dict.fromkeys(entry_place(each.id)[0] for each in asked)
    infos = {session: (await store.backend.state(session)).info for session in sessions}
    return [Waiting(infos[entry_place(each.id)[0]], each) for each in asked]


async def _of_flows(store: Store) -> list[dict[str, object]]:
    """What flows wait for, each with the command that answers it."""
    if not await store.backend.notes_of_all(_FLOWS):
        return []
    # By name: only a store with flows loads what they need.
    flows: Any = importlib.import_module("perdure.apps.flow.listing")
    found: list[dict[str, object]] = await flows.waiting_in_flows(store)
    return found


async def _session_of(store: Store, question: str) -> StreamId:
    """The session that `question` is in; a prefix must fit one open question only."""
    try:
        return entry_place(question)[0]
    except ValueError:
        asked = await store.questions()
    fitting = [each.id for each in asked if each.id.startswith(question)]
    if len(fitting) > 1:
        raise AmbiguousId(question, tuple(fitting))
    if not fitting:
        raise QuestionNotFound(question)
    return entry_place(fitting[0])[0]


def _data(waiting: Waiting) -> dict[str, object]:
    question = waiting.asked.question
    return {
        "id": waiting.asked.id,
        "session": waiting.info.id,
        "title": waiting.info.name or None,
        "asked_at": iso(waiting.asked.at),
        "topic": question.topic,
        "text": question.text,
        "choices": question.choices,
        "about": waiting.asked.about,
        "call_id": question.call_id,
        "expires_at": None if question.expires_at is None else iso(question.expires_at),
    }


def _flow_lines(items: list[dict[str, object]]) -> Iterator[str]:
    style = out_style()
    for item in items:
        yield style.paint(str(item["session"]), "strong")
        yield f"  {safe(str(item['title'] or '')) or '(no title)'}"
        yield f"  {safe(str(item['text']))}"
        yield f"  {item['answer']}"


def _lines(waiting: list[Waiting]) -> Iterator[str]:
    style = out_style()
    for each in waiting:
        asked = each.asked
        yield style.paint(asked.id, "strong") + style.paint(f"  {local_time(asked.at)}", "faint")
        yield f"  {safe(each.info.name) or '(no title)'}"
        yield f"  {safe(asked.question.text)}"
        yield f"  perdure inbox answer {asked.id} {'|'.join(asked.question.choices)}"
