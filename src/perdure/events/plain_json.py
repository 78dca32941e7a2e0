"""Values as plain JSON data, as events spell it: camelCase names, nothing for what is unset.

Only field names of our own values are respelled. What came from outside (arguments of a tool,
metadata, parts of unknown types) is passed on as it is.
"""

from __future__ import annotations

from typing import cast

import msgspec

from perdure.session.messages import UnknownPart


def plain(value: object) -> object:
    """`value` as JSON data.

    Shape: a value of ours is an object; its fields that are None or unset by default are left out.
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
    """The fields of `value` as JSON data, preceded by its ``type`` if it is one of several."""
    data: dict[str, object] = {}
    config = value.__struct_config__
    if config.tag is not None:
        data[config.tag_field or "type"] = config.tag
    for field in msgspec.structs.fields(type(value)):
        content = getattr(value, field.name)
        if content is msgspec.UNSET or (content is None and not field.required):
            continue
        data[camel(field.name)] = plain(content)
    return data


def camel(name: str) -> str:
    """`name`, written snake_case, in camelCase."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
