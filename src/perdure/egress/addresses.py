"""Decide to which addresses requests can go: public internet addresses, not internal networks.

Pure. IPv4 addresses in a listed special network are blocked. Of the IPv6 addresses, only global
unicast addresses are open. Every IPv6 address that contains an IPv4 address (mapped, compatible,
translated, NAT64, 6to4, Teredo, ISATAP) is blocked. Site-local, link-local, unique local and
multicast addresses are blocked, too.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_CLOSED_4 = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by the customers of a carrier
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local; where clouds keep their metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # automatic multicast tunnelling
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
_OPEN_6 = IPv6Network("2000::/3")
_CLOSED_6 = tuple(
    IPv6Network(block)
    for block in (
        "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "2620:4f:8000::/48",  # AS112
        "3ffe::/16",  # 6bone
        "3fff::/20",  # documentation
    )
)
_ISATAP = frozenset((0x00005EFE, 0x02005EFE))

_LOCAL = (
    *(IPv4Network(block) for block in ("10.0.0.0/8", "127.0.0.0/8", "172.16.0.0/12")),
    IPv4Network("192.168.0.0/16"),
    IPv6Network("::1/128"),
    IPv6Network("fc00::/7"),
)
"""Networks that are also open if the configuration allows services of the local network."""

_METADATA = frozenset((IPv6Address("fd00:ec2::254"),))


def is_open(address: str, *, is_local_open: bool = False) -> bool:
    """Return True if connections to `address` are allowed; False if it is not an address.

    `is_local_open` also allows loopback and private networks, and nothing else.
    """
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, IPv6Address) and ip.scope_id is not None:
        return False
    if is_local_open and any(_holds(block, ip) for block in _LOCAL):
        return ip not in _METADATA
    return _is_public(ip)


def _is_public(ip: IPv4Address | IPv6Address) -> bool:
    if isinstance(ip, IPv4Address):
        return not any(ip in block for block in _CLOSED_4)
    if ip not in _OPEN_6 or any(ip in block for block in _CLOSED_6):
        return False
    return (int(ip) >> 32) & 0xFFFFFFFF not in _ISATAP


def _holds(block: IPv4Network | IPv6Network, ip: IPv4Address | IPv6Address) -> bool:
    return ip.version == block.version and ip in block
