"""Convert a function's signature to a JSON Schema, and a model's arguments to Python values.

The schemas use the part of draft 2020-12 that OpenAI, Anthropic and Google all accept. The schemas
contain no references and no formats. Except for free-form objects, an object accepts only its
declared fields. Every ``enum`` has a type. Unsupported annotations are rejected when the tool is
declared, not when it is called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

import msgspec

from perdure.errors import InvalidArguments
from perdure.secrets.mask import mask_secrets
from perdure.tools.docstring import parse_docstring
from perdure.tools.spec import ToolCall

CALL = "call"
"""The parameter that receives the `ToolCall` instead of an argument of the model."""

Schema = dict[str, Any]

_KEPT = frozenset(
    (
        *("type", "enum", "anyOf", "description"),
        *("properties", "required", "additionalProperties"),
        *("items", "minItems", "maxItems"),
        *("minimum", "maximum", "minLength", "maxLength", "pattern"),
    )
)
_LEFT_OUT = frozenset(
    (
        *("title", "discriminator", "uniqueItems", "examples", "default", "$defs"),
        *("deprecated", "readOnly", "writeOnly"),
    )
)
_CHECKED = {
    "format": "format: ",
    "exclusiveMinimum": "> ",
    "exclusiveMaximum": "< ",
    "multipleOf": "a multiple of ",
}
"""Maps pydantic keywords that providers reject to the words that a description gets instead."""

_WRONG_SHOWN = 8
"""Maximum number of wrong arguments that an error lists."""

_WRONG_CHARACTERS = 1000
"""Maximum number of characters that an error has for one wrong argument."""

_TYPE_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


class Parameters(msgspec.Struct, frozen=True):
    """The parameters of a tool.

    Shape: `schema` has the type object. The arguments of a call are decoded to the class
    `arguments`. In an object of this class, a missing argument is `msgspec.UNSET`, so that the
    default of the function applies. `takes_call` means that the function has the parameter
    ``call``.
    """

    schema: Mapping[str, object]
    arguments: type[msgspec.Struct]
    takes_call: bool


def parameters_of(function: Callable[..., object]) -> Parameters:
    """Return the parameters of `function`, from its annotations, defaults and docstring.

    Raises: TypeError if a parameter has no schema; the error names the function and the parameter.
    """
    about = parse_docstring(function).parameters
    properties: Schema = {}
    required: list[str] = []
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    takes_call = False
    for parameter in inspect.signature(function).parameters.values():
        annotation = _annotation_of(function, parameter)
        if parameter.name == CALL and annotation is ToolCall:
            takes_call = True
            continue
        description = _note_of(annotation) or about.get(parameter.name, "")
        if _is_of_pydantic(parameter.default):
            raise _refusal(function, parameter, _not_applied(parameter.default))
        try:
            schema = schema_of(annotation)
        except TypeError as error:
            raise _refusal(function, parameter, str(error)) from error
        properties[parameter.name] = _with_notes(schema, description, parameter.default)
        if parameter.default is parameter.empty:
            required.append(parameter.name)
            fields.append((parameter.name, annotation))
        else:
            optional = annotation | msgspec.UnsetType
            fields.append((parameter.name, optional, msgspec.UNSET))
    return Parameters(
        _object(properties, required),
        msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True),
        takes_call,
    )


def arguments_of(
    tool: str, parameters: Parameters, args: Mapping[str, object]
) -> dict[str, object]:
    """Check `args`, convert them to the types of the function's annotations, and return them.

    Raises: InvalidArguments with a message that helps a model to correct its call.
    """
    try:
        found = msgspec.convert(
            dict(args), parameters.arguments, str_keys=True, dec_hook=_foreign_value
        )
    except msgspec.ValidationError as error:
        known = ", ".join(parameters.arguments.__struct_fields__) or "none"
        wrong = _wrong_arguments(parameters, args) or [where_first(str(error))]
        more = f"; and {len(wrong) - _WRONG_SHOWN} more" if len(wrong) > _WRONG_SHOWN else ""
        shown = "; ".join(mask_secrets(each)[:_WRONG_CHARACTERS] for each in wrong[:_WRONG_SHOWN])
        raise InvalidArguments(tool, f"{shown}{more} (its parameters: {known})") from error
    given = {name: getattr(found, name) for name in found.__struct_fields__}
    return {name: value for name, value in given.items() if value is not msgspec.UNSET}


def _wrong_arguments(parameters: Parameters, args: Mapping[str, object]) -> list[str]:
    """Return the problems of all wrong arguments in `args`; msgspec itself stops at the first."""
    wrong: list[str] = []
    for field in msgspec.structs.fields(parameters.arguments):
        alone = msgspec.defstruct("Arguments", [_of_field(field)], kw_only=True)
        given = {field.name: args[field.name]} if field.name in args else {}
        try:
            msgspec.convert(given, alone, str_keys=True, dec_hook=_foreign_value)
        except msgspec.ValidationError as error:
            wrong.append(where_first(str(error)))
    known = parameters.arguments.__struct_fields__
    return wrong + [f"contains unknown field `{name}`" for name in args if name not in known]


def _of_field(field: msgspec.structs.FieldInfo) -> tuple[str, Any] | tuple[str, Any, Any]:
    return (field.name, field.type) if field.required else (field.name, field.type, msgspec.UNSET)


def where_first(message: str) -> str:
    """Return msgspec's error `message` with the position first: ``items[0].name: expected ...``."""
    what, at, place = message.rpartition(" - at `$")
    what, place = (what, place.removeprefix(".").removesuffix("`")) if at else (message, "")
    what = what.removeprefix("Object ")
    return f"{place}: {what[:1].lower()}{what[1:]}" if place else what


