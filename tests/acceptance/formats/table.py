"""The table of `docs/formats.md`: the data that each format keeps.

`python -m tests.acceptance.formats.table` writes the table into `docs/formats.md`. Every cell is a
test of `test_table.py`."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.formats.features import FEATURES
from tests.conftest import REPOSITORY

READ = ("pi", "operator", "claude-code", "codex", "opencode", "perdure")
WRITTEN = ("pi", "operator", "perdure")
TITLES = {
    "pi": "pi",
    "operator": "Operator",
    "claude-code": "Claude Code",
    "codex": "Codex",
    "opencode": "opencode",
    "perdure": "perdure",
}

YES, PARTLY, NO = "yes", "partly", "no"

_CELLS: dict[str, tuple[str, str]] = {
    # feature: (read from pi, Operator, Claude Code, Codex, opencode; written to pi, Operator)
    "messages and their roles": ("yyyyy", "yy"),
    "the current leaf": ("yyyyy", "pp"),
    "readable reasoning": ("yyyyy", "yy"),
    "a mark for withheld reasoning": ("--yy-", "--"),
    "tool calls with their arguments": ("yyyyy", "yy"),
    "tool results, with failures marked": ("yyyyy", "py"),
    "several calls in one answer, each with its result": ("yyyyy", "yy"),
    "images": ("yyyyy", "pp"),
    "audio": ("-y---", "-p"),
    "the model of each answer": ("yyyyy", "yp"),
    "model changes": ("yy-y-", "yy"),
    "thinking level changes": ("yy-y-", "yy"),
    "tokens used": ("yyyyy", "yy"),
    "tokens used by summaries": ("y----", "p-"),
    "cost": ("yy--y", "yy"),
    "stop reasons": ("yyyyy", "py"),
    "errors of failed answers": ("yyy-y", "yy"),
    "branches": ("yyyy-", "pp"),
    "navigation entries (a moved leaf)": ("-y-y-", "py"),
    "labels": ("yy---", "yy"),
    "title": ("yyyyy", "yy"),
    "compactions and the entries they keep": ("yyyyy", "yy"),
    "messages that a compaction retains verbatim": ("y--y-", "y-"),
    "branch summaries": ("yy---", "yp"),
    "files read and modified, in summaries": ("yy---", "yy"),
    "extension state": ("yyy--", "yy"),
    "extension messages": ("yyyyy", "pp"),
    "gateway data of a message": ("-y---", "-y"),
    "the agent that a call started": ("--y-y", "--"),
    "other fields of a message": ("y----", "p-"),
    "the parent session of a subagent": ("--yyy", "--"),
    "other fields of the session": ("yyyyy", "pp"),
    "working directory": ("yyyyy", "yy"),
    "timestamps": ("yyyyy", "yy"),
    "foreign ids, for lookup": ("yyy-y", "pp"),
    "records outside the conversation": ("y-yyy", "p-"),
}
_WORDS = {"y": YES, "p": PARTLY, "-": NO}

BEGIN = "<!-- table: written by `python -m tests.acceptance.formats.table` -->"
END = "<!-- table end -->"
DOCUMENT: Path = REPOSITORY / "docs" / "formats.md"


def read_cell(feature: str, format: str) -> str:
    """The table's text about reading `feature` from `format`."""
    return YES if format == "perdure" else _WORDS[_CELLS[feature][0][READ.index(format)]]


def written_cell(feature: str, format: str) -> str:
    """The table's text about writing `feature` in `format`."""
    return YES if format == "perdure" else _WORDS[_CELLS[feature][1][WRITTEN.index(format)]]


def rendered() -> str:
    """The table, in Markdown."""
    heads = [
        *(f"from {TITLES[name]}" for name in READ),
        *(f"to {TITLES[name]}" for name in WRITTEN),
    ]
    lines = ["| What is kept | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for feature in FEATURES:
        cells = [read_cell(feature, name) for name in READ]
        cells += [written_cell(feature, name) for name in WRITTEN]
        lines.append(f"| {feature} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def with_table(document: str) -> str:
    """`document` with the table in its position."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{rendered()}\n{END}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text("utf-8")), "utf-8")
