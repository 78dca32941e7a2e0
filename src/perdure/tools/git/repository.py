"""Find the git repository at the top of the working directory, and its dangerous parts.

perdure tells git where the checked repository is, so git does not search for another one. This
module starts no program except ``git config``, which only reads text.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from perdure.errors import ToolDenied, ToolError
from perdure.tools.approval import Doubt
from perdure.tools.git.configuration import (
    Configuration,
    configuration_of,
    is_include,
    read_regular,
)
from perdure.tools.git.keys import Setting, fate_of

DOT_GIT = ".git"
MAX_NAMED = 5

_NOT_THE_TOP = "the working directory is not the top of a git repository"
_GITDIR = b"gitdir:"
_FOLDERS = (".", "objects", "objects/info", "objects/pack", "refs", "refs/heads", "info")


class Concern(msgspec.Struct, frozen=True):
    """A setting or file that git would use and that perdure cannot disable.

    `name` is the key or the file. `content` is all data that determines the effect of the setting
    or file.
    """

    name: str
    content: bytes = b""


class Repository(msgspec.Struct, frozen=True):
    """A repository in which git can run.

    `git_dir` is the git folder that belongs only to the working tree `top`. `own` are the settings
    of the repository's configuration. If there are `concerns`, perdure asks a person before it runs
    git.
    """

    top: Path
    git_dir: Path
    own: tuple[Setting, ...]
    concerns: tuple[Concern, ...]

    @property
    def grant(self) -> str | None:
        """Return the grant that allows all concerns; None if there are no concerns.

        Two grants are equal only for the same repository with equal concerns.
        """
        if not self.concerns:
            return None
        digest = hashlib.blake2b(digest_size=16)
        for part in (os.fsencode(self.top), os.fsencode(self.git_dir)):
            digest.update(len(part).to_bytes(8) + part)
        for concern in self.concerns:
            for part in (concern.name.encode("utf-8", "surrogateescape"), concern.content):
                digest.update(len(part).to_bytes(8) + part)
        return f"git {digest.hexdigest()} {self.concern_names}"

    @property
    def doubt(self) -> Doubt | None:
        """Return the question to ask before git runs in the repository, if any."""
        if self.grant is None:
            return None
        text = (
            f"The git repository in this folder sets {self.concern_names}, which may start a "
            "program or lead out of the folder, and which perdure cannot turn off."
        )
        return Doubt(text, self.grant)

    @property
    def concern_names(self) -> str:
        """Return the names of the first few concerns."""
        names = list(dict.fromkeys(concern.name for concern in self.concerns))
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        return ", ".join(names[:MAX_NAMED]) + more


def repository_at(place: Path, environment: Mapping[str, str]) -> Repository:
    """Return the repository whose working tree is `place`. Blocks the thread.

    `environment` is passed to the started programs.
    Raises: ToolError if there is no repository, or only a bare one. Raises ToolDenied if the
    repository's files cannot be read safely. Raises ToolUnavailable if git cannot be run.
    """
    top = place.resolve()
    concerns: list[Concern] = []
    git_dir = _git_dir(top, concerns)
    common_dir = _common_dir(git_dir, concerns)
    files = (common_dir / "config", git_dir / "config.worktree")
    configuration = configuration_of(files, environment["PATH"], environment.get("HOME"))
    if git_dir != top / DOT_GIT and not _knows(git_dir, common_dir, top, configuration):
        concerns.append(Concern(DOT_GIT, os.fsencode(git_dir)))
    concerns.extend(_links(git_dir, common_dir))
    concerns.extend(_alternates(common_dir))
    concerns.extend(_keys(configuration))
    return Repository(top, git_dir, configuration.settings, tuple(concerns))


def _git_dir(top: Path, concerns: list[Concern]) -> Path:
    """Return the git folder of `top`: ``.git``, or the folder that the file ``.git`` names.

    The git folder is never `top` itself. Anything suspicious is added to `concerns`.
    """
    dot = top / DOT_GIT
    try:
        mode = dot.lstat().st_mode
    except OSError:
        raise ToolError("git", _NOT_THE_TOP) from None
    if stat.S_ISLNK(mode):
        concerns.append(Concern(f"{DOT_GIT} (a link)", os.fsencode(dot.resolve())))
    found = dot
    if not dot.is_dir():
        content = read_regular(dot) or b""
        if not content.startswith(_GITDIR):
            raise ToolError("git", _NOT_THE_TOP)
        found = top / os.fsdecode(content.removeprefix(_GITDIR).strip())
    if stat.S_ISLNK(mode) or found != dot:
        found = found.resolve()
    if not found.is_dir() or not (found / "HEAD").exists():
        raise ToolError("git", _NOT_THE_TOP)
    if found.stat().st_uid not in (os.geteuid(), 0):
        concerns.append(Concern(f"{DOT_GIT} (it belongs to another user)"))
    return found


def _common_dir(git_dir: Path, concerns: list[Concern]) -> Path:
    """Return the folder that all working trees share.

    If `git_dir` is not in the shared folder's ``worktrees``, a concern is added to `concerns`.
    """
    said = read_regular(git_dir / "commondir")
    if said is None:
        return git_dir
    found = (git_dir / os.fsdecode(said.strip())).resolve()
    if git_dir.parent != found / "worktrees":
        concerns.append(Concern(f"{DOT_GIT}/commondir", os.fsencode(found)))
    return found


def _knows(git_dir: Path, common_dir: Path, top: Path, configuration: Configuration) -> bool:
    """Return True if `git_dir` declares `top` as its working tree.

    `git_dir` is the folder that the file ``.git`` in `top` names. The git folders of a worktree and
    of a submodule declare their working tree. A git folder inside the working tree proves nothing,
    because the author of the file ``.git`` could also write the folder.
    """
    if git_dir.is_relative_to(top) or common_dir.is_relative_to(top):
        return False
    dot = top / DOT_GIT
    back = read_regular(git_dir / "gitdir")
    if back is not None and git_dir.parent == common_dir / "worktrees":
        return (git_dir / os.fsdecode(back.strip())).resolve() == dot
    worktrees = [s.value for s in configuration.settings if s.key == "core.worktree" and s.value]
    return bool(worktrees) and (git_dir / str(worktrees[-1])).resolve() == top


def _links(git_dir: Path, common_dir: Path) -> Iterator[Concern]:
    """Yield a concern for each link in the repository's folders that leads outside of them.

    Raises: ToolDenied if there is a pipe or a device, on which git would block.
    """
    roots = (git_dir, common_dir)
    for folder in dict.fromkeys(root / name for root in roots for name in _FOLDERS):
        try:
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                raise ToolDenied("git", f"the repository holds a pipe or device: {entry.name}")
            if not stat.S_ISLNK(mode):
                continue
            target = Path(entry.path).resolve()
            if not any(target.is_relative_to(root) for root in roots):
                name = Path(entry.path).relative_to(folder.parent).as_posix()
                yield Concern(f"{name} (a link)", os.fsencode(target))


def _alternates(common_dir: Path) -> Iterator[Concern]:
    """Yield a concern for each file that makes git read objects or history from other places."""
    content = read_regular(common_dir / "objects" / "info" / "alternates")
    if content is not None and content.strip():
        yield Concern("objects/info/alternates", content)


def _keys(configuration: Configuration) -> Iterator[Concern]:
    for setting in configuration.settings:
        if fate_of(setting) == "neither" and not is_include(setting):
            value = (setting.value or "").encode("utf-8", "surrogateescape")
            yield Concern(setting.key, value)
    for included in configuration.included:
        setting = included.setting
        value = (setting.value or "").encode("utf-8", "surrogateescape")
        yield Concern(setting.key, value + b"\0" + (included.content or b""))