# ---------------------------------------------------------------- models of pydantic


def is_pydantic(of: Any) -> bool:
    """Return whether `of` is a pydantic model; perdure does not import pydantic for this check."""
    return isinstance(of, type) and callable(getattr(cast("Any", of), "model_json_schema", None))


def pydantic_schema(of: Any) -> Schema:
    """Return the portable schema of a pydantic model.

    Raises: TypeError if the model has no portable schema.
    """
    return portable_schema(_relaxed(of.model_json_schema()), of.__name__)


def pydantic_reason(error: ValueError) -> str:
    """Return the message of pydantic's `error` without links.

    Each problem in the message begins with its place.
    """
    found: Any = error
    if not callable(getattr(found, "errors", None)):
        return str(error)
    each = [(".".join(map(str, one["loc"])), one["msg"]) for one in found.errors()]
    return "; ".join(f"{place}: {said}" if place else said for place, said in each)


def json_of(value: object) -> bytes:
    """Return `value` as JSON; pydantic models use their own JSON form.

    Raises: TypeError or ValueError if `value` has no JSON form.
    """
    return msgspec.json.encode(value, enc_hook=_foreign_data)


def fields_or_text(value: object) -> object:
    """Return all fields of a pydantic model, even those that its own JSON form and repr omit.

    Shape: if `value` is not a pydantic model, the result is ``str(value)``.
    """
    if is_pydantic(type(value)):
        extra: dict[str, object] | None = cast("Any", value).model_extra
        return {**vars(value), **(extra or {})}
    return str(value)


def _foreign_schema(of: type) -> Schema:
    if not is_pydantic(of):
        raise NotImplementedError
    return pydantic_schema(of)


def _relaxed(node: Schema) -> Schema:
    """Return `node`, a schema from pydantic, without the keywords that providers reject.

    The description states the removed constraints. The pydantic model still checks the removed
    constraints.
    """
    found: Schema = {}
    notes: list[str] = []
    for key, value in node.items():
        if key in ("properties", "$defs"):
            found[key] = {name: _relaxed(below) for name, below in value.items()}
        elif key in ("anyOf", "oneOf", "prefixItems"):
            found["anyOf" if key == "oneOf" else key] = [_relaxed(below) for below in value]
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            found[key] = _relaxed(cast("Schema", value))
        elif key == "const":
            found["enum"] = [value]
        elif key in _CHECKED:
            notes.append(f"{_CHECKED[key]}{value}")
        else:
            found[key] = value
    if notes:
        told = [found["description"]] if "description" in found else []
        found["description"] = " ".join([*told, f"({', '.join(notes)})"])
    return found


