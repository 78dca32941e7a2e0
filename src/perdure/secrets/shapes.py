"""Detect secrets: keys by their vendors' prefixes, and values by the names of their fields.

Pure. A doubtful value counts as a secret: a false positive hides a word of a transcript, but a key
that is missed can cost the account. Each pattern runs in linear time: unbounded repetitions are
possessive, so `re` never backtracks into them (tests/attacks/test_patterns.py). Each pattern is a
text that `re` compiles at the first use and caches, so a program that never looks for secrets
compiles no pattern.

A long text is read in slices, and a pattern is tried only if the slice contains one of the
pattern's literals. No call of `re` reads much more than a slice, so other threads can run between
two calls.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from typing import NamedTuple

from perdure.secrets.files import BY_NAME, IN_FILES, NAME, word

SLICE = 32_768
"""Number of characters in a slice of the text."""

REACH = 4_096
"""Number of characters after a slice that a pattern may read to decide on a match in the slice."""

BACK = 16
"""Number of characters before a slice that a pattern may look back at."""


class Find(NamedTuple):
    """A secret that was found in a text from `start` to `end`, and its kind."""

    start: int
    end: int
    kind: str


PLACEHOLDER = r"\[[a-z]+(?:-[a-z]+)*-[0-9]+\]"
"""Matches the replacement of a masked value: the kind of the value and a number."""

MARKED: dict[str, str] = {
    # kind: the whole key of that kind, up to its last character
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
"""How a case-insensitive pattern begins.

All letters in a case-insensitive pattern are lower case.
"""

BEGINS = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf]))"
"""Matches at the start of a word, also after an escape such as a line feed in nested JSON."""


def _begun(text: str) -> str:
    """Return a pattern for `text` at the start of a word.

    For speed, the pattern matches `text` first, and then checks the character before `text`.
    """
    return rf"{text}(?:(?<![A-Za-z0-9]{text})|(?<=\\[nrtbf]{text}))"


_MARKED_KEY = (
    rf"{BEGINS}(?:"
    + "|".join(f"(?P<{kind.replace('-', '_')}>{shape})" for kind, shape in MARKED.items())
    + ")"
)

MARKED_BEGIN = (
    r"(?:s(?:k[-_]|ntry[su]_|hp[acps])|p(?:k_|ypi-|plx-)|r(?:k_|8_)|whsec_"
    r"|g(?:h[pousr]_|ithub_|l(?:pat|dt|rt|cbt|ptt|agent|oas|soat|ft|imt|sa)[-_]|sk_)"
    r"|x(?:ox|app-|ai-)|A(?:KIA|SIA|BIA|CCA|Iza|GE-|C[a-f0-9]{8})|ya29\.|GOCSPX-|1//0"
    r"|h(?:f_|v[sbr]\.)|api_org_|n(?:pm_|tn_)|d(?:op_v1_|api[a-f0-9]|p\.)|fo1_"
    r"|S(?:G\.|K[a-f0-9]{8})|key-[a-f0-9]|lin_|PMAK-|EAA|bot[0-9]{8}|[0-9]{8,10}:AA)"
)
"""Matches the shortest beginning of a vendor's key that ordinary words do not have."""

_AFTER_OTHER = rf"(?<![A-Za-z0-9]){MARKED_BEGIN}"
_AFTER_ESCAPE = rf"(?<=\\[nrtbf]){MARKED_BEGIN}"
"""Matches the start of a key after an escape.

One pattern for this and `_AFTER_OTHER` would be many times slower.
"""

_TOKEN = rf"{_begun('eyJ')}[\w-]{{10,}}+(?P<rest>\.[\w-]{{10,}}(?:\.[\w-]*)?)?"
"""A match is a JSON web token if it has the group `rest`. A match without `rest` consumes its whole
run of characters, so that each run is read only once.
"""

_ENDS_VALUE = r"""\s"'`,;<>|\\"""

_QUOTES = "“”„‟‘’‚‛«»‹›「」『』《》〈〉＂＇"  # noqa: RUF001, the marks of other scripts are meant
"""Typographic quotation marks.

A mark at the start of a value is not part of the value. A mark at the end is not part of the value
if only punctuation follows the mark.
"""

