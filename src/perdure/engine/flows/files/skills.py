"""The skills of a project: instructions in files that roles can list.

A skill is a folder ``a-docs/skills/<name>`` with a file ``SKILL.md``: front matter with the name
and purpose of the skill, followed by its text. ``a-docs/roles/<role>/skills.yaml`` lists the skills
of a role. A name that is not a skill is an error with file and line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from perdure.engine.flows.files.required_readings import DOCS, read_key
from perdure.engine.flows.prompts.entry import Skill
from perdure.errors import ConfigError
from perdure.secrets.pasted_keys import credentials_in
from perdure.tools.paths.project_files import is_there, read_inside
from perdure.yaml.nodes import YamlNode, YamlReader

FOLDER = f"{DOCS}/skills"
FILE = "SKILL.md"
"""The file of a skill.

This file is sent to the model in every turn of its role; put large content in other files.
"""

LONGEST_DESCRIPTION = 1024

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_KNOWN = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
"""The valid keys of front matter. All except the first two are for other programs and ignored."""


class SkillShelf:
    """Reads the skills of one project.

    Blocks: call the methods in a thread, not on the event loop.
    """

    def __init__(self, project: Path) -> None:
        self._project = project

    def names(self) -> tuple[str, ...]:
        """Return the names of all skills."""
        folder = self._project / FOLDER
        if not folder.is_dir():
            return ()
        return tuple(sorted(each.name for each in folder.iterdir() if (each / FILE).is_file()))

    def whole(self) -> dict[str, Skill]:
        """Return every skill by name. Raises: ConfigError if a skill is invalid."""
        return {name: self.skill(name) for name in self.names()}

    def skill(self, name: str, place: str = "") -> Skill:
        """Return the skill called `name`; `place` is the file that lists it, for error messages.

        Raises: ConfigError if the skill does not exist or is invalid.
        """
        known = self.names()
        if name not in known:
            told = ", ".join(known) or "none"
            asked = f"{place}: " if place else ""
            raise ConfigError(f"{asked}there is no skill {name!r} in {FOLDER}; there are: {told}")
        return _skill(name, f"{FOLDER}/{name}/{FILE}", self._text(f"{FOLDER}/{name}/{FILE}"))

    def of_role(self, role: str) -> tuple[Skill, ...]:
        """Return the skills that the base role `role` lists in its file.

        Raises: ConfigError if a skill does not exist or is invalid.
        """
        path = f"{DOCS}/roles/{role}/skills.yaml"
        if not is_there(self._project, path):
            return ()
        listed = read_key(self._text(path), path, "skills", _listed_names)
        return tuple(self.skill(name, place) for name, place in listed)

    def faults(self, roles: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the faults of all skills, and of the skills that `roles` require, as sentences."""
        found: list[str] = []
        for look_up, names in ((self.skill, self.names()), (self.of_role, roles)):
            for name in names:
                try:
                    look_up(name)
                except ConfigError as error:
                    found.append(str(error))
        return tuple(dict.fromkeys(found))

    def _text(self, path: str) -> str:
        return read_inside(self._project, path).decode(errors="replace")


def _skill(name: str, path: str, text: str) -> Skill:
    for line, kind in credentials_in(text):
        raise ConfigError(
            f"{path}, line {line}: it holds what looks like a credential ({kind}); take it out, "
            "every turn of a role is told its skills"
        )
    head, body = _split_front_matter(text, path)
    reader = YamlReader()
    root = reader.root(head)
    fields: Mapping[str, YamlNode] = {}
    if root is not None:
        fields = reader.mapping(root, _KNOWN, ("name", "description"))
    called = _line(reader, fields, "name")
    told = _line(reader, fields, "description")
    if called and (called != name or not _NAME.fullmatch(name)):
        reader.fault(fields["name"], f"it is called {called!r}; its folder {name!r} (kebab-case)")
    if len(told) > LONGEST_DESCRIPTION:
        reader.fault(fields["description"], f"keep it within {LONGEST_DESCRIPTION} characters")
    if reader.faults:
        raise ConfigError(f"{path}: {'; '.join(reader.faults)}")
    return Skill(name, told, path, body.strip())


def _split_front_matter(text: str, path: str) -> tuple[str, str]:
    """Return the front matter of a file, and the text after it."""
    lines = text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}").splitlines()
    if not lines or lines[0].rstrip() != "---":
        raise ConfigError(f"{path}, line 1: it begins with `---`, name, description, `---`")
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() == "---":
            # An empty first line, so that the line of a fault is the line of the file.
            return "\n".join(["", *lines[1:number]]), "\n".join(lines[number + 1 :])
    raise ConfigError(f"{path}, line 1: its front matter has no end: write a line `---` after it")


def _line(reader: YamlReader, fields: Mapping[str, YamlNode], name: str) -> str:
    if name not in fields:
        return ""
    text = reader.text(fields[name]).strip()
    if fields[name].kind == "str" and not text:
        reader.fault(fields[name], f"{name!r} says nothing")
    return " ".join(text.split())


def _listed_names(reader: YamlReader, node: YamlNode, name: str) -> list[tuple[str, str]]:
    """Return the names in a ``skills.yaml``, each with its location."""
    return [(reader.text(item), f"{name}, line {item.line}") for item in reader.items(node)]
