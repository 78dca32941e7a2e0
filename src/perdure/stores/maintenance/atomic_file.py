"""Create files atomically without replacing existing ones."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


def write_new(file: Path, text: str) -> bool:
    """Create `file` with `text`; return False and change nothing if it exists.

    The new file appears complete; a killed process leaves no partial file under the name.
    Raises: OSError.
    """
    if file.exists():
        return False
    draft = file.with_name(f".{file.name}.{os.getpid()}.new")
    try:
        draft.write_text(text, "utf-8")
        return _is_named(draft, file)
    finally:
        draft.unlink(missing_ok=True)


def _is_named(draft: Path, file: Path) -> bool:
    """Create `file` as a hard link to `draft`; return False if `file` exists."""
    try:
        os.link(draft, file)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        draft.replace(file)  # without hard links, a file created meanwhile is replaced
    return True
