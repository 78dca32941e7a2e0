"""Erase data in one transaction: if the process is killed, nothing is erased.

The call locks the streams in the scope of the erasure, in the order of their ids, and computes the
scope again, until all streams in the scope are locked. A fork created during an erasure waits, and
then fails if its origin was erased as a whole. Writes to other streams continue.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import LiteralString

import msgspec

from perdure.errors import SessionNotFound
from perdure.session.clock import RandomSource
from perdure.session.codec import encode
from perdure.session.ids import StreamId
from perdure.session.info import SessionInfo, StreamHeader, redact
from perdure.session.memory.kinds import FACT_KINDS
from perdure.session.notes import KEPT_WHEN_ERASED
from perdure.stores.chain import SALT_BYTES
from perdure.stores.postgres import branches
from perdure.stores.postgres.append import LOCK, Appender, Request
from perdure.stores.postgres.cluster.live import FORGET_LIVE
from perdure.stores.postgres.database import (
    Connected,
    Database,
    Statement,
    Transaction,
    run_statements,
)
from perdure.stores.postgres.lists import forgetting
from perdure.stores.postgres.reads import ask_streams
from perdure.stores.postgres.retention.content_gc import remove_unreferenced_of
from perdure.stores.postgres.retention.quotas import LIFT, counting
from perdure.stores.postgres.retention.usage import resetting
from perdure.stores.postgres.rows import Stream, entry_of, info_of_row, stream_of
from perdure.stores.postgres.search.tables import forget, locking_mark
from perdure.stores.protocol import Commit
from perdure.stores.retention import copies
from perdure.stores.retention.backups import Backup
from perdure.stores.retention.cascade import Reach, StreamErasure, VisibleEntries
from perdure.stores.retention.erase import (
    Certificate,
    Copy,
    Counts,
    ErasedSession,
    EraseRequest,
    Relation,
    how_related,
)
from perdure.stores.retention.erasure_plan import (
    Erasures,
    Plan,
    erasures,
    reach_among,
    roots_among,
)
from perdure.stores.retention.facts import fact_erasures
from perdure.stores.retention.quotas import is_counted

BACKEND = "postgres"

_SERVER = (
    "removed rows stay in the files of the server until vacuum reuses "
    "their space (VACUUM FULL rewrites them), and in its write-ahead "
    "log"
)
_ELSEWHERE = "base backups, archived logs and replicas of the server, and copies of the store"

_KEPT = sorted(KEPT_WHEN_ERASED)

_HEADERS: LiteralString = """
SELECT b.header, s.is_erased FROM perdure.birth AS b
JOIN perdure.stream AS s ON s.namespace = b.namespace AND s.id = b.stream
WHERE b.namespace = %s ORDER BY b.n
"""

_RELATIONS: LiteralString = """
SELECT s.id, s.info, b.origin IS NOT NULL, s.is_erased, coalesce(b.origin_head, -1),
    coalesce(b.is_path, false) FROM perdure.stream AS s
JOIN perdure.birth AS b ON b.namespace = s.namespace AND b.stream = s.id
WHERE s.namespace = %s AND position('"parent":"'::bytea IN s.info) > 0
"""

_SIZE: LiteralString = """
SELECT count(*), coalesce(sum(octet_length(body)), 0)::bigint FROM perdure.entry
WHERE namespace = %s AND stream = %s AND seq BETWEEN %s AND %s
    AND salt IS NOT NULL AND kind <> ALL(%s)
"""

POSITIONS: LiteralString = """
SELECT n FROM perdure.entry WHERE namespace = %s AND stream = %s AND seq BETWEEN %s AND %s
"""

_BIRTH: LiteralString = "SELECT -n FROM perdure.birth WHERE namespace = %s AND stream = %s"

NAMES: LiteralString = """
SELECT DISTINCT m[1] FROM perdure.entry AS e,
    regexp_matches(encode(e.body, 'escape'), '(sha256-[0-9a-f]{64})', 'g') AS m
WHERE e.namespace = %s AND e.stream = %s AND e.seq BETWEEN %s AND %s
    AND position('sha256-'::bytea IN e.body) > 0
"""

_EMPTY: LiteralString = """
UPDATE perdure.entry SET salt = NULL, body = ''
WHERE namespace = %s AND stream = %s AND seq BETWEEN %s AND %s
    AND salt IS NOT NULL AND kind <> ALL(%s)
