"""Formats a question for approval: all arguments, facts about the call, and what "always" allows.

Each line of model text begins with a bar, so that the text cannot imitate a line of perdure.
Invisible characters are shown as numbers, and words that contain look-alike letters are reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import cast

from perdure.secrets.mask import MASK
from perdure.session.notes import Question
from perdure.session.printable import reveal
from perdure.tools.diff import diff_of

_words = re.compile(r"[^\W\d_]+")
_alike = re.compile(
    "[\u0131\u0251-\u02af\u0370-\u058f\u13a0-\u13ff\u1d00-\u1d7f\uab30-\uabbf\uff21-\uff5a"
    "\U0001d400-\U0001d7ff]"
)
"""Letters that can look like plain Latin letters: Greek, Cyrillic, others, and special forms."""

BAR = "    | "
MORE = "    ["
"""The beginning of the line that counts the omitted lines."""

FEW_LINES = 12


def approval_lines(asked: Question, *, limit: int | None = FEW_LINES) -> Iterator[str]:
    """Format the question `asked`, with at most `limit` lines for each argument and for the diff.

    With `limit` None, nothing is left out: hashes are complete, and texts are shown that also occur
    in the diff.
    """
    arguments, bound, diff = asked.arguments or {}, asked.bound or {}, asked.diff or ""
    for name, value in arguments.items():
        if limit is None or not _is_repeated(value, diff):
            yield from _argument(name, value, limit)
    told = [_plain(str(value)) for value in arguments.values()] + [diff]
    if limit is not None and any(MASK in text for text in told):
        yield f"  {MASK}: hidden, as it looks like a credential. See all of it before you allow it."
    for word in dict.fromkeys(_mixed_script_word(text) for text in told):
        yield from () if not word else (f"  Letters of several scripts, which look alike: {word}",)
    facts = {name: text for name, text in bound.items() if arguments.get(name) != text}
    if limit is not None:
        facts = {
            name: short_hashes(text)
            for name, text in facts.items()
            if name not in _HASHED or not _only_hash.fullmatch(text)
        }
    if facts:
        yield "  Your answer is valid only while this does not change:"
    for name, text in facts.items():
        yield f"    {_plain(name)}: {_plain(text)}"
    if diff:
        yield "  change:"
        yield from _block(diff, limit)
    if asked.grant and "always" in asked.choices:
        grant = asked.grant if limit is None else short_hashes(asked.grant)
        yield f"  always: allow in this session without asking: {_plain(grant)}"


def past_call_lines(arguments: Mapping[str, object]) -> Iterator[str]:
    """Return all `arguments` of a past call as lines; an edit of a text is shown as a diff.

    If the call is no edit and no argument has several lines, the result is empty, because one line
    of JSON is enough to show the call.
    """
    changes = _changes(arguments)
    if not any(diff for _, diff in changes) and not any(
        isinstance(value, str) and "\n" in value for each, _ in changes for value in each.values()
    ):
        return
    for others, diff in changes:
        for name, value in others.items():
            yield from _argument(name, value, None)
        if diff:
            yield "  change:"
            yield from _block(diff, None)


_BEFORE_AND_AFTER = (
    ("old_text", "new_text"),
    ("old_string", "new_string"),
    ("oldText", "newText"),
    ("oldString", "newString"),
)
"""The arguments of an edit, as perdure, Claude Code, pi and opencode spell them."""


def _changes(arguments: Mapping[str, object]) -> list[tuple[Mapping[str, object], str]]:
    """For each change in a call, return the arguments that are not in its diff, and the diff."""
    several = arguments.get("edits")
    listed = cast("list[object]", several) if isinstance(several, list) else []
    parts = [_change(cast("Mapping[str, object]", x)) for x in listed if isinstance(x, Mapping)]
    if len(parts) < len(listed) or not any(diff for _, diff in parts):
        return [_change(arguments)]
    shared = {name: value for name, value in arguments.items() if name != "edits"}
    return [_change(shared), *parts]


def _change(arguments: Mapping[str, object]) -> tuple[Mapping[str, object], str]:
    """Return the arguments that are not in the diff of an edit, and the diff, which can be ""."""
    for names in _BEFORE_AND_AFTER:
        old, new = map(arguments.get, names)
        if not isinstance(old, str) or not isinstance(new, str):
            continue
        if old and new and old.endswith("\n") != new.endswith("\n"):
            continue  # a diff of lines does not show this
        # without its first line: the line numbers are not those of the file
        diff = diff_of(_ended(old), _ended(new), is_whole=True).partition("\n")[2]
        if diff:
            others = {name: value for name, value in arguments.items() if name not in names}
            return others, diff
    return arguments, ""


def _ended(text: str) -> str:
    return f"{text}\n" if text and not text.endswith("\n") else text


def short_hashes(text: str) -> str:
    """Return `text` with hashes shortened to their first digits, and without a folder's inode."""
    return _inode.sub("", _hash.sub(r"\1\2…", text))


_hash = re.compile(r"(blake2b-256 )([0-9a-f]{8})[0-9a-f]{56}\b")
_only_hash = re.compile(r"(\d+ bytes, blake2b-256 )?[0-9a-f]{64}")
_inode = re.compile(r" \(inode \d+\)$")

_HASHED = frozenset({"content", "after", "permissions"})
"""A shortened question omits these facts if their value is only a hash."""


def _is_repeated(value: object, diff: str) -> bool:
    """Whether `value` is a text of several lines, all of which also occur in `diff`."""
    if not isinstance(value, str) or "\n" not in value:
        return False
    shown = {line[1:] for line in diff.split("\n")}
    return all(line in shown for line in value.removesuffix("\n").split("\n"))


def _argument(name: str, value: object, limit: int | None) -> Iterator[str]:
    label = f"  {_plain(name)}"
    if isinstance(value, dict) and set(cast("dict[str, object]", value)) == _CUT:
        cut = cast("dict[str, object]", value)
        size = f"{cut['bytes']} bytes, blake2b-256 {_plain(str(cut['blake2b_256']))}"
        yield f"{label}: {size if limit is None else short_hashes(size)}, begins:"
        yield from _block(str(cut["head"]), limit)
        return
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if "\n" not in text:
        yield f"{label} = {_plain(text) if text else '(empty)'}"
        return
    yield f"{label}:"
    yield from _block(text, limit)


_CUT = {"head", "bytes", "blake2b_256"}


def _block(text: str, limit: int | None) -> Iterator[str]:
    lines = text.split("\n")
    is_whole = limit is None or len(lines) <= limit + 1  # the rest needs a row, too
    shown = lines if is_whole else lines[:limit]
    for line in shown:
        yield BAR + reveal(line)
    if len(shown) < len(lines):
        yield f"{MORE}{len(lines) - len(shown)} more lines]"


def _plain(text: str) -> str:
    """Return `text` as a single line."""
    return reveal(text).replace("\n", "<U+000A>").replace("\t", "<U+0009>")


def _mixed_script_word(text: str) -> str:
    """Return the first word in `text` that mixes Latin letters with look-alike letters."""
    for word in _words.findall(text) if not text.isascii() else ():
        if any(c.isascii() for c in word) and any(_alike.match(c) for c in word):
            numbers = ", ".join(dict.fromkeys(f"U+{ord(c):04X}" for c in word if not c.isascii()))
            return f"{word} ({numbers})"
    return ""
