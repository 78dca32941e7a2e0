"""Names of the files that a killed repair or restore leaves in the folder of a store."""

from __future__ import annotations

from pathlib import Path

REPAIRING = "-repairing"
_RESTORING = "-restoring"


def unfinished_repair(path: Path) -> Path:
    """Return the working folder of a repair of the store at `path`."""
    return path.with_name(path.name + REPAIRING)


def unfinished_restore(path: Path) -> Path:
    """Return the path where a killed restore to `path` leaves its copy of the backup."""
    return path.with_name(path.name + _RESTORING)
