"""What ``perdure init`` writes into a folder. What is there already is never replaced."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from perdure.apps.settings.paths import AGENTS, FILE, FOLDER
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
    """A file of the project. `is_new`: it was written now; else it was there, and was kept."""

    path: Path
    is_new: bool


def namespace_for(folder: Path) -> str:
    """A namespace named after `folder`: letters, digits, dots, dashes."""
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
    # Whole: with half of the settings, whoever starts a command meanwhile is in another namespace.
    return Made(file, is_new=write_new(file, text))
