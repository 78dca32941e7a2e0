"""What pi and Operator have alike, and what is ours in files of either."""

from __future__ import annotations

from perdure.session.messages import MICROCENTS_PER_DOLLAR, Usage

ROOT = "root"
"""What a branch summary names when it grows from before the root."""

OURS = "perdure."
"""What the type of a ``custom`` record of ours begins with; a kind of entry follows, or ``key``."""


def dollars(usage: Usage) -> float:
    """What `usage` cost, as both write it; 0 also where nobody knows."""
    return (usage.cost_microcents or 0) / MICROCENTS_PER_DOLLAR
