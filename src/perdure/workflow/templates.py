"""Text that goes into a template without being one."""

from __future__ import annotations

import re

_OPENER = re.compile(r"\{(?=\{)")


def neutralised(text: str) -> str:
    """`text` with a space after every ``{`` that another one follows: nothing in it is filled in.

    Shape: what is neutralised already stays as it is.
    """
    return _OPENER.sub("{ ", text)
