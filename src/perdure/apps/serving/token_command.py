"""``perdure token``: the bearer tokens of the API of a store."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.options import only_subject, only_text
from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.server.access.tokens import Role, TokenRecord
from perdure.apps.serving.places import tokens_of
from perdure.apps.terminal.output import local_time, out_style, remark, width
from perdure.apps.terminal.text import Column, safe, table
from perdure.client.clock import system_random

token = typer.Typer(
    help="""Create, list and revoke the bearer tokens of the API of a store.

A token is shown once; only a hash of it is kept. Servers that run notice a change at once.

Examples:
    perdure token create --role write --subject ana
    perdure token list
    perdure token revoke 3f9a12cd
"""
)


def add_to(program: typer.Typer) -> None:
    """Make ``perdure token`` known."""
    program.add_typer(token, name="token")


@token.command("create")
async def create(
    *,
    role: Annotated[
        Role, typer.Option(help="What it may do: read, also write, or everything.")
    ] = "read",
    subject: Annotated[
        str | None,
        typer.Option(metavar="NAME", callback=only_subject, help="Only this person's sessions."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="ID", callback=only_text, help="Only this agent.")
    ] = None,
    days: Annotated[
        float | None, typer.Option(min=0, metavar="N", help="It expires after that many days.")
    ] = None,
    name: Annotated[
        str, typer.Option(metavar="TEXT", help="What it is for; `perdure token list` shows it.")
    ] = "",
    common: CommonOptions,
) -> None:
    """Create a token and print it.

    Examples:
        perdure token create --role write --subject ana --days 30
        perdure token create --role admin --name "backup job"
    """
    async with common.writable_store() as store:
        now = store.outside.clock.now_ms()
        expires = None if days is None else now + int(timedelta(days=days).total_seconds() * 1000)
        record = TokenRecord(
            id=system_random(4).hex(),
            hash="",
            role=role,
            created_at=now,
            name=name,
            agent=agent,
            subject=subject,
            expires_at=expires,
        )
        made = (await tokens_of(store)).create(record, system_random(32))
    common.show({"id": record.id, "token": made}, made)
    if not common.as_json:
        remark("it is shown only now; a server accepts it at once")


@token.command("list")
async def list_tokens(*, common: CommonOptions) -> None:
    """List the tokens, also those that are revoked or expired.

    Examples:
        perdure token list
        perdure token list --json
    """
    async with common.existing_store() as store:
        records = (await tokens_of(store)).records()
        now = store.outside.clock.now_ms()
    data = [msgspec.to_builtins(msgspec.structs.replace(each, hash="")) for each in records]
    for row in data:
        row.pop("hash", None)
    common.show(data, _table(records, now) if records else "No tokens; `perdure token create`.")


@token.command("revoke")
async def revoke(
    id: Annotated[
        str, typer.Argument(metavar="ID", callback=only_text, help="The id in the list.")
    ],
    *,
    common: CommonOptions,
) -> None:
    """Revoke a token: requests with it are refused from now on.

    Examples:
        perdure token revoke 3f9a12cd

    Exit codes:
        2  there is no such token
    """
    async with common.existing_store() as store:
        found = (await tokens_of(store)).revoke(id, store.outside.clock.now_ms())
    common.show({"id": found.id, "revoked_at": found.revoked_at}, f"revoked {safe(found.id)}")


def _table(records: list[TokenRecord], now: int) -> list[str]:
    columns = [
        Column("id"),
        Column("role"),
        Column("state"),
        Column("person"),
        Column("agent"),
        Column("created"),
        Column("name"),
    ]
    rows = [
        (
            each.id,
            each.role,
            _state(each, now),
            safe(each.subject or ""),
            safe(each.agent or ""),
            local_time(each.created_at),
            safe(each.name),
        )
        for each in records
    ]
    return list(table(columns, rows, width(), out_style()))


def _state(record: TokenRecord, now: int) -> str:
    if record.revoked_at is not None:
        return "revoked"
    return "valid" if record.is_valid(now) else "expired"
