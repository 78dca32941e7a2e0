"""Documents generated from the published schemas: accepted if and only if they match.

`UNSAID` lists what a schema cannot express: rules about the text of commands, hosts, addresses and
times, and settings that contradict each other.
"""

from __future__ import annotations

import importlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from perdure.apps.settings.layers import Configuration
from perdure.client.agents.files.reader import agent_of_text
from perdure.errors import ConfigError, FormatError
from perdure.workflow.reader import parse
from perdure.yaml.writer import yaml_of
from scripts import make_schemas

Schema = Mapping[str, Any]

UNSAID = (
    *("no rule for commands", "no domain", "cannot be used", "environment variable", "refers to"),
    *("looks like a credential", "disagree", "two MCP servers", "is no header", "credential for"),
    *("no folder", "empty or holds a NUL", "commands may not be given", "no allowed domain"),
    *("there is no node", "a second", "the default of a", "on their way round"),
    *("needs window_size", "window_size needs", "the cron expression", "unknown time zone"),
)
"""Faults that matching documents may have."""

BOUNDARIES = st.sampled_from([-1, 0, 1, 2, 86_400, 86_401, 2**63 - 1, 2**63, 10**30, 0.5, 2.5])
ANYTHING = st.sampled_from(
    [None, True, "", "x", "a:b", 5, 0, -1, 0.5, [], ["x"], {}, {"x": 1}]
).map(deepcopy)


@cache
def schema_named(name: str) -> Schema:
    return make_schemas.schemas()[name]


@cache
def checker_of(name: str) -> Any:
    validators: Any = importlib.import_module("jsonschema")
    return validators.Draft202012Validator(schema_named(name))


def fits(name: str, data: object) -> bool:
    return bool(checker_of(name).is_valid(data))


def made_for(root: Schema, place: Schema) -> st.SearchStrategy[Any]:
    """Return a strategy for values that match `place`; ignore rules beside its properties."""
    for key in ("anyOf", "oneOf"):
        if key in place and "properties" not in place:
            forms = cast("list[Schema]", place[key])
            return st.one_of([made_for(root, form) for form in forms])
    if "allOf" in place:
        return made_for(root, place["allOf"][0])
    if "$ref" in place:
        return st.deferred(lambda: made_for(root, root["$defs"][place["$ref"].split("/")[-1]]))
    if "enum" in place or "const" in place:
        return st.sampled_from(place["enum"] if "enum" in place else [place["const"]])
    kind = place.get("type")
    if isinstance(kind, list):
        kinds = cast("list[str]", kind)
        return st.one_of([made_for(root, {**place, "type": each}) for each in kinds])
    return of_kind(root, place, kind)


def of_kind(root: Schema, place: Schema, kind: object) -> st.SearchStrategy[Any]:
    match kind:
        case "string":
            return texts(place)
        case "integer":
            return st.integers(place.get("minimum", -9), min(place.get("maximum", 99), 10**6))
        case "number":
            least = max(place.get("minimum", 0), place.get("exclusiveMinimum", 0))
            is_open = "exclusiveMinimum" in place
            most = min(place.get("maximum", 1e6), 1e6)
            return st.floats(least, most, exclude_min=is_open, width=32)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "array":
            items = made_for(root, place.get("items", {}))
            return st.lists(items, min_size=place.get("minItems", 0), max_size=3)
        case "object":
            return objects(root, place)
        case _:
            return ANYTHING


def texts(place: Schema) -> st.SearchStrategy[str]:
    if "pattern" in place and place["pattern"].startswith("^["):
        pattern = str(place["pattern"]).replace("$", "")
        return st.from_regex(pattern, fullmatch=True).filter(is_short)
    plain = ["scripted:echo", "openai:m", "ls", "git status", "a.example", "https://a.example/m"]
    return st.sampled_from([*plain, "b", "x y", " ", "", "naïve", "{{secrets.A}}", "on", "5"])


def objects(root: Schema, place: Schema) -> st.SearchStrategy[dict[str, Any]]:
    fields = cast("Mapping[str, Schema]", place.get("properties", {}))
    if not fields:
        values = made_for(root, place.get("additionalProperties") or {})
        keys = texts(place.get("propertyNames", {}))
        return st.dictionaries(keys, values, max_size=2)
    needed = {name: made_for(root, fields[name]) for name in place.get("required", ())}
    others = {n: made_for(root, each) for n, each in fields.items() if n not in needed}
    chosen = st.sets(st.sampled_from(sorted(others) or [""]), max_size=4).flatmap(
        lambda names: st.fixed_dictionaries({name: others[name] for name in names if name})
    )
    return st.builds(together, st.fixed_dictionaries(needed), chosen)


