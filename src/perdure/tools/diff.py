"""Create a unified diff of two texts with a single hunk, in linear time for any texts."""

from __future__ import annotations

CONTEXT_LINES = 3
MAX_LINES = 200
MAX_LENGTH = 8000


def diff_of(before: str, after: str, *, is_whole: bool = False) -> str:
    """Return the change from `before` to `after` as one hunk, from the first to the last change.

    A long diff is cut unless `is_whole` is True; the last line of a cut diff says so. Returns "" if
    both texts are equal.
    """
    if before == after:
        return ""
    old, new = _lines(before), _lines(after)
    start = _shared(old, new)
    end = _shared(old[start:][::-1], new[start:][::-1])
    old_end, new_end = len(old) - end, len(new) - end
    above = old[max(start - CONTEXT_LINES, 0) : start]
    below = old[old_end : old_end + CONTEXT_LINES]
    first = start - len(above) + 1
    counts = (len(above) + n + len(below) for n in (old_end - start, new_end - start))
    lines = [
        "@@ -{0},{1} +{0},{2} @@".format(first, *counts),
        *(f" {line}" for line in above),
        *(f"-{line}" for line in old[start:old_end]),
        *(f"+{line}" for line in new[start:new_end]),
        *(f" {line}" for line in below),
    ]
    return "\n".join(lines) if is_whole else _cut(lines)


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if not lines[-1]:
        return lines[:-1]
    return [*lines[:-1], f"{lines[-1]}\n\\ No newline at end of file"]


def _shared(left: list[str], right: list[str]) -> int:
    """Return the number of lines that `left` and `right` have in common at their start."""
    for n, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return n
    return min(len(left), len(right))


def _cut(lines: list[str]) -> str:
    text = "\n".join(lines[:MAX_LINES])
    if len(lines) <= MAX_LINES and len(text) <= MAX_LENGTH:
        return text
    shown = text[:MAX_LENGTH]
    return f"{shown}\n[the diff is cut here: {len(lines)} lines in all]"
