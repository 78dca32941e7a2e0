"""The hash chain: the data that it covers, an erased body, and hashes that never change."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.session.codec import new_tree
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import EntryId, StreamId, blob_hash
from perdure.session.info import ForkPoint, StreamHeader
from perdure.session.messages import user
from perdure.stores.chain import (
    HASH_BYTES,
    SALT_BYTES,
    body_digest,
    commit_hash,
    fingerprint,
    genesis_hash,
    header_line,
)
from perdure.stores.protocol import Commit, Lease, Write

S = StreamId("s")
SALT = bytes(range(SALT_BYTES))
ENTRY = Entry(S, 1, "tree", EntryId("s/0"), None, 1_700_000_000_000, "message", 1, b'{"x":1}')
HEADER = StreamHeader(S, 5, title="t")


def chained(entry: Entry, digest: bytes | None = None) -> bytes:
    """Return the chain after a commit of only `entry`."""
    digest = body_digest(entry.body, SALT) if digest is None else digest
    return commit_hash(genesis_hash(HEADER), 7, 1, [header_line(entry, digest)])


@given(body=st.binary(min_size=1, max_size=200), data=st.data())
def test_every_flipped_bit_of_an_entry_body_changes_its_digest(
    body: bytes, data: st.DataObject
) -> None:
    bit = data.draw(st.integers(0, len(body) * 8 - 1))
    flipped = bytearray(body)
    flipped[bit // 8] ^= 1 << bit % 8

    assert body_digest(bytes(flipped), SALT) != body_digest(body, SALT)


@pytest.mark.parametrize(
    "other",
    [
        msgspec.structs.replace(ENTRY, seq=2),
        msgspec.structs.replace(ENTRY, lane="side", parent_id=None, about=EntryId("s/0")),
        msgspec.structs.replace(ENTRY, parent_id=None),
        msgspec.structs.replace(ENTRY, parent_id=EntryId("s/2")),
        msgspec.structs.replace(ENTRY, parent_id=EntryId("t/0")),
        msgspec.structs.replace(ENTRY, at=ENTRY.at + 1),
        msgspec.structs.replace(ENTRY, kind="custom"),
        msgspec.structs.replace(ENTRY, v=2),
        msgspec.structs.replace(ENTRY, body=b'{"x":2}'),
    ],
    ids=["seq", "lane", "root", "parent", "parent's stream", "time", "kind", "version", "body"],
)
def test_every_field_of_an_entry_changes_the_chain(other: Entry) -> None:
    assert chained(other) != chained(ENTRY)


def test_reference_outside_the_tree_is_part_of_the_hash_chain() -> None:
    side = msgspec.structs.replace(ENTRY, lane="side", parent_id=None, about=EntryId("s/0"))

    assert chained(side) != chained(msgspec.structs.replace(side, about=EntryId("s/3")))
    assert chained(side) != chained(msgspec.structs.replace(side, about=None))


def test_previous_hash_time_and_epoch_are_part_of_the_chain() -> None:
    lines = [header_line(ENTRY, b"d" * HASH_BYTES)]
    before = genesis_hash(HEADER)
    hashes = {
        commit_hash(before, 7, 1, lines),
        commit_hash(genesis_hash(msgspec.structs.replace(HEADER, title="u")), 7, 1, lines),
        commit_hash(before, 8, 1, lines),
        commit_hash(before, 7, 0, lines),
        commit_hash(before, 7, 1, lines * 2),
        commit_hash(before, 7, 1, []),
        commit_hash(before, 71, 1, lines),
    }

    assert len(hashes) == 7


def test_order_of_entries_is_part_of_the_chain() -> None:
    lines = [header_line(ENTRY, bytes([n]) * HASH_BYTES) for n in range(2)]

    assert commit_hash(b"", 7, 1, lines) != commit_hash(b"", 7, 1, reversed(lines))


def test_erased_entry_body_leaves_a_valid_hash_chain() -> None:
    digest = body_digest(ENTRY.body, SALT)
    before = chained(ENTRY)
    erased = msgspec.structs.replace(ENTRY, body=b"")

    assert chained(erased, digest) == before
    assert chained(erased, body_digest(b"", SALT)) != before


def test_digest_of_an_entry_body_depends_on_its_salt() -> None:
    assert body_digest(b"yes", SALT) != body_digest(b"yes", b"\x00" * SALT_BYTES)
    assert body_digest(b"yes", SALT) == body_digest(b"yes", SALT)


def test_first_hash_of_a_fork_contains_the_hash_of_its_origin() -> None:
    fork = StreamHeader(S, 5, fork=ForkPoint(StreamId("o"), None, 3, "tree"))

    assert (
        len({genesis_hash(fork), genesis_hash(fork, b"a" * 32), genesis_hash(fork, b"b" * 32)}) == 3
    )


def test_hashes_of_the_log_format_never_change() -> None:
    """The hashes are fixed here: a changed hash would make every existing log appear damaged."""
    digest = body_digest(ENTRY.body, SALT)

    assert header_line(ENTRY, digest) == (
        b"1 tree s/0 1700000000000 message 1 "
        b"c5763f98f22750fa177eaca27eedefe26aae98a00faccd4c9df549fbedb53514\n"
    )
    assert (
        genesis_hash(HEADER).hex()
        == "d6c6868fbd20dddd4abcbb1fe409ed3214f2e12bd27272721a7028d24dfc6214"
    )
    assert (
        chained(ENTRY).hex() == "3f7072a2683639a185bf0bd96ae4c8a738ba0fe17699247cf0e76553993132de"
    )


def test_blob_is_named_by_its_sha256() -> None:
    assert blob_hash(b"") == (
        "sha256-e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )


def commit_of(*entries: NewEntry, stream: StreamId = S) -> Commit:
    return Commit(writes=(Write(stream=stream, entries=entries),), at=1)


def test_commit_fingerprint_ignores_times_lease_and_expected_head() -> None:
    entry = new_tree(user("a"))
    commit = commit_of(entry)
    later = msgspec.structs.replace(commit, at=99, idempotency_key="k")
    write = msgspec.structs.replace(
        commit.writes[0],
        expected_head=3,
        lease=Lease(S, "me", 1, 2),
        entries=(msgspec.structs.replace(entry, at=5),),
    )

    assert fingerprint(later) == fingerprint(commit)
    assert fingerprint(msgspec.structs.replace(commit, writes=(write,))) == fingerprint(commit)


def test_fingerprints_of_different_commits_differ() -> None:
    one, other = new_tree(user("a")), new_tree(user("b"))
    commits = [
        commit_of(one),
        commit_of(other),
        commit_of(one, other),
        commit_of(other, one),
        commit_of(),
        commit_of(one, stream=StreamId("t")),
        commit_of(msgspec.structs.replace(one, v=2)),
        commit_of(msgspec.structs.replace(one, kind="custom")),
        commit_of(msgspec.structs.replace(one, lane="side")),
    ]

    assert len({fingerprint(commit) for commit in commits}) == len(commits)
