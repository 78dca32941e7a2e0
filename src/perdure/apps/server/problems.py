"""Converts errors to ``application/problem+json`` (RFC 9457) with stable codes."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from functools import cache
from http import HTTPStatus
from typing import Any, cast

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.handlers import BaseRouteHandler
from litestar.params import QueryParameter
from litestar.typing import FieldDefinition

from perdure import errors
from perdure.apps.terminal.advice import with_commands
from perdure.events.wire import wire
from perdure.secrets.mask import mask_secrets

_log = logging.getLogger(__name__)

_OF_THE_MACHINE = (
    errors.StoreUnavailable,
    errors.StoreReadOnly,
    errors.StoreFull,
    errors.StoreCorrupt,
)

STATUS: Mapping[type[errors.PerdureError], int] = {
    errors.SessionNotFound: 404,
    errors.EntryNotFound: 404,
    errors.QuestionNotFound: 404,
    errors.Erased: 410,
    errors.HeadConflict: 412,
    errors.LeafConflict: 409,
    errors.SessionExists: 409,
    errors.SessionHasForks: 409,
    errors.LeaseHeld: 409,
    errors.LeaseLost: 409,
    errors.TurnOpen: 409,
    errors.InvalidTransition: 409,
    errors.AlreadyAnswered: 409,
    errors.QuestionClosed: 409,
    errors.FlowRefusal: 409,
    errors.QueueFull: 429,
    errors.IdempotencyMismatch: 422,
    errors.LimitExceeded: 422,
    errors.QuotaExceeded: 507,
    errors.StoreFull: 507,
    errors.StoreUnavailable: 503,
    errors.StoreReadOnly: 503,
    errors.Unsupported: 501,
    errors.ModelError: 502,
    errors.WrongArgument: 422,
    errors.ConfigError: 422,
    errors.InvalidQuery: 422,
    errors.SessionError: 422,
    errors.FormatError: 422,
}
"""Error class -> HTTP status. A class that is missing here has the status of its nearest base."""

_STORE_FAILED = "the store cannot do this now; the log of the server has the reason"
"""Replaces error texts that name files and addresses of the server's machine."""

_REUSE = (
    "; create it with reuse_erased=True (not possible while it has forks, erased forks included)"
)
_NO_TURN = "no turn runs in this session; POST /v1/messages starts one"

ADVICE: Mapping[str, str] = {
    "ids must be complete: Store.find({stream!r}) completes this one": "ids must be complete",
    'Store.recent(scope="all") lists them': "GET /v1/sessions?scope=all lists them",
    "follow_up is not possible while the turn is idle": _NO_TURN,
    "steer is not possible while the turn is idle": _NO_TURN,
    "Session.tree lists them": "GET /v1/sessions/{stream}/tree lists them",
    "Store.verify lists all faults": "POST /v1/store/verify lists all faults",
    "see Store.verify": "see POST /v1/store/verify",
    "Store.questions lists those that do": "GET /v1/inbox lists those that do",
    "; Store.erasures has the certificate of that": " for good",
    'forks="keep" leaves them': "?forks=keep leaves them",
    'forks="erase" erases them too': "?forks=erase erases them too",
    "this chat was closed; Runtime.resume opens it again": "the session was closed meanwhile; send "
    "the request again",
    "Runtime.resume continues it": "POST /v1/sessions/ID/resume continues it",
    "resume it with Runtime.resume": "continue it with POST /v1/sessions/{stream}/resume",
    "give it up with Session.abandon_turn": "give it up with POST /v1/sessions/{stream}/abort",
    "answer it with Store.answer, then await the turn again": "POST /v1/inbox/ID/answer answers it",
    _REUSE: "",
    "Memory.facts lists the facts": "GET /v1/memory/facts lists the facts",
    "Flows.list lists the flows": "GET /v1/flows lists the flows",
    "Flows.state shows": "GET /v1/flows/{flow} shows",
    "Flows.open continues it": "POST /v1/flows/{flow}/resume continues it",
    "Flow.waiting says what it waits for": "GET /v1/flows/{flow} says what it waits for",
    "Flow.reply replies to it": "POST /v1/flows/{flow}/reply replies to it",
    "Flow.run continues": "POST /v1/flows/{flow}/resume continues",
    "Session.fork makes a copy": "POST /v1/sessions/{session}/fork makes a copy",
    "Flow.stop ends": "POST /v1/flows/{flow}/stop ends",
    ", Flows.delete deletes the flow": "",
    "waits for Flow.approve or Flow.decline": "waits to be approved or declined (GET /v1/inbox)",
    "waits for Flow.configure": "has to be configured: PUT /v1/flows/{flow}/roles/ROLE",
    "waits for consent: Store.questions": "waits for consent: GET /v1/inbox",
    "; open it with Flows.open(workspace=DIR), where ": "; open it where ",
    " with Flows.open(workspace=DIR)": "",
}
"""Text of the library -> text of the API. Fields in braces are replaced by facts of the error."""

