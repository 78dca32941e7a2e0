"""The caller of a request: the request's token identifies the caller and limits its rights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from litestar.middleware import AbstractAuthenticationMiddleware, AuthenticationResult
from litestar.types import ASGIApp, Scope

from perdure.apps.server.access.heads import at_head
from perdure.apps.server.access.idempotency import KeyedRequest
from perdure.apps.server.access.rates import AnyConnection, Rates, address_of
from perdure.apps.server.access.sign_in import COOKIE, HEADER, principal_of
from perdure.apps.server.access.tokens import Principal, Role, Tokens
from perdure.apps.server.access.visitors import MADE_BY
from perdure.apps.server.problems import HeadChanged, Problem
from perdure.apps.session_rows import agent_of
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.errors import Erased, SessionNotFound
from perdure.session.ids import StreamId

FOR_VISITORS = "is_for_visitors"
"""The option that marks a route as allowed for visitors, who use published tokens."""

CONDITIONAL = "is_conditional"
"""The option that marks a route whose commit checks the session's head against ``If-Match``."""

READING = ("GET", "HEAD")
_NO_HEAD = 2**62
"""A number greater than every head, so that it equals no head."""


class Callers:
    """Finds the caller of each request by its token, and counts the requests of each caller."""

    def __init__(self, store: Store, tokens: Tokens, rates: Rates) -> None:
        self._store = store
        self._tokens = tokens
        self._rates = rates
        self._namespace: str | None = None

    async def authenticate(self, connection: AnyConnection) -> AuthenticationResult:
        """Return the caller, and a function that returns whether the caller's token is still valid.

        Raises: Problem 401 if the token is missing, invalid, or of another namespace.
        Raises: Problem 403 if a page of another site sent the request, or if the caller is a
        visitor and visitors may not send this request.
        Raises: Problem 429 if the caller sent too many requests.
        """
        scheme, _, token = connection.headers.get("authorization", "").partition(" ")
        if not scheme and COOKIE in connection.cookies:
            token = connection.cookies[COOKIE]
            _require_own_page(connection)
        elif scheme.lower() != "bearer" or not token.strip():
            raise Problem(
                401, "token_missing", "send a token in the header Authorization, as a Bearer"
            )
        principal = self._found(token.strip())
        if principal is None or not await self._is_of_store(principal):
            raise Problem(401, "token_invalid", "the token is unknown, expired or revoked")
        if principal.is_visitor:
            _require_visit(connection, principal)
        self._rates.count(principal, address_of(connection))
        return AuthenticationResult(
            user=principal, auth=lambda: self._found(token.strip()) == principal
        )

    def _found(self, token: str) -> Principal | None:
        return principal_of(self._tokens, token, self._store.outside.clock.now_ms())

    async def _is_of_store(self, principal: Principal) -> bool:
        if principal.namespace is None:
            return True
        if self._namespace is None:
            self._namespace = (await self._store.info()).namespace
        return principal.namespace == self._namespace


class Authentication(AbstractAuthenticationMiddleware):
    """Finds the caller of a request by its token; only open routes accept requests without a token.

    `callers_of` returns the `Callers` of the server that a request was sent to.
    """

    def __init__(self, app: ASGIApp, callers_of: Callable[[Scope], Callers]) -> None:
        super().__init__(app, exclude_from_auth_key="is_open")
        self._callers_of = callers_of

    async def authenticate_request(self, connection: AnyConnection) -> AuthenticationResult:
        """Return the caller. Raises: the errors of `Callers.authenticate`."""
        return await self._callers_of(connection.scope).authenticate(connection)


def _require_visit(connection: AnyConnection, principal: Principal) -> None:
    """Raises: Problem 403 if the origin is wrong, or if visitors may not send this request."""
    if connection.headers.get("origin") not in principal.origins:
        raise Problem(403, "origin_refused", "this token is for pages of other origins")
    if not connection.route_handler.opt.get(FOR_VISITORS):
        raise Problem(
            403, "token_publishable", "a published token can only send messages and watch"
        )


def require_own_origin(connection: AnyConnection) -> None:
    """Raises: Problem 403 if a page of another site sent the request."""
    origin = connection.headers.get("origin")
    host = connection.headers.get("host", "")
    if origin is not None and origin.partition("://")[2] != host:
        raise Problem(403, "origin_refused", "the request comes from a page of another site")


def _require_own_page(connection: AnyConnection) -> None:
    """Raises: Problem 403 for a request that a page of another site could have sent."""
    require_own_origin(connection)
    method = cast("Mapping[str, object]", connection.scope).get("method", "GET")
    is_change = method not in READING
    if is_change and connection.headers.get(HEADER) != "1":
        raise Problem(
            403, "header_missing", f"a change by the console needs the header {HEADER}: 1"
        )


