"""Replace the placeholders of templates once. The functions are pure.

Inserted values are never scanned again, so a value stays plain text even if it looks like a
placeholder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from perdure.bounds.limits import require_within
from perdure.errors import ConfigError
from perdure.workflow.expressions import Filter, Placeholder, Template

ReadFile = Callable[[str], str]
"""Returns the text of the file at a path. Raises: ConfigError if the file cannot be read."""


class Fillings(msgspec.Struct, frozen=True):
    """The values of placeholders. `outputs` are the answers of nodes, by their ids."""

    inputs: Mapping[str, object] = {}
    context: Mapping[str, str] = {}
    outputs: Mapping[str, str] = {}
    run_id: str = ""


def fill_template(template: Template, fillings: Fillings, read_file: ReadFile) -> str:
    """Return `template` with its placeholders replaced by values of `fillings`.

    Shape: texts are inserted unchanged; all other values are inserted as JSON.
    Raises: ConfigError for a missing value, or for a value that a filter does not accept.
    """
    parts: list[str] = []
    length = 0
    for part in template.parts:
        text = part if isinstance(part, str) else text_of(_value(part, fillings, read_file))
        length += len(text)
        require_within("template_bytes", length, "a filled template")
        parts.append(text)
    return "".join(parts)


def text_of(value: object) -> str:
    """Return `value` as text: a text unchanged, any other value as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _value(placeholder: Placeholder, fillings: Fillings, read_file: ReadFile) -> object:
    value = _placeholder_value(placeholder, fillings)
    for each in placeholder.filters:
        value = _filtered(value, each, read_file)
        if isinstance(value, str):
            what = f"{placeholder.root}.{placeholder.name} after the filter {each.name}"
            require_within("template_bytes", len(value), what)
    if value is None:
        raise ConfigError(
            f"{placeholder.root}.{placeholder.name} has no value; give it one, or say "
            '`| default("...")` in the template'
        )
    return value


def _placeholder_value(placeholder: Placeholder, fillings: Fillings) -> object:
    match placeholder.root:
        case "inputs":
            return fillings.inputs.get(placeholder.name)
        case "ctx":
            return fillings.context.get(placeholder.name)
        case "run.outputs":
            return fillings.outputs.get(placeholder.name)
        case "run.id":
            return fillings.run_id


def _filtered(value: object, each: Filter, read_file: ReadFile) -> object:
    if each.name == "default":
        return each.argument if value is None else value
    if value is None:
        return None
    match each.name:
        case "json":
            return msgspec.json.encode(value).decode()
        case "length":
            return len(text_of(value))
        case "read_file":
            return read_file(text_of(value))