MAX_BODY_BYTES = 10 * 1024 * 1024

UNREADABLE: Mapping[int, tuple[str, str]] = {
    400: ("invalid_request", "the request is malformed"),
    404: (
        "route_not_found",
        "there is no such address; GET /v1/openapi.json lists those of the API",
    ),
    405: ("method_not_allowed", "this address does not accept {method}; it accepts {allow}"),
    413: ("body_too_large", f"a request body has at most {MAX_BODY_BYTES // 1024**2} MB"),
}
"""HTTP status -> code and text, for requests that match no route or cannot be decoded."""

_MALFORMED: Mapping[type[Exception], str] = {
    RecursionError: "the body is nested too deeply",
    UnicodeDecodeError: "the body is not UTF-8",
}

_TITLE_OF_INTERNAL = "the server failed; its log has the reason"


class Problem(Exception):
    """An answer that is not a success: a status, a stable code and a sentence."""

    def __init__(self, status: int, code: str, detail: str, /, **facts: object) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.facts = facts


class HeadChanged(Problem):
    """The session's head is `actual`, but the request expects another head."""

    def __init__(self, actual: int) -> None:
        detail = f'the session has changed: its ETag is "{actual}"'
        super().__init__(412, errors.HeadConflict.code, detail, actual=actual)


class Unchanged(Exception):
    """Raised if a request has ``If-None-Match`` and the resource still has the same entity tag."""

    def __init__(self, etag: str) -> None:
        super().__init__("not changed")
        self.etag = etag


class Replayed(Exception):
    """Raised to return the answer to an earlier request with the same ``Idempotency-Key``."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        super().__init__("answered before")
        self.answer = answer


def answer_problem(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Return the answer for `error`.

    If the error is unknown, it is logged and its text is hidden.
    """
    if isinstance(error, Replayed):
        return Response(
            error.answer["body"].encode(),
            status_code=error.answer["status"],
            media_type=error.answer["media_type"],
            headers={"Idempotency-Replayed": "true"},
        )
    if isinstance(error, Unchanged):
        return Response(b"", status_code=304, headers={"ETag": error.etag})
    if isinstance(error, HTTPException):
        return _unreadable(request, error)
    found = known(error)
    wait_s = found.facts.get("retryAfterS")
    headers = {} if wait_s is None else {"Retry-After": str(wait_s)}
    if found.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return problem(found.status, found.code, str(found), found.facts, headers)


