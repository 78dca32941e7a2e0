"""What came out of a workflow document, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import safe
from perdure.session.flows.run import FlowState


def output_lines(outputs: Mapping[str, object], style: Style) -> Iterator[str]:
    """`outputs` as they stand, each below its name."""
    for name, value in outputs.items():
        yield ""
        yield style.paint(safe(name), "strong")
        text = value if isinstance(value, str) else _json(value)
        yield from (safe(line) for line in text.rstrip().split("\n"))


def output_data(state: FlowState, outputs: Mapping[str, object]) -> dict[str, object]:
    """The same as a field of what a program is told; none for a flow of roles."""
    return {} if state.document is None else {"outputs": dict(outputs)}


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value)).decode()
