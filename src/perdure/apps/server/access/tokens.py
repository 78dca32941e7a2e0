"""Bearer tokens of the API: creates, checks and revokes them.

A file stores only a hash of each token, and the key with which the host of a page signs tokens for
its visitors.

A token is random text of 256 bits, so a fast hash protects it well enough. Each file of tokens
belongs to one store.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from os import PathLike
from pathlib import Path
from typing import Literal, Protocol

import msgspec
from msgspec.structs import replace

from perdure.apps.server.access.visitors import SIGNED, token_id_of, visitor_of
from perdure.errors import ConfigError
from perdure.session.argument_checks import takes_declared
from perdure.stores.fsync import replace_private
from perdure.stores.maintenance.file_lock import in_turn

Role = Literal["read", "write", "admin"]
"""``read`` can read, ``write`` can also change sessions, ``admin`` can also erase sessions, verify
the store and start flows."""

RANK: dict[Role, int] = {"read": 0, "write": 1, "admin": 2}

PREFIX = "pdr_"
_SECRET_BYTES = 32
_FILE_LIMIT = 4 * 1024 * 1024
_READS = 3
"""Maximum number of reads of a file that cannot be read, before the error is raised."""


class Principal(msgspec.Struct, frozen=True):
    """A caller: the permissions of the token that a request presents.

    `agent` and `subject` restrict the caller to sessions of that agent and of that person. If
    `origins` is given, the caller is a visitor of a page from one of these origins. A visitor sees
    only the sessions that the visitor started. If the host signed the visitor's token, the visitor
    sees only the session `visit`, which the token names.
    """

    token: str
    role: Role
    namespace: str | None = None
    agent: str | None = None
    subject: str | None = None
    origins: tuple[str, ...] = ()
    visit: str | None = None

    @property
    def is_visitor(self) -> bool:
        """Whether the caller's token is one that is published in a page."""
        return bool(self.origins)

    def may(self, role: Role) -> bool:
        """Whether the caller has at least the rights of `role`."""
        return RANK[self.role] >= RANK[role]


class TokenRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The data that is stored about a token.

    Units: times are Unix milliseconds; `hash` is SHA-256 in hex.

    A publishable token has `origins`, and a `signing_key` that signs tokens for single visitors.
    """

    id: str
    hash: str
    role: Role
    created_at: int
    name: str = ""
    namespace: str | None = None
    agent: str | None = None
    subject: str | None = None
    expires_at: int | None = None
    revoked_at: int | None = None
    origins: tuple[str, ...] = ()
    signing_key: str = ""

    def is_valid(self, at: int) -> bool:
        """Whether the token is neither revoked nor expired at the time `at`."""
        return self.revoked_at is None and (self.expires_at is None or at < self.expires_at)

    @property
    def principal(self) -> Principal:
        """The caller with the permissions of this token."""
        return Principal(self.id, self.role, self.namespace, self.agent, self.subject, self.origins)


class TokensUnavailable(ConfigError):
    """The file of tokens cannot be read or written.

    The error's text names the file, so callers must not see the text.
    """


class TokenNotFound(ConfigError):
    """No token has that id."""

    code = "token_not_found"

    def __init__(self, id: str) -> None:
        super().__init__(f"no token {id!r}; `perdure token list` lists the tokens")
        self.id = id


class Tokens(Protocol):
    """Finds the caller that a token belongs to."""

    def principal(self, token: str, at: int) -> Principal | None:
        """Return the caller of `token` at the time `at`; None if `token` is invalid."""
        ...


class TokenFile:
    """The tokens in a file; the file is read again after it has changed."""

    @takes_declared
    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = path if isinstance(path, Path) else Path(path)
        self._read: tuple[tuple[int, int, int], dict[str, TokenRecord]] | None = None

    def principal(self, token: str, at: int) -> Principal | None:
        """Return the caller of `token` at the time `at`; None if `token` is invalid.

        Raises: TokensUnavailable.
        """
        if token.startswith(SIGNED):
            return self._visitor(token, at)
        named = token.removeprefix(PREFIX).partition("_")[0]
        record = self._records().get(named)
        digest = _hash(token)
        if record is None or not hmac.compare_digest(record.hash, digest):
            return None
        return record.principal if record.is_valid(at) else None

    def _visitor(self, token: str, at: int) -> Principal | None:
        record = self._records().get(token_id_of(token))
        if record is None or not record.is_valid(at):
            return None
        visitor = visitor_of(token, record.signing_key, at)
        if visitor is None:
            return None
        subject = record.subject or visitor.subject
        return replace(record.principal, subject=subject, visit=visitor.session)

    def origins(self) -> frozenset[str]:
        """Return the origins of all publishable tokens.

        The origins of revoked and expired tokens are included, so that pages with these tokens can
        read why their requests are rejected.
        """
        return frozenset(o for each in self._records().values() for o in each.origins)

    def records(self) -> list[TokenRecord]:
        """Return all tokens, oldest first, including revoked and expired ones."""
        return list(self._records().values())

    def create(self, record: TokenRecord, secret: bytes) -> str:
        """Store `record` with a hash of its token, and return the token, which is shown only once.

        `secret` contains at least 32 random bytes. Durable: the change is stored when this call
        returns.
        Raises: TokensUnavailable.
        """
        assert len(secret) >= _SECRET_BYTES
        token = f"{PREFIX}{record.id}_{secret.hex()}"
        kept = msgspec.structs.replace(record, hash=_hash(token))
        with self._in_turn():
            self._write({**self._records(), record.id: kept})
        return token

    def revoke(self, id: str, at: int) -> TokenRecord:
        """Revoke the token `id` at the time `at`, and return its record.

        Durable: the change is stored when this call returns.
        Raises: TokenNotFound, TokensUnavailable.
        """
        with self._in_turn():
            records = self._records()
            if id not in records:
                raise TokenNotFound(id)
            found = records[id]
            if found.revoked_at is None:
                found = msgspec.structs.replace(found, revoked_at=at)
                self._write({**records, id: found})
            return found

    @contextmanager
    def _in_turn(self) -> Generator[None]:
        """Lock the file for this process, so that no other process undoes a revocation."""
        with ExitStack() as held:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                held.enter_context(in_turn(self.path.parent))
            except OSError as error:
                raise _unwritable(self.path, error) from error
            yield

    def _records(self) -> dict[str, TokenRecord]:
        left = _READS
        while (mark := self._mark()) is not None:
            if self._read is not None and self._read[0] == mark:
                return self._read[1]
            if mark[1] > _FILE_LIMIT:
                raise TokensUnavailable(f"{self.path} is too large for a file of tokens")
            try:
                self._read = mark, _records_in(self.path)
            except TokensUnavailable:  # another process may replace the file at this moment
                left -= 1
                if not left:
                    raise
            else:
                return self._read[1]
        return {}

    def _mark(self) -> tuple[int, int, int] | None:
        """Return a value that changes with the file; None if there is no file."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TokensUnavailable(f"cannot read {self.path}: {error.strerror}") from error
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _write(self, records: dict[str, TokenRecord]) -> None:
        content = msgspec.json.format(msgspec.json.encode(list(records.values())))
        try:
            replace_private(self.path, content)
        except OSError as error:
            raise _unwritable(self.path, error) from error


def _records_in(path: Path) -> dict[str, TokenRecord]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TokensUnavailable(f"cannot read {path}: {error.strerror}") from error
    try:
        found = msgspec.json.decode(content, type=list[TokenRecord])
    except msgspec.DecodeError as error:
        raise TokensUnavailable(f"{path} is no file of tokens: {error}") from error
    return {record.id: record for record in found}


def _unwritable(path: Path, error: OSError) -> TokensUnavailable:
    return TokensUnavailable(f"cannot write {path}: {error.strerror}")


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
