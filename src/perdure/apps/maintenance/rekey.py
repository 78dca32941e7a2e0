"""``perdure store rekey``: encrypt or decrypt a store, or change its key.

A new key is stored in a file or in the keyring before the store uses it, so that a kill at any
moment never loses the key. The new key is never shown, and is never an argument of the command.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from perdure.apps.cli.exits import PathExists, UsageMistake
from perdure.apps.cli.options import JsonOption, StoreOption
from perdure.apps.cli.store_options import existing_address
from perdure.apps.maintenance.whole_store import (
    Report,
    is_encrypted,
    place_of,
    present_keys,
    upkeep_of_sqlite,
    with_key,
)
from perdure.apps.progress import untold
from perdure.apps.terminal.output import show_result
from perdure.apps.terminal.text import safe
from perdure.client.keys import (
    NEXT,
    canonical,
    configured_key,
    forget_key,
    keep_key,
    keep_next_key,
    key_in_file,
    write_key_file,
)
from perdure.errors import KeyMissing, PerdureError, StoreUnavailable
from perdure.stores.key import KEY_BYTES, StoreKey


@dataclass(frozen=True)
class Change:
    """The new key of a store, and where it is stored: ``file``, ``keyring`` or ``environment``.

    `made` is the file that was created for the key.
    """

    key: StoreKey | None
    place: str | None = None
    file: Path | None = None
    made: Path | None = None


async def rekey_store(
    address: str | None,
    new_key: bytes | str | StoreKey | None,
    *,
    key: bytes | str | StoreKey | None = None,
    on_progress: Report | None = None,
) -> None:
    """Encrypt the store at `address` with `new_key`; None decrypts it.

    `key` is the current key; if it is None, the key that `perdure.open` finds is used. The caller
    must store the new key before the call, because only the new key opens the store afterwards. The
    call needs disk space for a copy of the store.
    Durable: the new key is in use when this call returns. After a kill, either the old or the new
    key opens the whole store.
    Raises: StoreInUse if another process has the store open; KeyMissing or KeyWrong if the current
    key does not open the store.
    Raises: ValueError if the new key is invalid; Unsupported if the store has no encryption; the
    errors of `perdure.open`.
    """
    address, path = place_of(address, "encryption")
    new = StoreKey.of(new_key) if isinstance(new_key, bytes | str) else new_key
    keys = await present_keys(address, path, key)
    work, report = upkeep_of_sqlite("rekey").rekey, on_progress or untold
    await with_key(keys, lambda present: work(path, present, new, report))


KeyFileOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A file with the new key (64 hexadecimal digits), readable only by you.",
    ),
]

PlainOption = Annotated[
    bool,
    typer.Option(
        "--plain",
        help="Remove the encryption. Then anyone who has the file can read the store.",
    ),
]


async def rekey(
    *,
    new_key_file: KeyFileOption = None,
    is_generated: Annotated[
        bool,
        typer.Option(
            "--generate",
            help="Create a new key in the keyring, or in the file of --new-key-file.",
        ),
    ] = False,
    is_plain: PlainOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Encrypt or decrypt the store, or change its key.

    Close the store in all other processes first. Without options, an unencrypted store gets the key
    in PERDURE_KEY or PERDURE_KEY_FILE. A copy with the new key replaces the store in one step. If
    the command is killed before the copy replaces the store, the store is unchanged.

    Examples:
        perdure store rekey --generate  # a new key in the keyring of the system
        perdure store rekey --new-key-file ~/.perdure.key
        perdure store rekey --plain     # remove the encryption

    Exit codes:
        2  the key is missing or wrong
        4  another process has the store open
    """
    address = existing_address(store)
    was_encrypted = await is_encrypted(address)
    if is_plain:
        if new_key_file is not None or is_generated:
            raise UsageMistake("--plain takes no key; leave out --new-key-file and --generate")
        change = Change(None)
    elif is_generated:
        change = _generate_key(address, new_key_file)
    else:
        change = _given_key(address, new_key_file, was_encrypted=was_encrypted)
    try:
        await rekey_store(address, change.key, on_progress=_progress)
    except PerdureError as error:
        if change.made is not None and not isinstance(error, StoreUnavailable):
            change.made.unlink()  # the store does not use it
        raise
    _settle(address, change)
    show_result(_data(address, change), _key_lines(address, change), as_json=as_json)


def _given_key(address: str, file: Path | None, *, was_encrypted: bool) -> Change:
    if file is not None:
        try:
            return Change(key_in_file(file, address), "file", file)
        except KeyMissing as error:  # of the new key: the store itself may be plain
            raise UsageMistake(error.reason) from error
    configured = None if was_encrypted else configured_key(None, os.environ, address)
    if configured is None:
        raise UsageMistake("say which key: --generate, --new-key-file FILE, or --plain for none")
    return Change(configured, "environment")


def _generate_key(address: str, file: Path | None) -> Change:
    key = StoreKey(secrets.token_bytes(KEY_BYTES))
    if file is not None:
        try:
            write_key_file(file, key)
        except FileExistsError as error:
            raise PathExists(str(file), "choose another name for the key file") from error
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise UsageMistake(f"the key file {file} cannot be written: {reason}") from error
        return Change(key, "file", file, file)
    if not keep_next_key(address, key):
        raise UsageMistake("no keyring works here; add --new-key-file FILE to keep the key there")
    return Change(key, "keyring")


def _settle(address: str, change: Change) -> None:
    """Update the keyring after the key of the store was changed.

    A new key that belongs in the keyring is stored there; if there is no such key, the old keys are
    deleted from the keyring.
    """
    if change.place == "keyring" and change.key is not None:
        keep_key(address, change.key)
    else:
        forget_key(canonical(address))
        forget_key(canonical(address) + NEXT)


def _data(address: str, change: Change) -> dict[str, object]:
    return {
        "store": address,
        "is_encrypted": change.key is not None,
        "key": change.place,
        "key_file": None if change.file is None else str(change.file.absolute()),
    }


def _key_lines(address: str, change: Change) -> Iterator[str]:
    if change.key is None:
        yield f"{safe(address)} is plain now: anyone who can read the file can read all sessions"
        return
    yield f"{safe(address)} is encrypted with its new key"
    if change.file is not None:
        named = f"PERDURE_KEY_FILE={safe(str(change.file.absolute()))}"
        yield f"It opens with {named}: export it in the profile of your shell."
    if change.place == "keyring":
        yield "The key is in the keyring of this system; perdure finds it there."
    for name in ("PERDURE_KEY", "PERDURE_KEY_FILE"):
        if change.place != "environment" and name in os.environ:
            yield f"{name} is set here and comes before a keyring: let it name the new key, or none"
    yield "Keep a copy of the key in a safe place: without it the store cannot be read."


def _progress(done: int, total: int) -> None:
    """Show the progress if stderr is a terminal."""
    if sys.stderr.isatty():
        end = "\r\033[K" if done == total else ""
        sys.stderr.write(f"\rrekey: {100 * done // max(total, 1)} %{end}")
        sys.stderr.flush()
