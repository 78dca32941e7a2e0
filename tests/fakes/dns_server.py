"""A name server on loopback with answers from a test, and a resolver that queries it by UDP."""

from __future__ import annotations

import asyncio
import secrets
import socket
import struct
from collections.abc import Callable, Sequence
from ipaddress import ip_address

Answers = Callable[[str, int], Sequence[str]]
"""Maps a name, and the number of the query for it (from 1), to its addresses."""

_A, _AAAA = 1, 28


class DnsServer(asyncio.DatagramProtocol):
    """Answers A and AAAA queries; `asked` contains the queried names in order."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.asked: list[str] = []
        self._transport: asyncio.DatagramTransport | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(
            lambda: self, local_addr=("127.0.0.1", 0)
        )

    @property
    def port(self) -> int:
        assert self._transport is not None
        return self._transport.get_extra_info("sockname")[1]

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        name, end = _name_at(data, 12)
        (kind,) = struct.unpack_from(">H", data, end)
        if kind == _A:
            self.asked.append(name)
        found = [ip_address(each) for each in self._answers(name, self.asked.count(name))]
        fitting = [ip for ip in found if (ip.version == 4) == (kind == _A)]
        head = data[:2] + struct.pack(">HHHHH", 0x8180, 1, len(fitting), 0, 0)
        records = b"".join(
            b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 0, len(ip.packed)) + ip.packed
            for ip in fitting
        )
        assert self._transport is not None
        self._transport.sendto(head + data[12 : end + 4] + records, addr)


async def addresses_from(port: int, host: str) -> list[str]:
    """Return the addresses of `host` from the name server on `port`: first of A records, then of
    AAAA records, uncached.
    """
    return [*await _queried(port, host, _A), *await _queried(port, host, _AAAA)]


async def _queried(port: int, host: str, kind: int) -> list[str]:
    name = b"".join(bytes((len(label),)) + label.encode() for label in host.split(".")) + b"\0"
    query = secrets.token_bytes(2) + struct.pack(">HHHHH", 0x0100, 1, 0, 0, 0)
    query += name + struct.pack(">HH", kind, 1)
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.connect(("127.0.0.1", port))
        await loop.sock_sendall(sock, query)
        data = await asyncio.wait_for(loop.sock_recv(sock, 4096), 60)
    (count,) = struct.unpack_from(">H", data, 6)
    at = 12 + len(name) + 4
    found: list[str] = []
    for _ in range(count):
        (size,) = struct.unpack_from(">H", data, at + 10)
        found.append(str(ip_address(data[at + 12 : at + 12 + size])))
        at += 12 + size
    return found


def _name_at(data: bytes, at: int) -> tuple[str, int]:
    labels: list[str] = []
    while size := data[at]:
        labels.append(data[at + 1 : at + 1 + size].decode())
        at += 1 + size
    return ".".join(labels), at + 1
