"""Why a store could not be copied, backed up, restored or repaired."""

from __future__ import annotations

from perdure.errors.stores import StoreError


class CopyConflict(StoreError):
    """A session of that id is in the target already and is not the beginning of the one copied."""

    code = "copy_conflict"

    def __init__(self, stream: str, seq: int) -> None:
        place = f"at entry {seq}" if seq >= 0 else "from the start"
        super().__init__(
            f"the session {stream!r} in the target is another one ({place}); copy into an empty "
            "store or namespace (nothing of it was changed)"
        )
        self.stream = stream
        self.seq = seq


class BackupDamaged(StoreError):
    """A backup is not what its manifest says; nothing was restored."""

    code = "backup_damaged"

    def __init__(self, backup: str, reason: str) -> None:
        super().__init__(
            f"the backup {backup} cannot be restored: {reason}; take another backup (nothing was "
            "changed)"
        )
        self.backup = backup
        self.reason = reason


class StoreExists(StoreError):
    """A restore or copy would take the place of a store, and nobody said that it may."""

    code = "store_exists"

    def __init__(self, store: str, *, is_replaceable: bool = False) -> None:
        other = ", or move the existing store aside" if is_replaceable else ""
        super().__init__(
            f"{store} holds something already; name another place{other} (nothing was changed)"
        )
        self.store = store
