"""What secrets look like: keys by the marks their makers gave them, and values by their names.

Pure. A shape errs on the side of replacing: a key that is none costs a word of a transcript, one
that gets through costs the account. Each pattern reads in linear time: what is repeated without a
bound is taken as a whole and never tried again from within (tests/attacks/test_patterns.py). The
patterns are text: `re` compiles each at its first use and keeps it, so a program that looks for no
secret does not wait for that.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from perdure.secrets.files import IN_FILES, NAME


class Find(NamedTuple):
    """A secret at `start` to `end` of a text, and what it is."""

    start: int
    end: int
    kind: str


PLACEHOLDER = r"\[[a-z]+(?:-[a-z]+)*-[0-9]+\]"
"""What stands where a value was: its kind and its number."""

_MARKED: dict[str, str] = {
    # kind: everything a key of that kind may be, up to its last character
    "anthropic-key": r"sk-ant-[\w-]{16,}",
    "openai-key": r"sk-(?!ant-)(?:[a-z]+-){0,2}[\w-]{20,}",
    "stripe-key": r"(?:[spr]k_(?:live|test)_\w{16,}|whsec_[\w+/=]{20,})",
    "github-token": r"(?:gh[pousr]_\w{30,}|github_pat_\w{30,})",
    "gitlab-token": r"gl(?:pat|dt|rt|cbt|ptt|agent|oas|soat|ft|imt)-[\w-]{18,}",
    "slack-token": r"(?:xox[a-z]-[\w-]{10,}|xapp-[\w-]{10,}|xoxe\.[\w.-]{10,})",
    "aws-key": r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Z0-9])",
    "google-key": r"(?:AIza[\w-]{35}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,}|1//0[\w-]{30,})",
    "huggingface-token": r"(?:hf|api_org)_[A-Za-z0-9]{30,}",
    "npm-token": r"npm_[A-Za-z0-9]{36,}",
    "pypi-token": r"pypi-[\w-]{50,}",
    "vault-token": r"hv[sbr]\.[\w-]{20,}",
    "provider-key": (
        r"(?:gsk_\w{20,}|xai-\w{20,}|pplx-\w{20,}|r8_\w{20,}|dop_v1_[a-f0-9]{20,}|fo1_\w{20,}"
        r"|SG\.[\w-]{16,}\.[\w-]{16,}|key-[a-f0-9]{32}|lin_(?:api|oauth)_\w{20,}|ntn_\w{20,}"
        r"|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}|dapi[a-f0-9]{32}|PMAK-[\w-]{30,}|dp\.[a-z]{2,8}\.\w{30,}"
        r"|AGE-SECRET-KEY-1[A-Z0-9]{40,}|sntry[su]_[\w+/=]{20,}|glsa_\w{30,}|EAA[A-Za-z0-9]{60,}"
        r"|(?:SK|AC)[a-f0-9]{32}|(?:bot)?[0-9]{8,10}:AA[\w-]{32,})"
    ),
}
BEGINS = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf]))"
"""Where a word begins, be it behind an escaped line feed of JSON inside JSON."""

_MARKED_KEY = (
    rf"{BEGINS}(?:"
    + "|".join(f"(?P<{kind.replace('-', '_')}>{shape})" for kind, shape in _MARKED.items())
    + ")"
)

_TOKEN = rf"{BEGINS}eyJ[\w-]{{10,}}+(?P<rest>\.[\w-]{{10,}}(?:\.[\w-]*)?)?"
"""A JSON web token if it has a `rest`. One without takes its whole run of characters along:
whatever begins in that run ends where it does, so each run is read once."""

_ENDS_VALUE = r"""\s"'`,;<>|\\"""

_PLACED: tuple[tuple[tuple[str, ...], str, str], ...] = (
    # texts of which one must be there, the kind, and a pattern whose group is the secret
    (
        ("private key",),
        "private-key",
        (
            r"(-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----"
            r"(?:[\w+/=\s\\:,.\"'>#|*;&]|-(?!----END))*(?:-----END [A-Z0-9 ]{0,40}-----)?)"
        ),
    ),
    (
        ("authorization",),
        "authorization",
        (
            r"(?i)authorization[\"']?\s{0,3}[:=]\s{0,3}(?:\\?[\"'])?"
            r"(?:(?:bearer|basic|token|digest|negotiate|apikey)\s{1,3})?"
            rf"([^{_ENDS_VALUE}]{{6,}})"
        ),
    ),
    (
        ("bearer", "basic"),
        "authorization",
        rf"(?i){BEGINS}(?:bearer|basic)\s{{1,3}}([\w.~+/=-]{{16,}})",
    ),
    (
        ("cookie",),
        "cookie",
        r"(?i)(?:set-)?cookie[\"']?\s{0,3}:\s{0,3}[\"']?([^\r\n\"'\\]{8,})",
    ),
    (
        ("://",),
        "password",
        r"(?i)[a-z][a-z0-9+.-]{0,20}://[^\s/:@\"'<>]{0,80}:([^\s/\"'<>]{1,200})@",
    ),
    (
        ("?", "&", ";"),
        "url-secret",
        (
            r"(?i)[?&;#](?:api[_-]?key|key|token|access_token|refresh_token|auth|sig|signature|secret|"
            r"password|code|x-amz-(?:signature|security-token|credential)|x-goog-signature)="
            r"([^&\s\"'#<>\\]{8,})"
        ),
    ),
    (
        ("password=",),
        "password",
        r"(?i)[?&;](?:ssl)?password=([^&;\s\"'#<>\\]{1,200})",
    ),
    (
        ("https://",),
        "webhook",
        (
            r"https://(?:hooks\.slack\.com/(?:services|workflows)/|discord(?:app)?\.com/api/webhooks/)"
            r"([\w/-]{16,})"
        ),
    ),
    (
        ("-u", "--user"),
        "password",
        r"(?:\s-u|--user)[ =][\"']?[^\s:\"'$]{1,60}:([^\s\"'$]{3,})",
    ),
    (
        ("--",),
        "password",
        (
            r"(?i)--[\w-]{0,40}(?:password|passwd|token|api-?key|secret)[ =]"
            r"[\"']?([^\s\"'$<\[-][^\s\"']{5,})"
        ),
    ),
)

