"""Routes to sign in to the console and to sign out, and the rights of the caller."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get, post
from litestar.datastructures import Cookie, State
from litestar.di import NamedDependency
from litestar.params import JSONBody

from perdure.apps.server.access.caller import require_own_origin
from perdure.apps.server.access.sign_in import COOKIE, SIGNED_IN_S, SignIn
from perdure.apps.server.inputs import SigningIn
from perdure.apps.server.problems import Problem
from perdure.apps.server.routes.parameters import TheCaller
from perdure.apps.server.values import CallerView, SignedIn


@post("/sign-in", status_code=200, is_open=True)
async def sign_in(
    request: Request[Any, Any, State],
    signing_in: NamedDependency[SignIn],
    data: JSONBody[SigningIn],
) -> Response[SignedIn]:
    """Sign in with a one-time code or a token; the answer sets a cookie.

    A request from a page of another site is rejected, because this page could sign a person in to
    another person's account.
    """
    require_own_origin(request)
    if (data.code is None) == (data.token is None):
        raise Problem(422, "invalid_request", "send a code or a token")
    token = signing_in.by_code(data.code) if data.code else signing_in.by_token(data.token or "")
    return Response(SignedIn(is_signed_in=True), cookies=[_cookie(request, token, SIGNED_IN_S)])


@post("/sign-out", status_code=200)
async def sign_out(
    request: Request[Any, Any, State], signing_in: NamedDependency[SignIn]
) -> Response[SignedIn]:
    """Sign out, and revoke the token if the sign-in created it."""
    signing_in.out(request.cookies.get(COOKIE, ""))
    return Response(SignedIn(is_signed_in=False), cookies=[_cookie(request, "", 0)])


@get("/caller")
async def show_caller(caller: TheCaller) -> CallerView:
    """Show the role of the caller's token: `read`, `write` or `admin`."""
    return CallerView(role=caller.principal.role)


def _cookie(request: Request[Any, Any, State], value: str, age_s: int) -> Cookie:
    is_secure = request.url.scheme == "https"
    return Cookie(
        COOKIE,
        value=value,
        path="/",
        max_age=age_s,
        httponly=True,
        samesite="strict",
        secure=is_secure,
    )
