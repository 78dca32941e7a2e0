"""A group of commands that imports only the modules of the commands it needs."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import typer


class Group(typer.Typer):
    """A command group: first the commands that it defines itself, then commands of other modules.

    Shape: `places` maps a command to ``module:function``.
    """

    def __init__(self, places: Mapping[str, str], **settings: Any) -> None:
        super().__init__(**settings)
        self._places = places
        self._found: dict[str, typer.models.CommandInfo] = {}

    def commands(self, only: str | None = None) -> list[typer.models.CommandInfo]:
        """Return the command `only`, or all commands if the group does not contain `only`."""
        if only is not None and only in self._places:
            return [self._command(only)]
        own = [known for known in self.registered_commands if known.name not in self._places]
        named = [known for known in own if known.name == only]
        return named or [*own, *map(self._command, self._places)]

    def _command(self, name: str) -> typer.models.CommandInfo:
        if name not in self._found:
            made = typer.Typer()
            made.command(name)(found_at(self._places[name]))
            self._found[name] = made.registered_commands[0]
        return self._found[name]


def found_at(place: str) -> Any:
    """Import and return the function or group at `place`, ``module:name``."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def commands_of(group: typer.Typer, only: str | None = None) -> Sequence[Any]:
    """Return the command `only` of `group`; if `group` does not contain it, all commands."""
    if isinstance(group, Group):
        return group.commands(only)
    # As in typer, a later command replaces an earlier one with the same name.
    commands: dict[Any, Any] = {known.name or known: known for known in group.registered_commands}
    return [commands[only]] if only in commands else [*commands.values()]
