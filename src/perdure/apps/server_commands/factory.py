"""MODULE:FACTORY names a program's function; the function returns a runtime or a list of agents."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from perdure.apps.cli.exits import UsageMistake
from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.store import Store
from perdure.errors import ConfigError, PerdureError

FactoryArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:FACTORY",
        help="A function of your program: it takes the store and returns a Runtime, or agents.",
    ),
]


async def made_by(factory: str, store: Store) -> Runtime | list[Agent]:
    """Call the function that `factory` names, and return its result.

    Raises: ConfigError if the function cannot be used.
    """
    module_name, colon, name = factory.partition(":")
    if not (colon and module_name and name):
        raise UsageMistake(f"{factory!r} is not MODULE:FACTORY, for example shop.agents:runtime")
    try:
        made = _function(module_name, name)(store)
        if inspect.isawaitable(made):
            made = await made
    except PerdureError:
        raise
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{factory} failed with {told}; PERDURE_DEBUG=1 shows where") from error
    if isinstance(made, Runtime):
        return made
    several = list(cast("Iterable[object]", made)) if isinstance(made, Iterable) else [made]
    agents: list[Agent] = [agent for agent in several if isinstance(agent, Agent)]
    if not agents or len(agents) < len(several):
        raise ConfigError(f"{factory} must return a perdure.Runtime, or agents")
    return agents


def _function(module: str, name: str) -> Callable[[Store], Any]:
    """Return the function `name` of `module`.

    Raises: ConfigError if the module or the function does not exist; any error that the import of
    the module raises.
    """
    folder = str(Path.cwd())  # as `python -m` does
    if sys.path[0] != folder:
        sys.path.insert(0, folder)
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0] and error.name != module:
            raise
        raise ConfigError(f"there is no module {module!r} here or installed") from error
    function = getattr(found, name, None)
    if not callable(function):
        raise ConfigError(f"module {module!r} has no function {name!r}")
    return function
