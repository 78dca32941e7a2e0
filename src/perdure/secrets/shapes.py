"""What secrets look like: keys by the marks their makers gave them, and values by their names.

Pure. A shape errs on the side of replacing: a key that is none costs a word of a transcript, one
that gets through costs the account. Each pattern reads in linear time: what is repeated without a
bound is taken as a whole and never tried again from within (tests/attacks/test_patterns.py). The
patterns are text: `re` compiles each at its first use and keeps it, so a program that looks for no
secret does not wait for that.

A long text is read in slices, and a pattern only where one of its literals is in the slice. No call
of `re` reads much more than a slice, so another thread gets its turn between two calls.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from perdure.secrets.files import BY_NAME, IN_FILES, NAME, word

SLICE = 32_768
"""Characters of a text that the patterns are tried in at a time."""

REACH = 4_096
"""Characters behind a slice by which a pattern decides whether a match begins in the slice."""

BACK = 16
"""Characters before a slice that a pattern may look back at."""


class Find(NamedTuple):
    """A secret at `start` to `end` of a text, and what it is."""

    start: int
    end: int
    kind: str


PLACEHOLDER = r"\[[a-z]+(?:-[a-z]+)*-[0-9]+\]"
"""What stands where a value was: its kind and its number."""

MARKED: dict[str, str] = {
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
IGNORING_CASE = ("(?i)", "(?im)")
"""How a pattern begins that finds any case. Its own letters are lower case."""

BEGINS = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf]))"
"""Where a word begins, be it behind an escaped line feed of JSON inside JSON."""


def _begun(text: str) -> str:
    """Return a pattern of `text` where a word begins: `re` finds `text` faster than that place."""
    return rf"{text}(?:(?<![A-Za-z0-9]{text})|(?<=\\[nrtbf]{text}))"


_MARKED_KEY = (
    rf"{BEGINS}(?:"
    + "|".join(f"(?P<{kind.replace('-', '_')}>{shape})" for kind, shape in MARKED.items())
    + ")"
)

MARKED_BEGIN = (
    r"(?:s(?:k[-_]|ntry[su]_|hp[acs])|p(?:k_|ypi-|plx-)|r(?:k_|8_)|whsec_"
    r"|g(?:h[pousr]_|ithub_|l(?:pat|dt|rt|cbt|ptt|agent|oas|soat|ft|imt|sa)[-_]|sk_)"
    r"|x(?:ox|app-|ai-)|A(?:KIA|SIA|BIA|CCA|Iza|GE-|C[a-f0-9]{8})|ya29\.|GOCSPX-|1//0"
    r"|h(?:f_|v[sbr]\.)|api_org_|n(?:pm_|tn_)|d(?:op_v1_|api[a-f0-9]|p\.)|fo1_"
    r"|S(?:G\.|K[a-f0-9]{8})|key-[a-f0-9]|lin_|PMAK-|EAA|bot[0-9]{8}|[0-9]{8,10}:AA)"
)
"""How each marked key begins, up to where no other word does."""

_AFTER_OTHER = rf"(?<![A-Za-z0-9]){MARKED_BEGIN}"
_AFTER_ESCAPE = rf"(?<=\\[nrtbf]){MARKED_BEGIN}"
"""Where a marked key may begin. Two patterns: one with both places is many times as slow."""

_TOKEN = rf"{_begun('eyJ')}[\w-]{{10,}}+(?P<rest>\.[\w-]{{10,}}(?:\.[\w-]*)?)?"
"""A JSON web token if it has a `rest`. One without takes its whole run of characters along:
whatever begins in that run ends where it does, so each run is read once."""

_ENDS_VALUE = r"""\s"'`,;<>|\\"""

