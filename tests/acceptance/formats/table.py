"""The table of `docs/formats.md`: what is kept, by format.

`python -m tests.acceptance.formats.table` writes it there. Every cell is a test of `test_table.py`.
"""

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
    "what was said, by whom": ("yyyyy", "yy"),
    "where the conversation stands": ("yyyyy", "pp"),
    "reasoning that can be read": ("yyyyy", "yy"),
    "that reasoning was withheld": ("--yy-", "--"),
    "tool calls with their arguments": ("yyyyy", "yy"),
    "tool results, failures told apart": ("yyyyy", "py"),
    "several calls at once, all answered": ("yyyyy", "yy"),
    "images, as blobs": ("yyyyy", "pp"),
    "sound, as blobs": ("-y---", "-p"),
    "the model of each answer": ("yyyyy", "yp"),
    "changes of the model": ("yy-y-", "yy"),
    "changes of the thinking level": ("yy-y-", "yy"),
    "tokens used": ("yyyyy", "yy"),
    "tokens that summaries took": ("y----", "p-"),
    "what it cost": ("yy--y", "yy"),
    "how each answer ended": ("yyyyy", "py"),
    "errors of answers": ("yyy-y", "yy"),
    "branches": ("yyyy-", "pp"),
    "going back, as an entry": ("-y-y-", "py"),
    "labels": ("yy---", "yy"),
    "the title": ("yyyyy", "yy"),
    "compactions and what they keep": ("yyyyy", "yy"),
    "messages kept verbatim by a compaction": ("y--y-", "y-"),
    "summaries of branches": ("yy---", "yp"),
    "files read and modified, of summaries": ("yy---", "yy"),
    "state of extensions": ("yyy--", "yy"),
    "messages of extensions": ("yyyyy", "pp"),
    "what a gateway said of a message": ("-y---", "-y"),
    "which agent a call started": ("--y-y", "--"),
    "whatever else its source says of a message": ("y----", "p-"),
    "the session an agent belongs to": ("--yyy", "--"),
    "what its source says of the session": ("yyyyy", "pp"),
    "the working directory": ("yyyyy", "yy"),
    "times": ("yyyyy", "yy"),
    "ids that can be looked up": ("yyy-y", "pp"),
    "records beside the conversation": ("y-yyy", "p-"),
}
_WORDS = {"y": YES, "p": PARTLY, "-": NO}

BEGIN = "<!-- table: written by `python -m tests.acceptance.formats.table` -->"
END = "<!-- table end -->"
DOCUMENT: Path = REPOSITORY / "docs" / "formats.md"


def read_cell(feature: str, format: str) -> str:
    """What the table says of reading `feature` from `format`."""
    return YES if format == "perdure" else _WORDS[_CELLS[feature][0][READ.index(format)]]


def written_cell(feature: str, format: str) -> str:
    """What the table says of writing `feature` in `format`."""
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
    """`document` with the table in its place."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{rendered()}\n{END}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text("utf-8")), "utf-8")
