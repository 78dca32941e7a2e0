"""Select which of the requested headers are sent.

Pure. Headers that change the destination, the framing, or the identity of a request are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

MAX_HEADERS = 32
MAX_VALUE = 8192

_name = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_OURS = frozenset(
    (
        "host",
        # framing of the request
        *("content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer"),
        *("upgrade", "expect", "http2-settings", "accept-encoding", "content-encoding"),
        # identity of the client
        *("forwarded", "via", "client-ip", "true-client-ip", "x-real-ip", "x-client-ip"),
        *("x-original-url", "x-rewrite-url", "x-original-host", "x-host", "x-cluster-client-ip"),
        # interpretation by a gateway
        *("x-http-method", "x-http-method-override", "x-method-override"),
        *("metadata", "metadata-flavor", "x-google-metadata-request"),
        *("x-aws-ec2-metadata-token", "x-aws-ec2-metadata-token-ttl-seconds"),
        # browser sessions
        *("cookie", "cookie2", "origin", "referer"),
    )
)
_OURS_BEGIN = ("proxy-", "x-forwarded-", "sec-", "x-envoy-", "cf-")


def sendable(wanted: Mapping[str, str]) -> dict[str, str]:
    """Return only the headers of `wanted` that are allowed, in the same order.

    A value with a line break or NUL is dropped, never repaired. If a name occurs in several
    spellings, only the first header is sent.
    """
    kept: dict[str, str] = {}
    seen: set[str] = set()
    for name, value in wanted.items():
        folded = name.lower()
        if len(kept) == MAX_HEADERS or folded in seen or not _may_go(folded, value):
            continue
        seen.add(folded)
        kept[name] = value
    return kept


def without(headers: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return `headers` without those in `names`; letter case does not matter."""
    dropped = {name.lower() for name in names}
    return {name: value for name, value in headers.items() if name.lower() not in dropped}


def _may_go(name: str, value: str) -> bool:
    if not _name.fullmatch(name) or name in _OURS or name.startswith(_OURS_BEGIN):
        return False
    if len(value) > MAX_VALUE or not value.isascii():
        return False
    return all(c == "\t" or 0x20 <= ord(c) < 0x7F for c in value)
