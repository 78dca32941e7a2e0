"""Values as plain JSON data in the form of events: camelCase names, unset fields omitted.

Only field names of perdure's values are renamed. Outside data (arguments of a tool, metadata, parts
of unknown types) is returned unchanged.
"""

from __future__ import annotations

from functools import cache
from typing import cast

import msgspec

from perdure.session.messages import UnknownPart


def plain(value: object) -> object:
    """Return `value` as JSON data.

    Shape: a struct becomes an object. Unset fields are omitted; optional fields are also omitted if
    they are None.
    """
    if isinstance(value, UnknownPart):
        return plain(value.raw)
    if isinstance(value, msgspec.Struct):
        return fields_of(value)
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value)
    if isinstance(value, tuple | list):
        return [plain(item) for item in cast("tuple[object, ...] | list[object]", value)]
    return value


def fields_of(value: msgspec.Struct) -> dict[str, object]:
    """Return the fields of `value` as JSON data; if its class has a tag, ``type`` comes first."""
    data: dict[str, object] = {}
    config = value.__struct_config__
    if config.tag is not None:
        data[config.tag_field or "type"] = config.tag
    for name, written, is_required in _names_of(type(value)):
        content = getattr(value, name)
        if content is msgspec.UNSET or (content is None and not is_required):
            continue
        data[written] = plain(content)
    return data


@cache
def _names_of(kind: type[msgspec.Struct]) -> tuple[tuple[str, str, bool], ...]:
    """Return, for each field of `kind`, its name, its name in JSON, and whether it is required.

    The result is cached, because `msgspec.structs.fields` evaluates every annotation of the class
    again.
    """
    fields = msgspec.structs.fields(kind)
    return tuple((field.name, camel(field.name), field.required) for field in fields)


def camel(name: str) -> str:
    """Convert `name` from snake_case to camelCase."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
