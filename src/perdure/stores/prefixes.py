"""Choose the session or entry that a prefix means, among those whose id begins with the prefix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.errors import AmbiguousId, EntryNotFound, SessionNotFound
from perdure.session.ids import EntryId, StreamId, is_number


def only_session(prefix: str, near: Sequence[str]) -> StreamId:
    """Return the session with the id `prefix`, or the only session in `near`.

    Shape: `near` has the ids that begin with `prefix`, sorted.
    Raises: SessionNotFound if `near` is empty; AmbiguousId.
    """
    if not near:
        raise SessionNotFound(prefix)
    if len(near) > 1 and near[0] != prefix:
        raise AmbiguousId(prefix, tuple(near))
    return StreamId(near[0])


def only_entry(prefix: str, near: Mapping[str, EntryId], stream: StreamId) -> EntryId:
    """Return the entry of `stream` with the foreign id `prefix`, or the only entry in `near`.

    Shape: `near` maps foreign ids that begin with `prefix` to entries.
    Raises: EntryNotFound if `near` is empty, or if `prefix` is a number: a number can be a whole
    foreign id, but never a prefix. Raises AmbiguousId if several ids begin with `prefix`.
    """
    if prefix in near:
        return near[prefix]
    if not near or is_number(prefix):
        raise EntryNotFound(prefix, stream)
    if len(near) > 1:
        raise AmbiguousId(prefix, tuple(sorted(near)))
    return next(iter(near.values()))
