from __future__ import annotations

from weft.daemons.routing import route_addresses
from weft.topologies.core.address import Prefix


def test_first_octets_are_all_different_and_none_is_taken() -> None:
    octets = [route_addresses.first_octet(i) for i in range(route_addresses.COUNT)]
    assert len(set(octets)) == route_addresses.COUNT == 127
    assert min(octets) == 64
    assert max(octets) == 191
    assert 127 not in octets


def test_addresses_keep_all_but_the_first_octet() -> None:
    assert route_addresses.with_octet(10 << 24 | 0x010203, 65) == 65 << 24 | 0x010203
    assert route_addresses.with_octets(Prefix(10 << 24 | 0x010200, 24), 65) == Prefix(
        65 << 24 | 0x010200, 24
    )
    assert route_addresses.all_addresses(65) == Prefix(65 << 24, 8)
