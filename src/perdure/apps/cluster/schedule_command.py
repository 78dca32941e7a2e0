"""``perdure schedule``: list and cancel the messages that are sent later."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.terminal.output import local_time, out_style, width
from perdure.apps.terminal.text import Column, one_line, safe, table
from perdure.client.requests.schedule import ScheduledMessage
from perdure.session.clock import timestamp

schedule = typer.Typer(
    help="""List and cancel messages that are sent later.

Programs schedule them with chat.send(at=...), agents with `recurring` in their file.

Examples:
    perdure schedule list
"""
)


def add_to(program: typer.Typer) -> None:
    """Make ``perdure schedule`` known."""
    program.add_typer(schedule, name="schedule")


@schedule.callback()
def group() -> None:
    """List and cancel messages that are sent later."""


@schedule.command("list")
async def list_messages(*, common: CommonOptions) -> None:
    """List the messages that were not sent yet, the earliest first.

    A message that is overdue waits for a process with its agent: a worker, `perdure serve`, or a
    program with a Scheduler.

    Examples:
        perdure schedule list
        perdure schedule list --json
    """
    async with common.existing_store() as store:
        found = await store.schedule.list()
        now = store.outside.clock.now_ms()
    common.show([_data(each) for each in found], _lines(found, now))


@schedule.command("cancel")
async def cancel(
    message: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="The message: its id in `perdure schedule list`, or the beginning of its "
            "session's id with its number.",
        ),
    ],
    *,
    common: CommonOptions,
) -> None:
    """Cancel one message: it is never sent.

    Of a recurring message this cancels one time; the next one stays.

    Examples:
        perdure schedule cancel 01jd/17

    Exit codes:
        2  no message of that id waits
        3  no session has such an id
    """
    session, slash, number = message.rpartition("/")
    async with common.existing_store() as store:
        id = f"{await store.find(session)}/{number}" if slash else message
        await store.schedule.cancel(id)
    common.show({"id": id}, f"Cancelled {id}.")


def _data(message: ScheduledMessage) -> dict[str, object]:
    return {
        "id": message.id,
        "session": message.session,
        "due_at": timestamp(message.due_at),
        "text": message.message.text,
    }


def _lines(found: list[ScheduledMessage], now: int) -> list[str]:
    if not found:
        return ["Nothing is scheduled."]
    rows = [
        (
            local_time(each.due_at) + (" (overdue)" if each.due_at <= now else ""),
            each.id,
            safe(one_line(each.message.text, 60)),
        )
        for each in found
    ]
    names = ("due", "id", "message")
    return list(table([Column(name) for name in names], rows, width(), out_style()))
