"""``perdure store trust``: list the trusted stores, or trust one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from perdure.apps.cli.exits import StoreNotFound
from perdure.apps.cli.options import JsonOption, NamespaceOption
from perdure.apps.cli.store_options import existing_address
from perdure.apps.settings.store_address import NAMESPACE
from perdure.apps.store_access import existing_store, file_address
from perdure.apps.terminal.output import count_of, local_time, show_result
from perdure.apps.terminal.text import safe
from perdure.client.clock import SystemClock
from perdure.client.open import check_address
from perdure.client.trust import TrustedStore, streams_of, trust_folder

TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Trust permissions and open turns that your installation of perdure did not write.",
    ),
]


async def trust(
    store: Annotated[
        str | None,
        typer.Argument(
            metavar="STORE",
            help="The address or file of a store; if you name no store, the trusted stores are "
            "listed.",
        ),
    ] = None,
    *,
    namespace: NamespaceOption = NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """List the stores that you trust, or trust a store as it is now.

    perdure recognizes the sessions that it wrote for you, and applies the permissions in them.
    Sessions and flows that another installation wrote run with your permissions, because perdure
    ignores the permissions in them. An open turn that another installation wrote ends as
    interrupted. If you trust a store, perdure also applies the permissions in this store. Entries
    that are added later are not trusted. Imported sessions are never trusted.

    Examples:
        perdure store trust                       # list trusted stores
        perdure store trust sqlite:///received.db
        perdure store trust ~/from-my-laptop.db
    """
    if store is None:
        found = trust_folder().stores()
        show_result(found, _store_lines(found), as_json=as_json)
        return
    try:
        address = existing_address(_address(store))
    except StoreNotFound as error:
        if error.near is None:  # a new store, which its message suggests, needs no trust
            error.args = (f"there is no store {error.store}: name an existing store or its file",)
        raise
    done = await trust_store(address, namespace)
    show_result(
        done,
        f"{safe(done.address)} is trusted as it is now: {_counts(done)}",
        as_json=as_json,
    )


async def trust_store(address: str, namespace: str) -> TrustedStore:
    """Trust the current content of the store at `address`.

    Raises: ConfigError if the user's data folder cannot be used; the errors of `perdure.open`.
    """
    folder, at = trust_folder(), SystemClock().now_ms()
    async with existing_store(address, namespace) as opened:
        return await folder.trust(opened.backend, at, await streams_of(opened.backend))


def _store_lines(found: Sequence[TrustedStore]) -> Iterator[str]:
    for each in found:
        yield f"{local_time(each.at)}  {safe(each.address)} ({safe(each.namespace)})"
        yield f"  {_counts(each)}"
    if not found:
        yield "No store was trusted. Your perdure recognizes what it wrote itself."


def _counts(done: TrustedStore) -> str:
    entries = count_of(done.entries, "entry", "entries")
    return f"{entries} in {count_of(done.streams, 'log')}"


def _address(store: str) -> str:
    return check_address(store) if ":" in store else file_address(Path(store).expanduser())
