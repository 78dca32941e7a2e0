"""Finds and opens the store of a command, and creates it if requested.

Commands that only read never create a store, so they require an existing store
(`cli/store_options.py`). For `init` and completion, a missing store counts as an empty store in
memory.
"""

from __future__ import annotations

import importlib
import os
import shlex
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from perdure.apps.settings.lookup import setting
from perdure.apps.settings.store_address import NAMESPACE, configured_address
from perdure.apps.terminal.output import remark
from perdure.client.keys import configured_key, has_keyring, keep_key, keyring_keys
from perdure.client.lookup.store_files import (
    FILE_ADDRESS,
    database_file,
    own_folders,
)
from perdure.client.open import StoreOpening, check_address, open_copied
from perdure.client.open import open as open_store
from perdure.stores.access.lock_holder import LOCK_TIMEOUT_S
from perdure.stores.key import KEY_BYTES, StoreKey
from perdure.stores.maintenance.file_lock import in_turn

KEYFILE = "KEYFILE"
"""Placeholder in a printed command for a key file that the user creates."""

_HEADER_BYTES = 100
"""Size of the header of an SQLite file; bytes 68 to 71 are its application id."""


def store_address(named: str | None) -> str:
    """Return the address of the store: `named`, or $PERDURE_STORE, or the user's setting.

    The default is the address of a file in the user's data folder.
    Raises: ConfigError if the settings cannot be read, or if the home folder is missing or invalid.
    """
    return check_address(configured_address(named))


def file_address(file: Path) -> str:
    """Return the address of the store in `file`."""
    return f"{FILE_ADDRESS}{file.absolute()}"


def is_store_file(path: Path) -> bool:
    """Return whether `path` is an SQLite store of perdure that is not encrypted."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            start = file.read(_HEADER_BYTES)
    except OSError:
        return False
    return start.startswith(b"SQLite format 3\0") and start[68:72] == b"PRDU"


def copy_command(file: Path, target: str, namespace: str) -> str:
    """Return the command that copies the plain store in `file` to `namespace` of `target`.

    The command unsets $PERDURE_KEY and $PERDURE_KEY_FILE, because the store in `file` has no key.
    If $PERDURE_KEY or $PERDURE_KEY_FILE is set and `target` is SQLite, the command names the key
    file of the target. If $PERDURE_KEY is set, the key file of the target is `KEYFILE`, which the
    user must create.
    """
    is_local = database_file(target) is not None or bool(own_folders(target))
    words = ["perdure", "store", "copy", target if is_local else "ADDRESS"]
    words += ["--store", file_address(file)]
    if namespace != NAMESPACE:
        words += ["--namespace", NAMESPACE, "--target-namespace", namespace]
    keys = [name for name in ("PERDURE_KEY", "PERDURE_KEY_FILE") if name in os.environ]
    if keys:
        unset = [word for name in keys for word in ("-u", name)]
        words = ["env", *unset, *words]
    if keys and database_file(target) is not None:
        named = None if "PERDURE_KEY" in keys else os.environ["PERDURE_KEY_FILE"]
        words += ["--target-key-file", named or KEYFILE]
    return shlex.join(words)


def is_missing(address: str) -> bool:
    """Return whether `address` names a file or folder that does not exist."""
    file = database_file(address)
    if file is not None:
        return not file.exists()
    return any(not folder.exists() for folder in own_folders(address))


def writable_store(named: str | None, namespace: str = NAMESPACE) -> StoreOpening:
    """Open the store, for an ``async with``; create it if it does not exist.

    Raises: the errors of `perdure.open`.
    """
    address = store_address(named)
    is_own = named is None and "PERDURE_STORE" not in os.environ
    is_first = is_own and database_file(address) is not None and is_missing(address)
    key = offered_key(address) if is_first and is_at_terminal() else None
    return _opening(address, namespace, key)


def existing_store(named: str | None, namespace: str = NAMESPACE) -> StoreOpening:
    """Open the store, for an ``async with``; if it does not exist, open an empty one in memory.

    Raises: the errors of `perdure.open`.
    """
    address = store_address(named)
    return _opening("memory:" if is_missing(address) else address, namespace)


def _opening(address: str, namespace: str, key: StoreKey | None = None) -> StoreOpening:
    wait_s = _lock_timeout_s()
    return open_store(
        address, namespace=namespace, key=key, is_trusted=False, lock_timeout_s=wait_s
    )


def scratch_store() -> StoreOpening:
    """Open a new empty store in memory, for an ``async with``; its content is not saved."""
    return open_store("memory:")


def copied_store(named: str | None, namespace: str = NAMESPACE) -> StoreOpening:
    """Open the store that a copy reads from, for an ``async with``; the store must exist.

    Raises: the errors of `open_copied`.
    """
    address = store_address(named)
    return open_copied(address, namespace=namespace, lock_timeout_s=_lock_timeout_s())


def _lock_timeout_s() -> float:
    return float(setting("store.lock_timeout_s") or LOCK_TIMEOUT_S)


QUESTION = "This is your first session here. Encrypt the store, with a key in your keyring?"
_SQLITE = "sqlite:///"
_REFUSED = "the keyring did not take the key, so the store is plain; see `perdure store rekey`"


def is_at_terminal() -> bool:
    """Return whether there is a terminal at which a person can answer questions."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask_consent() -> bool:
    """Return a person's answer to `QUESTION`; the default is yes.

    Raises: typer.Abort if the person gives no answer.
    """
    # Imported lazily: completion opens stores, and has no time to load typer.
    confirm: Callable[..., bool] = importlib.import_module("typer").confirm
    return confirm(QUESTION, default=True, err=True)


def offered_key(address: str, ask: Callable[[], bool] = ask_consent) -> StoreKey | None:
    """Return a key from the keyring for a new store at `address`, if the person agrees.

    Returns None if the store gets no key of its own.
    Raises: the errors of `configured_key`.
    """
    if configured_key(None, os.environ, address) is not None or not has_keyring():
        return None
    with _interruptible():
        return _kept_key(address) if ask() else None


@contextmanager
def _interruptible() -> Generator[None]:
    """Let Ctrl-C end a blocking call, because the event loop's handler only cancels the task."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _kept_key(address: str) -> StoreKey | None:
    """Return the store's key from the keyring; if there is none, create a key in the keyring.

    Returns None if the key cannot be added, or if the store's folder cannot be created.
    """
    folder = Path(address.removeprefix(_SQLITE)).absolute().parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None  # the store cannot be created there either; opening it raises the error
    # The second of two concurrent first runs uses the key of the first: the keyring keeps only one,
    # and the other store could never be opened.
    with in_turn(folder):
        kept = keyring_keys(address)
        if kept:
            return kept[0]
        key = StoreKey(os.urandom(KEY_BYTES))
        if keep_key(address, key):
            return key
    remark(_REFUSED)
    return None
