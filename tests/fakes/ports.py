"""Ports of loopback that only a test uses, for servers that begin to listen later."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def reserved_port() -> Generator[int]:
    """Reserve a port without a listener, so that the system gives it to no other program."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # who asks for it gets it
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])
