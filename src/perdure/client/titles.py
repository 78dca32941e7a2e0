"""Titles that callers give a session."""

from __future__ import annotations

from perdure.bounds.limits import require_within
from perdure.client.session_fields import require_text
from perdure.session.info import trim_title


def title_of(title: str | None) -> str | None:
    """Return `title` without space around it; None when nothing is left.

    Raises: LimitExceeded; WrongArgument for one with a NUL.
    """
    require_text("title", title)
    given = trim_title(title)
    if given is not None:
        require_within("title_characters", len(given), f"a title of {len(given):,} characters")
    return given