def together(some: dict[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
    return {**some, **rest}


def is_short(text: str) -> bool:
    return len(text) < 40


def places_in(data: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    if isinstance(data, dict | list):
        holder = cast("Any", data)
        for key, each in holder.items() if isinstance(data, dict) else enumerate(holder):
            yield from places_in(each, (*place, key))


@st.composite
def changed(draw: st.DrawFn, documents: st.SearchStrategy[Any]) -> Any:
    """A document in which one value was changed, removed or added, or none."""
    data = json.loads(json.dumps(draw(documents)))
    for _ in range(draw(st.integers(0, 2))):
        places = [place for place in places_in(data) if place]
        if not places:
            return data
        *outer, last = draw(st.sampled_from(places))
        holder = data
        for key in outer:
            holder = holder[key]
        match draw(st.sampled_from(["other", "number", "gone", "more"])):
            case "other":
                holder[last] = draw(ANYTHING)
            case "number":
                holder[last] = draw(BOUNDARIES)
            case "gone" if isinstance(holder, dict):
                del holder[last]
            case "more" if isinstance(holder, dict):
                holder["unknown"] = draw(ANYTHING)
            case _:
                pass
    return data


def judged(name: str, data: object, faults: str | None) -> None:
    """Check that the schema `name` accepts `data` if and only if the reader reports no `faults`."""
    if faults is None:
        told = [error.message for error in checker_of(name).iter_errors(data)]
        assert not told, (told, data)
    elif fits(name, data):
        assert any(each in faults for each in UNSAID), (faults, data)


def documents_of(name: str) -> st.SearchStrategy[Any]:
    return changed(made_for(schema_named(name), schema_named(name)))


@pytest.mark.all_only
@settings(max_examples=100)
@given(st.deferred(lambda: documents_of("agent.schema.json")))
def test_agent_file_is_accepted_exactly_if_it_matches_the_schema(data: Any) -> None:
    try:
        agent_of_text(yaml_of(data))
    except ConfigError as error:
        judged("agent.schema.json", data, str(error))
    else:
        judged("agent.schema.json", data, None)


@pytest.mark.all_only
@settings(max_examples=60)
@given(st.deferred(lambda: documents_of("workflow.schema.json")))
def test_workflow_is_accepted_exactly_if_it_matches_the_schema(data: Any) -> None:
    try:
        parse(yaml_of(data))
    except FormatError as error:
        judged("workflow.schema.json", data, str(error))
    else:
        judged("workflow.schema.json", data, None)


def without_nothing(data: Any) -> Any:
    """Return `data` without values that are None, because TOML has no null."""
    if isinstance(data, dict):
        fields = cast("dict[str, Any]", data)
        return {k: without_nothing(v) for k, v in fields.items() if v is not None}
    if isinstance(data, list):
        return [without_nothing(each) for each in cast("list[Any]", data) if each is not None]
    return data


def toml_of(value: Any) -> str:
    """Return `value`, of any type, as TOML on one line."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return "{" + ", ".join(f"{toml_of(k)} = {toml_of(v)}" for k, v in fields.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_of, cast("list[Any]", value))) + "]"
    if isinstance(value, str | bool):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


@settings(max_examples=max(25, settings().max_examples * 3 // 5))
@given(
    st.deferred(lambda: documents_of("config.schema.json")).map(without_nothing),
    st.sampled_from(["config.schema.json", "project-config.schema.json"]),
)
def test_settings_are_accepted_exactly_if_they_match_the_schema(
    data: dict[str, Any], name: str
) -> None:
    text = "".join(f"{toml_of(key)} = {toml_of(each)}\n" for key, each in data.items())
    with tempfile.TemporaryDirectory() as folder:
        is_project = name.startswith("project")
        file = Path(folder, ".perdure" if is_project else "perdure", "config.toml")
        file.parent.mkdir()
        file.write_text(text, encoding="utf-8")
        try:
            home = folder if not is_project else f"{folder}/nobody"
            Configuration(Path(folder), {"XDG_CONFIG_HOME": home, "HOME": f"{folder}/nobody"})
        except ConfigError as error:
            judged(name, data, str(error))
        else:
            judged(name, data, None)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("agent.schema.json", "mcp_servers"),
        ("workflow.schema.json", "edges"),
        ("config.schema.json", "servers"),
    ],
)
def test_generated_values_can_match_schema(name: str, key: str) -> None:
    """A schema that no generated value matches would make the tests above useless."""
    root = schema_named(name)
    # One in hundreds of agents has servers of its own accord: here each must.
    top = root["$defs"][root["$ref"].split("/")[-1]] if "$ref" in root else root
    wanted = [*top.get("required", ()), *({key} & top["properties"].keys())]
    made = made_for(root, {**top, "required": wanted})
    # Any example will do: to look for the smallest one takes most of the time.
    found = find(
        made,
        lambda data: fits(name, data) and any(p[-1:] == (key,) for p in places_in(data)),
        settings=settings(max_examples=2_000, phases=[Phase.generate]),
    )
    assert found