class Caller:
    """The permissions of one caller in a store.

    Sessions that the caller may not see are reported as missing.

    A change requires that the session's head is one of `heads`; if `heads` is None, any head is
    valid. `is_valid` returns whether the token is still valid. Long-running answers call `is_valid`
    repeatedly.
    """

    def __init__(
        self,
        principal: Principal,
        store: Store,
        heads: frozenset[int] | None = None,
        keyed: KeyedRequest | None = None,
        is_valid: Callable[[], bool] = lambda: True,
    ) -> None:
        self.principal = principal
        self.store = store
        self.keyed = keyed
        self.is_valid = is_valid
        self._heads = heads

    @property
    def name(self) -> str:
        """The name of the caller in the log."""
        return self.principal.subject or f"token {self.principal.token}"

    def require_new(self, named: str | None) -> None:
        """Raises: Problem 403 if the caller may not create a session under the id `named`."""
        if self.principal.is_visitor and named != self.principal.visit:
            detail = "a session id of your own needs a token that the host signed for it"
            raise Problem(403, "session_unsigned", detail)

    @property
    def sees_all(self) -> bool:
        """Whether the caller may see every session of the caller's namespace."""
        own = self.principal
        return own.subject is None and own.agent is None and not own.is_visitor

    @property
    def is_conditional(self) -> bool:
        """Whether ``If-Match`` in the request limits the heads at which a change is allowed."""
        return self._heads is not None

    def require_unconditional(self) -> None:
        """Raises: Problem 400 if the request has ``If-Match``, which this change cannot check."""
        if self.is_conditional:
            detail = "this change cannot check If-Match; send the request without it"
            raise Problem(400, "if_match_unsupported", detail)

    @property
    def key(self) -> str | None:
        """Return the request's idempotency key in the form in which a commit stores it.

        Returns None if the request has no idempotency key.
        """
        return None if self.keyed is None else self.keyed.name

    @property
    def may_see_server(self) -> bool:
        """Whether texts for the caller may contain file names and addresses of the server."""
        return self.sees_all and self.principal.may("admin")

    def subject_or(self, asked: str | None) -> str | None:
        """Return the caller's own subject; if the caller may see every subject, return `asked`.

        Raises: Problem 403 if the caller's token is for a person other than `asked`.
        """
        own = self.principal
        if own.subject is None and not own.is_visitor:
            return asked
        if asked not in (None, own.subject):
            raise Problem(403, "subject_refused", "your token is for another person")
        return own.subject

    @property
    def mark(self) -> dict[str, object] | None:
        """The metadata that marks a session as started by this visitor."""
        return {MADE_BY: self.principal.token} if self.principal.is_visitor else None

    def require(self, role: Role) -> None:
        """Raises: Problem 403 if the caller does not have the rights of `role`."""
        if not self.principal.may(role):
            detail = f"this needs a token with the role {role!r}, yours has {self.principal.role!r}"
            raise Problem(403, "role_missing", detail)

    def require_all(self, role: Role = "read") -> None:
        """Raises: Problem 403 if the caller lacks `role` rights, or may not see every session."""
        self.require(role)
        if not self.sees_all:
            raise Problem(403, "token_restricted", "this needs a token that can see every session")

    def require_agent(self, agent: str) -> None:
        """Raises: Problem 403 if the caller is restricted to an agent other than `agent`."""
        if self.principal.agent not in (None, agent):
            raise Problem(403, "agent_refused", "your token is for another agent")

    async def session(
        self, id: str, role: Role = "read", *, is_repeatable: bool = False
    ) -> Session:
        """Open the session `id`, which must be the whole id.

        If the request makes a change, the idempotency key of the request is recorded in the log.
        `is_repeatable` has the same meaning as in `claim`. If the request has an ``If-Match``, the
        first commit of the change requires a head that the header names.
        Raises: Replayed if the request was answered before; Problem 403 if the caller may not send
        the request; HeadChanged if the request's ``If-Match`` is outdated; SessionNotFound if the
        session does not exist, or if the caller may not see it. For an erased session, raises
        Erased if the caller may see all sessions, and otherwise SessionNotFound, because the log no
        longer records the owner.
        """
        self.require(role)
        try:
            session = await self.store.open(id)
        except (Erased, SessionNotFound):  # the latter says if it begins the id of another one
            if self.sees_all:
                raise
            raise SessionNotFound(StreamId(id)) from None
        if not await self._sees(session):
            raise SessionNotFound(StreamId(id))
        if role == "read":
            return session
        if self._heads is None:
            await self.claim(session, is_repeatable=is_repeatable)
            return session
        expected = session.head
        if expected not in self._heads:
            if self.keyed is None:
                raise HeadChanged(expected)
            expected = max(self._heads, default=_NO_HEAD)  # the claim may be there already
        guarded = await at_head(self.store, session, expected)
        if self.keyed is None:
            return guarded
        await self.claim(guarded, is_repeatable=is_repeatable)
        if self.keyed.unknown_since is not None:
            raise HeadChanged(guarded.head)
        return await at_head(self.store, session, guarded.head)

    async def claim(self, session: Session, *, is_repeatable: bool = False) -> None:
        """Record the idempotency key of the request in `session`.

        Raises: the errors of `KeyedRequest.claim`.
        """
        if self.keyed is not None:
            await self.keyed.claim(session, is_repeatable=is_repeatable)

    async def sees(self, id: StreamId) -> bool:
        """Return whether the caller may see the session `id`."""
        if self.sees_all:
            return True
        try:
            return await self._sees(await self.store.open(id))
        except (SessionNotFound, Erased):
            return False

    async def _sees(self, session: Session) -> bool:
        if self.principal.subject not in (None, session.subject):
            return False
        if self.principal.is_visitor and not self._visits(session):
            return False
        return self.principal.agent in (None, await agent_of(self.store, session.id))

    def _visits(self, session: Session) -> bool:
        if self.principal.visit is not None:
            return session.id == self.principal.visit
        return session.metadata.get(MADE_BY) == self.principal.token
