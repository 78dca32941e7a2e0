"""``perdure grants``: list and revoke grants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated

import typer

from perdure.apps.cli.exits import GrantNotFound, UsageMistake
from perdure.apps.cli.options import MOST
from perdure.apps.cli.store_options import CommonOptions, named_session
from perdure.apps.session_rows import short_ids
from perdure.apps.terminal.approvals import short_hashes
from perdure.apps.terminal.output import out_style, width
from perdure.apps.terminal.text import Column, one_line, safe, table
from perdure.client.agents.session_usage import grants_by_session, standing_of
from perdure.client.agents.session_usage import revoke as revoke_grant
from perdure.client.store import Store
from perdure.errors import SessionNotFound
from perdure.tools.approval import grant_id

grants = typer.Typer(
    help="""List and revoke grants: permissions given by the answer "always".

Examples:
    perdure grants list
""",
    no_args_is_help=True,
)

_NONE = "No grants: every call needs approval."


@grants.command("list")
async def list_grants(
    session: Annotated[
        str | None, typer.Argument(metavar="ID", help="Only the grants of this session.")
    ] = None,
    *,
    common: CommonOptions,
) -> None:
    """List grants: permissions given by the answer "always".

    A grant allows one tool to repeat exactly one action: to write the same content to the same
    file, to run the same command with unchanged scripts, or to send the same request. A grant is
    valid in one session only. `perdure grants revoke` accepts the id of a grant.

    Examples:
        perdure grants list
        perdure grants list 01jd
        perdure grants list 01jd --json
    """
    async with common.existing_store() as opened:
        if session is None:
            found = await grants_by_session(opened)
            ids = await short_ids(opened, list(found))
            data = [{"session": id, "grants": _data(each)} for id, each in found.items()]
            common.show(data, _lines(found, ids) if found else _NONE)
            return
        stream = await named_session(opened, session)
        known = (await standing_of(opened, stream)).grants
    common.show(_data(known), [f"{grant_id(each)}  {safe(each)}" for each in known] or _NONE)


def _lines(found: Mapping[str, Sequence[str]], ids: Mapping[str, str]) -> Iterator[str]:
    rows = [
        (ids[id], grant_id(grant), one_line(short_hashes(grant), MOST))
        for id, each in found.items()
        for grant in each
    ]
    columns = (Column("SESSION"), Column("ID"), Column("GRANT", "strong", gives_way=True))
    return table(columns, rows, width(), out_style())


def _data(found: Sequence[str]) -> list[dict[str, str]]:
    return [{"id": grant_id(grant), "grant": grant} for grant in found]


def _find_grant(text: str, known: Sequence[str]) -> str:
    """Return the grant whose text or id is `text`, or the only one that begins with `text`."""
    if text in known:
        return text
    matches = [grant for grant in known if text and grant_id(grant).startswith(text)]
    matches = matches or [grant for grant in known if text and grant.startswith(text)]
    if len(matches) > 1:
        raise UsageMistake(f"{text!r} is ambiguous: {len(matches)} grants begin with it")
    if not matches:
        raise GrantNotFound(text)
    return matches[0]


async def _find_everywhere(store: Store, id: str) -> tuple[str, str]:
    """Return the session and the text of the only grant whose id begins with `id`.

    Raises: GrantNotFound if no grant matches; UsageMistake if `id` names a session, or fits several
    grants or sessions.
    """
    with suppress(SessionNotFound):
        named = await store.find(id)
        raise UsageMistake(
            f"name a grant of this session (`perdure grants list {safe(named)}`), or use --all"
        )
    known = await grants_by_session(store)
    matches = [
        (session, grant)
        for session, each in known.items()
        for grant in each
        if id and grant_id(grant).startswith(id)
    ]
    if not matches:
        raise GrantNotFound(id)
    if len({grant for _, grant in matches}) > 1:
        raise UsageMistake(f"{id!r} is ambiguous: {len(matches)} grants begin with it")
    if len(matches) > 1:
        sessions = ", ".join((await short_ids(store, [session for session, _ in matches])).values())
        raise UsageMistake(
            f"{len(matches)} sessions have this grant ({sessions}): name one of them, "
            f"`perdure grants revoke SESSION {safe(id)}`"
        )
    return matches[0]


@grants.command("revoke")
async def revoke(
    session: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="The session of the grant; if you do not give GRANT: the id of a grant in any "
            "session.",
        ),
    ],
    grant: Annotated[
        str | None,
        typer.Argument(
            metavar="GRANT", help="The id or the text of a grant, or the beginning of either."
        ),
    ] = None,
    *,
    is_all: Annotated[bool, typer.Option("--all", help="Revoke all grants.")] = False,
    common: CommonOptions,
) -> None:
    """Revoke a grant: the next call needs approval again, also in a running turn.

    Examples:
        perdure grants revoke 3fa2b1c0
        perdure grants revoke 01jd 3fa2b1c0
        perdure grants revoke 01jd "run_command git status"
        perdure grants revoke 01jd --all

    Exit codes:
        3  no grant has this id or text
    """
    if grant is not None and is_all:
        raise UsageMistake("name a grant, or use --all")

    async with common.existing_store() as opened:
        if grant is None and not is_all:
            session, grant = await _find_everywhere(opened, session)
        stream = await named_session(opened, session)
        known = (await standing_of(opened, stream)).grants
        found = None if grant is None else _find_grant(grant, known)
        await revoke_grant(opened, stream, found)
        left = (await standing_of(opened, stream)).grants
    revoked = [f"Revoked: {safe(short_hashes(each))}" for each in known if each not in left]
    common.show(_data(left), revoked or "This session has no grants.")
