"""The first run: a person who has no store yet is offered an encrypted one.

Only somebody at a terminal is asked, only about the store that perdure makes where nobody named
one, and only where the system has a keyring that can keep the key. Everywhere else a new store is
plain unless a key is configured, and ``perdure doctor`` says so.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import typer

from perdure.apps.terminal.output import remark
from perdure.client.keys import configured_key, has_keyring, keep_key, keyring_keys
from perdure.stores.key import KEY_BYTES, StoreKey
from perdure.stores.maintenance.file_lock import in_turn

QUESTION = "This is your first session here. Encrypt the store, with a key in your keyring?"
_SQLITE = "sqlite:///"
_REFUSED = "the keyring did not take the key, so the store is plain; see `perdure store rekey`"


def is_at_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask_consent() -> bool:
    """The answer of a person to `QUESTION`, yes by default.

    Raises: typer.Abort when there is none.
    """
    return typer.confirm(QUESTION, default=True, err=True)


def offered_key(address: str, ask: Callable[[], bool] = ask_consent) -> StoreKey | None:
    """The key for a new store at `address`, kept in the keyring; None: no key of its own.

    Raises: what `configured_key` raises.
    """
    if configured_key(None, os.environ, address) is not None or not has_keyring():
        return None
    with _interruptible():
        return _kept_key(address) if ask() else None


@contextmanager
def _interruptible() -> Generator[None]:
    """Let Ctrl-C end what blocks: the handler of a loop only tells its task, which waits here."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _kept_key(address: str) -> StoreKey | None:
    """The key for the store, which the keyring keeps; None where it cannot."""
    folder = Path(address.removeprefix(_SQLITE)).absolute().parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None  # no store can be made there either: whoever opens it says why
    # Of two first runs at once the second takes the key of the first: the keyring keeps only one,
    # and the store of the other would be closed for ever.
    with in_turn(folder):
        kept = keyring_keys(address)
        if kept:
            return kept[0]
        key = StoreKey(secrets.token_bytes(KEY_BYTES))
        if keep_key(address, key):
            return key
    remark(_REFUSED)
    return None
