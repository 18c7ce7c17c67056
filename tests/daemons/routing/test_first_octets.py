from __future__ import annotations

from weft.daemons.routing import first_octets
from weft.topologies.core.address import Prefix


def test_first_octets_are_all_different_and_none_is_taken() -> None:
    octets = [first_octets.first_octet(i) for i in range(first_octets.COUNT)]
    assert len(set(octets)) == first_octets.COUNT == 127
    assert min(octets) == 64
    assert max(octets) == 191
    assert 127 not in octets


def test_addresses_keep_all_but_the_first_octet() -> None:
    assert first_octets.with_octet(10 << 24 | 0x010203, 65) == 65 << 24 | 0x010203
    assert first_octets.prefix(Prefix(10 << 24 | 0x010200, 24), 65) == Prefix(
        65 << 24 | 0x010200, 24
    )
    assert first_octets.all_addresses(65) == Prefix(65 << 24, 8)
