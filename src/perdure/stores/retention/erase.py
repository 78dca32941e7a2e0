"""Types of an erasure: the request, its certificate, and relations between streams.

A certificate is JSON; later versions only add fields (``docs/guides/erasure.md``). A certificate
contains ids, counts and hashes, but no erased data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from perdure.bounds.short_repr import ShortRepr
from perdure.errors import Erased, HeadConflict
from perdure.session.entries import NewEntry
from perdure.session.ids import EntryId, StreamId
from perdure.stores.protocol import EMPTY, StreamState

EraseScope = Literal["session", "entries", "subject", "namespace"]
ForkPolicy = Literal["refuse", "keep", "erase"]
"""If forks exist: ``refuse`` the erasure, ``keep`` shared entries, or ``erase`` the forks too."""

CopyKind = Literal["fork", "original", "export", "backup", "server", "log", "device"]

How = Literal["fork", "copy", "child"]

Range = tuple[int, int]
"""The first and the last seq of a range."""

FORM = 1


class EraseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to erase: the session or subject `name`, or everything with scope "namespace".

    With scope "entries", only the entries of session `name` with the seqs in `entries` are erased.
    With `expected_head`, a session is erased only if its head equals `expected_head`. `notes` are
    appended to session `name` in the commit of the erasure. The caller chooses `id`, the
    certificate's id; `by` identifies the requester. For the scopes "subject" and "namespace", forks
    are erased too, and `forks` has no effect.
    Units: `at` is Unix milliseconds.
    """

    id: str
    scope: EraseScope
    by: str
    at: int
    name: str | None = None
    forks: ForkPolicy = "refuse"
    entries: tuple[int, ...] = ()
    expected_head: int | None = None
    notes: tuple[NewEntry, ...] = ()

    @property
    def is_of_session(self) -> bool:
        """Whether `name` is the id of a session."""
        return self.scope in ("session", "entries")

    @property
    def fork_policy(self) -> ForkPolicy:
        """The policy for forks."""
        return self.forks if self.is_of_session else "erase"

    def require_head(self, state: StreamState) -> None:
        """Check the head in `state`.

        Raises: HeadConflict if `expected_head` is given, the head differs from it, and the session
        is not erased; Erased if the request names single entries of an erased session.
        """
        is_erased = state.info.status == "erased"
        if self.scope == "entries" and is_erased:
            raise Erased(state.header.id)
        if self.expected_head not in (None, state.head) and not is_erased:
            assert self.expected_head is not None
            raise HeadConflict(state.header.id, self.expected_head, state.head)

    def certificate(
        self,
        backend: str,
        namespace: str,
        *,
        sessions: Sequence[ErasedSession] = (),
        removed: Counts | None = None,
        copies: Sequence[Copy] = (),
        is_complete: bool = False,
    ) -> Certificate:
        """Return the certificate of this request; it is preliminary unless `is_complete`."""
        return Certificate(
            id=self.id,
            backend=backend,
            namespace=namespace,
            scope=self.scope,
            by=self.by,
            at=self.at,
            finished_at=self.at if is_complete else None,
            is_complete=is_complete,
            sessions=tuple(sessions),
            removed=removed or Counts(),
            copies=tuple(copies),
        )

    def answered_by(self, earlier: Sequence[Certificate]) -> Certificate | None:
        """Return the newest certificate in `earlier` that already covers the request.

        The certificate must contain the session and all requested entries.
        """
        for certificate in reversed(earlier):
            for each in certificate.sessions:
                if each.session == self.name and all(
                    any(first <= seq <= last for first, last in each.erased) for seq in self.entries
                ):
                    return certificate
        return None


class ErasedSession(ShortRepr, frozen=True, kw_only=True):
    """The erased data of one session.

    Shape: `erased` are the ranges of seqs that lost their bodies. `digests` counts the digests that
    replace the bodies; it is 0 if the session was removed whole. `kept` are ranges that stay for
    the forks in `kept_for`. `hash_before` and `hash_after` are the hashes of the chain, in
    hexadecimal, before and after the entry that records the erasure; after a removal, `hash_after`
    is None. `is_whole` is False if only some entries of the session were erased. If `is_whole` is
    False, each erased entry was requested, or is a copy, a summary or a fact of another erased
    entry, possibly of another session. `requested` counts only the entries that the request named.
    `requested` is 0 for whole sessions.
    Units: `bytes` is the size of the bodies.
    """

    session: StreamId
    is_whole: bool
    erased: tuple[Range, ...]
    entries: int
    requested: int = 0
    bytes: int
    digests: int
    head: int
    hash_before: str
    hash_after: str | None
    kept: tuple[Range, ...] = ()
    kept_for: tuple[StreamId, ...] = ()


