"""Reads agent files strictly, and reports every error with its line.

A feature of Relavium's format that perdure lacks is an error; nothing is ignored silently. A file
that contains a credential is rejected before anything else is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from perdure.bounds.files import read_named
from perdure.client.agents.agent import Agent, Fallback
from perdure.client.agents.files.document import (
    SAME_NAMES,
    AgentFile,
    FiledFallback,
    FiledMemory,
    FiledRetry,
)
from perdure.engine.turns.config import CompactionSettings, Limits, MemoryConfig
from perdure.errors import ConfigError, InvalidAgentFile, WrongArgument
from perdure.models.catalogue import ECHO, PROVIDERS, is_model_name
from perdure.models.retry import RetryPolicy
from perdure.secrets.pasted_keys import credentials_in
from perdure.session.argument_checks import takes_declared
from perdure.tools.permissions import Permissions
from perdure.yaml.nodes import YamlNode, YamlReader
from perdure.yaml.typed_reader import item_of, make_checked, read_fields, valid_items

T = TypeVar("T")

SUFFIX = ".agent.yaml"

_NOT_YET: Mapping[str, str] = {
    "input_schema": "perdure checks no input of agents; take it out, or say it in system_prompt",
    "output_schema": "perdure checks no output of agents; take it out, or say it in system_prompt",
}
_PROVIDERS: Mapping[str, str] = {"gemini": "google"}
"""Maps Relavium's names of providers to perdure's names, where the two differ."""

_KEYS: Mapping[str, str] = {"max_output_tokens": "max_tokens", "instructions": "system_prompt"}
"""The key in a file for each field of an agent, if the names differ."""

_STAND_INS: Mapping[str, Any] = {"id": "agent", "model": ECHO, "system_prompt": ""}
"""Values for required keys that are missing or invalid, so that the other keys can be checked."""


def agent_in(file: Path) -> Agent:
    """Return the agent in `file`.

    Raises: InvalidAgentFile, which lists every error with its line; ConfigError if the file cannot
    be read.
    """
    try:
        content = read_named(file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read ({error.strerror})") from error
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InvalidAgentFile(str(file), ("line 1: it is not UTF-8",)) from error
    return agent_of_text(text, str(file))


@takes_declared
def agent_of_text(text: str, name: str = "the agent file") -> Agent:
    """Return the agent in the YAML `text`; error messages use `name` as the name of the file.

    Raises: InvalidAgentFile, which lists every error with its line.
    """
    secrets = tuple(
        f"line {line}: it holds what looks like a credential ({kind}); take it out"
        for line, kind in credentials_in(text)
    )
    if secrets:
        raise InvalidAgentFile(name, secrets)
    nodes = YamlReader(_KEYS)
    root = nodes.root(text)
    if root is None or root.kind != "map":
        if root is not None:
            nodes.fault(root, "expected a mapping: id, model, system_prompt, ...")
        raise InvalidAgentFile(name, nodes.faults)
    places = {key.text: value for key, value in root.pairs}
    given = read_fields(nodes, _honoured(nodes, root), AgentFile)
    agent = _Binding(nodes, places, given).agent()
    if agent is None or nodes.fault_count:
        raise InvalidAgentFile(name, nodes.faults)
    return agent


def _honoured(nodes: YamlReader, root: YamlNode) -> YamlNode:
    """Return `root` without keys that perdure does not support.

    Each unsupported key is reported as an error.
    """
    kept: list[tuple[YamlNode, YamlNode]] = []
    for key, value in root.pairs:
        if key.text in _NOT_YET:
            nodes.fault(key, f"{key.text!r}: {_NOT_YET[key.text]}")
        elif key.text == "memory" and value.text == "window":
            nodes.fault(value, "memory 'window' needs its size: {type: window, window_size: 40}")
        elif key.text == "mcp_servers" and value.kind == "seq":
            named = tuple(_server_name(item) for item in value.items)
            kept.append((key, YamlNode(value.line, value.kind, items=named)))
        elif key.text == "retry" and value.kind == "map":
            kept.append((key, _without_retry_on(nodes, value)))
        else:
            kept.append((key, value))
    return YamlNode(root.line, root.kind, pairs=tuple(kept))


def _server_name(server: YamlNode) -> YamlNode:
    """Return the name of the server in ``{ref: name}``, which is Relavium's form."""
    if len(server.pairs) == 1 and server.pairs[0][0].text == "ref":
        return server.pairs[0][1]
    return server


def _without_retry_on(nodes: YamlReader, node: YamlNode) -> YamlNode:
    for key, _ in node.pairs:
        if key.text == "retry_on":
            nodes.fault(
                key,
                "'retry_on': which errors are tried again is fixed (docs/guides/models.md); take "
                "it out",
            )
    left = tuple(pair for pair in node.pairs if pair[0].text != "retry_on")
    return YamlNode(node.line, node.kind, pairs=left)


