"""Decide by the names in a file's path whether tools are allowed to read or write the file.

The rules on names apply in every directory. The functions of this module are pure. The most lenient
file systems ignore letter case, invisible characters, dots and spaces at the end of a name, and
everything after a colon. Names that these file systems treat as equal can lead to the same file, so
this module compares names in the same way.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

Names: TypeAlias = tuple[str, ...]
"""A path as names, from the root of the file system down; each name is folded (`folded_name`)."""

_SECRET = frozenset(
    (
        # credentials
        *(".ssh", ".aws", ".gnupg", ".password-store", ".kube", ".azure", ".oci", ".terraform.d"),
        *(".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".dockercfg", ".gitconfig"),
        *(".git-credentials", ".my.cnf", ".vault-token", ".terraformrc", ".s3cfg", ".boto"),
        # perdure, and the programs whose sessions can be imported
        *(".perdure", ".claude", ".claude.json", ".mcp.json", ".codex", ".pi", ".opencode"),
        *("opencode.json", "opencode.jsonc", ".operator", ".portal", ".relavium", ".a-society"),
        # files that a shell runs by itself, and its history
        *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile"),
        *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc"),
        *(".login", ".logout", ".inputrc", ".xinitrc", ".xprofile", ".xsession", ".xsessionrc"),
        *(".xserverrc", ".pam_environment", ".bash_history", ".zsh_history", ".sh_history"),
        *(".python_history", ".node_repl_history", ".psql_history", ".mysql_history"),
        # data of browsers and mail programs
        *(".mozilla", ".thunderbird", ".librewolf", ".waterfox"),
    )
)
_SECRET_BELOW: dict[str, tuple[str, ...]] = {
    ".git": ("config", "credentials"),
    ".config": (
        *("git", "gh", "gcloud", "op", "perdure", "opencode", "operator", "fish", "zsh"),
        *("powershell", "nushell", "age", "sops", "google-chrome", "chromium", "bravesoftware"),
        *("microsoft-edge", "vivaldi", "opera", "librewolf", "rclone", "hub", "glab"),
    ),
    ".local": ("perdure", "opencode", "operator", "keyrings", "kwalletd", "powershell"),
    ".var": ("com.google.chrome", "org.mozilla", "org.chromium", "com.brave", "com.microsoft.edge"),
    ".docker": ("config",),
    ".cargo": ("credentials",),
    ".gem": ("credentials",),
    ".m2": ("settings",),
    "snap": ("firefox", "chromium", "brave", "opera", "thunderbird"),
    "library": ("keychains", "cookies", "safari"),
    "application support": (
        *("perdure", "google", "chromium", "firefox", "bravesoftware", "microsoft edge", "vivaldi"),
        *("com.operasoftware", "claude", "thunderbird"),
    ),
    "appdata": (
        *("perdure", "mozilla", "google", "chromium", "bravesoftware", "microsoft", "vivaldi"),
        *("opera software", "thunderbird", "claude"),
    ),
}
"""Maps folders to prefixes of names that are secret anywhere below the folder."""

_KEY_FILE = re.compile(
    r"id_(?:rsa|dsa|ecdsa|ed25519|xmss)(?:[_-][^.]*)?"
    r"|.+\.(?:pem|key|p12|pfx|p8|pk8|jks|keystore|kdbx|ppk|agekey)"
)

_RECORDS = [".perdure", "records"]
"""The record folders of flows, in which their roles work; everything else in ``.perdure`` is
secret.
"""

_SYSTEM_SECRETS = (
    ("etc", "shadow"),
    ("etc", "gshadow"),
    ("etc", "sudoers"),
    ("etc", "ssh"),
    ("etc", "profile"),
    ("etc", "bash.bashrc"),
    ("etc", "zsh"),
    ("proc",),
    ("sys",),
    ("dev",),
)
"""Secret paths below the root of the file system.

