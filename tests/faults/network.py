"""Several machines on one machine: each is a network namespace with its own address.

A bridge in a separate namespace connects the machines. No other network can reach the machines. If
the system does not allow namespaces (they need root and `ip`), all processes share one network, and
none can be disconnected from the others.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager

HUB_ADDRESS = "10.83.0.1"
LOOPBACK = "127.0.0.1"
_BRIDGE = "br0"


class Network:
    """The machines: `hub` runs the servers; 0, 1, 2... run the workers."""

    def __init__(self, prefix: str | None) -> None:
        self._prefix = prefix

    @property
    def is_apart(self) -> bool:
        """Return whether each machine has its own namespace."""
        return self._prefix is not None

    @property
    def hub_address(self) -> str:
        """Return the address of the servers in the workers' network."""
        return HUB_ADDRESS if self.is_apart else LOOPBACK

    def within(self, machine: int | None) -> tuple[str, ...]:
        """Return the words that, put before a command, run it on `machine`; None means the hub."""
        return ("ip", "netns", "exec", self._name(machine)) if self.is_apart else ()

    def part(self, machine: int) -> None:
        """Drop every packet from and to the machine."""
        self._ip("-n", self._name(None), "link", "set", f"port{machine}", "nomaster")

    def join(self, machine: int) -> None:
        """Stop dropping packets."""
        self._ip("-n", self._name(None), "link", "set", f"port{machine}", "master", _BRIDGE)

    def lay(self, machines: int) -> None:
        """Create the namespaces and the bridge. Does nothing without namespaces."""
        if not self.is_apart:
            return
        hub = self._name(None)
        self._ip("netns", "add", hub)
        for line in (
            f"link add {_BRIDGE} type bridge",
            f"address add {HUB_ADDRESS}/24 dev {_BRIDGE}",
            f"link set {_BRIDGE} up",
            "link set lo up",
        ):
            self._ip("-n", hub, *line.split())
        for number in range(machines):
            name = self._name(number)
            self._ip("netns", "add", name)
            self._ip(
                *("-n", hub, "link", "add", f"port{number}", "type", "veth"),
                *("peer", "name", "eth0", "netns", name),
            )
            self._ip("-n", hub, "link", "set", f"port{number}", "master", _BRIDGE, "up")
            self._ip("-n", name, "address", "add", f"10.83.0.{number + 10}/24", "dev", "eth0")
            self._ip("-n", name, "link", "set", "eth0", "up")
            self._ip("-n", name, "link", "set", "lo", "up")

    def remove(self, machines: int) -> None:
        """Remove the namespaces. Remaining processes continue to run without a network."""
        if self.is_apart:
            for machine in (*range(machines), None):
                subprocess.run(
                    ("ip", "netns", "delete", self._name(machine)), capture_output=True, check=False
                )

    def _name(self, machine: int | None) -> str:
        return f"{self._prefix}-{'hub' if machine is None else machine}"

    def _ip(self, *arguments: str) -> None:
        subprocess.run(("ip", *arguments), check=True, capture_output=True)


@contextmanager
def network(machines: int) -> Generator[Network]:
    """Yield a network with this number of `machines`, isolated if the system allows namespaces."""
    made = Network(f"perdure-{os.getpid()}" if _may_part() else None)
    try:
        made.lay(machines)
        yield made
    finally:
        made.remove(machines)


def _may_part() -> bool:
    if shutil.which("ip") is None or os.geteuid() != 0:
        return False
    probe = f"perdure-probe-{os.getpid()}"
    made = subprocess.run(("ip", "netns", "add", probe), capture_output=True, check=False)
    if made.returncode:
        return False
    veth = ("ip", "-n", probe, "link", "add", "v0", "type", "veth", "peer", "name", "v1")
    could = subprocess.run(veth, capture_output=True, check=False).returncode == 0
    subprocess.run(("ip", "netns", "delete", probe), capture_output=True, check=True)
    return could