def _unreadable(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """Return the answer for a request that has no route, or that the route cannot decode."""
    status, headers = error.status_code, dict(error.headers or {})
    if "allow" in headers:  # its order differs from request to request
        headers["allow"] = ", ".join(sorted(headers["allow"].split(", ")))
    phrase = HTTPStatus(status).phrase
    code, text = UNREADABLE.get(status, (phrase.lower().replace(" ", "_"), phrase))
    if isinstance(error.extra, list) and error.extra:
        mistakes = [_named(each, request) for each in error.extra]
        told = "; ".join(map(_told, mistakes))
        return problem(status, code, told, {"errors": mistakes}, headers)
    if error.detail.lower() != phrase.lower():
        return problem(status, code, error.detail, {}, headers)
    method = cast("Mapping[str, object]", request.scope)["method"]
    told = text.format(method=method, allow=headers.get("allow", ""))
    return problem(status, code, told, {}, headers)


def known(error: Exception) -> Problem:
    """Return `error` as a problem; if the error is unknown, it is logged and its text is hidden."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, _OF_THE_MACHINE):
        _log.error("%s", error)
        return Problem(_status_of(error), error.code, _STORE_FAILED)
    if isinstance(error, errors.IdempotencyMismatch):
        key = re.sub("^api:[^:]*:", "", error.key)  # as the client sent it
        detail = f"the Idempotency-Key {key!r} was used for another request; send a new key"
        return Problem(_status_of(error), error.code, detail, key=key)
    if isinstance(error, errors.QueueFull):
        facts = _facts(error)
        wait_s = facts.pop("retry_after_s")
        return Problem(_status_of(error), error.code, str(error), **facts, retryAfterS=wait_s)
    if isinstance(error, errors.PerdureError):
        told = with_commands(str(error), error.facts(), ADVICE)
        return Problem(_status_of(error), error.code, told, **_facts(error))
    if type(error) in _MALFORMED:
        _log.warning("a request could not be read", exc_info=error)
        return Problem(400, "invalid_request", _MALFORMED[type(error)])
    if type(error) is ValueError:  # of an argument that a call of the library does not accept
        return Problem(422, errors.WrongArgument.code, str(error))
    _log.error("a request failed", exc_info=error)
    return Problem(500, "internal_error", _TITLE_OF_INTERNAL)


def problem(
    status: int,
    code: str,
    detail: str,
    facts: Mapping[str, object],
    headers: Mapping[str, str] | None = None,
) -> Response[bytes]:
    """Return a problem document. Secrets in the document's texts are masked."""
    fields = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": mask_secrets(detail),
    }
    besides = {name: value for name, value in facts.items() if name not in fields}
    return Response(
        msgspec.json.encode({**besides, **fields}),
        status_code=status,
        media_type="application/problem+json",
        headers=dict(headers or {}),
    )


def _named(mistake: Mapping[str, Any], request: Request[Any, Any, Any]) -> dict[str, Any]:
    """Return `mistake` with the field name that the client sent, and the field's allowed values."""
    key, source = mistake.get("key", ""), mistake.get("source")
    if source == "body" and key == "data":  # the whole body
        return {**mistake, "key": ""}
    if source == "body":
        field = _body_fields(request.route_handler).get(key)
    else:
        field = query_fields(request.route_handler).get(key) if source == "query" else None
    if field is None:
        return dict(mistake)
    name = getattr(field.kwarg_definition, "name", None) or key
    choices = ", ".join(_choices(field))
    ending = f"; choose one of {choices}" if choices else ""
    return {**mistake, "key": name, "message": f"{mistake['message']}{ending}"}


@cache
def _body_fields(handler: BaseRouteHandler) -> Mapping[str, FieldDefinition]:
    """Return the fields of the body of `handler`, keyed by the names that clients send."""
    body = handler.parsed_data_field
    fields = () if body is None else msgspec.structs.fields(body.annotation)
    return {each.encode_name: FieldDefinition.from_annotation(each.type) for each in fields}


@cache
def query_fields(handler: BaseRouteHandler) -> Mapping[str, FieldDefinition]:
    """Return the query parameters of `handler`, and those of the dependencies that it uses.

    The keys of the result are argument names.
    """
    fields = handler.parsed_fn_signature.parameters
    provided = handler.resolve_dependencies()
    used = [provided[name].parsed_fn_signature.parameters for name in fields if name in provided]
    return {
        name: field
        for each in (*used, fields)
        for name, field in each.items()
        if isinstance(field.kwarg_definition, QueryParameter)
    }


def _choices(field: FieldDefinition) -> Iterator[str]:
    """Yield the texts that a field of a `Literal` type accepts."""
    if isinstance(field.raw, str):
        yield field.raw
    for part in field.inner_types:
        yield from _choices(part)


def _told(mistake: Mapping[str, Any]) -> str:
    return f"{mistake['key']}: {mistake['message']}" if mistake.get("key") else mistake["message"]


def _status_of(error: errors.PerdureError) -> int:
    for kind in type(error).__mro__:
        if kind in STATUS:
            return STATUS[kind]
    return 500


def _facts(error: errors.PerdureError) -> dict[str, object]:
    """Return those attributes of `error` that can be written as JSON."""
    found: dict[str, object] = {}
    for name, value in error.facts().items():
        try:
            found[name] = wire(value)
        except errors.WrongArgument:
            continue
    return found
