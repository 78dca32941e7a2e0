"""``perdure init``: turns a folder into a project, and suggests the next commands."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.cli.options import JsonOption, StoreOption, require_folder
from perdure.apps.scaffold import Made, write_templates
from perdure.apps.settings.lookup import AGENTS, FILE, FOLDER, setting
from perdure.apps.settings.store_address import NAMESPACE
from perdure.apps.store_access import existing_store
from perdure.apps.terminal.output import count_of, out_style, show_result
from perdure.apps.terminal.text import safe
from perdure.client.agents.providers import provider_states
from perdure.models.catalogue import ECHO
from perdure.session.info import SessionInfo

EXAMPLE = "helper.agent.yaml"

FILES = (
    ("config.toml", f"{FOLDER}/{FILE}"),
    ("gitignore", f"{FOLDER}/.gitignore"),
    (EXAMPLE, f"{FOLDER}/{AGENTS}/{EXAMPLE}"),
)
"""Maps each template to its path in the project."""

_NO_NAME = "project"
_LONGEST = 60


def namespace_for(folder: Path) -> str:
    """Return the name of `folder` as a namespace, with only letters, digits, dots and dashes."""
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.name).strip("-._")
    return words[:_LONGEST] or _NO_NAME


def set_up(folder: Path, namespace: str) -> tuple[Made, ...]:
    """Make `folder` a project whose sessions are in `namespace`. Raises: OSError."""
    return write_templates(folder, "project", FILES, namespace)


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
            metavar="NAME",
            help="The namespace of the project's sessions; default: the name of the folder.",
        ),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Turn a folder into a project whose sessions have their own namespace.

    Writes .perdure/config.toml, a .gitignore and an example agent file. The configuration file sets
    the namespace of every command that runs in the folder or below it. The sessions stay in your
    own store, so deleting the folder deletes no session. The command does not change existing
    files, and reports them.

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
    files = [{"path": str(project / each.path), "made": each.is_new} for each in made]
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
        why = style.paint(_WHY[Path(each.path).name], "faint")
        yield f"  {done} {each.path.ljust(34)} {why}"
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
