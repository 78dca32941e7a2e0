"""Errors of copy, backup, restore and repair."""

from __future__ import annotations

from perdure.errors.stores import StoreError


class CopyConflict(StoreError):
    """The target has a session with this id that is not the beginning of the copied session."""

    code = "copy_conflict"

    def __init__(self, stream: str, seq: int) -> None:
        place = f"at entry {seq}" if seq >= 0 else "from the start"
        super().__init__(
            f"the target has another session {stream!r} (different {place}); copy into an empty "
            "store or namespace (that session was not changed)"
        )
        self.stream = stream
        self.seq = seq


class BackupDamaged(StoreError):
    """A backup does not match its manifest; nothing was restored."""

    code = "backup_damaged"

    def __init__(self, backup: str, reason: str) -> None:
        super().__init__(
            f"the backup {backup} cannot be restored: {reason}; take another backup (nothing was "
            "changed)"
        )
        self.backup = backup
        self.reason = reason


class StoreExists(StoreError):
    """A restore or copy would replace a store, and replacing was not allowed."""

    code = "store_exists"

    def __init__(self, store: str, *, is_replaceable: bool = False) -> None:
        other = ", or move the existing store aside" if is_replaceable else ""
        super().__init__(
            f"{store} holds something already; name another place{other} (nothing was changed)"
        )
        self.store = store