class _Binding:
    """Converts the valid values of an agent file to an agent.

    Each error states the line of the invalid key.
    """

    def __init__(
        self, nodes: YamlReader, places: Mapping[str, YamlNode], given: Mapping[str, Any]
    ) -> None:
        self._nodes = nodes
        self._places = places
        self._given = given

    def agent(self) -> Agent | None:
        values = {key: valid_items(value) for key, value in self._given.items()}
        filed = AgentFile(**{**_STAND_INS, **values})
        return make_checked(Agent, self._arguments(filed), self._report, ("id", "model"))

    def _arguments(self, filed: AgentFile) -> dict[str, Any]:
        """Return the arguments for `Agent`.

        Wrong combinations of the file's own keys are reported.
        """
        arguments: dict[str, Any] = {
            **{name: getattr(filed, name) for name in SAME_NAMES},
            "tools": filed.tools,
            "fallbacks": self._fallbacks(),
            "model": self._own_model(filed),
            "instructions": filed.system_prompt,
            "thinking_level": filed.reasoning_effort,
            "limits": filed.limits or Limits(),
            "retry": self._made("retry", lambda: _policy(filed.retry)),
            "compaction": self._compaction(filed),
            "memory": self._made("memory", lambda: _working(filed.memory)),
            "max_output_tokens": filed.max_tokens,
            "permissions": filed.permissions or Permissions(),
        }
        for part in (filed.delegation, filed.budget):
            arguments |= {} if part is None else msgspec.structs.asdict(part)
        return arguments

    def _report(self, error: Exception, argument: str | None, item: str | None) -> None:
        place = self._place(_KEYS.get(argument or "", argument or ""))
        self._nodes.fault(item_of(place, item), str(error))

    def _made(self, key: str, make: Callable[[], T]) -> T | None:
        """Return the result of `make`; if it raises an error, report it for `key`."""
        try:
            return make()
        except (ConfigError, WrongArgument) as error:
            self._fault(key, str(error))
            return None

    def _own_model(self, filed: AgentFile) -> str:
        """Return the agent's model, or a placeholder if the keys that name it have errors."""
        is_read = "model" in self._given and (
            "provider" in self._given or "provider" not in self._places
        )
        if not is_read:
            return ECHO
        model = self._model(self._place("model"), filed.model, filed.provider)
        return model if is_model_name(model) else ECHO

    def _fallbacks(self) -> tuple[Fallback, ...]:
        links = zip(
            self._place("fallback_chain").items, self._given.get("fallback_chain", ()), strict=False
        )
        return tuple(self._fallback(place, link) for place, link in links if link is not None)

    def _model(self, place: YamlNode, name: str, provider: str | None) -> str:
        """Return ``provider:name``; report an error if the provider is unknown."""
        named, colon, _ = name.partition(":")
        known = ("scripted", *PROVIDERS)
        if provider is None:
            if not colon or named not in known:
                self._nodes.fault(
                    place,
                    f"{name!r} names no provider: write provider:name, with one of these "
                    f"providers: {', '.join(known)}",
                )
            elif not is_model_name(name):
                self._nodes.fault(place, _no_model(name, named))
            return name
        ours = _PROVIDERS.get(provider, provider)
        if ours not in known:
            self._nodes.fault(
                place, f"there is no provider {provider!r}; there are: {', '.join(known)}"
            )
        whole = name if name.startswith(f"{ours}:") else f"{ours}:{name}"
        if not is_model_name(whole):
            self._nodes.fault(place, _no_model(whole, ours))
        return whole

    def _fallback(self, place: YamlNode, filed: FiledFallback) -> Fallback:
        model = self._model(place, filed.model, filed.provider)
        return Fallback(model if is_model_name(model) else ECHO, filed.max_attempts)

    def _compaction(self, filed: AgentFile) -> CompactionSettings:
        settings = filed.compaction or CompactionSettings()
        if "memory" not in self._given:
            return settings
        memory = filed.memory
        if not isinstance(memory, FiledMemory):
            memory = FiledMemory(memory)
        if memory.type is None:
            return settings
        is_enabled = memory.type == "summary"
        if filed.compaction is not None and filed.compaction.is_enabled != is_enabled:
            self._fault("memory", "memory and compaction.is_enabled disagree; keep one")
        settings = msgspec.structs.replace(settings, is_enabled=is_enabled)
        if memory.window_size is None:
            return settings
        if settings.max_messages not in (None, memory.window_size):
            self._fault("memory", "window_size and compaction.max_messages disagree; keep one")
        return msgspec.structs.replace(settings, max_messages=memory.window_size)

    def _fault(self, key: str, what: str) -> None:
        self._nodes.fault(self._place(key), what)

    def _place(self, key: str) -> YamlNode:
        return self._places.get(key, YamlNode(1, "null"))


def _working(filed: FiledMemory | str) -> MemoryConfig | None:
    return filed.working if isinstance(filed, FiledMemory) else None


def _policy(filed: FiledRetry | None) -> RetryPolicy | None:
    if filed is None:
        return None
    return RetryPolicy(
        max_attempts=filed.max,
        first_wait_s=round(filed.backoff_ms / 1000, 9),
        factor=filed.factor,
        cap_s=round(filed.cap_ms / 1000, 9),
        jitter=filed.jitter,
        growth=filed.backoff,
    )


def _no_model(name: str, provider: str) -> str:
    return f"{name!r} names a provider, but no model of it: write {provider}:NAME"
