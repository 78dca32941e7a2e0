"""``perdure cluster limit``: limit the work of a namespace, a model or a provider."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.terminal.text import safe
from perdure.client.cluster.runner import cluster_of
from perdure.stores.cluster.limits import KINDS, Limit

MOST = 1_000_000

WaitingOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MOST,
        metavar="N",
        help="Maximum number of turns of a namespace that wait for workers.",
    ),
]

RateOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MOST,
        metavar="N",
        help="Maximum number of requests to models per minute.",
    ),
]

TurnsOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=MOST,
        metavar="N",
        help="Maximum number of simultaneous turns; with 0, no turn begins.",
    ),
]


async def limit(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="SUBJECT",
            help="The object of the limit: namespace:NAME, model:PROVIDER:NAME or provider:NAME.",
        ),
    ],
    *,
    turns: TurnsOption = None,
    per_minute: RateOption = None,
    waiting: WaitingOption = None,
    none: Annotated[bool, typer.Option("--none", help="Remove the limit.")] = False,
    common: CommonOptions,
) -> None:
    """Limit the work of a namespace, a model or a provider, over all workers of the database.

    A new limit replaces the earlier limit of the same namespace, model or provider. Workers apply a
    new limit within two seconds. Running turns count toward a new limit, but the limit does not
    stop them. A turn that would exceed a limit waits. If more turns than --waiting would wait, a
    new turn is rejected: programs raise QueueFull, and the HTTP API answers 429. `perdure cluster
    status` lists the limits.

    Examples:
        perdure cluster limit namespace:tenant-a --turns 8 --waiting 500
        perdure cluster limit provider:anthropic --turns 20 --per-minute 600
        perdure cluster limit model:openai:gpt-5 --none

    Exit codes:
        2  the store is not on PostgreSQL
    """
    _require_subject(subject)
    new = Limit(subject=subject, turns=turns, per_minute=per_minute, waiting=waiting)
    if waiting is not None and not subject.startswith("namespace:"):
        raise UsageMistake("--waiting limits the turns of a namespace: give namespace:NAME")
    is_empty = new == Limit(subject=subject)
    if is_empty != none:
        raise UsageMistake(
            "--none removes the limit: give it without a number"
            if none
            else "give a limit: --turns N, --per-minute N or --waiting N, or remove it with --none"
        )
    async with common.existing_store() as store:
        await cluster_of(store.backend).limits.set_limit(new)
    told = f"{safe(subject)} is not limited any more." if none else f"{safe(subject)} is limited."
    common.show(msgspec.to_builtins(new), told)


def _require_subject(subject: str) -> None:
    """Raises: UsageMistake if the text is not a valid subject of a limit."""
    kind, _, name = subject.partition(":")
    is_model = kind == "model"
    parts = name.partition(":")[::2] if is_model else (name,)
    if kind not in KINDS or not all(parts) or not subject.isprintable():
        raise UsageMistake(
            f"{safe(subject)} cannot be limited: write namespace:NAME, model:PROVIDER:NAME or "
            "provider:NAME"
        )
