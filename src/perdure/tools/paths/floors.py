"""Names that are never read, and names that are never written, in whatever directory they are.

Pure. A name is compared as a file system might compare it: letter case, characters that nobody
sees, dots and spaces at the end and what follows a colon make no difference, since on some they
lead to the same file.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_SECRET = frozenset(
    (
        *(".ssh", ".aws", ".perdure", ".gnupg", ".password-store", ".kube", ".azure"),
        *(".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".dockercfg", ".gitconfig"),
        *(".git-credentials", ".my.cnf", ".vault-token", ".terraformrc", ".s3cfg", ".boto"),
        *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"),
    )
)
_SECRET_BELOW = {
    ".git": ("config", "credentials"),
    ".config": ("git", "gh", "gcloud", "op"),
    ".docker": ("config",),
    ".cargo": ("credentials",),
    ".gem": ("credentials",),
    ".m2": ("settings",),
}
"""Folder -> how names of secrets anywhere below it begin."""

_RECORDS = [".perdure", "records"]
"""The record folders of flows, which their roles work in; all else of ``.perdure`` is a secret."""

_SYSTEM_SECRETS = (
    ("etc", "shadow"),
    ("etc", "gshadow"),
    ("etc", "sudoers"),
    ("etc", "ssh"),
    ("proc",),
    ("sys",),
    ("dev",),
)
"""What is refused below the root of the file system, where a path may lead there at all."""

_PROTECTED = frozenset(
    (
        ".git",
        # what a shell, a desktop or an editor runs by itself
        *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile"),
        *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc"),
        *(".login", ".logout", ".inputrc", ".xinitrc", ".xprofile", ".xsession", ".xsessionrc"),
        *(".xserverrc", ".xresources", ".pam_environment", ".vimrc", ".exrc", ".emacs", ".gdbinit"),
        *(".gitmodules", ".hgrc", ".curlrc", ".wgetrc", ".mailcap", ".forward"),
        *("sitecustomize.py", "usercustomize.py", ".pythonrc.py", ".pythonstartup"),
        *(".vscode", ".idea", ".husky", ".devcontainer", ".envrc"),
        *("authorized_keys", "crontab"),
    )
)
_PROTECTED_BELOW = {
    ".config": ("fish", "autostart", "systemd", "environment.d", "nvim", "pip"),
    ".local": ("bin",),
    "library": ("launchagents", "launchdaemons"),
}
_PROTECTED_SYSTEM = (*_SYSTEM_SECRETS, ("etc",), ("boot",), ("usr",), ("bin",), ("sbin",), ("lib",))

_GIT_SHORT = re.compile(r"git~[0-9]+")  # what some file systems also call .git


def is_secret(names: Sequence[str], *, is_absolute: bool = False) -> bool:
    """Whether the file or folder at `names` may not be read.

    Shape: `names` from the top down; `is_absolute`: the top is that of the file system.
    """
    folded = [folded_name(name) for name in names]
    if any(
        (name in _SECRET and folded[place : place + 2] != _RECORDS) or name.startswith(".env")
        for place, name in enumerate(folded)
    ):
        return True
    if is_absolute and _begins(folded, _SYSTEM_SECRETS):
        return True
    return _is_below(folded, _SECRET_BELOW)


def is_protected(names: Sequence[str], *, is_absolute: bool = False) -> bool:
    """Whether the file or folder at `names` may not be written, made or replaced.

    Shape: as `is_secret`, all of which is protected.
    """
    if is_secret(names, is_absolute=is_absolute):
        return True
    folded = [folded_name(name) for name in names]
    if any(name in _PROTECTED or _GIT_SHORT.fullmatch(name) for name in folded):
        return True
    if is_absolute and _begins(folded, _PROTECTED_SYSTEM):
        return True
    return _is_below(folded, _PROTECTED_BELOW)


def folded_name(name: str) -> str:
    """`name` as those file systems see it that see the least."""
    normal = unicodedata.normalize("NFKC", name)
    seen = "".join(c for c in normal if unicodedata.category(c) not in ("Cf", "Cc"))
    return unicodedata.normalize("NFKC", seen.casefold()).partition(":")[0].strip().rstrip(". ")


def _begins(folded: Sequence[str], places: Sequence[tuple[str, ...]]) -> bool:
    return any(tuple(folded[: len(place)]) == place for place in places)


def _is_below(folded: Sequence[str], below: dict[str, tuple[str, ...]]) -> bool:
    return any(
        name.startswith(below.get(above, ()))
        for place, name in enumerate(folded)
        for above in folded[:place]
    )
