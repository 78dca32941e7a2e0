"""Options of flow commands, and the name of the person who makes a decision."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.cli.options import (
    ModelOption,
    ScenarioOption,
    model_names,
    named_path,
    only_text,
    stored_path,
)
from perdure.session.flows.kinds import RunSettings

FlowArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The flow: its id, or the beginning of its id.")
]
ByOption = Annotated[
    str | None,
    typer.Option(
        "--by", metavar="NAME", callback=only_text, help="The person who decides; default: you."
    ),
]
WorkspaceOption = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        metavar="DIR",
        parser=stored_path,
        help="The folder of the workspace on this machine.",
    ),
]
ProjectOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        callback=only_text,
        help="The name of the project; default: the name of the folder.",
    ),
]
FolderOption = Annotated[
    Path,
    typer.Option(
        "--workspace",
        metavar="DIR",
        parser=named_path,
        help="The folder that the command uses as the workspace of the workflow.",
    ),
]
WatchOption = Annotated[
    bool,
    typer.Option(
        "--watch", help="Redraw the graph when it changes; without a terminal, print lines instead."
    ),
]


class ActingOptions(msgspec.Struct, frozen=True):
    """The options that choose the models of the roles, and limit what the roles may do."""

    offered: Annotated[
        list[str] | None,
        typer.Option(
            "--offer",
            metavar="MODEL",
            callback=model_names,
            help="A model that you can choose for a role.",
        ),
    ] = None
    model: ModelOption = None
    scenario: ScenarioOption = None
    commands: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-command",
            metavar="LINE",
            help="Limit roles to this command, e.g. 'pytest tests/*'; default: as "
            "configured, or any command.",
        ),
    ] = None
    domains: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-domain",
            metavar="HOST",
            help="A host that roles can contact; default: as configured.",
        ),
    ] = None

    def typed(self) -> RunSettings:
        """Return the settings that the options name; the path of the scenario is made absolute.

        Raises: UsageMistake if the command line names both a model and a scenario.
        """
        model, scenario = self.model, self.scenario
        if model is not None and scenario is not None:
            raise UsageMistake(
                f"--model {model} and --scenario {scenario} both say who answers for the roles: "
                "leave out one of them"
            )
        path = None if scenario is None else str(scenario.absolute())
        given = (tuple(each or ()) for each in (self.commands, self.domains, self.offered))
        return RunSettings(model, path, *given)


class Shown(msgspec.Struct, frozen=True):
    """How a running flow is displayed, and whether the command waits for people's answers."""

    is_watching: WatchOption = False
    is_waiting: Annotated[
        bool,
        typer.Option("--wait", help="Wait for answers and continue until the flow is completed."),
    ] = False


def person(by: str | None) -> str:
    """Return the name of the person who makes the decision."""
    return by or getpass.getuser()