These paths matter only if tools can leave the jail.
"""

_PROTECTED = frozenset(
    (
        ".git",
        # files that a desktop, an editor or another program runs by itself
        *(".xresources", ".vimrc", ".exrc", ".emacs", ".gdbinit"),
        *(".gitmodules", ".hgrc", ".curlrc", ".wgetrc", ".mailcap", ".forward"),
        *("sitecustomize.py", "usercustomize.py", ".pythonrc.py", ".pythonstartup"),
        *(".vscode", ".idea", ".husky", ".devcontainer", ".envrc"),
        *("authorized_keys", "crontab"),
    )
)
_PROTECTED_BELOW: dict[str, tuple[str, ...]] = {
    ".config": ("autostart", "systemd", "environment.d", "nvim", "pip"),
    ".local": ("bin",),
    "library": ("launchagents", "launchdaemons"),
}
_PROTECTED_SYSTEM = (*_SYSTEM_SECRETS, ("etc",), ("boot",), ("usr",), ("bin",), ("sbin",), ("lib",))

_GIT_SHORT = re.compile(r"git~[0-9]+")  # other names of .git on some file systems


class Floors(msgspec.Struct, frozen=True):
    """Places of this machine that tools cannot access, besides the names closed everywhere.

    `closed` are files and folders with all their content; `stems` are prefixes of closed files (a
    database and its side files). The only exception is `record`, the record folder of the flow that
    a call works for. The path to the record folder is not secret. For a file in the record folder,
    only the names below this folder decide whether tools are allowed to use the file.
    """

    closed: frozenset[Names] = frozenset()
    stems: frozenset[Names] = frozenset()
    record: Names | None = None

    def is_closed(self, place: Names) -> bool:
        """Return True if `place` is one of the closed places, or below one of them."""
        if not self.closed and not self.stems:
            return False
        above = [place[:length] for length in range(1, len(place) + 1)]
        if not self.closed.isdisjoint(above):
            return True
        return any(
            len(place) >= len(stem)
            and place[: len(stem) - 1] == stem[:-1]
            and place[len(stem) - 1].startswith(stem[-1])
            for stem in self.stems
        )

    def in_record(self, place: Names) -> Names | None:
        """Return the part of `place` below the flow's record folder; None if it is outside."""
        record = self.record
        if record is None or place[: len(record)] != record:
            return None
        return place[len(record) :]

    def with_record(self, place: Path) -> Floors:
        """Return these closed places with the record folder `place`.

        Links in `place` are not followed.
        """
        names = tuple(folded_name(name) for name in place.parts if name != place.anchor)
        return Floors(self.closed, self.stems, names)

    def leads_to_record(self, place: Names) -> bool:
        """Return True if `place` is a folder on the path to the flow's record folder."""
        return self.record is not None and self.record[: len(place)] == place


Rule: TypeAlias = Callable[..., bool]
"""One of the functions `is_secret` and `is_protected`."""


def is_refused(
    rule: Rule, floors: Floors, root: Names, names: Sequence[str], *, is_absolute: bool
) -> bool:
    """Return True if `rule` or the closed places `floors` forbid the path `names` below `root`."""
    place = (*root, *map(folded_name, names))
    if floors.is_closed(place):
        return True
    inner = floors.in_record(place)
    if inner is not None:
        return rule(inner, has_records=False)
    return rule(names, is_absolute=is_absolute, has_records=False)


def is_secret(names: Sequence[str], *, is_absolute: bool = False, has_records: bool = True) -> bool:
    """Return True if tools must not read the file or folder at `names`.

    Shape: `names` are in order from the top folder down. If `is_absolute` is True, the names start
    at the root of the file system. perdure's own data is secret, except the record folders of flows
    if `has_records` is True.
    """
    folded = [folded_name(name) for name in names]
    if any(
        _is_secret_name(name) and not (has_records and folded[place : place + 2] == _RECORDS)
        for place, name in enumerate(folded)
    ):
        return True
    if is_absolute and _begins(folded, _SYSTEM_SECRETS):
        return True
    return _is_below(folded, _SECRET_BELOW)


def is_protected(
    names: Sequence[str], *, is_absolute: bool = False, has_records: bool = True
) -> bool:
    """Return True if tools must not write, create or replace the file or folder at `names`.

    Shape: `names` have the form that `is_secret` describes. A secret file or folder is also
    protected.
    """
    if is_secret(names, is_absolute=is_absolute, has_records=has_records):
        return True
    folded = [folded_name(name) for name in names]
    if any(name in _PROTECTED or _GIT_SHORT.fullmatch(name) for name in folded):
        return True
    if is_absolute and _begins(folded, _PROTECTED_SYSTEM):
        return True
    return _is_below(folded, _PROTECTED_BELOW)


def is_hidden(names: Sequence[str]) -> bool:
    """Return True if any name in the path `names` starts with a dot."""
    return any(name.startswith(".") and name not in (".", "..") for name in map(_normal, names))


def folded_name(name: str) -> str:
    """Return `name` in the form in which the most lenient file systems compare names."""
    normal = unicodedata.normalize("NFKC", _normal(name).casefold())
    return normal.partition(":")[0].strip().rstrip(". ")


def _normal(name: str) -> str:
    normal = unicodedata.normalize("NFKC", name)
    return "".join(c for c in normal if unicodedata.category(c) not in ("Cf", "Cc"))


def _is_secret_name(name: str) -> bool:
    if name in _SECRET or name.startswith(".env"):
        return True
    return _KEY_FILE.fullmatch(name) is not None


def _begins(folded: Sequence[str], places: Sequence[tuple[str, ...]]) -> bool:
    return any(tuple(folded[: len(place)]) == place for place in places)


def _is_below(folded: Sequence[str], below: dict[str, tuple[str, ...]]) -> bool:
    return any(
        name.startswith(below.get(above, ()))
        for place, name in enumerate(folded)
        for above in folded[:place]
    )
