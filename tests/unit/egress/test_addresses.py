"""Allowed and blocked network addresses."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.egress.addresses import is_open


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "2a00::1"])
def test_public_address_is_allowed(address: str) -> None:
    assert is_open(address)


@pytest.mark.parametrize("text", ["", "example.com", "1.1.1", "2606:4700::1%eth0", "0x1010101"])
def test_malformed_address_is_rejected(text: str) -> None:
    assert not is_open(text)


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "192.168.1.1", "::1", "fd12::1"])
def test_local_network_is_allowed_only_if_configured(address: str) -> None:
    assert not is_open(address)
    assert is_open(address, is_local_open=True)


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "fe80::1", "224.0.0.1", "ff02::1", "0.0.0.0", "fd00:ec2::254"]
)
def test_metadata_and_multicast_addresses_stay_blocked_if_local_addresses_are_allowed(
    address: str,
) -> None:
    assert not is_open(address, is_local_open=True)


@settings(max_examples=max(40, settings().max_examples))
@given(st.ip_addresses(v=4))
def test_address_that_python_classifies_as_private_is_never_allowed(address: IPv4Address) -> None:
    if is_open(str(address)):
        assert address.is_global
        assert not address.is_multicast


@settings(max_examples=max(40, settings().max_examples))
@given(st.ip_addresses(v=4), st.sampled_from(["::ffff:0:0", "::", "64:ff9b::", "2002::", "2001::"]))
def test_blocked_ipv4_address_embedded_in_ipv6_is_blocked(inner: IPv4Address, prefix: str) -> None:
    shift = 80 if prefix == "2002::" else 0
    outer = IPv6Address(int(IPv6Address(prefix)) | (int(inner) << shift))
    assert not is_open(str(outer))
