"""Signing in to the console: a one-time code or a token is exchanged for a cookie.

After a sign-in with a one-time code, the cookie contains a new token, which signing out revokes.
After a sign-in with a token, the cookie contains this token. A page of another site cannot use the
cookie, because browsers send the cookie only with requests of this site. A request for a change
must also have a header that only a script of this site can set.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager

from perdure.apps.server.access.tokens import (
    Principal,
    TokenFile,
    TokenRecord,
    Tokens,
    TokensUnavailable,
)
from perdure.apps.server.problems import Problem

_log = logging.getLogger(__name__)

COOKIE = "perdure_session"
HEADER = "x-perdure"
"""The header that a request for a change needs if the cookie identifies the caller."""

CODE_S = 15 * 60
SIGNED_IN_S = 30 * 24 * 3600


class SignIn:
    """Creates and accepts one-time codes. `randomness` returns the given number of random bytes.

    The tokens that a sign-in creates are for `namespace`.
    """

    def __init__(
        self,
        tokens: TokenFile,
        now_ms: Callable[[], int],
        randomness: Callable[[int], bytes],
        namespace: str | None = None,
    ) -> None:
        self.tokens = tokens
        self._namespace = namespace
        self._now_ms = now_ms
        self._randomness = randomness
        self._codes: dict[bytes, int] = {}

    def code(self) -> str:
        """Return a code that can be used for one sign-in, within `CODE_S` seconds."""
        code = self._randomness(16).hex()
        self._codes[_digest(code)] = self._now_ms() + CODE_S * 1000
        return code

    def by_code(self, code: str) -> str:
        """Create and return a token for the console that was opened with the one-time `code`.

        The one-time code is used up only when the new token is stored.
        Raises: Problem 401 if the code is unknown, used or expired; Problem 503 if the token cannot
        be stored.
        """
        now = self._now_ms()
        known = next(
            (each for each in self._codes if hmac.compare_digest(each, _digest(code))), None
        )
        if known is None or self._codes[known] <= now:
            raise Problem(
                401,
                "code_invalid",
                "the code is unknown, used or expired: restart the server for another",
            )
        record = TokenRecord(
            id=self._randomness(6).hex(),
            hash="",
            role="admin",
            created_at=now,
            name="console",
            namespace=self._namespace,
            expires_at=now + SIGNED_IN_S * 1000,
        )
        with _is_available():
            token = self.tokens.create(record, self._randomness(32))
        del self._codes[known]
        return token

    def by_token(self, token: str) -> str:
        """Return `token` if it is valid. Raises: Problem 401."""
        if principal_of(self.tokens, token, self._now_ms()) is None:
            raise Problem(401, "token_invalid", "the token is unknown, expired or revoked")
        return token

    def out(self, token: str) -> None:
        """Revoke `token` if it was created by a sign-in to the console.

        Raises: Problem 503 if the revocation cannot be stored.
        """
        principal = principal_of(self.tokens, token, self._now_ms())
        with _is_available():
            named = {record.id: record for record in self.tokens.records()}
            if principal is not None and named[principal.token].name == "console":
                self.tokens.revoke(principal.token, self._now_ms())


def principal_of(tokens: Tokens, token: str, at: int) -> Principal | None:
    """Return the caller that `token` belongs to at the time `at`; None if the token is invalid.

    Raises: Problem 503 when the tokens cannot be read.
    """
    with _is_available():
        return tokens.principal(token, at)


@contextmanager
def _is_available() -> Generator[None]:
    """Raises: Problem 503 if the tokens are unavailable; only the log contains the reason."""
    try:
        yield
    except TokensUnavailable as error:
        _log.error("%s", error)
        detail = "the server cannot use its tokens now; its log has the reason"
        raise Problem(503, "tokens_unavailable", detail) from error


def _digest(code: str) -> bytes:
    return hashlib.sha256(code.encode(errors="replace")).digest()
