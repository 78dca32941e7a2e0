"""Upgrade old bodies to the newest version of their kind; stored bytes are never rewritten.

An upgrade step converts a JSON object from version n to version n + 1. Upgrade steps work on plain
dicts, because the classes of old versions no longer exist. To change a kind, raise its ``version``,
add the step to this module, and put an entry of the old version into ``tests/golden``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perdure.errors import UnsupportedVersion

Step = Callable[[dict[str, object]], dict[str, object]]
Steps = Mapping[tuple[str, int], Step]

STEPS: Steps = {}
"""(kind, source version) -> step. Empty while every kind is at version 1."""


def upgrade_body(
    kind: str, version: int, current: int, body: dict[str, object], steps: Steps = STEPS
) -> dict[str, object]:
    """Convert `body` from `version` to the version `current`.

    Raises: UnsupportedVersion if a newer perdure wrote the body, or if a step is missing.
    """
    if version > current:
        raise UnsupportedVersion(kind, version, current)
    for from_version in range(version, current):
        step = steps.get((kind, from_version))
        if step is None:
            raise UnsupportedVersion(kind, from_version, current)
        body = step(body)
    return body
