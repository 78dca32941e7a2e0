"""Write plain data as YAML; equal data always gives the same bytes.

The keys of mappings are in alphabetical order, and lists keep their order. Simple text is written
without quotes. Most text with several lines is written as a block. Text that is neither simple nor
a block is written in double quotes. Long lines are never folded.
"""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Mapping
from typing import Any, cast


def yaml_of(data: Mapping[str, object]) -> str:
    """Return the JSON object `data` as YAML."""
    # Imported lazily: few commands write YAML.
    library: Any = importlib.import_module("perdure.yaml.representer")
    writer: Any = library.YAML(typ="safe", pure=True)
    writer.Representer = library.PlainRepresenter
    writer.default_flow_style = False
    writer.allow_unicode = True
    writer.width = sys.maxsize
    writer.map_indent, writer.sequence_indent, writer.sequence_dash_offset = 2, 4, 2
    written = io.StringIO()
    writer.dump(_ordered(data), written)
    return written.getvalue()


def _ordered(value: object) -> object:
    """Return a copy of `value` as dicts and lists, with the keys sorted."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        return {key: _ordered(fields[key]) for key in sorted(fields)}
    if isinstance(value, list | tuple):
        return [_ordered(item) for item in cast("list[object]", value)]
    return value
