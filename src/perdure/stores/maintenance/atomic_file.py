"""A file that is there whole or not at all, and only where there was none."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


def write_new(file: Path, text: str) -> bool:
    """Write `text` into the new file `file`; False where there is one, which stays as it is.

    Nobody sees half of it, nor is that left by a process that is killed.
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
    """Give `draft` the name `file` too, unless something has it."""
    try:
        os.link(draft, file)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        draft.replace(file)  # where files have one name only, one that is written now is replaced
    return True
