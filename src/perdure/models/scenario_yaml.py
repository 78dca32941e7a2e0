"""Parse YAML scenarios (``docs/scenarios.md``) strictly; report all faults with their lines.

This is the only module of the scripted model that imports a YAML library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import cast, get_args

import msgspec

from perdure.bounds.files import read_named_text
from perdure.errors import ConfigError
from perdure.models.scenario import (
    DEFAULT_CHUNK_CHARS,
    CallTools,
    Cut,
    ErrorCode,
    Fail,
    Hang,
    Reply,
    Say,
    Scenario,
    ScriptedCall,
    Step,
    Think,
    Wait,
    When,
)
from perdure.session.messages import StopReason, Usage
from perdure.yaml.nodes import YamlNode, YamlReader

_SCENARIO_KEYS = ("name", "model", "chunk_chars", "chunk_delay_ms", "rules", "sequence")
_MODEL_KEYS = ("context_window", "max_output_tokens")
_SHORT_KEYS = ("error", "thinking", "text", "calls")
_REPLY_KEYS = (
    *("when", *_SHORT_KEYS, "steps"),
    *("stop_reason", "usage", "delay_ms", "chunk_chars", "chunk_delay_ms"),
)
_STEP_KEYS = ("text", "thinking", "calls", "wait_ms", "error", "cut", "hang")
_CALL_KEYS = ("name", "args", "json", "id")
_ERROR_KEYS = ("code", "reason", "times", "retry_after_s", "status")
_WHEN_NUMBERS = ("nth", "round")
_WHEN_TEXTS = ("user_contains", "system_contains", "after_tool", "last_tool_result_contains")
_WHEN_FLAGS = ("last_tool_result_is_error", "asks_summary")

Read = Callable[[YamlNode], object]
"""Reads a value, and reports it if it is wrong."""

_STOP_REASONS = get_args(StopReason)
_ERROR_CODES = get_args(ErrorCode)


def read_scenario(text: str, *, name: str) -> Scenario:
    """Parse the scenario in `text`; `name` is the model's name if the file gives none.

    Raises: ConfigError with every fault and its line.
    """
    reader = _ScenarioReader()
    root = reader.nodes.root(text)
    scenario = None if root is None else reader.scenario(root, name)
    if scenario is None or reader.nodes.faults:
        faults = "; ".join(reader.nodes.faults)
        raise ConfigError(f"the scenario {name!r} cannot be used: {faults}")
    if not scenario.name:
        raise ConfigError("the scenario has no name: write `name: NAME` into it")
    return scenario


def load_scenario(path: Path) -> Scenario:
    """Read the scenario in the file `path`; the default name of the scenario is the file name.

    Raises: ConfigError if the file cannot be read or has faults; the error lists every fault with
    its line.
    """
    try:
        text = read_named_text(path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"the scenario {str(path)!r} cannot be read ({reason})") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the scenario {str(path)!r} cannot be read (it is not UTF-8)") from error
    return read_scenario(text, name=path.name.strip(".").partition(".")[0])


class _Pace(msgspec.Struct, frozen=True):
    """How a reply is split into deltas."""

    chunk_chars: int = DEFAULT_CHUNK_CHARS
    chunk_delay_s: float = 0.0


class _ScenarioReader:
    def __init__(self) -> None:
        self.nodes = YamlReader()

    def scenario(self, root: YamlNode, name: str) -> Scenario:
        nodes = self.nodes
        fields = nodes.mapping(root, _SCENARIO_KEYS)
        if root.kind == "map" and not fields.keys() & {"rules", "sequence"}:
            nodes.fault(root, "there is neither 'sequence' nor 'rules': it would answer nothing")
        pace = self._pace(fields, _Pace())
        model: Mapping[str, YamlNode] = {}
        if "model" in fields:
            model = nodes.mapping(fields["model"], _MODEL_KEYS)
        rules = nodes.items(fields["rules"]) if "rules" in fields else ()
        sequence = nodes.items(fields["sequence"]) if "sequence" in fields else ()
        return Scenario(
            name=nodes.text(fields["name"]) if "name" in fields else name,
            rules=tuple(self._rule(node, pace) for node in rules),
            sequence=tuple(self._reply(node, pace) for node in sequence),
            **{key: nodes.whole(node, 1) for key, node in model.items()},
        )

    def _pace(self, fields: Mapping[str, YamlNode], default: _Pace) -> _Pace:
        chars, delay_s = default.chunk_chars, default.chunk_delay_s
        if "chunk_chars" in fields:
            chars = self.nodes.whole(fields["chunk_chars"], 1)
        if "chunk_delay_ms" in fields:
            delay_s = self.nodes.number(fields["chunk_delay_ms"]) / 1000
        return _Pace(chars, delay_s)

    def _rule(self, node: YamlNode, pace: _Pace) -> Reply:
        fields = self.nodes.mapping(node, _REPLY_KEYS)
        when = self._when(fields["when"]) if "when" in fields else None
        return msgspec.structs.replace(self._played(node, fields, pace), when=when)

    def _reply(self, node: YamlNode, pace: _Pace) -> Reply:
        fields = self.nodes.mapping(node, _REPLY_KEYS)
        if "when" in fields:
            self.nodes.fault(fields["when"], "'when' belongs under 'rules': a sequence has places")
        return self._played(node, fields, pace)

    def _played(self, node: YamlNode, fields: Mapping[str, YamlNode], default: _Pace) -> Reply:
        nodes, pace = self.nodes, self._pace(fields, default)
        usage, reports_usage = None, True
        if "usage" in fields and fields["usage"].kind == "map":
            usage = self._usage(fields["usage"])
        elif "usage" in fields:
            nodes.choice(fields["usage"], ("none",))
            reports_usage = False
        reason = (
            nodes.choice(fields["stop_reason"], _STOP_REASONS) if "stop_reason" in fields else None
        )
        return Reply(
            steps=self._steps(node, fields),
            stop_reason=cast("StopReason | None", reason),
            usage=usage,
            reports_usage=reports_usage,
            chunk_chars=pace.chunk_chars,
            chunk_delay_s=pace.chunk_delay_s,
        )

    def _steps(self, node: YamlNode, fields: Mapping[str, YamlNode]) -> tuple[Step, ...]:
        """Return the steps under the key `steps`.

        If the key `steps` is missing, each key of `_SHORT_KEYS` in `fields` becomes a step. The
        steps are in the order of `_SHORT_KEYS`.
        """
        delay = ()
        if "delay_ms" in fields:
            delay = (Wait(self.nodes.number(fields["delay_ms"]) / 1000),)
        short = [key for key in _SHORT_KEYS if key in fields]
        if "steps" in fields:
            if short:
                self.nodes.fault(fields["steps"], f"'steps' excludes {', '.join(short)}")
            return (*delay, *(self._step(item) for item in self.nodes.items(fields["steps"])))
        if node.kind == "map" and not short:
            self.nodes.fault(node, f"a reply needs one of {', '.join(_SHORT_KEYS)}, or 'steps'")
        return (*delay, *(self._step_of(key, fields[key]) for key in short))

    def _step(self, node: YamlNode) -> Step:
        if node.kind == "str" and node.text in ("cut", "hang"):
            return Cut() if node.text == "cut" else Hang()
        fields = self.nodes.mapping(node, _STEP_KEYS)
        if len(fields) != 1 and node.kind == "map":
            self.nodes.fault(node, f"a step is one of {', '.join(_STEP_KEYS)}, and one only")
        for key, value in fields.items():
            return self._step_of(key, value)
        return Wait(0)

    def _step_of(self, key: str, node: YamlNode) -> Step:
        match key:
            case "text":
                return Say(self.nodes.text(node))
            case "thinking":
                return Think(self.nodes.text(node))
            case "calls":
                return CallTools(tuple(self._call(item) for item in self.nodes.items(node)))
            case "wait_ms":
                return Wait(self.nodes.number(node) / 1000)
            case "error":
                return self._error(node)
            case "cut":
                return Cut(self._times(node))
            case _:
                return Hang(self._times(node))

    def _call(self, node: YamlNode) -> ScriptedCall:
        nodes = self.nodes
        fields = nodes.mapping(node, _CALL_KEYS, required=("name",))
        json = "{}"
        if "args" in fields and "json" in fields:
            nodes.fault(node, "'args' are arguments as data, 'json' as raw text: give one of them")
        elif "json" in fields:
            json = nodes.text(fields["json"])
        elif "args" in fields:
            if fields["args"].kind != "map":
                nodes.fault(fields["args"], "'args' is a mapping of arguments")
            json = msgspec.json.encode(nodes.data(fields["args"])).decode()
        return ScriptedCall(
            name=nodes.text(fields["name"]) if "name" in fields else "",
            json=json,
            id=nodes.text(fields["id"]) if "id" in fields else None,
        )

    def _error(self, node: YamlNode) -> Fail:
        nodes = self.nodes
        fields = nodes.mapping(node, _ERROR_KEYS, required=("code",))
        readers: Mapping[str, Read] = {
            "code": partial(nodes.choice, choices=_ERROR_CODES),
            "reason": nodes.text,
            "times": partial(nodes.whole, least=1),
            "retry_after_s": nodes.number,
            "status": partial(nodes.whole, least=100),
        }
        found = {key: read(fields[key]) for key, read in readers.items() if key in fields}
        return msgspec.convert({"code": _ERROR_CODES[0], **found}, Fail)

    def _times(self, node: YamlNode) -> int:
        fields = self.nodes.mapping(node, ("times",), required=("times",))
        return self.nodes.whole(fields["times"], 1) if "times" in fields else 1

    def _usage(self, node: YamlNode) -> Usage:
        fields = self.nodes.mapping(node, Usage.__struct_fields__)
        return Usage(**{key: self.nodes.whole(value) for key, value in fields.items()})

    def _when(self, node: YamlNode) -> When:
        nodes = self.nodes
        readers: Mapping[str, Read] = {
            **dict.fromkeys(_WHEN_NUMBERS, partial(nodes.whole, least=1)),
            **dict.fromkeys(_WHEN_TEXTS, nodes.text),
            **dict.fromkeys(_WHEN_FLAGS, nodes.boolean),
            "after": partial(nodes.choice, choices=("user", "tool")),
        }
        fields = nodes.mapping(node, tuple(readers))
        return msgspec.convert({key: readers[key](value) for key, value in fields.items()}, When)