"""

_FORGET_NAMES: LiteralString = """
WITH gone AS (
    DELETE FROM perdure.alias
    WHERE namespace = %s AND stream = %s AND seq BETWEEN %s AND %s RETURNING 1
) SELECT count(*) FROM gone
"""

_CLOSE: LiteralString = """
UPDATE perdure.stream SET is_erased = true, epoch = epoch + 1, owner = NULL, until = 0
WHERE namespace = %s AND id = %s
"""

_REDACT: LiteralString = """
UPDATE perdure.birth SET header = %s WHERE namespace = %s AND stream = %s
"""

_FORGET_PARTIAL: LiteralString = """
WITH gone AS (
    DELETE FROM perdure.partial WHERE namespace = %s AND stream = %s RETURNING 1
) SELECT count(*) FROM gone
"""

# A key from before schema 3 has the time of its commit and the first seqs of its shares, but not
# their streams. A key that happens to match a commit to the stream is forgotten, too.
_FORGET_KEYS: LiteralString = """
WITH shares AS (
    SELECT e.commit_at AS at, coalesce(lag(e.seq) OVER (ORDER BY e.seq) + 1, 0) AS first
    FROM perdure.entry AS e
    WHERE e.namespace = %s AND e.stream = %s AND e.chain IS NOT NULL
), gone AS (
    DELETE FROM perdure.idempotency AS i
    WHERE i.namespace = %s AND (%s = ANY(i.streams) OR (i.streams IS NULL AND EXISTS (
        SELECT FROM shares AS s WHERE i.at = s.at AND s.first = ANY(i.firsts))))
    RETURNING 1
) SELECT count(*) FROM gone
"""

_KEEP: LiteralString = "INSERT INTO perdure.erasure VALUES (%s, %s, %s, %s)"

_CERTIFICATES: LiteralString = """
SELECT certificate FROM perdure.erasure WHERE namespace = %s ORDER BY at, id
"""

_REMEMBER: LiteralString = """
INSERT INTO perdure.backup VALUES (%s, %s, %s)
ON CONFLICT (namespace, path) DO UPDATE SET at = excluded.at
"""

_BACKUPS: LiteralString = """
SELECT path, at FROM perdure.backup WHERE namespace = %s ORDER BY at, path
"""

_Plan = Plan[Stream]

_header = msgspec.json.Decoder(StreamHeader)
_certificate = msgspec.json.Decoder(Certificate)


async def certificates(db: Database | Transaction) -> list[Certificate]:
    """Implement ``RetentionService.erasures``."""
    (rows,) = await db.ask(Statement(_CERTIFICATES, (db.namespace,)))
    return [_certificate.decode(row[0]) for row in rows]


async def remember_backup(db: Database, backup: Backup) -> None:
    """Implement ``RetentionService.remember_backup``."""
    await db.ask(Statement(_REMEMBER, (db.namespace, backup.path, backup.at)))


async def backups(db: Database | Transaction) -> list[Backup]:
    """Implement ``RetentionService.backups``."""
    (rows,) = await db.ask(Statement(_BACKUPS, (db.namespace,)))
    return [Backup(*row) for row in rows]


async def erase(
    db: Database, namespace: str, request: EraseRequest, appender: Appender, random: RandomSource
) -> Certificate:
    """Implement ``RetentionService.erase``."""
    async with db.connection() as connected, connected.transaction():
        return await _Erasure(db, connected, request, appender).run(namespace, random)


class _Erasure:
    """Runs one erasure, in the transaction of one connection."""

    def __init__(
        self, db: Database, connected: Connected, request: EraseRequest, appender: Appender
    ) -> None:
        self._ns = db.namespace
        self._connected = connected
        self._within = Transaction(connected, db.namespace)
        self._ask = self._within.ask
        self._request = request
        self._appender = appender

    async def run(self, namespace: str, random: RandomSource) -> Certificate:
        """Erase; return the certificate, or the earlier one if nothing is left to erase."""
        await self._ask(LIFT, *locking_mark(self._ns))
        reach, relations = await self._reach()
        plans = await self._plans(reach, relations)
        if not plans and self._request.is_of_session:
            done = self._request.answered_by(await certificates(self._within))
            if done is not None:
                return done
        plans += await self._fact_plans(plans)
        outside = [copy for plan in plans for copy in await self._outside(plan)]
        sessions = await self._mark_streams(plans, random)
        counts, names = Counts(), set[str]()
        for plan in plans:
            counts = await self._erase_stream(plan, counts, names)
        count, size = await remove_unreferenced_of(self._connected, self._ns, names)
        counts = counts.plus(contents=count, content_bytes=size)
        await self._uncount(plans, counts.content_bytes)
        certificate = self._request.certificate(
            BACKEND,
            namespace,
            is_complete=True,
            sessions=sessions,
            removed=counts,
            copies=(
                *copies.fork_copies(sessions, reach.copies),
                *outside,
                *copies.backed_up(await backups(self._within)),
                Copy("server", _SERVER),
                Copy("backup", _ELSEWHERE),
            ),
        )
        content = msgspec.json.encode(copies.without_file_names(certificate))
        values = (self._ns, certificate.id, certificate.at, content)
        await self._ask(Statement(_KEEP, values))
        return certificate

    # -- scope

    async def _reach(self) -> tuple[Reach, list[Relation]]:
        """Lock the streams in the scope; return the scope and the relations of the streams.

        After locking, the scope is computed again, until all its streams are locked.
        """
        locked: set[StreamId] = set()
        while True:
            relations, roots = await self._relations(), await self._roots()
            reach = reach_among(self._request, roots, relations)
            reached = {*reach.targets, *reach.forks}
            if reached <= locked:
                return reach, relations
            await self._ask(Statement(LOCK, (self._ns, sorted(reached))))
            locked |= reached

    async def _roots(self) -> list[StreamId]:
        name = self._request.name
        if self._request.is_of_session:
            (rows,) = await self._ask(ask_streams(self._ns, [StreamId(name or "")]))
            if not rows:
                raise SessionNotFound(name or "")
            self._request.require_head(stream_of(rows[0]).state)
            return [StreamId(name or "")]
        (rows,) = await self._ask(Statement(_HEADERS, (self._ns,)))
        headers = ((_header.decode(header), is_erased) for header, is_erased in rows)
        return roots_among(self._request, headers)

    async def _relations(self) -> list[Relation]:
        (rows,) = await self._ask(Statement(_RELATIONS, (self._ns,)))
        found: list[Relation] = []
        for id_, kept, is_fork, is_erased, head, is_path in rows:
            info: SessionInfo = info_of_row(id_, kept)
            how = how_related(is_fork=is_fork, origin=info.origin)
            if info.parent is not None:
                found.append(Relation(StreamId(id_), info.parent, how, is_erased, head, is_path))
        return found

    async def _plans(self, reach: Reach, relations: list[Relation]) -> list[_Plan]:
        """Return the plan of each stream; omit streams without erased entries."""
        streams = await self._streams(reach.targets)
        states = {id_: stream.state for id_, stream in streams.items()}
        found = await self._planned(erasures(self._request, reach, relations, states))
        streams |= await self._streams({taking.stream for taking in found} - streams.keys())
        plans = [await self._plan(streams[taking.stream], taking) for taking in found]
        return [plan for plan in plans if plan.is_needed]

    async def _planned(self, steps: Erasures) -> list[StreamErasure]:
        try:
            stream, kinds = next(steps)
            while True:
                tree = await branches.tree(self._within, stream)
                notes = await branches.notes(self._within, stream, kinds)
                stream, kinds = steps.send(VisibleEntries(tree, notes))
        except StopIteration as end:
            return end.value

    async def _fact_plans(self, plans: Sequence[_Plan]) -> list[_Plan]:
        """Return the plans of the fact streams whose facts come from entries that `plans` erase.

        Other commits can add facts until the fact streams are locked. So after locking the found
        streams, the call searches again, until it finds no unlocked stream.
        """
        taken = [plan.taking for plan in plans]
        locked: set[StreamId] = set()
        while True:
            (rows,) = await self._ask(branches.ask_notes_of_all(self._ns, list(FACT_KINDS)))
            found = fact_erasures(taken, map(entry_of, rows))
            if {each.stream for each in found} <= locked:
                break
            locked |= {each.stream for each in found}
            await self._ask(Statement(LOCK, (self._ns, sorted(locked))))
        streams = await self._streams(locked)
        return [await self._plan(streams[each.stream], each) for each in found]

    async def _streams(self, ids: Collection[StreamId]) -> dict[StreamId, Stream]:
        if not ids:
            return {}
        (rows,) = await self._ask(ask_streams(self._ns, sorted(ids)))
        return {stream.state.header.id: stream for stream in map(stream_of, rows)}

    async def _plan(self, stream: Stream, taking: StreamErasure) -> _Plan:
        sizes = [Statement(_SIZE, (*self._place(taking, each), _KEPT)) for each in taking.erased]
        rows = [row[0] for row in await self._ask(*sizes)] if sizes else []
        return Plan(stream, taking, sum(row[0] for row in rows), sum(row[1] for row in rows))

    def _place(self, taking: StreamErasure, seqs: tuple[int, int]) -> tuple[object, ...]:
        return (self._ns, taking.stream, *seqs)

    async def _outside(self, plan: _Plan) -> list[Copy]:
        stream = plan.taking.stream
        notes = await branches.notes(self._within, stream, copies.TELLING)
        return list(copies.outside(note for note in notes if note.stream == stream))

    # -- marked as erased

    async def _mark_streams(
        self, plans: Sequence[_Plan], random: RandomSource
    ) -> tuple[ErasedSession, ...]:
        """Record the erasure in every stream."""
        if not plans:
            return ()
        writes = tuple(plan.taking.write(self._request) for plan in plans)
        commit = Commit(writes=writes, at=self._request.at)
        salts = random(SALT_BYTES * sum(len(write.entries) for write in writes))
        request = Request(commit, b"", salts, ())
        shares = await self._appender.append_locked(self._connected, request)
        return tuple(
            plan.erased_session(share.after.state.hash)
            for plan, share in zip(plans, shares, strict=True)
        )

    async def _erase_stream(self, plan: _Plan, counts: Counts, names: set[str]) -> Counts:
        """Remove the erased data from the tables; add the referenced contents to `names`."""
        taking = plan.taking
        for each in taking.erased:
            place = self._place(taking, each)
            positions, found = await self._ask(Statement(POSITIONS, place), Statement(NAMES, place))
            names.update(row[0] for row in found)
            texts = await forget(self._connected, self._ns, [row[0] for row in positions])
            counts = counts.plus(texts=texts)
            _, aliases = await self._ask(
                Statement(_EMPTY, (*place, _KEPT)), Statement(_FORGET_NAMES, place)
            )
            await self._ask(forgetting(self._ns, taking.stream, each))
            counts = counts.plus(foreign_ids=aliases[0][0])
        own = (self._ns, taking.stream)
        if not taking.is_whole:
            await self._ask(Statement(FORGET_LIVE, (self._ns, [taking.stream])))
            return counts
        more = await forget_session(self._connected, *own)
        header = encode(redact(plan.stream.state.header))
        await self._ask(Statement(_REDACT, (header, *own)), Statement(_CLOSE, own))
        return counts.plus(
            texts=more.texts,
            partial_answers=more.partial_answers,
            idempotency_keys=more.idempotency_keys,
        )

    async def _uncount(self, plans: Sequence[_Plan], content_bytes: int) -> None:
        closed = [plan for plan in plans if plan.taking.is_whole]
        less = counting(
            self._ns,
            sessions=-sum(
                plan.stream.state.info.status != "erased" and is_counted(plan.stream.state.header)
                for plan in closed
            ),
            entries=-sum(plan.entries for plan in plans),
            size=-sum(plan.bytes for plan in plans) - content_bytes,
        )
        await self._ask(less, resetting(self._ns))


# ---------------------------------------------------------------- also for a removal


async def forget_session(db: Connected, namespace: str, stream: StreamId) -> Counts:
    """Delete the title of `stream`, its partial answer, and the keys of commits to it."""
    own = (namespace, stream)
    title, partials, keys, _ = await run_statements(
        db,
        namespace,
        [
            Statement(_BIRTH, own),
            Statement(_FORGET_PARTIAL, own),
            Statement(_FORGET_KEYS, (*own, *own)),
            Statement(FORGET_LIVE, (namespace, [stream])),
        ],
    )
    texts = await forget(db, namespace, [row[0] for row in title])
    return Counts(texts=texts, partial_answers=partials[0][0], idempotency_keys=keys[0][0])