PLACED: tuple[tuple[tuple[str, ...], str, str], ...] = (
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
        rf"(?i)(?:{_begun('bearer')}|{_begun('basic')})\s{{1,3}}([\w.~+/=-]{{16,}})",
    ),
    (
        ("cookie",),
        "cookie",
        r"(?i)(?:set-)?cookie[\"']?\s{0,3}:\s{0,3}[\"']?([^\r\n\"'\\]{8,})",
    ),
    (
        ("://",),
        "password",
        r"://(?<=[A-Za-z0-9+.-]://)[^\s/:@\"'<>]{0,80}:([^\s/\"'<>]{1,200})@",
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
_HINTED = word(
    *("key", "auth", "sig", "signature", "pass", "hash_salt", "hashsalt", "salt", "seed"),
    no="[a-z]",
)
_ENTROPIC = (
    rf"(?i)(?:{_HINTED})"
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

_NAME_HINT = (
    r"(?:pass|pwd|secret|token|credential|key|kennwort|contrase|wachtwoord|mot[ _-]de[ _-]passe"
    r"|senha)(?=[\w.-]{0,45}+(?:\\?[\"'\]])?\s{0,3}[:=,])"
)
"""What every name of a secret holds, in lower case, where a value may follow. Found many times
faster than the names are."""

_BEFORE_KEY = (
    r"(?:api|access|account|auth|client|deploy|encryption|master|private|secret|service|shared"
    r"|signing|storage)[_-]?$"
)
_ENTROPIC_HINTS = ("key", "auth", "sig", "pass", "salt", "seed")

ENTROPY_BITS = 3.2
"""Bits a character that a value has at least to count as random where only its name hints."""


def finds(text: str) -> Iterator[Find]:
    """The secrets in `text`, in no order; they may overlap."""
    ends: dict[str, int] = {}  # pattern -> where its last match ends
    for begin in range(0, len(text), SLICE):
        yield from _Slice(text, begin, ends).finds()


class _Slice:
    """The part of `text` from `begin` on in which matches begin. They may end behind it."""

    def __init__(self, text: str, begin: int, ends: dict[str, int]) -> None:
        self._text = text
        self._begin = begin
        self._end = min(len(text), begin + SLICE)
        self._stop = min(len(text), begin + SLICE + REACH)
        self._first = max(0, begin - BACK)
        self._lowered = text[self._first : self._stop].lower()
        # not so where the lower case of a letter is two
        self._is_aligned = len(self._lowered) == self._stop - self._first
        self._ends = ends

    def finds(self) -> Iterator[Find]:
        for found in self._matches_at(_MARKED_KEY, self._marked_begins()):
            kind = (found.lastgroup or "").replace("_", "-")
            yield Find(found.start(), found.end(), kind)
        if self._has("eyj"):
            for found in self._matches(_TOKEN):
                if found["rest"]:
                    yield Find(found.start(), found.end(), "jwt")
        for hints, kind, shape in (*PLACED, *IN_FILES):
            if self._has(*hints):
                yield from _placed(kind, self._matches(shape))
        names = self._names()
        for within, shape in BY_NAME:
            if names and re.compile(within).search(self._text, self._begin, self._stop):
                yield from _placed("secret", self._matches_at(shape, names))
        yield from self._assignments(names)

    def _assignments(self, names: list[int]) -> Iterator[Find]:
        ours_until = self._ends.get(PLACEHOLDER, 0)  # one may have begun before this slice
        placeholders = [each.span() for each in self._matches(PLACEHOLDER)] if names else []
        begins = [start for start, _ in placeholders]
        for found in self._matches_at(_ASSIGNED, names):
            kind = "password" if found[1].lower().startswith(("pass", "pwd")) else "secret"
            is_marked = bool(found[3]) or (kind == "password" and found[2] == "=")
            before = bisect_left(begins, found.start())
            ours_until = placeholders[before - 1][1] if before else ours_until
            is_of_ours = found.start() < ours_until
            if not is_of_ours and _is_assigned(found[4], kind, is_marked=is_marked):
                yield Find(found.start(4), found.end(4), kind)
        if self._has(*_ENTROPIC_HINTS):
            for found in self._matches(_ENTROPIC):
                if not found["call"] and is_random(found[1]):
                    yield Find(found.start(1), found.end(1), "secret")

    def _has(self, *hints: str) -> bool:
        return any(hint in self._lowered for hint in hints)

    def _marked_begins(self) -> list[int]:
        """Where marked keys may begin, in order."""
        begins = self._begins(_AFTER_OTHER)
        if "\\" in self._lowered:
            begins = sorted(begins + self._begins(_AFTER_ESCAPE))
        return begins

    def _begins(self, shape: str) -> list[int]:
        found = re.compile(shape).finditer(self._text, self._begin, self._stop)
        return [each.start() for each in found]

    def _names(self) -> list[int]:
        """Where names of secrets may begin, in order."""
        if not self._is_aligned:
            return list(range(self._begin, self._end))
        lowered, first, begins = self._lowered, self._first, list[int]()
        before = re.compile(_BEFORE_KEY)
        for hint in re.compile(_NAME_HINT).finditer(lowered, self._begin - first):
            at = hint.start()
            keyed = before.search(lowered, max(0, at - 11), at) if hint[0] == "key" else None
            begins.append(first + (keyed.start() if keyed else at))
        return begins

    def _matches_at(self, shape: str, begins: Iterable[int]) -> Iterator[re.Match[str]]:
        """The matches that begin at one of `begins`, none within another."""
        pattern, after = re.compile(shape), self._ends.get(shape, 0)
        for at in begins:
            if after <= at < self._end and (found := pattern.match(self._text, at)):
                after = self._ends[shape] = found.end()
                yield found

    def _matches(self, shape: str) -> Iterator[re.Match[str]]:
        """The matches that begin in the slice, as reading the whole text at once finds them."""
        pattern, at = re.compile(shape), max(self._begin, self._ends.get(shape, 0))
        # Python's `re` finds in lower case in half the time that ignoring the case takes.
        is_lowered = self._is_aligned and shape.startswith(IGNORING_CASE)
        searched = re.compile(_lowered(shape)) if is_lowered else pattern
        text, first = (self._lowered, self._first) if is_lowered else (self._text, 0)
        while at < self._end:
            found = searched.search(text, at - first, self._stop - first)
            if found is None or (begin := first + found.start()) >= self._end:
                return
            is_cut = first + found.end() > self._stop - REACH // 2 and self._stop < len(self._text)
            if is_lowered or is_cut:
                found = pattern.match(self._text, begin)  # it may go on behind what was looked at
            at = self._ends[shape] = begin + 1 if found is None else found.end()
            if found is not None:
                yield found


def _lowered(shape: str) -> str:
    """The form of `shape`, which ignores the case, for text in lower case."""
    return shape.replace("(?i", "(?", 1).removeprefix("(?)")


def _placed(kind: str, matches: Iterator[re.Match[str]]) -> Iterator[Find]:
    for found in matches:
        if not _is_reference(found[1]):
            yield Find(found.start(1), found.end(1), kind)


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
    if not is_marked and (re.match(_WORD, value) or re.match(_CALL, value)):
        return False
    if kind == "secret" and (len(value) < 6 or re.fullmatch(_NUMBER, value)):
        return False
    return is_secret_value(value) and not re.search(_NAMED_KEY, value.rstrip(").]}:;"))


def _is_reference(value: str) -> bool:
    return any(re.fullmatch(shape, value) for shape in (_REFERENCE, PLACEHOLDER))
