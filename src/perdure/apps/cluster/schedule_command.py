"""``perdure schedule``: add, list and cancel messages that are sent later."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Annotated

import typer

from perdure.apps.cli.exits import MessageNotFound, UsageMistake
from perdure.apps.cli.moments import coming_moment
from perdure.apps.cli.options import SessionArgument, only_text
from perdure.apps.cli.store_options import CommonOptions, named_session
from perdure.apps.server_commands.command import configured
from perdure.apps.terminal.output import local_time, plain_table
from perdure.apps.terminal.text import one_line, safe
from perdure.client.agents.runtime import Runtime
from perdure.client.cluster.requirements import requirement_for
from perdure.client.cluster.scheduler import missing_for
from perdure.client.inbox.consent import COMMANDS
from perdure.client.requests.schedule import ScheduledMessage
from perdure.client.store import Store
from perdure.errors import PerdureError, WrongArgument
from perdure.session.clock import timestamp
from perdure.session.ids import StreamId

schedule = typer.Typer(
    help="""Schedule messages that are sent later; list and cancel them.

Programs schedule messages with chat.send(at=...); agent files schedule messages with the key
`recurring`.

Examples:
    perdure schedule add 01jd "Is the build green?" --at 2h
    perdure schedule list
""",
    no_args_is_help=True,
)


_OPEN_TURN = "the end of the session's open turn: `perdure inbox` shows its question, if it has one"
_COMMANDS_HERE = (
    "add the commands that may run to chat.allowed_commands in your settings, and start it again"
)
_NO_PROCESS = (
    "a process that sends it: start `perdure serve` in this folder; if it runs already, its log "
    "(PERDURE_LOG=warning) has the reason"
)


@schedule.command("add")
async def add(
    session: SessionArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", callback=only_text, help="The message.")],
    *,
    at: Annotated[
        datetime,
        typer.Option(
            parser=coming_moment,
            metavar="TIME",
            help="A local time, 2026-11-21T09:30, 'tomorrow 09:30'; or 30s, 30m, 2h, 7d from now.",
        ),
    ],
    common: CommonOptions,
) -> None:
    """Send a message to a session later.

    A process with the agent of the session sends the message: a worker, `perdure serve`, or a
    program with a Scheduler. If no process with the agent runs at the scheduled time, the next
    process that starts with the agent sends the message.

    Examples:
        perdure schedule add 01jd "Is the build green?" --at 2h
        perdure schedule add 01jd "Summarize the week." --at "tomorrow 09:00"

    Exit codes:
        2  the session has no agent that your installation of perdure trusts
        3  session not found
    """
    if not text.strip():
        raise UsageMistake("there is nothing to say: write the message after the session")
    async with common.existing_store() as store:
        stream = await named_session(store, session)
        added = await store.schedule.add(stream, text, at=at)
        agent = (await requirement_for(store.backend, stream)).agent
    when = local_time(added.due_at)
    common.show(
        _data(added, agent),
        f"Scheduled {added.id} for {when}; a process with {agent} sends it, for example "
        "`perdure serve`; an open chat does not.",
    )


@schedule.command("list")
async def list_messages(*, common: CommonOptions) -> None:
    """List the messages that were not sent yet, the earliest first.

    The list names the agent of each message. An overdue message waits for a process with the agent
    of its session: a worker, `perdure serve`, or a program with a Scheduler. An open chat does not
    send scheduled messages. The lines below the list say what each overdue message waits for.

    Examples:
        perdure schedule list
        perdure schedule list --json
    """
    async with common.existing_store() as store:
        found = await store.schedule.list()
        now = store.outside.clock.now_ms()
        agents = {
            stream: (await requirement_for(store.backend, stream)).agent
            for stream in {each.session for each in found}
        }
        overdue = [each for each in found if each.due_at <= now]
        waits = await _waits(store, {each.session for each in overdue})
    rows = [(each, agents[each.session]) for each in found]
    data = [
        {**_data(*row), "waits_for": waits[row[0].session] if row[0] in overdue else None}
        for row in rows
    ]
    told = (f"{each.id} waits for {safe(waits[each.session])}" for each in overdue)
    common.show(data, [*_lines(rows, now), *told])


@schedule.command("cancel")
async def cancel(
    message: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="The id of the message in `perdure schedule list`; the beginning of the "
            "session's id and the message's number are enough.",
        ),
    ],
    *,
    common: CommonOptions,
) -> None:
    """Cancel one message: it is never sent.

    For a recurring message, only this one sending is cancelled; the next remains scheduled.

    Examples:
        perdure schedule cancel 01jd/17

    Exit codes:
        3  no scheduled message has that id, or no session has that id
    """
    session, slash, number = message.rpartition("/")
    async with common.existing_store() as store:
        id = f"{await store.find(session)}/{number}" if slash else message
        try:
            await store.schedule.cancel(id)
        except WrongArgument as error:
            raise MessageNotFound(str(error), id) from None
    common.show({"id": id}, f"Cancelled {id}.")


async def _waits(store: Store, sessions: Collection[StreamId]) -> dict[StreamId, str]:
    """For each session, return a text that says what its overdue messages wait for."""
    if not sessions:
        return {}
    try:
        runtime = configured(store)
    except PerdureError as error:
        return dict.fromkeys(sessions, f"`perdure serve`, which cannot start here: {error}")
    try:
        return {each: await _wait_of(runtime, each) for each in sessions}
    finally:
        await runtime.host.aclose()  # not the runtime: closing it may call a model


async def _wait_of(runtime: Runtime, session: StreamId) -> str:
    if (await runtime.host.store.backend.state(session)).open_turn is not None:
        return _OPEN_TURN
    missing = await missing_for(runtime.host, session)
    if not missing:
        return _NO_PROCESS
    advice = f"; {_COMMANDS_HERE}" if COMMANDS in missing else ""
    return f"{missing}: `perdure serve` in this folder does not have it{advice}"


def _data(message: ScheduledMessage, agent: str) -> dict[str, object]:
    return {
        "id": message.id,
        "session": message.session,
        "agent": agent,
        "due_at": timestamp(message.due_at),
        "text": message.message.text,
    }


def _lines(found: list[tuple[ScheduledMessage, str]], now: int) -> list[str]:
    if not found:
        return ["Nothing is scheduled."]
    return plain_table(
        {
            "due": local_time(each.due_at) + (" (overdue)" if each.due_at <= now else ""),
            "id": each.id,
            "agent": safe(agent),
            "message": safe(one_line(each.message.text, 60)),
        }
        for each, agent in found
    )
