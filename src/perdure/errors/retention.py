"""Errors about erased content, content that cannot be erased, and exceeded quotas."""

from __future__ import annotations

from perdure.errors.log import SessionError
from perdure.errors.stores import StoreError


class Erased(SessionError):
    """The session was erased, so it cannot be read, and nothing can be appended."""

    code = "erased"

    def __init__(self, stream: str) -> None:
        super().__init__(
            f"session {stream!r} was erased; Store.erasures has the certificate of that"
        )
        self.stream = stream


class SessionHasForks(StoreError):
    """Forks share entries of the session; nothing was erased.

    If `is_all_shared` is True, nothing is left to erase: forks share every entry of the session
    that is not erased yet, and the caller asked to keep shared entries.
    """

    code = "session_has_forks"

    def __init__(self, stream: str, forks: tuple[str, ...], *, is_all_shared: bool = False) -> None:
        named = ", ".join(forks[:5]) + (", …" if len(forks) > 5 else "")
        reason = (
            f'session {stream!r} has forks ({named}): forks="keep" leaves them what they share '
            'with it, or forks="erase" erases them too'
        )
        if is_all_shared:
            reason = (
                f"forks ({named}) share all entries to erase of session {stream!r}, and "
                'forks="keep" keeps shared entries; use forks="erase" instead'
            )
        super().__init__(f"{reason} (nothing was erased)")
        self.stream = stream
        self.forks = forks


class QuotaExceeded(StoreError):
    """The commit would exceed a quota of its namespace; nothing was written.

    `quota` is ``sessions``, ``entries`` or ``bytes``.
    """

    code = "quota_exceeded"

    def __init__(self, quota: str) -> None:
        super().__init__(
            f"the namespace may hold no more {quota}: erase sessions, or raise its quota (nothing "
            "was written)"
        )
        self.quota = quota
