"""Open a store by its address."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from perdure.errors import ConfigError
from perdure.session.clock import Clock, RandomSource
from perdure.stores.access.lock_holder import LOCK_TIMEOUT_S
from perdure.stores.jsonl.store import CODECS, SCHEME, JsonlStore
from perdure.stores.protocol import durability_of


async def open_jsonl(
    address: str,
    *,
    namespace: str,
    durability: str,
    clock: Clock,
    random: RandomSource,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
) -> JsonlStore:
    """The store at ``jsonl:///folder`` or ``jsonl:////absolute/folder``, ``?dialect=operator|pi``.

    Raises: ConfigError for another address, dialect or durability; else as `JsonlStore.open`.
    """
    parts = urlsplit(address)
    folder = unquote(parts.path.removeprefix("/"))
    if not address.startswith(SCHEME) or not folder:
        raise ConfigError(f"{address} names no folder: use {SCHEME}folder or {SCHEME}/folder")
    options = parse_qs(parts.query, keep_blank_values=True)
    name = options.pop("dialect", ["operator"])[-1]
    if options or name not in CODECS:
        raise ConfigError(f"{address}: the only option is ?dialect=operator or ?dialect=pi")
    return await JsonlStore.open(
        Path(folder),
        dialect="pi" if name == "pi" else "operator",
        namespace=namespace,
        durability=durability_of(durability),
        clock=clock,
        random=random,
        lock_timeout_s=lock_timeout_s,
    )
