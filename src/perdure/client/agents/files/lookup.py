"""Finds agents by id in the files of a project and in the files of the user.

If two files have the same id, or if a file is invalid, `agent_named` fails only for the id of these
files. `load_agents` fails for all ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from perdure.bounds.files import is_folder
from perdure.client.agents.agent import Agent
from perdure.client.agents.files.reader import SUFFIX, agent_in
from perdure.errors import AgentNotFound, ConfigError
from perdure.session.argument_checks import takes_declared

AgentPlace = Literal["project", "user"]


class FoundAgentFile(msgspec.Struct, frozen=True):
    """An agent file that was found. Shape: exactly one of `agent` and `error` is set."""

    file: Path
    place: AgentPlace
    agent: Agent | None = None
    error: ConfigError | None = None

    @property
    def id(self) -> str:
        """The agent's id, or the id in the file name if the file is invalid."""
        return self.file.name.removesuffix(SUFFIX) if self.agent is None else self.agent.id


def agents_found(folders: Mapping[AgentPlace, Path]) -> tuple[FoundAgentFile, ...]:
    """Return every agent file in `folders`, sorted by name in each folder.

    A folder that does not exist contains no files.
    """
    found: list[FoundAgentFile] = []
    for place, folder in folders.items():
        for file in sorted(folder.glob(f"*{SUFFIX}")):
            try:
                found.append(FoundAgentFile(file, place, agent=agent_in(file)))
            except ConfigError as error:
                found.append(FoundAgentFile(file, place, error=error))
    return tuple(found)


def agent_named(id: str, found: Sequence[FoundAgentFile]) -> FoundAgentFile:
    """Return the file in `found` whose agent has the id `id`.

    Raises: AgentNotFound if no file has this id. If the file is invalid, the error with which it
    was read is raised. Raises ConfigError if two files have this id, because a project's agent does
    not replace the user's agent.
    """
    claimed = [filed for filed in found if filed.id == id]
    if not claimed:
        raise AgentNotFound(id, tuple(sorted({filed.id for filed in found})))
    if len(claimed) > 1:
        files = ", ".join(str(filed.file) for filed in claimed)
        raise ConfigError(
            f"several files are the agent {id!r}: {files}; give them other ids, or name the file"
        )
    if claimed[0].error is not None:
        raise claimed[0].error
    return claimed[0]


@takes_declared
def load_agents(*folders: Path | str) -> tuple[Agent, ...]:
    """Return the agents in the files ``*.agent.yaml`` of `folders`, for a `Runtime`.

    Raises: ConfigError if a file is invalid, with every error and its line, or if two files have
    the same id.
    """
    agents: dict[str, Path] = {}
    loaded: list[Agent] = []
    for folder in folders:
        for file in _agent_files(Path(folder)):
            agent = agent_in(file)
            if agent.id in agents:
                raise ConfigError(
                    f"{file} and {agents[agent.id]} are both the agent {agent.id!r}; give one "
                    "another id"
                )
            agents[agent.id] = file
            loaded.append(agent)
    return tuple(loaded)


def _agent_files(folder: Path) -> list[Path]:
    try:
        if not is_folder(folder):
            raise ConfigError(f"no folder {folder} with agent files")
        return sorted(file for file in folder.iterdir() if file.name.endswith(SUFFIX))
    except PermissionError as error:
        raise ConfigError(
            f"the folder {folder} with agent files cannot be read: {error.strerror}; check its "
            "owner and permissions"
        ) from error
