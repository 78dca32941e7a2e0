"""Find the key of a store.

The key comes from the argument, or else from ``$PERDURE_KEY``, or else from the file
``$PERDURE_KEY_FILE``. If a configured key cannot be read, an error is raised; perdure never tries
to open the store without the key. The keyring of the operating system is used only for a store that
turns out to be encrypted (`keyring_keys`). No error message contains a key.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.bounds.files import open_named
from perdure.client.lookup.store_files import FILE_ADDRESS, database_file
from perdure.errors import KeyMissing
from perdure.secrets.keyrings import usable_keyring
from perdure.stores.access.lazy_modules import Later
from perdure.stores.fsync import create_private
from perdure.stores.key import StoreKey

if TYPE_CHECKING:
    from perdure.secrets import vault
else:
    vault = Later("perdure.secrets.vault")

NEXT = " (next)"
"""During a rekey, the keyring stores the new key under the store's address with this suffix."""


def configured_key(
    given: bytes | str | StoreKey | None, environment: Mapping[str, str], address: str
) -> StoreKey | None:
    """Return the key `given`, or else the key that the environment sets; None if there is no key.

    Raises: WrongArgument if `given` is not a key. Raises KeyMissing if the key in the environment
    is missing or invalid, or is in a file that other users can read.
    """
    if isinstance(given, StoreKey):
        return given
    if given is not None:
        return StoreKey.of(given)
    if "PERDURE_KEY" in environment:
        return _key_in(environment["PERDURE_KEY"], "PERDURE_KEY", address)
    if "PERDURE_KEY_FILE" in environment:
        if not environment["PERDURE_KEY_FILE"]:
            raise KeyMissing(address, "PERDURE_KEY_FILE is empty")
        return key_in_file(Path(environment["PERDURE_KEY_FILE"]), address)
    return None


def key_in_file(path: Path, address: str) -> StoreKey:
    """Return the key in the file `path`; other users must have no access to the file.

    Raises: KeyMissing if the file is missing, can be read by other users, or contains no key.
    """
    try:
        with open_named(path) as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read(1_000)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise KeyMissing(address, f"the key file {path} cannot be read: {reason}") from error
    if mode & 0o077 and sys.platform != "win32":
        reason = f"others may read the key file {path} (mode {mode:03o}): chmod 600 {path}"
        raise KeyMissing(address, reason)
    return _key_in(content.decode("ascii", "replace"), f"the key file {path}", address)


def write_key_file(path: Path, key: StoreKey) -> None:
    """Create the file `path` with `key` in it, readable only by its owner.

    Durable: the key is on disk when this returns. Raises: FileExistsError, OSError.
    """
    create_private(path, f"{key.reveal()}\n".encode())


def _key_in(text: str, place: str, address: str) -> StoreKey:
    try:
        return StoreKey.of(text.strip())
    except ValueError:
        reason = f"{place} holds no key: it has to be 64 hexadecimal digits"
    raise KeyMissing(address, reason)


# ---------------------------------------------------------------- the keyring


def canonical(address: str) -> str:
    """Return a store's name in a keyring: the address with the absolute path of the file."""
    file = database_file(address)
    return address if file is None else f"{FILE_ADDRESS}{file.resolve()}"


def keyring_keys(address: str) -> tuple[StoreKey, ...]:
    """Return the keys of the store from the keyring; () if there is no usable keyring.

    Shape: the store's own key, then the new key of an interrupted rekey. Blocks: the function can
    prompt the user to unlock the keyring.
    """
    found: list[StoreKey] = []
    for user in (canonical(address), canonical(address) + NEXT):
        kept = vault.in_keyring(user)
        with suppress(ValueError):  # it is not our key
            found += () if kept is None else (StoreKey.of(kept),)
    return tuple(found)


def has_keyring() -> bool:
    """Whether this system has a usable keyring; the check never prompts the user."""
    try:
        keyring: Any = usable_keyring()
        return keyring is not None and keyring.get_keyring().priority > 0
    except Exception:  # noqa: BLE001 - not installed, or a backend that fails to load
        return False


def keep_next_key(address: str, key: StoreKey) -> bool:
    """Store `key` in the keyring as the new key of a rekey; return whether this succeeded.

    Blocks the thread.
    """
    return vault.keep_in_keyring(canonical(address) + NEXT, key.reveal())


def keep_key(address: str, key: StoreKey) -> bool:
    """Store `key` in the keyring as the store's own key; return whether this succeeded.

    Blocks the thread.
    """
    is_kept = vault.keep_in_keyring(canonical(address), key.reveal())
    if is_kept:
        forget_key(canonical(address) + NEXT)
    return is_kept


def forget_key(user: str) -> None:
    """Remove the key with the name `user` from the keyring, if it exists. Blocks the thread."""
    vault.drop_from_keyring(user)
