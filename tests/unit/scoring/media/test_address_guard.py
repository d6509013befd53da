"""Which addresses are public, and the socket factory that refuses others."""

import socket

import pytest

from vmafx.scoring.media.address_guard import AddressGuard, is_public


@pytest.mark.parametrize("address", ["8.8.8.8", "2001:4860:4860::8888", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_internet_addresses_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1"),  # noqa: S104
        *("169.254.169.254", "100.64.0.1", "100.100.100.200", "192.0.0.192", "198.18.0.1", "168.63.129.16"),
        *("224.0.0.1", "224.0.1.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "192.0.2.1"),
        *("::1", "::", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "fec0::1", "ff02::1", "ff0e::1", "2001:db8::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "::10.0.0.1"),
        *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::808:808"),
        *("2002:7f00:1::", "2002:808:808::1", "2001:0:808:808::1"),
    ],
)
def test_private_and_reserved_addresses_are_not_public(address: str) -> None:
    assert not is_public(address)


def test_the_guard_refuses_a_private_address_and_records_it() -> None:
    guard = AddressGuard(private=False)
    with pytest.raises(PermissionError):
        guard((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80)))
    assert guard.refused


def test_the_guard_allows_public_addresses_and_private_ones_if_configured() -> None:
    for guard, address in ((AddressGuard(private=False), "8.8.8.8"), (AddressGuard(private=True), "127.0.0.1")):
        guard((socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80))).close()
        assert not guard.refused
