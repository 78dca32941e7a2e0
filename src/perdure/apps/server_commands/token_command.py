"""``perdure token``: the bearer tokens for the API of a store."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
import typer

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.cli.options import only_subject, only_text
from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.server.access.tokens import PREFIX, Role, TokenRecord
from perdure.apps.server.access.visitors import KEY, SIGNED, token_id_of
from perdure.apps.server_commands.token_location import tokens_of
from perdure.apps.terminal.output import local_time, plain_table, remark
from perdure.apps.terminal.text import safe
from perdure.client.clock import system_random
from perdure.client.lookup.identifiers import find_id

_LONGEST_DAYS = 36_500
_LONGEST_ID = 12


def _only_days(days: float | None) -> float | None:
    """Raises: UsageMistake if the number of days is not positive, or too large."""
    if days is not None and not 0 < days <= _LONGEST_DAYS:
        raise UsageMistake(f"--days {days:g}: give more than 0 and at most {_LONGEST_DAYS}")
    return days


token = typer.Typer(
    help="""Create, list and revoke the bearer tokens of the API of a store.

A token is shown once; only its hash is stored. Running servers accept new tokens and reject revoked
tokens at once.

Examples:
    perdure token create --role write --subject ana
    perdure token list
    perdure token revoke 3f9a12cd
""",
    no_args_is_help=True,
)

PublishableOption = Annotated[
    bool,
    typer.Option(
        "--publishable",
        help="Create a token for the chat in a web page; the token can only send messages and "
        "watch sessions.",
    ),
]

DaysOption = Annotated[
    float | None,
    typer.Option(
        metavar="N",
        callback=_only_days,
        help="The number of days after which the token expires.",
    ),
]

SubjectOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        callback=only_subject,
        help="The token gives access only to the sessions of this person.",
    ),
]

AgentOption = Annotated[
    str | None,
    typer.Option(
        metavar="ID", callback=only_text, help="The token gives access only to this agent."
    ),
]


@token.command("create")
async def create(
    *,
    role: Annotated[
        Role,
        typer.Option(help="The permissions of the token: read; read and write; or everything."),
    ] = "read",
    subject: SubjectOption = None,
    agent: AgentOption = None,
    days: DaysOption = None,
    name: Annotated[
        str,
        typer.Option(metavar="TEXT", help="The purpose of the token, for `perdure token list`."),
    ] = "",
    publishable: PublishableOption = False,
    origin: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="The origin of a page, such as https://shop.example.com."),
    ] = None,
    common: CommonOptions,
) -> None:
    """Create a token and print it.

    A publishable token needs --agent and --origin, and comes with a key that signs tokens for
    single visitors (docs/guides/serving.md). Keep the token's signing key on your server.

    Examples:
        perdure token create --role write --subject ana --days 30
        perdure token create --publishable --agent desk --origin https://shop.example.com
        perdure token create --role admin --name "backup job"
    """
    origins = _origins(origin or [], agent, is_publishable=publishable)
    async with common.writable_store() as store:
        record = _record(store.outside.clock.now_ms(), role, days, origins)
        record = msgspec.structs.replace(
            record, name=name, agent=agent, subject=subject, namespace=store.backend.namespace
        )
        made = (await tokens_of(store)).create(record, system_random(32))
    data = {"id": record.id, "token": made} | (
        {"signing_key": record.signing_key} if origins else {}
    )
    common.show(data, [made, record.signing_key] if origins else made)
    if not common.as_json:
        remark("the token is shown only now; servers accept it immediately")


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
    data = [msgspec.to_builtins(each) for each in records]
    for row in data:
        row.pop("hash", None)
        row.pop("signing_key", None)
    common.show(data, _table(records, now) if records else "No tokens; `perdure token create`.")


@token.command("revoke")
async def revoke(
    id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            callback=only_text,
            help="The id of the token in `perdure token list`, the beginning of the id, or the "
            "whole token.",
        ),
    ],
    *,
    common: CommonOptions,
) -> None:
    """Revoke a token: requests with it are rejected from now on.

    The output never repeats a token, only its id.

    Examples:
        perdure token revoke 3f9a12cd

    Exit codes:
        3  no token has this id
    """
    async with common.existing_store() as store:
        tokens = await tokens_of(store)
        named = _named(id)
        whole = find_id(named, (each.id for each in tokens.records())) or _shown(named)
        found = tokens.revoke(whole, store.outside.clock.now_ms())
    common.show({"id": found.id, "revoked_at": found.revoked_at}, f"revoked {safe(found.id)}")


def _named(text: str) -> str:
    """Return the token id in `text`, which can be a whole token.

    Raises: UsageMistake for a signing key or a signed token, because these cannot be revoked on
    their own.
    """
    if text.startswith((KEY, SIGNED)):
        is_key = text.startswith(KEY)
        id = text.removeprefix(KEY).partition("_")[0] if is_key else token_id_of(text)
        what = "the signing key" if is_key else "a signed token"
        shown = safe(_shown(id)) or "ID"
        raise UsageMistake(
            f"this is {what} of the token {shown}: end both with `perdure token revoke {shown}`"
        )
    return text.removeprefix(PREFIX).partition("_")[0]


def _shown(id: str) -> str:
    """Return `id`.

    If the text is too long for an id, return only its beginning, because it might be a secret.
    """
    return id if len(id) <= _LONGEST_ID else f"{id[:4]}…"


def _table(records: list[TokenRecord], now: int) -> list[str]:
    return plain_table(
        {
            "id": each.id,
            "role": "visitor" if each.origins else each.role,
            "state": _state(each, now),
            "person": safe(each.subject or ""),
            "agent": safe(each.agent or ""),
            "created": local_time(each.created_at),
            "name": safe(each.name),
        }
        for each in records
    )


def _state(record: TokenRecord, now: int) -> str:
    if record.revoked_at is not None:
        return "revoked"
    return "valid" if record.is_valid(now) else "expired"


def _record(now: int, role: Role, days: float | None, origins: tuple[str, ...]) -> TokenRecord:
    id = system_random(4).hex()
    return TokenRecord(
        id=id,
        hash="",
        role="write" if origins else role,
        created_at=now,
        expires_at=None if days is None else now + int(timedelta(days=days).total_seconds() * 1000),
        origins=origins,
        signing_key=f"{KEY}{id}_{system_random(32).hex()}" if origins else "",
    )


def _origins(given: list[str], agent: str | None, *, is_publishable: bool) -> tuple[str, ...]:
    """Return the origins of a publishable token. Raises: UsageMistake for invalid options."""
    if not is_publishable:
        if given:
            raise UsageMistake("--origin belongs to --publishable")
        return ()
    if not given or agent is None:
        raise UsageMistake("a publishable token needs --agent and at least one --origin")
    for each in given:
        url = urlsplit(each)
        if url.scheme not in ("http", "https") or each != f"{url.scheme}://{url.netloc}".lower():
            raise UsageMistake(f"{each!r} is not an origin, for example https://shop.example.com")
    return tuple(given)
