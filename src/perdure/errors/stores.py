"""Errors of stores: calls that were rejected or failed."""

from __future__ import annotations

from perdure.errors.root import PerdureError


class StoreError(PerdureError):
    """The store rejected a call or could not execute it; the call wrote nothing."""

    code = "store_error"


class SessionNotFound(StoreError):
    """The namespace has no stream with this id.

    `is_prefix` means that `stream` is only the beginning of a session id.
    """

    code = "session_not_found"

    def __init__(self, stream: str, *, is_prefix: bool = False) -> None:
        advice = 'Store.recent(scope="all") lists them'
        if is_prefix:
            advice = f"ids must be complete: Store.find({stream!r}) completes this one"
        super().__init__(f"no session {stream!r} here; {advice}")
        self.stream = stream


class NotImported(SessionNotFound):
    """The store has no session that belongs to the given session file.

    If `is_missing` is True, the file itself does not exist.
    """

    code = "not_imported"

    def __init__(self, path: str, *, is_missing: bool = False) -> None:
        super().__init__(path)
        self.args = (f"{path} is not a session of this store; import it first",)
        if is_missing:
            self.args = (f"no such file: {path}; check the path, or open the session by its id",)
        self.path = path


class SessionExists(StoreError):
    """A stream with this id already exists."""

    code = "session_exists"

    def __init__(self, stream: str, *, is_erased: bool = False) -> None:
        reason = f"a session {stream!r} exists already; open it"
        if is_erased:
            reason = (
                f"session {stream!r} was erased and its id is reserved; create it with "
                "reuse_erased=True (not possible while it has forks, erased forks included)"
            )
        super().__init__(f"{reason}, or choose another id")
        self.stream = stream
        self.is_erased = is_erased


class HeadConflict(StoreError):
    """The append failed because another writer appended to the session first."""

    code = "head_conflict"
    retryable = True

    def __init__(self, stream: str, expected: int, actual: int) -> None:
        super().__init__(
            f"session {stream!r} is at entry {actual}, not {expected}: read what was added and "
            "append again"
        )
        self.stream = stream
        self.expected = expected
        self.actual = actual


class LeafConflict(StoreError):
    """The conversation continues from another entry than the caller expected."""

    code = "leaf_conflict"
    retryable = True

    def __init__(self, stream: str, expected: str | None, actual: str | None) -> None:
        super().__init__(
            f"session {stream!r} continues from {actual or 'its root'}, not from "
            f"{expected or 'its root'}: look at the branch and append again"
        )
        self.stream = stream
        self.expected = expected
        self.actual = actual


class LeaseHeld(StoreError):
    """Another process runs a turn in this session.

    If `is_here` is True, another handle of this process runs the turn. If `is_beside` is True, the
    turn runs in another chat of the same runtime.
    """

    code = "lease_held"
    retryable = True

    def __init__(
        self,
        stream: str,
        owner: str,
        until: int,
        *,
        is_here: bool = False,
        is_beside: bool = False,
    ) -> None:
        advice = "wait for its turn to end or stop it"
        if is_beside:
            advice = (
                "another Chat of this session in this Runtime runs a turn: steer or follow_up adds "
                "a message to it, and send(..., idempotency_key=...) waits for its end"
            )
        elif is_here:
            advice = (
                "another Store or Runtime of this process runs a turn in it: wait for that turn, "
                "or stop it there. Open a store once in a process, and share its Runtime"
            )
        super().__init__(f"session {stream!r} is in use by {owner}; {advice}")
        self.stream = stream
        self.owner = owner
        self.until = until


class LeaseLost(StoreError):
    """The caller's lease was taken over; nothing was written."""

    code = "lease_lost"

    def __init__(self, stream: str, epoch: int, current: int) -> None:
        super().__init__(
            f"this process no longer leads session {stream!r} (its epoch {epoch}, now {current}); "
            "open the session again"
        )
        self.stream = stream
        self.epoch = epoch
        self.current = current


class TurnOpen(StoreError):
    """The branch cannot be moved or closed while it has an open turn."""

    code = "turn_open"

    def __init__(self, stream: str, turn_seq: int) -> None:
        super().__init__(
            f"a turn is open in session {stream!r}; let it finish, resume it with Runtime.resume, "
            "or give it up with Session.abandon_turn"
        )
        self.stream = stream
        self.turn_seq = turn_seq


class IdempotencyMismatch(StoreError):
    """The idempotency key was already used for another request."""

    code = "idempotency_mismatch"

    def __init__(self, key: str) -> None:
        super().__init__(f"idempotency key {key!r} was used for another commit; use a new key")
        self.key = key


class StoreTooNew(StoreError):
    """A newer version of perdure wrote the store. The store was not changed."""

    code = "store_too_new"

    def __init__(self, store: str, version: int, supported: int) -> None:
        super().__init__(
            f"{store} has schema {version}, this perdure knows up to {supported}; upgrade perdure "
            "(nothing was changed)"
        )
        self.store = store
        self.version = version
        self.supported = supported


class StoreTooOld(StoreError):
    """A version of perdure before the first release wrote the store. The store was not changed.

    If `can_be_copied` is True, ``perdure store copy`` can copy the sessions of the old store into a
    new store.
    """

    code = "store_too_old"

    def __init__(self, store: str, version: int, first: int, *, can_be_copied: bool) -> None:
        what = (
            "copy its sessions into a new store"
            if can_be_copied
            else "copy its sessions with the perdure that made it"
        )
        super().__init__(
            f"{store} has schema {version} of an unreleased perdure, this one knows {first} and "
            f"later: {what} (nothing was changed)"
        )
        self.store = store
        self.address = store if ":" in store else f"sqlite:///{store}"
        self.version = version
        self.first = first
        self.can_be_copied = can_be_copied


