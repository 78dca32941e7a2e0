"""``perdure agents``: list, show and validate agent files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from perdure.apps.cli.exits import DONE, FAILED
from perdure.apps.cli.options import JsonOption, require_file
from perdure.apps.settings.agents import agents_here, is_file_name
from perdure.apps.terminal.output import out_style, show, show_json, show_lines, show_result, width
from perdure.apps.terminal.text import Column, safe, table
from perdure.client.agents.agent import Agent
from perdure.client.agents.files.lookup import FoundAgentFile, agent_named
from perdure.client.agents.files.reader import agent_in
from perdure.client.agents.files.writer import agent_text
from perdure.errors import ConfigError, InvalidAgentFile
from perdure.models.prices import in_dollars

agents = typer.Typer(no_args_is_help=True)

AgentArgument = Annotated[
    str, typer.Argument(metavar="AGENT", help="The agent: its id or its file.")
]
FilesArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILE",
        help="The agent files; default: all agent files of the project and your own.",
    ),
]


@agents.callback()
def agents_itself() -> None:
    """List, show and validate agents: files .perdure/agents/*.agent.yaml, and your own.

    Your own agents are in ~/.config/perdure/agents. `perdure chat --agent ID` starts a chat with an
    agent.

    Examples:
        perdure agents list
        perdure agents show helper
        perdure agents validate
    """


@agents.command("list")
def list_agents(*, as_json: JsonOption = False) -> None:
    """List the available agents, the agents of the project first.

    Examples:
        perdure agents list
        perdure agents list --json
    """
    found = agents_here(Path(), os.environ)
    show_result(
        [_row(filed) for filed in found],
        _table(found)
        if found
        else "No agent files here yet; `perdure init` writes one as an example.",
        as_json=as_json,
    )


@agents.command("show")
def show_agent(agent: AgentArgument, *, as_json: JsonOption = False) -> None:
    """Print an agent as an agent file: all settings, and its tools by name.

    Examples:
        perdure agents show helper
        perdure agents show ./helper.agent.yaml --json

    Exit codes:
        2  several agents have that id, or the file of the agent has errors
        3  no agent has that id
    """
    found = _find_agent(agent)
    if as_json:
        show_json({**_row(found), "agent": None if found.agent is None else found.agent.snapshot()})
    elif found.agent is not None:
        style = out_style()
        show(style.paint(f"# {safe(str(found.file))}", "faint"))
        if limit := found.agent.max_cost_microcents:
            show(style.paint(f"# a session may spend {in_dollars(limit)}", "faint"))
        show_lines(safe(line) for line in agent_text(found.agent).splitlines())


@agents.command("validate")
def validate(files: FilesArgument = None, *, as_json: JsonOption = False) -> int:
    """Validate agent files, and report every error with its line.

    Examples:
        perdure agents validate
        perdure agents validate helper.agent.yaml --json

    Exit codes:
        1  a file has errors, or two files have the same id
        3  a file does not exist
    """
    found = agents_here(Path(), os.environ) if not files else tuple(map(_read_agent_file, files))
    told = [{**_row(filed), "faults": list(_faults(filed, found))} for filed in found]
    has_faults = any(each["faults"] for each in told)
    show_result(told, _report_lines(found), as_json=as_json)
    return FAILED if has_faults else DONE


def _find_agent(agent: str) -> FoundAgentFile:
    if is_file_name(agent):
        return FoundAgentFile(Path(agent), "user", agent=agent_in(Path(agent)))
    return agent_named(agent, agents_here(Path(), os.environ))


def _read_agent_file(file: Path) -> FoundAgentFile:
    require_file(file, "an agent file")
    try:
        return FoundAgentFile(file, "user", agent=agent_in(file))
    except ConfigError as error:
        return FoundAgentFile(file, "user", error=error)


def _faults(filed: FoundAgentFile, found: Sequence[FoundAgentFile]) -> Iterator[str]:
    if isinstance(filed.error, InvalidAgentFile):
        yield from filed.error.faults
    elif filed.error is not None:
        yield str(filed.error)
    others = [each.file for each in found if each.id == filed.id and each.file != filed.file]
    for other in others:
        yield f"{other} is the agent {filed.id!r} too; give one another id"


def _row(filed: FoundAgentFile) -> dict[str, object]:
    agent = filed.agent
    return {
        "id": filed.id,
        "name": None if agent is None else agent.name,
        "description": None if agent is None else agent.description,
        "model": None if agent is None else agent.model,
        "source": filed.place,
        "path": str(filed.file),
        "ok": agent is not None,
    }


def _table(found: Sequence[FoundAgentFile]) -> Iterator[str]:
    columns = (
        Column("AGENT", "strong"),
        Column("SOURCE"),
        Column("MODEL"),
        Column("PURPOSE", gives_way=True),
    )
    rows = [
        (
            safe(filed.id),
            filed.place,
            "-" if filed.agent is None else safe(filed.agent.model),
            _purpose(filed.agent),
        )
        for filed in found
    ]
    yield from table(columns, rows, width(), out_style())


def _purpose(agent: Agent | None) -> str:
    if agent is None:
        return "cannot be read: perdure agents validate says why"
    return safe(agent.description or agent.name or "")


def _report_lines(found: Sequence[FoundAgentFile]) -> Iterator[str]:
    style = out_style()
    if not found:
        yield "No agent files here yet; `perdure init` writes one as an example."
    for filed in found:
        faults = list(_faults(filed, found))
        word = style.paint("faults", "warning") if faults else style.paint("ok", "good")
        yield f"{word}  {safe(str(filed.file))}"
        for fault in faults:
            yield f"    {safe(fault)}"