_AFTER_QUOTE = ".!?:)]}…。，、；：！？）】〕"  # noqa: RUF001, the marks of other scripts are meant
"""Punctuation that may follow a closing quotation mark."""

_ENDS_SENTENCE = ".:)]}"
_PLACEHOLDER_AT_END = PLACEHOLDER + r"[.:)\]}]*"

PLACED: tuple[tuple[tuple[str, ...], str, str], ...] = (
    # required literals (any of them), the kind, and a pattern whose group is the secret
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
        ("pass", "pw"),
        "password",  # pass: …, pw = …; "pass" is a word, and a verdict of a test, too
        (
            rf"(?i)(?:{_begun('pass')}(?:(?-i:(?<![P][A][S][S]))|(?!:))|{_begun('pw')})(?:\\?[\"'])?"
            r"\s{0,3}(?::=|=>|[:=])\s{0,3}(?:\\?[\"'`])?"
            r"(?![/~.=]|test|[\d.,/:%-]{1,40}[a-zµ%]{0,4}(?![^\s\"'`,;)\\]))"
            r"(?![\w-]{1,80}(?:[./]|::?)[\w./:-]{0,200}(?![^\s\"'`,;)\\]))"
            rf"(?=[^{_ENDS_VALUE}]{{0,80}}(?:[0-9]|[@#$%^&*!][a-z]))(?=[^{_ENDS_VALUE}]{{0,80}}[a-z])"
            rf"([^{_ENDS_VALUE}()\[\]{{}}]{{6,200}}+)(?![(\[{{])"
        ),
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
_FILE = r"(?:[\w-]{1,80}+/){1,20}[\w.-]{1,80}\.[a-z]{1,4}"
_FOLDER = r"~|/[a-z]{0,20}|(?:~|/[\w.@+-]{1,80}+)(?:/[\w.@+-]{1,80}+){1,20}/?"
_CALL = r"^[A-Za-z_][\w.]*[(\[]"

_NAME_HINT = (
    r"(?:pass|pwd|secret|token|credential|key|kennwort|contrase|wachtwoord|mot[ _-]de[ _-]passe"
    r"|senha)(?=[\w.-]{0,45}+(?:\\?[\"'\]])?\s{0,3}[:=,])"
)
"""Matches a part of every name of a secret that a value can follow. The text must be in lower case.
This pattern is many times faster than a search for the names.
"""

_BEFORE_KEY = (
    r"(?:api|access|account|auth|client|deploy|encryption|master|private|secret|service|shared"
    r"|signing|storage)[_-]?$"
)
_ENTROPIC_HINTS = ("key", "auth", "sig", "pass", "salt", "seed")

ENTROPY_BITS = 3.2
"""A value counts as random from this many bits per character, if its name is the only hint."""


def finds(text: str) -> Iterator[Find]:
    """Yield the secrets in `text`, in any order; they may overlap."""
    ends: dict[str, int] = {}  # pattern -> where its last match ends
    for begin in range(0, len(text), SLICE):
        yield from _Slice(text, begin, ends, frozenset()).finds()


def kinds_in(text: str) -> frozenset[str]:
    """Return the kinds of the secrets in `text`.

    A pattern is skipped as soon as its kinds are found, so a text full of secrets costs less than a
    text without secrets.
    """
    ends: dict[str, int] = {}
    found = frozenset[str]()
    for begin in range(0, len(text), SLICE):
        found |= {find.kind for find in _Slice(text, begin, ends, found).finds()}
    return found


class _Slice:
    """The part of `text` in which matches start; it begins at `begin`.

    A match starts in the slice, but it may end after the slice. Secrets of the kinds in `known` may
    be left out of the results.
    """

    def __init__(self, text: str, begin: int, ends: dict[str, int], known: Set[str]) -> None:
        self._text = text
        self._begin = begin
        self._end = min(len(text), begin + SLICE)
        self._stop = min(len(text), begin + SLICE + REACH)
        self._first = max(0, begin - BACK)
        self._lowered = text[self._first : self._stop].lower()
        # False if the lower case of a letter has two characters
        self._is_aligned = len(self._lowered) == self._stop - self._first
        self._ends = ends
        self._known = known

    def finds(self) -> Iterator[Find]:
        for found in self._matches_at(_MARKED_KEY, self._marked_begins()):
            kind = (found.lastgroup or "").replace("_", "-")
            yield Find(found.start(), found.end(), kind)
        if "jwt" not in self._known and self._has("eyj"):
            for found in self._matches(_TOKEN):
                if found["rest"]:
                    yield Find(found.start(), found.end(), "jwt")
        for hints, kind, shape in (*PLACED, *IN_FILES):
            if kind not in self._known and self._has(*hints):
                yield from _placed(kind, self._matches(shape))
        if not {"password", "secret"} <= self._known:
            yield from self._named()

    def _named(self) -> Iterator[Find]:
        """Yield the secrets that follow the name of a secret field."""
        names = self._names()
        for within, shape in BY_NAME:
            if names and re.compile(within).search(self._text, self._begin, self._stop):
                yield from _placed("secret", self._matches_at(shape, names))
        yield from self._assignments(names)
        if self._has(*_ENTROPIC_HINTS):
            for found in self._matches(_ENTROPIC):
                is_file = re.fullmatch(_FILE, found[1]) is not None
                if not (found["call"] or is_file) and is_random(found[1]):
                    yield Find(found.start(1), found.end(1), "secret")

    def _assignments(self, names: list[int]) -> Iterator[Find]:
        ours_until = self._ends.get(PLACEHOLDER, 0)  # a match may have started before this slice
        placeholders = [each.span() for each in self._matches(PLACEHOLDER)] if names else []
        begins = [start for start, _ in placeholders]
        for found in self._matches_at(_ASSIGNED, names):
            kind = "password" if found[1].lower().startswith(("pass", "pwd")) else "secret"
            is_marked = bool(found[3]) or (kind == "password" and found[2] == "=")
            before = bisect_left(begins, found.start())
            ours_until = placeholders[before - 1][1] if before else ours_until
            is_of_ours = found.start() < ours_until
            if is_of_ours or self._is_working_folder(found):
                continue
            start, end = _unquoted(found, 4)
            value = self._text[start:end]
            # With quotation marks around it, a value needs fewer signs of a secret.
            read = (value, found[4]) if end < found.end(4) else (value,)
            if _is_reference(value) or not value:
                continue
            if any(_is_assigned(each, kind, is_marked=is_marked) for each in read):
                yield Find(start, end, kind)

    def _is_working_folder(self, found: re.Match[str]) -> bool:
        """Whether `found` is a shell's ``PWD=/folder``, not a field of a connection string."""
        is_field = self._text[max(found.start() - 1, 0) : found.start()] == ";"
        return found[1].lower() == "pwd" and not is_field and bool(re.fullmatch(_FOLDER, found[4]))

    def _has(self, *hints: str) -> bool:
        lowered = self._lowered
        for hint in hints:  # noqa: SIM110 - a generator takes three times as long
            if hint in lowered:
                return True
        return False

    def _marked_begins(self) -> list[int]:
        """Return the possible starts of keys with a vendor's prefix, in order."""
        begins = self._begins(_AFTER_OTHER)
        if "\\" in self._lowered:
            begins = sorted(begins + self._begins(_AFTER_ESCAPE))
        return begins

    def _begins(self, shape: str) -> list[int]:
        found = re.compile(shape).finditer(self._text, self._begin, self._stop)
        return [each.start() for each in found]

    def _names(self) -> list[int]:
        """Return the possible starts of names of secrets, in order."""
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
        """Yield non-overlapping matches that start at one of `begins`."""
        pattern, after = re.compile(shape), self._ends.get(shape, 0)
        for at in begins:
            if after <= at < self._end and (found := pattern.match(self._text, at)):
                after = self._ends[shape] = found.end()
                yield found

    def _matches(self, shape: str) -> Iterator[re.Match[str]]:
        """Yield the matches that start in the slice, as if the whole text were read at once."""
        pattern, at = re.compile(shape), max(self._begin, self._ends.get(shape, 0))
        # Searching lower-cased text takes half the time of a case-insensitive search.
        is_lowered = self._is_aligned and shape.startswith(IGNORING_CASE)
        searched = re.compile(_lowered(shape)) if is_lowered else pattern
        text, first = (self._lowered, self._first) if is_lowered else (self._text, 0)
        while at < self._end:
            found = searched.search(text, at - first, self._stop - first)
            if found is None or (begin := first + found.start()) >= self._end:
                return
            is_cut = first + found.end() > self._stop - REACH // 2 and self._stop < len(self._text)
            if is_lowered or is_cut:
                found = pattern.match(self._text, begin)  # it may extend past the slice
            at = self._ends[shape] = begin + 1 if found is None else found.end()
            if found is not None:
                yield found


def _lowered(shape: str) -> str:
    """Convert the case-insensitive pattern `shape` to a pattern for lower-case text."""
    return shape.replace("(?i", "(?", 1).removeprefix("(?)")


def _placed(kind: str, matches: Iterator[re.Match[str]]) -> Iterator[Find]:
    for found in matches:
        start, end = _unquoted(found, 1)
        is_reference = _is_reference(found.string[start:end]) and _is_reference(found[1])
        if start < end and not is_reference:
            yield Find(start, end, kind)


def _unquoted(found: re.Match[str], group: int) -> tuple[int, int]:
    """Return start and end of the value in `group`, without the quotation marks around it.

    A closing quotation mark counts only if nothing but punctuation follows it. A quotation mark
    before other text may be part of a password.
    """
    value = found[group].lstrip(_QUOTES)
    start = found.end(group) - len(value)
    inner = value.rstrip(_QUOTES + _AFTER_QUOTE)
    for at in range(len(inner), len(value)):
        if value[at] in _QUOTES:
            return start, start + at
    return start, start + len(value)


def without_sentence_end(value: str) -> str:
    """Return `value` without trailing punctuation that may end a sentence or a bracket."""
    return value.rstrip(_ENDS_SENTENCE) or value


def is_secret_name(name: str) -> bool:
    """Return True if a field called `name` contains a secret."""
    return re.search(_NAMED_KEY, name) is not None


def is_secret_value(value: str) -> bool:
    """Return True if `value`, in a field with a secret's name, is a secret, not a reference."""
    return len(value) >= 4 and not _is_reference(value)


def is_secret_field(name: str, value: str) -> bool:
    """Return True if the field called `name` with the value `value` contains a secret."""
    if name.lower() in ("pass", "pw"):  # the first is a verdict of a test, too
        return any(True for _ in finds(f"{name}={value}"))
    return is_secret_name(name) and is_secret_value(value)


def is_unmistakable(value: str) -> bool:
    """Return True if `value` is so specific that the same text elsewhere is the same secret."""
    has_both = any(c.isalpha() for c in value) and any(not c.isalpha() for c in value)
    return len(value) >= 16 or (len(value) >= 6 and has_both)


def is_random(value: str) -> bool:
    """Return True if `value` looks random: letters and digits, and many bits per character."""
    has_both = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return has_both and entropy_bits(value) >= ENTROPY_BITS and not _is_reference(value)


def entropy_bits(value: str) -> float:
    """Return the bits per character of `value`, from its character frequencies."""
    counts = Counter(value).values()
    return -sum(n / len(value) * math.log2(n / len(value)) for n in counts)


def _is_assigned(value: str, kind: str, *, is_marked: bool) -> bool:
    """Return True if the assigned `value` is a secret, not a name or a call in code.

    `is_marked` means that the value is quoted, or directly follows the equals sign of a password.
    """
    if not is_marked and (re.match(_WORD, value) or re.match(_CALL, value)):
        return False
    if kind == "secret" and (len(value) < 6 or re.fullmatch(_NUMBER, value)):
        return False
    return is_secret_value(value) and not _is_name(value.rstrip(").]}:;"))


def _is_name(value: str) -> bool:
    """Return True if `value` is the name of another field, such as ``user_password`` in code."""
    return re.search(_NAMED_KEY, value) is not None and not any(map(str.isdigit, value))


def _is_reference(value: str) -> bool:
    return any(re.fullmatch(shape, value) for shape in (_REFERENCE, _PLACEHOLDER_AT_END))