def _require_no_pydantic(annotation: Any) -> None:
    """Raise TypeError for pydantic declarations outside of a pydantic model.

    Without the TypeError, msgspec would ignore declarations of pydantic outside of a pydantic
    model.
    """
    rest: list[Any] = [annotation]
    seen: list[Any] = []
    while rest:
        of = rest.pop()
        if is_pydantic(of) or any(of is each for each in seen):
            continue
        seen.append(of)
        found = list(of.__metadata__) if get_origin(of) is Annotated else []
        if isinstance(of, type):
            fields: Mapping[str, Any] = getattr(of, "__dataclass_fields__", {})
            found = [of, *(each.default for each in fields.values())]
            rest += get_type_hints(of, include_extras=True).values()
        for each in found:
            if _is_of_pydantic(each):
                raise TypeError(_not_applied(each))
        rest += [*get_args(of), get_origin(of), getattr(of, "__value__", None)]  # of an alias


def _is_of_pydantic(value: Any) -> bool:
    """Return whether `value` is a pydantic dataclass, or an annotation such as ``Field(ge=1)``."""
    if isinstance(value, type):
        return "__is_pydantic_dataclass__" in vars(value)
    return type(value).__module__.partition(".")[0] in ("pydantic", "annotated_types")


def _not_applied(found: Any) -> str:
    if isinstance(found, type):
        return f"{found.__name__}, a dataclass of pydantic, is not checked: use a BaseModel"
    name = type(found).__name__.removesuffix("Info")
    return (
        f"{name} of pydantic applies only in a BaseModel: use one, or write limits and the "
        'description as Annotated[int, msgspec.Meta(ge=1, description="...")]'
    )


def _foreign_value(of: type, value: object) -> object:
    try:
        return cast("Any", of).model_validate_json(msgspec.json.encode(value))
    except ValueError as error:
        raise ValueError(pydantic_reason(error)) from error


def _foreign_data(value: object) -> object:
    if is_pydantic(type(value)):
        return cast("Any", value).model_dump(mode="json", by_alias=True)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


# ---------------------------------------------------------------- annotations


