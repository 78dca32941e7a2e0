"""Comments of a Python file that silence a tool without a reason, or for a whole file."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from typing import NamedTuple

# A comment that silences a tool. A reason is two or more words after the comment and its codes.
SUPPRESSION = re.compile(
    r"""\#\s*(?:
        noqa\b(?:\s*:\s*[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*)?
      | type:\s*ignore\b(?:\[[^\]]*\])?
      | py(?:right|refly):\s*ignore\b(?:\[[^\]]*\])?
    )""",
    re.VERBOSE | re.IGNORECASE,
)
FILE_WIDE_SUPPRESSION = re.compile(
    r"#\s*(?:ruff:\s*noqa|flake8:\s*noqa|pyrefly:\s*ignore-errors|pyright:(?!\s*(?:ignore\b|strict\s*$)))"
)
REASON = re.compile(r"[A-Za-z][\w'`.-]*\W+[\w'`]")


class Unexplained(NamedTuple):
    """A comment that silences a tool without a reason, or for a whole file (even with a reason)."""

    line: int
    comment: str
    is_file_wide: bool


def unexplained(text: str) -> Iterator[Unexplained]:
    """Yield the comments of a file that are `Unexplained`, up to the first invalid Python."""
    if not any(_may_be_unexplained(line) for line in text.split("\n") if "#" in line):
        return  # to find the comments of all files would take as long as all other rules
    for line, comment in _comments(text):
        silenced = SUPPRESSION.search(comment)
        if FILE_WIDE_SUPPRESSION.search(comment):
            yield Unexplained(line, comment, is_file_wide=True)
        elif silenced and not _has_reason(comment[silenced.start() :]):
            yield Unexplained(line, comment, is_file_wide=False)


def _may_be_unexplained(line: str) -> bool:
    """Return whether the line may contain an unexplained comment, judged by its text alone."""
    return FILE_WIDE_SUPPRESSION.search(line) is not None or any(
        not _has_reason(line[found.start() :]) for found in SUPPRESSION.finditer(line)
    )


def _has_reason(suppression: str) -> bool:
    return REASON.search(SUPPRESSION.sub("", suppression)) is not None


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and text of each comment."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    except (tokenize.TokenError, SyntaxError):
        return  # the rule of syntax says so, or ruff
