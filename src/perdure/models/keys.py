"""Find and store the keys of providers, in the environment, a file, or the system's keyring.

In the keyring, the service is ``perdure`` and the user is the provider's name. A key file has the
provider's name, is in the folder ``keys`` beside the user's settings, and is readable only by its
owner.
Invariant: the string representation of an `ApiKey` never contains the key. `ApiKey.value` is read
only to send the key. Everything that is printed, logged or raised shows at most the source of the
key.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from perdure.bounds.files import open_named
from perdure.bounds.user_folders import user_folder
from perdure.errors import ConfigError
from perdure.models.catalogue import Provider
from perdure.secrets.vault import Lookup, in_keyring

MOST_BYTES = 8_192
"""Maximum bytes of a key file."""


class ApiKey:
    """A key; `source` is the place where it was found."""

    __slots__ = ("source", "value")

    def __init__(self, value: str, source: str) -> None:
        self.value = value
        self.source = source

    def __repr__(self) -> str:
        return f"ApiKey(from {self.source})"


def find_key(
    provider: Provider, environment: Mapping[str, str], lookup: Lookup = in_keyring
) -> ApiKey | None:
    """Return the key of `provider`, or None.

    The key is looked up in the environment first, then in the key file, then with `lookup` in the
    keyring. White space around the key is removed. Without a home folder there is no key file.

    Raises: ConfigError if the key file cannot be read, or if other users can read it.
    """
    for name in provider.key_variables:
        value = environment.get(name, "").strip()
        if value:
            return ApiKey(value, name)
    value = _stored_key(provider, environment)
    if value:
        return ApiKey(value, "file")
    value = (lookup(account_of(provider)) or "").strip()
    return ApiKey(value, "keyring") if value else None


def account_of(provider: Provider) -> str:
    """Return the name of the provider's key in the keyring; the key file has the same name."""
    return provider.key_name or provider.name


def key_file(provider: Provider, environment: Mapping[str, str]) -> Path:
    """Return the path of the file with the key of `provider`; the file need not exist.

    Raises: ConfigError if there is no home folder.
    """
    folder = user_folder("XDG_CONFIG_HOME", ".config", environment)
    return folder / "keys" / account_of(provider)


def write_key_file(path: Path, value: str) -> None:
    """Write the key `value` to the file at `path`, replacing an older file.

    Only the owner of the file can read the file. The content is synced, but the folder is not, so
    the file might be missing after a power loss.

    Raises: OSError if the file cannot be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    written = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(value + "\n")
            file.flush()
            os.fsync(file.fileno())
        written.replace(path)
    except BaseException:
        written.unlink(missing_ok=True)
        raise


def _stored_key(provider: Provider, environment: Mapping[str, str]) -> str:
    """Return the key in the file of `provider`; "" if there is no such file."""
    try:
        path = key_file(provider, environment)
    except ConfigError:  # no home folder
        return ""
    return _in_file(path)


def _in_file(path: Path) -> str:
    """Return the key in the file at `path`; "" if there is no such file."""
    try:
        with open_named(path) as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read(MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"the key file {path} cannot be read: {reason}") from error
    if mode & 0o077 and sys.platform != "win32":
        raise ConfigError(f"run chmod 600 {path}: others may read this key file (mode {mode:03o})")
    return content.decode("utf-8", "replace").strip()