def _annotation_of(function: Callable[..., object], parameter: inspect.Parameter) -> Any:
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise _refusal(function, parameter, "arguments are given by name, each to one parameter")
    if parameter.annotation is parameter.empty:
        raise _refusal(function, parameter, "it has no annotation")
    # A class per annotation: only annotations of an object are resolved, and this way an unresolved
    # name points to its parameter.
    holder = type("Holder", (), {"__annotations__": {parameter.name: parameter.annotation}})
    names = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        hints = get_type_hints(holder, globalns=names, include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        reason = f"{error} (annotations are looked up in the function's module)"
        raise _refusal(function, parameter, reason) from error
    annotation = hints[parameter.name]
    if annotation is ToolCall and parameter.name != CALL:
        raise _refusal(function, parameter, f"a parameter for the ToolCall is named {CALL!r}")
    return annotation


def _note_of(annotation: Any) -> str:
    """Return the texts in the annotation ``Annotated[...]``, as the description."""
    if get_origin(annotation) is not Annotated:
        return ""
    return " ".join(note for note in get_args(annotation)[1:] if isinstance(note, str))


def _refusal(
    function: Callable[..., object], parameter: inspect.Parameter, reason: str
) -> TypeError:
    name = getattr(function, "__qualname__", repr(function))
    return TypeError(f"{name}() cannot be a tool: parameter {parameter.name!r}: {reason}")


# ---------------------------------------------------------------- schemas


def schema_of(annotation: Any) -> Schema:
    """Return the portable schema of one annotation.

    Raises: TypeError if no schema exists.
    """
    try:
        msgspec.json.Decoder(annotation)
        _require_no_pydantic(annotation)
        schema = msgspec.json.schema(annotation, schema_hook=_foreign_schema)
    except (TypeError, NameError) as error:
        reason = str(error).strip().splitlines()[-1]  # the lines above are for users of msgspec
        raise TypeError(f"{annotation!r} cannot be described to a model: {reason}") from error
    return portable_schema(schema)


def portable_schema(schema: Schema, name: str = "") -> Schema:
    """Return `schema`, using only the part of JSON Schema that all providers accept.

    Raises: TypeError if `schema` has no form that all providers accept; the error names the path of
    the field, which begins with `name`.
    """
    return _portable(schema, _Place(schema.get("$defs", {}), name))


class _Place(msgspec.Struct, frozen=True):
    """The location of a schema: the `path` of its field, such as ``Order.lines[].price``.

    `inside` are the definitions that contain the schema. A schema that refers to one of the
    definitions in `inside` would lead to infinite recursion.
    """

    definitions: Mapping[str, Schema]
    path: str
    inside: tuple[str, ...] = ()

    def below(self, step: str) -> _Place:
        """Return the location of `step` (a field or the items) in a schema at this location."""
        return msgspec.structs.replace(self, path=f"{self.path}{step}".removeprefix("."))

    def within(self, definition: str) -> _Place:
        """Return the location of the `definition` to which a schema at this location refers."""
        return msgspec.structs.replace(self, inside=(*self.inside, definition))

    def refusal(self, reason: str) -> TypeError:
        """Return the error for a schema at this location."""
        return TypeError(f"{self.path}: {reason}" if self.path else reason)


def _portable(node: Schema, at: _Place) -> Schema:
    """Return `node` with its references resolved, and without keywords that a provider rejects."""
    if "$ref" in node:
        name = str(node["$ref"]).removeprefix("#/$defs/")
        if name in at.inside:
            raise at.refusal(
                f"{name} contains itself, which a schema without references cannot say"
            )
        rest = {key: value for key, value in node.items() if key != "$ref"}
        return _portable({**at.definitions[name], **rest}, at.within(name))
    if node.get("type") == "array":
        node = _one_item_type(node, at)
    if "enum" in node:
        node = _typed_enum(node)
    if refused := node.keys() - _KEPT - _LEFT_OUT:
        named = ", ".join(sorted(refused))
        raise at.refusal(f"its schema needs {named}, which not every provider accepts: use str")
    result = {
        key: _portable_below(key, value, at) for key, value in node.items() if key not in _LEFT_OUT
    }
    if not result.keys() & {"type", "anyOf"}:
        raise at.refusal("say what type of value it takes")
    if "properties" in result:
        result = {**_object(result.pop("properties"), result.pop("required", [])), **result}
    return _with_notes(result, "", node.get("default"))


def _portable_below(key: str, value: Any, at: _Place) -> Any:
    """Return the value of `key` in a schema, with the nested schemas made portable."""
    if key == "properties":
        return {name: _portable(below, at.below(f".{name}")) for name, below in value.items()}
    if key == "anyOf":
        return [_portable(choice, at) for choice in value]
    if key in ("items", "additionalProperties") and isinstance(value, dict):
        return _portable(cast("Schema", value), at.below("[]" if key == "items" else ".*"))
    return value


def _one_item_type(node: Schema, at: _Place) -> Schema:
    """Convert the schema of a tuple to an array whose items have any of the tuple's types."""
    if "prefixItems" in node:
        choices: list[Schema] = []
        for choice in node["prefixItems"]:
            if choice not in choices:
                choices.append(choice)
        node = {key: value for key, value in node.items() if key != "prefixItems"}
        node["items"] = choices[0] if len(choices) == 1 else {"anyOf": choices}
    if "items" not in node:
        raise at.refusal("say what type its items have")
    return node


def _typed_enum(node: Schema) -> Schema:
    """Return the enum `node` with its values' type; mixed types become a choice of enums."""
    rest = {key: value for key, value in node.items() if key != "enum"}
    by_type: dict[str, list[object]] = {}
    for value in node["enum"]:
        by_type.setdefault(_TYPE_NAMES[type(value)], []).append(value)
    choices = [{"type": name, "enum": values} for name, values in by_type.items()]
    return {**choices[0], **rest} if len(choices) == 1 else {"anyOf": choices, **rest}


def _object(properties: Schema, required: list[str]) -> Schema:
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def _with_notes(schema: Schema, description: str, default: object) -> Schema:
    """Return `schema` with `description`, which also states the `default`.

    The key ``default`` is not used, because it is not portable.
    """
    text = description or str(schema.get("description", ""))
    if default is not None and default is not inspect.Parameter.empty:
        try:
            shown = json_of(default).decode()
        except (TypeError, ValueError):
            shown = ""  # a default that is not JSON means nothing to a model
        if shown:
            text = f"{text} Default: {shown}." if text else f"Default: {shown}."
    return {**schema, "description": text} if text else schema