class Copy(ShortRepr, frozen=True, omit_defaults=True):
    """A place where a copy of erased data may remain. `at` is the time of the copy, if known."""

    kind: CopyKind
    what: str
    at: int | None = None
    session: StreamId | None = None


class Counts(ShortRepr, frozen=True, kw_only=True):
    """Counts of removed data other than bodies.

    Units: bytes. `texts` were searchable texts; `contents` were media and import originals that
    nothing else references.
    """

    texts: int = 0
    foreign_ids: int = 0
    idempotency_keys: int = 0
    partial_answers: int = 0
    contents: int = 0
    content_bytes: int = 0

    def plus(self, **more: int) -> Counts:
        """Return the counts with `more` added."""
        sums = {name: getattr(self, name) + count for name, count in more.items()}
        return msgspec.structs.replace(self, **sums)


class Certificate(ShortRepr, frozen=True, kw_only=True):
    """The record of an erasure: the erased data, the time, the requester, and remaining copies.

    `subject` and the file names in `copies` exist only in the return value, because the store must
    not keep erased names. `is_complete` is False if something still blocks the erasure; see
    `copies`. An incomplete erasure resumes when the store is opened again, or with the next equal
    request.
    Units: times are Unix milliseconds.
    """

    perdure_erasure: int = FORM
    id: str
    backend: str
    namespace: str
    scope: EraseScope
    subject: str | None = None
    by: str
    at: int
    finished_at: int | None = None
    is_complete: bool = False
    sessions: tuple[ErasedSession, ...] = ()
    removed: Counts = Counts()
    copies: tuple[Copy, ...] = ()

    @property
    def entries(self) -> int:
        """The number of entries whose bodies were erased."""
        return sum(session.entries for session in self.sessions)

    @property
    def requested(self) -> int:
        """The number of erased entries that the request named, each counted once."""
        return sum(session.requested for session in self.sessions)

    @property
    def bytes(self) -> int:
        """The size of the erased bodies."""
        return sum(session.bytes for session in self.sessions)


class Relation(msgspec.Struct, frozen=True):
    """How a stream is related to its `parent`: as a fork, a copy or a child of this parent.

    A ``fork`` shares entries of its parent, a ``copy`` contains copies of some of them, and a
    ``child`` was started by the parent (for a subagent or a role). `is_erased` means that the
    stream itself was erased before. A fork shares all branches of its parent up to the
    seq `head`; with `is_path`, it shares only one branch.
    """

    stream: StreamId
    parent: StreamId
    how: How
    is_erased: bool = False
    head: int = EMPTY
    is_path: bool = False


def how_related(*, is_fork: bool, origin: str, has_copies: bool = False) -> How:
    """Return the relation of a stream to its parent.

    `has_copies` means that the stream has copied entries.
    """
    if is_fork:
        return "fork"
    return "child" if origin in ("subagent", "role") and not has_copies else "copy"


def in_ranges(seqs: list[int]) -> tuple[Range, ...]:
    """Return sorted `seqs` as ranges."""
    found: list[Range] = []
    for seq in seqs:
        if found and found[-1][1] == seq - 1:
            found[-1] = (found[-1][0], seq)
        else:
            found.append((seq, seq))
    return tuple(found)


def without(ranges: tuple[Range, ...], head: int) -> tuple[Range, ...]:
    """Return the ranges of seqs from 0 to `head` that are not in the sorted `ranges`."""
    found: list[Range] = []
    first = 0
    for start, end in ranges:
        if start > first:
            found.append((first, start - 1))
        first = end + 1
    return (*found, (first, head)) if first <= head else tuple(found)


def seqs_in(entries: set[EntryId], stream: StreamId) -> list[int]:
    """Return the seqs of the `entries` that belong to `stream`, in order."""
    prefix = f"{stream}/"
    return sorted(int(id_[len(prefix) :]) for id_ in entries if id_.startswith(prefix))
