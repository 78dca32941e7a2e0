"""Run the first step of an erasure in one transaction: record the plan, close the sessions.

The first step runs on the writer's thread. After the commit of the first step, every process sees
the sessions as erased: not listed, closed for appends, with redacted headers. The table ``erasing``
lists the remaining data, and ``erase_steps`` removes this data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from perdure.session.clock import RandomSource
from perdure.session.codec import encode
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader, redact
from perdure.session.memory.kinds import FACT_KINDS
from perdure.session.notes import KEPT_WHEN_ERASED
from perdure.stores.access.collector import collector_paused
from perdure.stores.protocol import EMPTY, Commit
from perdure.stores.retention import copies
from perdure.stores.retention.cascade import Reach, StreamErasure, VisibleEntries
from perdure.stores.retention.erase import (
    Certificate,
    Counts,
    ErasedSession,
    EraseRequest,
    Range,
    Relation,
    how_related,
)
from perdure.stores.retention.erasure_plan import Plan, erasures, planned, reach_among, roots_among
from perdure.stores.retention.facts import fact_erasures
from perdure.stores.sqlite import branches
from perdure.stores.sqlite.append import append, namespace_number
from perdure.stores.sqlite.payload.requests import Request, shares_of
from perdure.stores.sqlite.reads import notes_of_all
from perdure.stores.sqlite.retention.erase_records import certificates_of, keep_new
from perdure.stores.sqlite.rows import Stream, Tables, namespace_no
from perdure.stores.sqlite.search.search_index import forget

_ALL = """
SELECT s.status, b.header FROM stream AS s JOIN birth AS b ON b.stream = s.no
WHERE s.namespace = ? ORDER BY s.no
"""

_RELATIONS = """
SELECT s.id, s.parent, s.origin, s.status, b.origin, b.origin_head, b.is_path
FROM stream AS s JOIN birth AS b ON b.stream = s.no
WHERE s.namespace = ? AND s.parent IS NOT NULL
"""

_CLOSE = "UPDATE stream SET epoch = epoch + 1, owner = NULL, until = 0 WHERE no = ?"

_header = msgspec.json.Decoder(StreamHeader)


@collector_paused()
def begin(
    tables: Tables, namespace: str, request: EraseRequest, random: RandomSource
) -> Certificate:
    """Begin the erasure `request`; return the preliminary certificate.

    If nothing is left to erase, because the session or all requested entries were erased before,
    return the earlier certificate.
    Raises: SessionNotFound, SessionHasForks.
    """
    found = namespace_no(tables, namespace)
    number = -1 if found is None else int(found)
    roots = _roots(tables, number, namespace, request)
    relations = _relations(tables, number)
    if request.is_of_session:
        request.require_head(tables.stream(namespace, roots[0]).state)
    reach = reach_among(request, roots, relations)
    plans = _plans(tables, namespace, request, reach, relations)
    if not plans and request.is_of_session:
        done = request.answered_by(certificates_of(tables, namespace))
        if done is not None:
            return done
    plans += _fact_plans(tables, namespace, plans)
    outside = [
        copy
        for plan in plans
        for copy in copies.outside(_own_notes(tables, plan.stream, copies.TELLING))
    ]
    sessions = mark_streams(tables, namespace, plans, request, random)
    certificate = request.certificate(
        "sqlite",
        namespace,
        sessions=sessions,
        removed=forgotten(tables, number, plans),
        copies=(*copies.fork_copies(sessions, reach.copies), *outside),
    )
    keep_new(
        tables,
        namespace_number(tables, namespace),  # also of one that nobody has written to
        copies.without_file_names(certificate),
        [(plan.stream.no, plan.taking.erased) for plan in plans],
    )
    return certificate


# ---------------------------------------------------------------- scope


def _roots(tables: Tables, number: int, namespace: str, request: EraseRequest) -> list[StreamId]:
    if request.is_of_session:
        stream = StreamId(request.name or "")
        tables.stream(namespace, stream)
        return [stream]
    rows = tables.rows(_ALL, number)
    return roots_among(request, ((_header.decode(row[1]), row[0] == "erased") for row in rows))


def _relations(tables: Tables, number: int) -> list[Relation]:
    return [
        Relation(
            StreamId(id_),
            StreamId(parent),
            how_related(is_fork=origin_no is not None, origin=origin),
            is_erased=status == "erased",
            head=EMPTY if head is None else head,
            is_path=bool(is_path),
        )
        for id_, parent, origin, status, origin_no, head, is_path in tables.rows(_RELATIONS, number)
    ]


def _plans(
    tables: Tables,
    namespace: str,
    request: EraseRequest,
    reach: Reach,
    relations: Sequence[Relation],
) -> list[Plan[Stream]]:
    """Return the plan of each stream; omit streams without erased entries."""
    streams = {id_: tables.stream(namespace, id_) for id_ in reach.targets}

    def stream_of(id_: StreamId) -> Stream:
        return streams.get(id_) or streams.setdefault(id_, tables.stream(namespace, id_))

    states = {id_: stream.state for id_, stream in streams.items()}
    steps = erasures(request, reach, relations, states)
    found = planned(steps, lambda id_, notes: _visible_entries(tables, stream_of(id_), notes))
    plans = [plan_of(tables, stream_of(each.stream), each) for each in found]
    return [plan for plan in plans if plan.is_needed]


def _fact_plans(
    tables: Tables, namespace: str, plans: Sequence[Plan[Stream]]
) -> list[Plan[Stream]]:
    """Return the plans of the fact streams whose facts come from entries that `plans` erase."""
    notes = notes_of_all(tables, namespace, FACT_KINDS)
    found = fact_erasures([plan.taking for plan in plans], notes)
    return [plan_of(tables, tables.stream(namespace, each.stream), each) for each in found]


def plan_of(tables: Tables, stream: Stream, taking: StreamErasure) -> Plan[Stream]:
    """Return the plan of the erasure `taking`, with the number and size of the erased bodies."""
    sizes = [_size(tables, stream.no, each) for each in taking.erased]
    return Plan(stream, taking, sum(size[0] for size in sizes), sum(size[1] for size in sizes))


def _visible_entries(tables: Tables, stream: Stream, notes: Sequence[str]) -> VisibleEntries:
    head = stream.state.head
    tree = branches.tree(tables, stream.no, head)
    return VisibleEntries(tree, branches.notes(tables, stream.no, head, notes))


def kept_kinds(tables: Tables) -> str:
    """Return, as SQL, the numbers of the kinds whose bodies are not erased."""
    numbers = (tables.kind_number(kind) for kind in sorted(KEPT_WHEN_ERASED))
    return ", ".join(str(number) for number in numbers if number is not None) or "-1"


def _size(tables: Tables, stream: int, seqs: Range) -> tuple[int, int]:
    row = tables.row(
        "SELECT count(*), coalesce(sum(length(body)), 0) FROM entry WHERE stream = ?"  # noqa: S608 - numbers only
        f" AND seq BETWEEN ? AND ? AND salt IS NOT NULL AND kind NOT IN ({kept_kinds(tables)})",
        stream,
        *seqs,
    )
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


def _own_notes(tables: Tables, stream: Stream, kinds: Sequence[str]) -> list[Entry]:
    id_ = stream.state.header.id
    notes = branches.notes(tables, stream.no, stream.state.head, kinds)
    return [note for note in notes if note.stream == id_]


# ---------------------------------------------------------------- marked as erased


def mark_streams(
    tables: Tables,
    namespace: str,
    plans: Sequence[Plan[Stream]],
    request: EraseRequest,
    random: RandomSource,
) -> tuple[ErasedSession, ...]:
    """Mark every stream as erased, and close it."""
    if not plans:
        return ()
    tables.forget_standing()
    writes = tuple(plan.taking.write(request) for plan in plans)
    commit = Commit(writes=writes, at=request.at)
    tables.run("UPDATE quota SET is_lifted = 1")
    append(tables, Request(namespace, commit, b"", shares_of(commit, random), ()))
    after = [_close_stream(tables, namespace, plan) for plan in plans]
    tables.run("UPDATE quota SET is_lifted = 0")
    tables.forget_standing()
    return tuple(
        plan.erased_session(hash_after) for plan, hash_after in zip(plans, after, strict=True)
    )


def _close_stream(tables: Tables, namespace: str, plan: Plan[Stream]) -> bytes:
    """Fence the stream's lease owner and redact the header; return the stream's new hash."""
    number = plan.stream.no
    if plan.taking.is_whole:
        owner = plan.stream.namespace
        forget(tables, owner, [-number])
        header = encode(redact(plan.stream.state.header))
        tables.run("UPDATE birth SET header = ? WHERE stream = ?", (header, number))
        tables.run(_CLOSE, (number,))
    return tables.stream(namespace, plan.taking.stream).state.hash


def forgotten(tables: Tables, namespace: int, plans: Iterable[Plan[Stream]]) -> Counts:
    """Delete partial answers and idempotency keys of completely erased streams; count them."""
    numbers = [plan.stream.no for plan in plans if plan.taking.is_whole]
    partials = 0
    for number in numbers:
        tables.run("DELETE FROM partial WHERE stream = ?", (number,))
        partials += int(tables.value("SELECT changes()"))
    keys = keys_of(tables, namespace, numbers)
    tables.run_many(
        "DELETE FROM idempotency WHERE namespace = ? AND key = ?",
        [(namespace, key) for key in keys],
    )
    return Counts(partial_answers=partials, idempotency_keys=len(keys))


_KEYS_NEAR = """
SELECT i.key, i.first, i.at FROM idempotency AS i WHERE i.namespace = ? AND i.at IN (
    SELECT c.at FROM entry AS e CROSS JOIN commits AS c ON c.first = e.n WHERE e.stream = ?)
"""

_SHARE = """
SELECT c.count, c.at, e.stream FROM commits AS c JOIN entry AS e ON e.n = c.first
WHERE c.first = ?
"""


def keys_of(tables: Tables, namespace: int, streams: Iterable[int]) -> list[str]:
    """Return the idempotency keys of commits that appended to one of `streams`."""
    found: dict[str, None] = {}
    for stream in streams:
        for key, first, at in list(tables.rows(_KEYS_NEAR, namespace, stream)):
            if stream in _streams_of_commit(tables, first, at):
                found[key] = None
    return list(found)


def _streams_of_commit(tables: Tables, first: int, at: int) -> list[int]:
    """Return the streams of the commit that begins at position `first`.

    The entries of a commit are at consecutive positions, even if the commit appends to several
    streams.
    """
    found: list[int] = []
    share = tables.row(_SHARE, first)
    while share is not None and share[1] == at and share[2] not in found:
        found.append(share[2])
        first += int(share[0])
        share = tables.row(_SHARE, first)
    return found
