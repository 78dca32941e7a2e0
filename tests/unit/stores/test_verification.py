"""Problems found by `verify`: each kind of damage is reported once, at its entry."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest

from perdure.session.codec import new_side, new_tree
from perdure.session.entries import Entry, NewEntry, Sibling
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import ForkPoint, StreamHeader, info_of, shorten_title
from perdure.session.messages import user
from perdure.session.notes import ContentErased, Label, LeafMoved
from perdure.stores.append_rules import ForkOrigin, initial_state, plan_append, state_after
from perdure.stores.chain import body_digest, commit_hash, genesis_hash, header_line
from perdure.stores.protocol import ErasingWrite, Problem, StreamState, Write
from perdure.stores.verification import (
    STEP_BYTES,
    Steps,
    StoredCommit,
    StoredEntry,
    blob_problems,
    content_steps,
    info_faults,
    origin_hash_of,
    stream_problems,
)
from tests.fakes.samples import case

S = StreamId("s")
KEY = "sk-ant-api03-" + "Zx9Qw3Lm7Vb2Nc8K" * 3


class Log:
    """A stream in the form that a backend stores, which a test can damage."""

    def __init__(self, header: StreamHeader, shared: ForkOrigin | None = None) -> None:
        self.origin_hash = shared.hash if shared else b""
        self.shared_messages = shared.messages if shared else 0
        genesis = genesis_hash(header, self.origin_hash)
        self.state: StreamState = initial_state(header, genesis, shared, lambda _: True)
        self.commits: list[StoredCommit] = []
        self.rows: list[StoredEntry] = []

    def append(self, *new: NewEntry) -> None:
        self._write(Write(stream=S, entries=new))

    def append_erasure(self, *ranges: tuple[int, int]) -> None:
        new = new_side(ContentErased("e1", "me", ranges))
        self._write(ErasingWrite(stream=S, entries=(new,)))

    def _write(self, write: Write) -> None:
        admission = plan_append(self.state, write, 9, lambda _: True)
        rows = [sealed(entry) for entry in admission.entries]
        lines = [header_line(row.entry, row.digest) for row in rows]
        chain = commit_hash(self.state.hash, 9, admission.epoch, lines)
        self.commits.append(StoredCommit(self.state.head + 1, len(rows), 9, admission.epoch, chain))
        self.rows += rows
        self.state = state_after(self.state, admission, chain)

    def problems(self) -> list[Problem]:
        found = stream_problems(
            self.state,
            self.commits,
            self.rows,
            lambda id_: id_ == "o/1",
            origin_hash=self.origin_hash,
            shared_messages=self.shared_messages,
        )
        return list(found)

    def places(self) -> list[int | None]:
        assert all(problem.stream == "s" for problem in self.problems())
        return [problem.seq for problem in self.problems()]

    def damage(self, seq: int, **changes: object) -> None:
        """Change fields of a stored entry without updating the chain."""
        row = self.rows[seq]
        entry = msgspec.structs.replace(row.entry, **changes)
        self.rows[seq] = msgspec.structs.replace(row, entry=entry)


def sealed(entry: Entry) -> StoredEntry:
    salt = bytes([entry.seq]) * 16
    return StoredEntry(entry, salt, body_digest(entry.body, salt))


@pytest.fixture
def log() -> Log:
    """Return seven entries in three commits (0-2, 3, 4-6); the last entry moves the leaf to s/0."""
    log = Log(StreamHeader(S, 5))
    log.append(new_tree(user("a")), new_side(Label("x"), Sibling(0)), new_tree(user("b")))
    log.append(new_tree(user("c")))
    log.append(
        new_tree(user("d"), EntryId("s/2")),
        new_side(Label("y"), EntryId("s/3")),
        new_side(LeafMoved(EntryId("s/0"))),
    )
    return log


def test_undamaged_stream_has_no_problems(log: Log) -> None:
    assert log.problems() == []
    assert Log(StreamHeader(S, 5)).problems() == []


@pytest.mark.parametrize("seq", range(7))
def test_flipped_body_byte_is_reported_at_its_entry(log: Log, seq: int) -> None:
    body = bytearray(log.rows[seq].entry.body)
    body[-2] ^= 1
    log.damage(seq, body=bytes(body))

    found = next(problem for problem in log.problems() if problem.seq == seq)
    assert found.problem == "its body is not what was committed"
    if seq != 6:  # the body of the leaf entry also says where the leaf is
        assert log.places() == [seq]


@pytest.mark.parametrize(
    ("seq", "changes"),
    [
        (0, {"at": 8}),
        (1, {"about": EntryId("s/2")}),
        (2, {"v": 2}),
        (3, {"kind": "custom_message"}),
        (4, {"parent_id": EntryId("s/3")}),
        (5, {"kind": "session_reopened"}),
    ],
)
def test_altered_header_is_reported_at_its_commit(
    log: Log, seq: int, changes: dict[str, object]
) -> None:
    log.damage(seq, **changes)

    first = {0: 0, 1: 0, 2: 0, 3: 3, 4: 4, 5: 4}[seq]
    problems = [problem for problem in log.problems() if problem.seq is not None]
    assert [problem.seq for problem in problems] == [first]
    assert "hash of its commit" in problems[0].problem


def test_altered_salt_or_digest_is_reported(log: Log) -> None:
    log.rows[2] = msgspec.structs.replace(log.rows[2], salt=b"\xff" * 16)
    assert log.places() == [2]

    row = log.rows[3]
    log.rows[3] = msgspec.structs.replace(row, digest=b"\x00" * 32)
    assert log.places() == [2, 3, 3]


def test_missing_entry_body_with_an_erasure_record_is_valid(log: Log) -> None:
    log.append_erasure((0, 0), (2, 2), (5, 5))
    erase_by_hand(log, 0, 2, 5)

    assert log.problems() == []


def test_missing_entry_body_without_an_erasure_record_is_reported(log: Log) -> None:
    log.append_erasure((0, 0), (5, 5))
    erase_by_hand(log, 0, 2, 5)

    (problem,) = log.problems()
    assert (problem.seq, "nothing in the session says" in problem.problem) == (2, True)


def test_entry_body_without_a_salt_is_reported(log: Log) -> None:
    log.append_erasure((2, 2))
    log.rows[2] = msgspec.structs.replace(log.rows[2], salt=None)

    assert log.places() == [2]


def erase_by_hand(log: Log, *seqs: int) -> None:
    for seq in seqs:
        entry = msgspec.structs.replace(log.rows[seq].entry, body=b"")
        log.rows[seq] = msgspec.structs.replace(log.rows[seq], entry=entry, salt=None)


@pytest.mark.parametrize(("seq", "places"), [(0, [1, 2, 0]), (3, [3, 4]), (5, [6, 4])])
def test_missing_entry_is_reported(log: Log, seq: int, places: list[int]) -> None:
    del log.rows[seq]

    # Entry 2 is a child of entry 0; problems without a seq are wrong counts.
    assert [place for place in log.places() if place is not None] == places


def test_missing_last_entry_is_reported(log: Log) -> None:
    del log.rows[6]

    assert log.places()[0] == 4
    assert any("head" in problem.problem for problem in log.problems())


def test_entries_in_wrong_order_are_reported(log: Log) -> None:
    first, second = log.rows[0], log.rows[2]
    log.damage(0, body=second.entry.body)
    log.damage(2, body=first.entry.body)

    assert log.places() == [0, 2]


def test_missing_commit_is_reported(log: Log) -> None:
    del log.commits[1]

    assert log.places() == [3, 4]


def test_entries_after_last_commit_are_reported(log: Log) -> None:
    log.rows.append(sealed(msgspec.structs.replace(log.rows[5].entry, seq=7)))

    assert log.places()[0] == 7
    assert log.problems()[0].problem == "it belongs to no commit"


@pytest.mark.parametrize("changes", [{"at": 8}, {"epoch": 1}, {"hash": b"\x01" * 32}])
def test_altered_commit_is_reported(log: Log, changes: dict[str, object]) -> None:
    log.commits[1] = msgspec.structs.replace(log.commits[1], **changes)

    # An altered hash contradicts the next commit too; an altered epoch contradicts the lease.
    further = {"hash": [4], "epoch": [None], "at": []}
    assert log.places() == [3, *further[next(iter(changes))]]


def test_entry_written_with_an_outdated_lease_is_reported(log: Log) -> None:
    first, second, *others = log.commits
    log.commits[:] = [
        msgspec.structs.replace(first, epoch=2),
        msgspec.structs.replace(second, epoch=1),
        *others,
    ]
    log.state = msgspec.structs.replace(log.state, epoch=2)

    assert "which epoch 2 had fenced" in "".join(each.problem for each in log.problems())


def test_altered_session_header_is_reported(log: Log) -> None:
    header = msgspec.structs.replace(log.state.header, title="forged")
    log.state = msgspec.structs.replace(log.state, header=header)

    assert log.places() == [0]
    assert "the session" in log.problems()[0].problem


@pytest.mark.parametrize(
    "changes",
    [{"head": 7}, {"leaf": None}, {"leaf": EntryId("s/4")}, {"open_turn": 3}, {"hash": b"?" * 32}],
)
def test_state_that_differs_from_entries_is_reported(log: Log, changes: dict[str, object]) -> None:
    log.state = msgspec.structs.replace(log.state, **changes)

    assert log.places() == [None]


@pytest.mark.parametrize("changes", [{"entries": 8}, {"messages": 5}])
def test_counts_that_differ_from_entries_are_reported(log: Log, changes: dict[str, object]) -> None:
    info = msgspec.structs.replace(log.state.info, **changes)
    log.state = msgspec.structs.replace(log.state, info=info)

    assert log.places() == [None]


def test_parent_outside_tree_is_reported(log: Log) -> None:
    for parent in ("s/1", "s/4", "s/99", "o/1", "o/2"):
        log.damage(4, parent_id=EntryId(parent))
        is_seen = parent == "o/1"
        assert any("parent" in p.problem for p in log.problems()) != is_seen, parent


def test_fork_is_checked_against_its_origin() -> None:
    origin = Log(StreamHeader(StreamId("o"), 5)).state
    shared = ForkOrigin(origin.info, 3, b"o" * 32, 2)
    fork = ForkPoint(StreamId("o"), EntryId("o/1"), 3, "tree")
    log = Log(StreamHeader(S, 5, fork=fork), shared)
    assert log.problems() == []
    log.append(new_tree(user("a")))
    assert log.problems() == []
    assert log.state.info.messages == 3

    log.origin_hash = b"p" * 32

    assert log.places() == [0]


def test_empty_fork_of_altered_origin_is_reported() -> None:
    fork = ForkPoint(StreamId("o"), None, 3, "tree")
    origin = Log(StreamHeader(StreamId("o"), 5)).state
    log = Log(StreamHeader(S, 5, fork=fork), ForkOrigin(origin.info, 3, b"o" * 32, 0))

    log.origin_hash = b"p" * 32

    assert log.places() == [None]


def test_fork_chain_starts_with_the_hash_at_the_fork_point(log: Log) -> None:
    hashes = [origin_hash_of(b"genesis", log.commits, head) for head in range(-1, 7)]

    first, second, third = (commit.hash for commit in log.commits)
    assert hashes == [b"genesis", first, first, first, second, third, third, third]


def test_blob_that_differs_from_its_name_is_reported() -> None:
    good = "sha256-2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"

    assert list(blob_problems(good, b"hello")) == []
    (problem,) = blob_problems(good, b"hellp")
    assert (problem.stream, problem.seq) == (None, None)
    assert good in problem.problem


def kept_with(header: StreamHeader, **info: object) -> StreamState:
    state = Log(header).state
    return msgspec.structs.replace(state, info=msgspec.structs.replace(state.info, **info))


def test_session_info_that_differs_from_the_entries_is_reported() -> None:
    header = StreamHeader(S, 5, title="Trip")
    kept = kept_with(header, title="Trap", messages=7)

    assert list(info_faults(kept, info_of(header))) == [
        "its title is kept as 'Trap', its entries give 'Trip'"
    ]


def test_verify_accepts_old_session_info_whose_first_text_has_a_credential() -> None:
    for before, secret in product(range(1, 64), (KEY, "AKIAIOSFODNN7EXAMPLE")):
        said = f"{'x' * before} {secret} for the test"
        log = Log(StreamHeader(S, 5))
        log.append(new_tree(user(said)))
        with case((before, secret)):
            assert faults_of_first_text(log, shorten_title(said)) == []
            (fault,) = faults_of_first_text(log, f"other {secret}")
            assert "its first_text is kept as 'other [redacted]'" in fault


def faults_of_first_text(log: Log, first_text: str | None) -> list[str]:
    """Return the faults of `log` if its list data has `first_text` as the first text."""
    computed = log.state.info
    info = msgspec.structs.replace(computed, first_text=first_text)
    return list(info_faults(msgspec.structs.replace(log.state, info=info), computed))


def test_verify_accepts_old_session_info_whose_first_text_is_a_command() -> None:
    log = Log(StreamHeader(S, 5))
    log.append(new_tree(user("/mode")), new_tree(user("Hi")))
    computed = log.state.info
    assert computed.first_text == "Hi"
    older = msgspec.structs.replace(computed, first_text="/mode")
    assert list(info_faults(msgspec.structs.replace(log.state, info=older), computed)) == []


def test_verify_accepts_old_session_info_whose_first_text_has_an_attachment() -> None:
    log = Log(StreamHeader(S, 5))
    log.append(new_tree(user("look", "sea.py:\n```\nprint('sea')\n```")))
    assert faults_of_first_text(log, "look sea.py: ``` print('sea') ```") == []
    assert faults_of_first_text(log, "looks sea.py")


def test_session_info_of_erased_sessions_and_forks_is_not_verified() -> None:
    fork = StreamHeader(S, 5, fork=ForkPoint(StreamId("o"), None, 3, "tree"))
    erased = StreamHeader(S, 5, title="Trip")

    assert list(info_faults(kept_with(fork, title="O"), info_of(fork))) == []
    assert list(info_faults(kept_with(erased, status="erased"), info_of(erased))) == []


def test_verification_progress_is_reported_at_every_interval() -> None:
    told: list[tuple[int, int]] = []
    steps = Steps(lambda done, total: told.append((done, total)), 5, every=2)
    for _ in range(6):  # one was added meanwhile
        steps.add()
    steps.end()

    assert told == [(2, 5), (4, 5), (5, 5)]


def test_verification_without_steps_reports_no_progress() -> None:
    told: list[tuple[int, int]] = []
    steps = Steps(lambda done, total: told.append((done, total)), 0, every=1)
    steps.add()
    steps.end()

    assert told == []


def test_large_content_counts_as_several_progress_steps() -> None:
    assert [content_steps(size) for size in (0, 1, STEP_BYTES - 1)] == [1, 1, 1]
    assert [content_steps(size) for size in (STEP_BYTES, 10 * STEP_BYTES)] == [2, 11]
