"""Content of the maps of transit rewriting, written as if they were dicts."""

from __future__ import annotations

import pytest

from weft.daemons.core.actions import FiveTuple
from weft.testbed.data_plane.transit_rewrite import OctetKey, TransitRewriting
from weft.testbed.linux import libbpf
from weft.topologies.core.address import Prefix

ALL, PART = Prefix(80 << 24, 8), Prefix(80 << 24 | 1 << 16, 16)
FLOW = FiveTuple(10 << 24 | 1, 64 << 24 | 2, 17, 7 << 16 | 9)


class Seen(dict):
    """A map that shows what packets could meet after each change."""

    def __init__(self, *given):
        super().__init__(*given)
        self.look = lambda: None

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.look()

    def __delitem__(self, key):
        super().__delitem__(key)
        self.look()


@pytest.fixture
def maps():
    return Seen({(3,): (0, 7)}), {}, Seen()


def octets(maps, server=3):
    """The prefixes that hold at a server."""
    servers, _, prefixes = maps
    _, generation = servers[server,]
    return {
        Prefix(int.from_bytes(network, "big"), length - 64): octet
        for (length, of, its, network), (octet,) in prefixes.items()
        if (of, its) == (server, generation)
    }


def test_prefixes_change_all_at_once_and_nothing_old_is_left(maps):
    transit = TransitRewriting(*maps, 3)
    transit.begin(OctetKey.PREFIX)
    found = []
    for entries in (maps[0], maps[2]):
        entries.look = lambda: found.append(octets(maps))
    first, second = {ALL: 81}, {ALL: 82, PART: 83}
    for wanted in (first, second, {}):
        transit.set_prefixes(wanted)
        assert octets(maps) == wanted
    assert all(entries in ({}, first, second) for entries in found)
    assert maps[2] == {}


class Full(dict):
    """A map with room for two entries."""

    def __setitem__(self, key, value):
        if len(self) == 2:
            raise libbpf.BpfError(7, "no room")
        super().__setitem__(key, value)


def test_a_change_that_is_refused_leaves_what_was():
    maps = {(3,): (0, 7)}, {}, Full()
    transit = TransitRewriting(*maps, 3)
    transit.begin(OctetKey.PREFIX)
    transit.set_prefixes({ALL: 81})
    with pytest.raises(libbpf.BpfError):
        transit.set_prefixes({PART: 82, ALL: 83})
    assert octets(maps) == {ALL: 81}
    transit.set_prefixes({ALL: 84})
    assert octets(maps) == {ALL: 84}


def test_with_a_new_daemon_nothing_is_known_and_others_are_left_alone(maps):
    maps[0][4,] = (0, 0)
    for server in (3, 4):
        before = TransitRewriting(*maps, server)
        before.begin(OctetKey.PREFIX)
        before.set_prefixes({ALL: 81})
        before.set_flow(FLOW, 65)
    TransitRewriting(*maps, 3).begin(OctetKey.FLOW)
    assert maps[0][3,][0] == OctetKey.FLOW
    assert octets(maps) == {}
    assert {key[0] for key in maps[1]} == {key[1] for key in maps[2]} == {4}
    assert octets(maps, 4) == {ALL: 81}


def test_a_flow_is_known_by_the_label_of_its_destination(maps):
    transit = TransitRewriting(*maps, 3)
    transit.set_flow(FLOW, 65)
    transit.set_flow(FLOW._replace(destination=10 << 24 | 2), 66)
    assert maps[1] == {(3, b"\x0a\0\0\1", b"\0\0\0\2", b"\0\7\0\x09", 17): (66,)}
    transit.set_flow(FLOW, None)
    transit.set_flow(FLOW, None)
    assert maps[1] == {}
