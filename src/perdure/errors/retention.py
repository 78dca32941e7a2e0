"""What was taken out of a store on purpose, what may not be, and what no longer fits into it."""

from __future__ import annotations

from perdure.errors.log import SessionError
from perdure.errors.stores import StoreError


class Erased(SessionError):
    """The session was erased: nothing can be read of it, and nothing is appended to it."""

    code = "erased"

    def __init__(self, stream: str) -> None:
        super().__init__(
            f"session {stream!r} was erased; Store.erasures has the certificate of that"
        )
        self.stream = stream


class SessionHasForks(StoreError):
    """Forks share entries of what was to be erased; nothing was."""

    code = "session_has_forks"

    def __init__(self, stream: str, forks: tuple[str, ...]) -> None:
        named = ", ".join(forks[:5]) + (", …" if len(forks) > 5 else "")
        super().__init__(
            f'session {stream!r} has forks ({named}): forks="keep" leaves them what they share '
            'with it, or forks="erase" erases them too (nothing was erased)'
        )
        self.stream = stream
        self.forks = forks


class QuotaExceeded(StoreError):
    """The commit would take its namespace over a quota; nothing of it was written.

    `quota` is ``sessions``, ``entries`` or ``bytes``.
    """

    code = "quota_exceeded"

    def __init__(self, quota: str) -> None:
        super().__init__(
            f"the namespace may hold no more {quota}: erase sessions, or raise its quota (nothing "
            "was written)"
        )
        self.quota = quota
