"""``perdure init``: turns a folder into a project, and suggests the next commands."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.cli.options import JsonOption, StoreOption, require_folder
from perdure.apps.settings.lookup import AGENTS, FILE, FOLDER, setting
from perdure.apps.settings.store_address import NAMESPACE
from perdure.apps.store_access import existing_store
from perdure.apps.terminal.output import count_of, out_style, show_result
from perdure.apps.terminal.text import safe
from perdure.client.agents.providers import provider_states
from perdure.models.catalogue import ECHO
from perdure.session.info import SessionInfo
from perdure.stores.maintenance.atomic_file import write_new

_IGNORED = """\
# Written by `perdure init`. What perdure keeps here is private; what a project shares is not.
*
!.gitignore
!config.toml
!agents/
!agents/**
"""

_SETTINGS = """\
# Written by `perdure init`: what everybody who works on this project shares.

[store]
# The sessions of this project are in this namespace of each person's own store, apart from all
# others. Change it before there are sessions; --namespace and $PERDURE_NAMESPACE go before it.
namespace = "{namespace}"
"""

EXAMPLE = "helper.agent.yaml"

_AGENT = """\
# Written by `perdure init`: an agent that everybody who works on this project can talk to with
#   perdure chat --agent helper
# Change it, or delete it; `perdure agents validate` says what is wrong with it. What it may do is
# never more than who starts it allows (docs/guides/agents.md).
id: helper
description: Answers questions about this project; changes nothing.
model: scripted:echo  # offline; another one as provider:name, such as anthropic:claude-opus-4-5
system_prompt: |
  You answer questions about the project in {{ctx.working_dir}}. Look at its files before you
  answer, say which ones you looked at, and say so when you do not know.
tools:
  - read_file
  - list_directory
  - search_files
  - git_status
permissions:
  approval: plan
"""

_NO_NAME = "project"
_LONGEST = 60


class Made(msgspec.Struct, frozen=True):
    """A file of the project.

    `is_new` is True if the file was written now, False if it existed before.
    """

    path: Path
    is_new: bool


def namespace_for(folder: Path) -> str:
    """Return the name of `folder` as a namespace, with only letters, digits, dots and dashes."""
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.name).strip("-._")
    return words[:_LONGEST] or _NO_NAME


def set_up(folder: Path, namespace: str) -> tuple[Made, ...]:
    """Make `folder` a project whose sessions are in `namespace`.

    Raises: OSError.
    """
    place = folder / FOLDER
    place.mkdir(exist_ok=True)
    (place / AGENTS).mkdir(exist_ok=True)
    return (
        _make_file(place / FILE, _SETTINGS.format(namespace=namespace)),
        _make_file(place / ".gitignore", _IGNORED),
        _make_file(place / AGENTS / EXAMPLE, _AGENT),
    )


def _make_file(file: Path, text: str) -> Made:
    # Atomically: with partial settings, a concurrent command would use another namespace.
    return Made(file, is_new=write_new(file, text))


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_HISTORIES = (Path(".claude/projects"), Path(".pi/agent/sessions"), Path(".codex/sessions"))
"""Folders below the home folder in which other programs store sessions."""

_WHY = {
    "config.toml": "names the namespace of the project's sessions; commit it",
    ".gitignore": "keeps out of git what perdure may write here",
    EXAMPLE: "an agent to begin with: perdure chat --agent helper",
}


async def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The project's folder.")] = Path(),
    *,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The namespace of its sessions; default: the name of the folder."
        ),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Turn a folder into a project whose sessions have their own namespace.

    Writes .perdure/config.toml, a .gitignore and an example agent file. The configuration file sets
    the namespace of every command that runs in the folder or below it. The sessions stay in your
    own store, so deleting the folder deletes no session. Existing files are not changed, only
    reported.

    Examples:
        perdure init
        perdure init ~/code/tidepool --name tides

    Exit codes:
        2  the name is not a valid namespace, or the folder is your home folder
        3  the folder does not exist
    """
    project = _project_in(folder)
    if name is not None and not _NAME.fullmatch(name):
        raise UsageMistake(
            f"{name!r} cannot be a namespace here: use up to 100 letters, digits, dots, dashes and "
            "underscores, beginning with a letter or digit"
        )
    made = set_up(project, name or namespace_for(project))
    elsewhere = {name: text for name, text in os.environ.items() if name != "PERDURE_NAMESPACE"}
    namespace = setting("store.namespace", project, elsewhere) or NAMESPACE
    async with existing_store(store, NAMESPACE) as opened:
        before = await opened.recent(None, cwd=project) if namespace != NAMESPACE else []
    show_result(
        _data(project, namespace, made), _lines(project, namespace, made, before), as_json=as_json
    )


def _project_in(folder: Path) -> Path:
    require_folder(folder, "the folder of a project")
    project = folder.resolve()
    if project == Path("~").expanduser():
        raise UsageMistake(f"{project} is your home folder, and no project; name another folder")
    return project


def _data(project: Path, namespace: str, made: Sequence[Made]) -> dict[str, object]:
    files = [{"path": str(each.path), "made": each.is_new} for each in made]
    return {"project": str(project), "namespace": namespace, "files": files}


def _lines(
    project: Path, namespace: str, made: Sequence[Made], before: Sequence[SessionInfo]
) -> Iterator[str]:
    style = out_style()
    is_new = any(each.is_new for each in made)
    verb = "is a project now" if is_new else "is a project already"
    yield style.paint(f"{safe(str(project))} {verb}: its sessions are in {namespace!r}.", "strong")
    for each in made:
        done = "wrote" if each.is_new else "kept "
        path = each.path.relative_to(project)
        yield f"  {done} {str(path).ljust(34)} {style.paint(_WHY[each.path.name], 'faint')}"
    if before:
        sessions = count_of(len(before), "session")
        yield f"  {sessions} of this folder from before: perdure sessions list --namespace default"
    yield ""
    yield "Next:"
    typed = list(_to_type())
    longest = max(len(line) for line, _ in typed)
    for line, why in typed:
        yield f"  {line.ljust(longest)}  {style.paint(f'# {why}', 'faint')}"


def _to_type() -> Iterator[tuple[str, str]]:
    """Yield commands to try next, each with a description, depending on this machine's setup."""
    states = provider_states(os.environ)
    ready = [state.name for state in states if state.status == "configured"]
    real = [name for name in ready if name != "scripted"]
    if real:
        yield f"perdure chat -m {real[0]}:MODEL", "talk here"
    else:
        yield f"perdure chat -m {ECHO}", "talk here, with the offline model"
        yield "perdure models", "what the models of a provider need"
    for place in _HISTORIES:
        if (Path("~").expanduser() / place).is_dir():
            yield f"perdure import ~/{place}", "import sessions of other programs"
    yield "perdure doctor", "is everything set up?"
