"""Visitors of a host's page: their permissions, and the tokens that the host signs for them.

A signed token is ``pdv_ID.PAYLOAD.MAC``: ID is the id of the publishable token; PAYLOAD is a
`Visitor` as JSON; MAC is the HMAC-SHA256 of ``pdv_ID.PAYLOAD`` with the token's signing key. In a
signed token, PAYLOAD and MAC are base64url without padding.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from typing import cast

import msgspec

from perdure.errors import WrongArgument
from perdure.events.projection import wire
from perdure.events.types import AnyEvent, Event, LiveEvent, Snapshot
from perdure.session.argument_checks import takes_declared

SIGNED = "pdv_"
KEY = "pds_"
MADE_BY = "perdure_token"
"""The metadata key under which a session names the publishable token of its visitor."""

LONGEST_S = 24 * 3600
DEFAULT_S = 15 * 60
_MOST = 4096

_SHOWN = frozenset(("session:turn_started", "session:turn_completed"))


class Visitor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a host states about a visitor of its page. Units: `exp` is Unix seconds."""

    session: str
    exp: int
    subject: str | None = None


@takes_declared
def sign_visitor(
    key: str, session: str, *, now_s: float, subject: str | None = None, valid_s: int = DEFAULT_S
) -> str:
    """Return a token for one visitor of your page; the token allows only the session `session`.

    `key` is the signing key that ``perdure token create --publishable`` printed; keep it on your
    server. `subject` is the name of the person in the memory and in lists of sessions. `now_s` is
    ``time.time()``.
    Raises: WrongArgument if `key` has another format, or if `valid_s` exceeds `LONGEST_S`.
    """
    id, _, secret = key.removeprefix(KEY).partition("_")
    if not key.startswith(KEY) or not secret:
        raise WrongArgument("the key is not a signing key: pds_ID_…")
    if not 0 < valid_s <= LONGEST_S:
        raise WrongArgument(f"a signed token is valid for 1 to {LONGEST_S} seconds")
    visitor = Visitor(session, int(now_s) + valid_s, subject)
    signed = f"{SIGNED}{id}.{_text(msgspec.json.encode(visitor))}"
    return f"{signed}.{_text(_mac(key, signed))}"


def token_id_of(signed: str) -> str:
    """Return the id of the publishable token whose signing key made the token `signed`."""
    return signed.removeprefix(SIGNED).partition(".")[0]


def visitor_of(signed: str, key: str, at: int) -> Visitor | None:
    """Return the visitor of the token `signed` at the time `at` (Unix milliseconds).

    Returns None if the token is invalid.
    """
    head, _, mac = signed.rpartition(".")
    if not key or len(signed) > _MOST or not signed.isascii():
        return None
    if not hmac.compare_digest(_text(_mac(key, head)), mac):
        return None
    try:
        payload = head.partition(".")[2]
        raw = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        visitor = msgspec.json.decode(raw, type=Visitor)
    except (binascii.Error, msgspec.DecodeError):
        return None
    left_s = visitor.exp - at / 1000
    return visitor if 0 < left_s <= LONGEST_S and visitor.session else None


def visible(event: AnyEvent) -> Mapping[str, object] | None:
    """Return the part of `event` that a visitor may see: texts and turns, no tools or reasoning."""
    match event:
        case Event(type="agent:message", payload={"role": "user" | "assistant" as role}):
            told = {"role": role, "text": _said(event.payload.get("parts"))}
            return _kept(event, "entryId") | told
        case Event(type="session:turn_completed"):
            is_failed = event.payload.get("end") == "error"
            return _kept(event) | {"isFailed": is_failed}
        case Event() if event.type in _SHOWN:
            return _kept(event)
        case LiveEvent(type="agent:token"):
            return _kept(event, "of", "n", "text")
        case Snapshot():
            return _kept(event, "of", "n") | {"text": event.partial.text}
        case _:
            return None


def _kept(event: AnyEvent, *names: str) -> dict[str, object]:
    shown = wire(event)
    always = ("type", "sessionId", "timestamp", "sequenceNumber", "index", "more")
    return {name: shown[name] for name in (*always, *names) if name in shown}


def _said(parts: object) -> str:
    found = cast("list[dict[str, str]]", parts) if isinstance(parts, list) else []
    return "\n\n".join(part["text"] for part in found if part["type"] == "text" and part["text"])


def _mac(key: str, signed: str) -> bytes:
    return hmac.digest(key.encode(), signed.encode(), hashlib.sha256)


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