class NotAStore(StoreError):
    """The file or address is not a perdure store; nothing was changed."""

    code = "not_a_store"

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(f"{store} is not a perdure store: {reason} (nothing was changed)")
        self.store = store
        self.reason = reason


class StoreCorrupt(StoreError):
    """The database itself is damaged; perdure stopped writing to it."""

    code = "store_corrupt"

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(
            f"{store} is damaged ({reason}); copy the file away, then call Store.verify"
        )
        self.store = store
        self.reason = reason


class StoreSchemaForeign(StoreCorrupt):
    """A store file has a table, trigger or other object that perdure did not create."""

    code = "store_schema_foreign"

    def __init__(self, store: str, reason: str) -> None:
        StoreError.__init__(
            self,
            f"{store} was refused: {reason}; perdure did not create it, and a schema can contain "
            "programs: repair the store to get its sessions only (nothing was changed)",
        )
        self.store = store
        self.reason = reason


class StoreReadOnly(StoreError):
    """The store is read-only."""

    code = "store_read_only"

    def __init__(self, store: str) -> None:
        super().__init__(f"{store} cannot be written; check the permissions of file and folder")
        self.store = store


class StoreFull(StoreError):
    """No space is left; the commit was rolled back."""

    code = "store_full"
    retryable = True

    def __init__(self, store: str) -> None:
        super().__init__(f"no space left for {store}; free some and try again (nothing was lost)")
        self.store = store


class StoreUnavailable(StoreError):
    """The store is unreachable or closed; it is unknown whether a pending commit was written.

    If `is_lasting`, trying again does not help: change the server, its roles or the address.
    """

    code = "store_unavailable"
    retryable = True

    def __init__(self, store: str, reason: str, *, is_lasting: bool = False) -> None:
        super().__init__(f"{store} is not available: {reason}")
        self.store = store
        self.reason = reason
        self.is_lasting = is_lasting


class StoreLocked(StoreUnavailable):
    """Another process kept a lock of the store for too long.

    `waited_s` is the number of seconds that the call waited.
    """

    code = "store_locked"

    def __init__(self, store: str, held: str, advice: str, waited_s: float | None = None) -> None:
        waited = f"; this call waited {waited_s:g} s (lock_timeout_s)" if waited_s else ""
        super().__init__(store, f"{held}{waited}; {advice}")
        self.waited_s = waited_s


class StoreBehind(StoreUnavailable):
    """The store has lost entries that this process has read, so the turn cannot continue."""

    code = "store_behind"

    def __init__(self, store: str, stream: str, expected: int, actual: int) -> None:
        super().__init__(
            store,
            f"it has lost entries: session {stream!r} is at entry {actual} there, and this process "
            f"has read entry {expected}; a replica that lagged may have replaced the server. Open "
            "the session again",
        )
        self.stream = stream
        self.expected = expected
        self.actual = actual


class KeyMissing(StoreError):
    """A store is encrypted and no key was found, or a configured key does not exist."""

    code = "key_missing"

    def __init__(self, store: str, reason: str = "it is encrypted") -> None:
        super().__init__(
            f"{store} cannot be opened without its key ({reason}); set PERDURE_KEY or "
            "PERDURE_KEY_FILE, give key=, or keep it in the keyring of the operating system; if it "
            "is lost, nobody can read this store: restore a backup that has another key, or import "
            "the sessions again into a new store"
        )
        self.store = store
        self.reason = reason


class KeyWrong(StoreError):
    """The key is not the store's encryption key; the store was not changed."""

    code = "key_wrong"

    def __init__(self, store: str) -> None:
        super().__init__(
            f"the key that was found does not open {store}: it is the key of another store, or the "
            "beginning of the file is damaged (nothing was changed)"
        )
        self.store = store


class StoreNotEncrypted(StoreError):
    """A key was given for an unencrypted store; the store was not changed."""

    code = "store_not_encrypted"

    def __init__(self, store: str) -> None:
        super().__init__(
            f"{store} is not encrypted, and a key was given for it; encrypt it first, "
            "or open it without a key (nothing was changed)"
        )
        self.store = store


class StoreInUse(StoreError):
    """The operation needs exclusive access, and another process has the store open."""

    code = "store_in_use"
    retryable = True

    def __init__(self, store: str, holder: str = "another program") -> None:
        has, it = ("have", "them") if holder.startswith("processes ") else ("has", "it")
        super().__init__(
            f"{holder} {has} {store} open; end {it} and try again (nothing was changed)"
        )
        self.store = store
        self.holder = holder


class Unsupported(StoreError):
    """This kind of store does not support the operation (see ``stores.protocol.Capabilities``)."""

    code = "unsupported"

    def __init__(self, capability: str, backend: str) -> None:
        super().__init__(
            f"a {backend} store has no {capability.replace('_', ' ')}; keep what needs it in a "
            "store that has it, such as sqlite:///FILE"
        )
        self.capability = capability
        self.backend = backend


class SearchIndexDamaged(StoreError):
    """The search index of a store is inconsistent; the log is not affected."""

    code = "search_index_damaged"

    def __init__(self, store: str) -> None:
        super().__init__(
            f"the search index of {store} is damaged; Store.reindex rebuilds it from the log"
        )
        self.store = store


class InvalidQuery(StoreError):
    """A search query has no search terms, or is invalid."""

    code = "invalid_query"

    def __init__(self, query: str, reason: str) -> None:
        shown = query if len(query) <= 60 else query[:59] + "…"
        super().__init__(f"cannot search for {shown!r}: {reason}")
        self.query = query
        self.reason = reason
