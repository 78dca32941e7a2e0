"""Create streams: their rows, and the state that a fork inherits."""

from __future__ import annotations

from dataclasses import replace
from typing import LiteralString

import msgspec
from psycopg import errors

from perdure.errors import SessionExists, SessionNotFound
from perdure.session.codec import encode
from perdure.session.ids import StreamId
from perdure.session.info import ForkPoint, StreamHeader, bare_info
from perdure.session.messages import MESSAGE
from perdure.stores.append_rules import ForkOrigin, check_origin, initial_state
from perdure.stores.chain import genesis_hash
from perdure.stores.postgres.branches import ask_nodes
from perdure.stores.postgres.database import Connected, Statement, run_statements
from perdure.stores.postgres.lists import first_listing
from perdure.stores.postgres.reads import ask_streams
from perdure.stores.postgres.rows import Stream, node_of
from perdure.stores.postgres.rows import stream_of as stream_of_row

_CREATE: LiteralString = "SELECT perdure.create_stream(" + "%s, " * 12 + "%s)"

_BEGIN_EPOCH: LiteralString = "UPDATE perdure.stream SET epoch=%s WHERE namespace = %s AND id = %s"

_AS_COPY = Statement("SELECT set_config('perdure.is_copy', '1', true)")

_HASH_AT: LiteralString = """
SELECT coalesce((
    SELECT e.chain FROM perdure.entry AS e
    WHERE e.namespace = %s AND e.stream = %s AND e.seq >= greatest(%s, 0) AND %s >= 0
        AND e.chain IS NOT NULL
    ORDER BY e.seq LIMIT 1
), b.genesis) FROM perdure.birth AS b WHERE b.namespace = %s AND b.stream = %s
"""

_MESSAGES_AFTER: LiteralString = """
SELECT count(*) FROM perdure.entry AS e
WHERE e.namespace = %s AND e.stream = %s AND e.seq > %s AND e.kind = %s
"""


async def create_in(
    db: Connected, namespace: str, header: StreamHeader, above_epoch: int = 0
) -> Stream:
    """Create a stream without entries.

    Raises: SessionExists if the stream exists. For a fork, the call raises SessionNotFound,
    InvalidEntry or InvalidParent if the fork point does not exist, and Erased if the origin was
    erased.
    """
    created = await born(db, namespace, header, above_epoch)
    await asked_for_new(db, namespace, header.id, creation(namespace, created))
    return created


async def copy_in(
    db: Connected, namespace: str, header: StreamHeader, genesis: bytes | None
) -> Stream:
    """Create a stream without entries, copied from another store.

    `genesis` is the genesis hash; pass it only if the hash cannot be computed from the header. The
    origin of a copied fork can be erased already.
    Raises: the errors of `create_in`, except Erased.
    """
    created = await born(db, namespace, header, is_copy=True)
    if genesis is not None:
        state = msgspec.structs.replace(created.state, hash=genesis)
        created = replace(created, state=state)
    statements = [_AS_COPY, *creation(namespace, created)]
    await asked_for_new(db, namespace, header.id, statements)
    return created


async def born(
    db: Connected, namespace: str, header: StreamHeader, above: int = 0, *, is_copy: bool = False
) -> Stream:
    """Return the state of a stream before its first entry, without writing anything."""
    if header.fork is None:
        state = msgspec.structs.replace(initial_state(header, genesis_hash(header)), epoch=above)
        return Stream(state, None, None, None, 0)
    return await _create_fork(db, namespace, header, header.fork, is_copy=is_copy)


async def _create_fork(
    db: Connected, namespace: str, header: StreamHeader, fork: ForkPoint, *, is_copy: bool
) -> Stream:
    """Create a fork without locking its origin.

    No lock is needed, because each value that a fork inherits either never changes, or is inherited
    with its value at the time of the call.
    """
    ns, of = namespace, fork.stream
    wanted = [] if fork.leaf is None else [fork.leaf]
    asks = [
        ask_streams(ns, [of]),
        ask_nodes(ns, of, wanted),
        Statement(_HASH_AT, (ns, of, fork.head, fork.head, ns, of)),
    ]
    if fork.scope == "tree":  # for scope "path" its leaf has the count
        asks.append(Statement(_MESSAGES_AFTER, (ns, of, fork.head, MESSAGE)))
    rows, nodes, chain, *later = await run_statements(db, ns, asks)
    if not rows:
        raise SessionNotFound(of)
    origin = stream_of_row(rows[0]).state
    if not is_copy:
        check_origin(origin)
    leaf = node_of(nodes[0]) if nodes else None
    messages = leaf.messages if leaf else 0
    if later:
        messages = origin.info.messages - int(later[0][0][0])
    shared = ForkOrigin(
        info=origin.info,
        head=origin.head,
        hash=chain[0][0],
        messages=messages,
    )
    genesis = genesis_hash(header, shared.hash)
    state = initial_state(header, genesis, shared, lambda _: leaf is not None)
    return Stream(state, leaf, None, None, 0)


async def asked_for_new(
    db: Connected, namespace: str, stream: StreamId, statements: list[Statement]
) -> None:
    """Run the `statements` that create `stream`. Raises: SessionExists."""
    try:
        await run_statements(db, namespace, statements)
    except errors.UniqueViolation:
        raise SessionExists(stream) from None


def creation(namespace: str, stream: Stream) -> list[Statement]:
    """Return the statements that create `stream`."""
    state, fork = stream.state, stream.state.header.fork
    values = (
        *(namespace, state.header.id, state.header.kind, state.header.origin, state.leaf),
        *(state.hash, state.info.updated_at, encode(bare_info(state.info)), encode(state.header)),
        *(state.info.messages, fork.stream if fork else None, fork.head if fork else None),
        fork.scope == "path" if fork else None,
    )
    statements = [Statement(_CREATE, values), *first_listing(namespace, stream)]
    if state.epoch:
        own = (state.epoch, namespace, state.header.id)
        statements.append(Statement(_BEGIN_EPOCH, own))
    return statements