_ASSIGNED = (
    rf"(?i)({NAME})[\w.-]{{0,30}}(?:\\?[\"'\]])?(\s{{0,3}}(?::=|=>|[:=])\s{{0,3}})"
    rf"((?:\\?[\"'`])?)([^{_ENDS_VALUE}]{{4,}})"
)
_NAMED_KEY = rf"(?i){NAME}$|^(?:authorization|x-api-key|cookie|set-cookie|auth)$"
_ENTROPIC = (
    r"(?i)(?<![a-z])(?:key|auth|sig|signature|pass|hash_?salt|salt|seed)"
    r"(?:\\?[\"'])?\s{0,3}[:=]\s{0,3}(?:\\?[\"'])?([\w+/=.~-]{20,}+)(?P<call>\()?"
)

_REFERENCE = (
    r"(?i)\$\w+|\$\{[^}]*\}?|\$\(.*|%\w+%|%s|%\(\w+\)s|\{+[\w.]*\}*|<[\w -]+>?|\(\w+:?\)?"
    r"|\*{3,}|x{3,}|\.{3,}|…+"
    r"|(?:os|env|environ|process|config|self|args|settings|this|opts|options)[.\[].*"
    r"|none|null|true|false|undefined|your[_-][\w-]*|changeme|placeholder|redacted|\[redacted\]"
)
_WORD = r"^[A-Za-z_][a-z_]*(?:[A-Z][a-z]+)*[.:)\]}]*$"
_NUMBER = r"[\d.,_]+"
_CALL = r"^[A-Za-z_][\w.]*[(\[]"

_ASSIGNED_HINTS = (
    "pass",
    "pwd",
    "secret",
    "token",
    "credential",
    "key",
    "auth",
    "sig",
    "salt",
    "seed",
)

ENTROPY_BITS = 3.2
"""Bits a character that a value has at least to count as random where only its name hints."""


def finds(text: str) -> Iterator[Find]:
    """The secrets in `text`, in no order; they may overlap."""
    for found in re.finditer(_MARKED_KEY, text):
        kind = (found.lastgroup or "").replace("_", "-")
        yield Find(found.start(), found.end(), kind)
    for found in re.finditer(_TOKEN, text):
        if found["rest"]:
            yield Find(found.start(), found.end(), "jwt")
    lowered = text.lower()
    for hints, kind, shape in (*_PLACED, *IN_FILES):
        if not any(hint in lowered for hint in hints):
            continue
        for found in re.finditer(shape, text):
            if not _is_reference(found[1]):
                yield Find(found.start(1), found.end(1), kind)
    if any(hint in lowered for hint in _ASSIGNED_HINTS):
        yield from _assignments(text)


def _assignments(text: str) -> Iterator[Find]:
    placeholders = [each.span() for each in re.finditer(PLACEHOLDER, text)]
    begins = [start for start, _ in placeholders]
    for found in re.finditer(_ASSIGNED, text):
        kind = "password" if found[1].lower().startswith(("pass", "pwd")) else "secret"
        is_marked = bool(found[3]) or (kind == "password" and found[2] == "=")
        before = bisect_left(begins, found.start())
        is_of_ours = before > 0 and found.start() < placeholders[before - 1][1]
        if not is_of_ours and _is_assigned(found[4], kind, is_marked=is_marked):
            yield Find(found.start(4), found.end(4), kind)
    for found in re.finditer(_ENTROPIC, text):
        if not found["call"] and is_random(found[1]):
            yield Find(found.start(1), found.end(1), "secret")


def is_secret_name(name: str) -> bool:
    """Whether a field called `name` holds a secret."""
    return re.search(_NAMED_KEY, name) is not None


def is_secret_value(value: str) -> bool:
    """Whether `value`, in a field of such a name, is one rather than a reference to one."""
    return len(value) >= 4 and not _is_reference(value)


def is_unmistakable(value: str) -> bool:
    """Whether the secret `value` is replaced also where only it itself tells: no mere word is."""
    has_both = any(c.isalpha() for c in value) and any(not c.isalpha() for c in value)
    return len(value) >= 16 or (len(value) >= 6 and has_both)


def is_random(value: str) -> bool:
    """Whether `value` looks drawn by chance: letters and digits, and many bits a character."""
    has_both = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return has_both and entropy_bits(value) >= ENTROPY_BITS and not _is_reference(value)


def entropy_bits(value: str) -> float:
    """Bits a character of `value`, by how often each occurs in it."""
    counts = Counter(value).values()
    return -sum(n / len(value) * math.log2(n / len(value)) for n in counts)


def _is_assigned(value: str, kind: str, *, is_marked: bool) -> bool:
    """Whether what is assigned to a secret's name is one: code assigns names and calls too.

    `is_marked` says that it stands in quotes, or right behind a password's equals sign.
    """
    if kind == "secret" and (len(value) < 6 or re.fullmatch(_NUMBER, value)):
        return False
    if not is_secret_value(value) or re.search(_NAMED_KEY, value.rstrip(").]}:;")):
        return False
    return is_marked or not (re.match(_WORD, value) or re.match(_CALL, value))


def _is_reference(value: str) -> bool:
    return any(re.fullmatch(shape, value) for shape in (_REFERENCE, PLACEHOLDER))
