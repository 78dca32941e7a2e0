"""Check commit subjects: `area: summary` in at most 72 characters.

Run the script from any folder: `python scripts/check_commits.py [ROOT]`. The script checks every
commit after `BASE` and prints each violation as `commit: rule: subject`. If it finds a violation,
it exits with 1. Older commits are not checked. If git or `BASE` is missing (an archive, a shallow
clone), it prints the reason, skips the check and exits with 0.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

BASE = "418a0a14479dd2d852148c909d3212cfdafa9318"
"""The newest commit that was made before this check."""
SUBJECT_CHARACTERS = 72

_FORM = re.compile(r"[\w./-]+(?:, [\w./-]+)*: \S.*")


def violations(commits: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a line for each rule that one of `commits` (short id and subject) breaks."""
    for commit, subject in commits:
        if len(subject) > SUBJECT_CHARACTERS:
            size = f"{len(subject)} characters, at most {SUBJECT_CHARACTERS}"
            yield f"{commit}: commit-size: {size}: {subject}"
        if not _FORM.fullmatch(subject):
            yield f"{commit}: commit-form: expected 'area: summary': {subject}"


def commits_after(root: Path, base: str) -> list[tuple[str, str]] | str:
    """Return the short id and subject of each commit after `base`, or why they are unknown."""
    try:
        top = _git(root, "rev-parse", "--show-toplevel")
    except FileNotFoundError:
        return "git is not installed"
    if top.returncode or Path(top.stdout.strip()).resolve() != root.resolve():
        return f"{root} is not a git repository"
    if _git(root, "merge-base", "--is-ancestor", base, "HEAD").returncode:
        return f"the history does not reach back to commit {base[:8]}"
    log = _git(root, "log", "--no-merges", "--format=%h%x00%s", f"{base}..HEAD")
    log.check_returncode()
    parts = (line.partition("\0") for line in log.stdout.split("\n") if line)
    return [(commit, subject) for commit, _, subject in parts]


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run git in `root`."""
    return subprocess.run(
        ["git", "-C", str(root), *arguments],
        check=False,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )


def main(arguments: list[str], base: str = BASE) -> int:
    """Check the repository at the given root, or this one; return the exit code."""
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    commits = commits_after(root, base)
    if isinstance(commits, str):
        print(f"commit subjects not checked: {commits}")
        return 0
    found = list(violations(commits))
    for violation in found:
        print(violation)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
