"""Routes and groups against a plain table, through maps that are dicts and a cache that only void()
empties."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from weft.testbed.data_plane.groups import Groups, Ports, by_switch
from weft.testbed.data_plane.plane_program import CANDIDATES
from weft.topologies.core.address import Prefix

ROOM = 32  # groups of each switch
PREFIXES = [
    Prefix(10 << 24 | third << 8 | last, length)
    for third in range(3)
    for last, length in ((0, 24), (1, 32))
]


class Counting(dict[tuple[Any, ...], tuple[Any, ...]]):
    """A map that counts how often it is written, and tells `written` what."""

    writes = 0

    def __init__(self, written: Callable[[int, tuple[int, ...]], None]) -> None:
        super().__init__()
        self.written = written

    def __setitem__(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        self.writes += 1
        super().__setitem__(key, value)
        self.written(key[0], value[1:])


@dataclass
class Flight:
    """A packet that has looked up its group and how many ports that has, and will take one of them;
    the prefix by which it was found, and all the ports that this has had since then."""

    prefix: Prefix
    group: int
    n: int
    allowed: set[int]


class Kernel:
    """Model of select.bpf.c: longest prefix, with answers kept until the switch's are void."""

    def __init__(self) -> None:
        self.routes: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.groups = Counting(self.note_ports)
        self.cache: dict[tuple[int, int], int] = {}
        self.flights: list[Flight] = []
        self.taken: list[tuple[Flight, set[int]]] = []  # the ports that each may take
        self.settled = 0
        self.now_s = 0.0

    def new(self, switch: int) -> Groups:
        """Return the groups of a process that begins to write a switch's routes."""
        room = range(switch * ROOM, (switch + 1) * ROOM)
        found = Groups(
            self.routes,
            self.groups,
            switch=switch,
            room=room,
            void=lambda: self.void(switch),
            settle=self.settle,
            now=lambda: self.now_s,
        )
        found.learn(by_switch(self.routes).get(switch, ()))
        return found

    def void(self, switch: int) -> None:
        self.cache = {key: group for key, group in self.cache.items() if key[0] != switch}

    def settle(self) -> None:
        """No packet is on its way any more."""
        self.settled += 1
        self.flights.clear()

    def note_ports(self, group: int, ports: tuple[int, ...]) -> None:
        """Packets that have looked up `group` take one of its ports now."""
        self.taken += [
            (flight, set(ports[: flight.n])) for flight in self.flights if flight.group == group
        ]

    def ports(self, switch: int, address: int) -> Ports:
        """The ports among which the packet's is chosen."""
        if (switch, address) not in self.cache:
            found = [
                (key[0], group)
                for key, (group,) in self.routes.items()
                if key[1] == switch
                and Prefix(int.from_bytes(key[2], "big"), key[0] - 32).holds(address)
            ]
            if not found:
                return ()
            self.cache[switch, address] = max(found)[1]
        n, *ports = self.groups[self.cache[switch, address],]
        assert not n or ports == [ports[i % n] for i in range(CANDIDATES)]
        return tuple(ports[:n])


def longest(table: dict[Prefix, Ports], address: int) -> Ports:
    prefixes = [prefix for prefix in table if prefix.holds(address)]
    return table[max(prefixes, key=lambda prefix: prefix.length)] if prefixes else ()


def remove_port(groups: Groups, port: int) -> None:
    """Remove `port` from every route."""
    table = groups.table().items()
    groups.set({prefix: [other for other in ports if other != port] for prefix, ports in table})


def some_ports(drawn: random.Random) -> Ports:
    return tuple(drawn.choices(range(1, 6), k=drawn.randint(0, 4)))


@pytest.mark.parametrize("seed", range(20))
def test_packets_always_see_the_routes_that_were_set(seed: int) -> None:
    drawn, kernel = random.Random(seed), Kernel()
    groups = {switch: kernel.new(switch) for switch in (0, 1)}
    expected: dict[int, dict[Prefix, Ports]] = {0: {}, 1: {}}
    for _ in range(60):
        switch = drawn.randrange(2)
        table = expected[switch]
        match drawn.randrange(5):
            case 0:
                changes = {
                    prefix: some_ports(drawn)
                    for prefix in drawn.sample(PREFIXES, drawn.randint(1, 4))
                }
                groups[switch].set(changes)
                table.update(changes)
            case 1:
                expected[switch] = {
                    prefix: some_ports(drawn) for prefix in drawn.sample(PREFIXES, 4)
                }
                groups[switch].replace(expected[switch])
            case 2:
                remove_port(groups[switch], port := drawn.randrange(1, 6))
                for prefix, ports in table.items():
                    table[prefix] = tuple(other for other in ports if other != port)
            case 3:
                prefix = drawn.choice(PREFIXES)
                groups[switch].set({prefix: None})
                table.pop(prefix, None)
            case _:
                groups[switch] = kernel.new(switch)  # another process finds what the maps hold
        assert groups[switch].table() == expected[switch]
        for address in (10 << 24 | third << 8 | last for third in range(4) for last in (0, 1, 2)):
            for at in (0, 1):
                assert kernel.ports(at, address) == longest(expected[at], address)


@pytest.mark.parametrize("room", [8, ROOM])
@pytest.mark.parametrize("seed", range(20))
def test_a_packet_on_its_way_takes_a_port_that_its_own_route_has_had(seed: int, room: int) -> None:
    """Neither another prefix's, whose group has taken over the number, nor the port 0, which there
    is not."""
    drawn, kernel = random.Random(seed), Kernel()
    groups = Groups(
        kernel.routes, kernel.groups, switch=0, room=range(room), void=lambda: kernel.void(0),
        settle=kernel.settle, now=lambda: kernel.now_s,
    )  # fmt: skip
    table: dict[Prefix, Ports] = {}
    addresses = [10 << 24 | third << 8 | last for third in range(3) for last in (0, 1)]
    for _ in range(60):
        if drawn.random() < 0.1:
            kernel.now_s += 2.0
            kernel.flights.clear()
        for address in addresses:
            if ports := kernel.ports(0, address):
                group = kernel.cache[0, address]
                found = max(
                    (prefix_ for prefix_ in table if prefix_.holds(address)),
                    key=lambda prefix_: prefix_.length,
                )
                kernel.flights.append(Flight(found, group, len(ports), set(ports)))
        flights = list(kernel.flights)
        # each prefix has ports of its own, by which a wrong one is known
        table = {
            prefix: tuple(drawn.sample(range(10 * at + 1, 10 * at + 5), drawn.randrange(4)))
            if drawn.random() < 0.7
            else (1, 2)  # which several share
            for at, prefix in enumerate(PREFIXES, 1)
            if drawn.random() < 0.7
        }
        groups.replace(table)
        for flight in flights:
            flight.allowed |= set(table.get(flight.prefix, ()))
        for flight, ports in kernel.taken:
            assert ports <= flight.allowed
        kernel.taken.clear()
    assert kernel.settled < 60 if room == ROOM else kernel.settled > 0


@pytest.mark.parametrize("seed", range(20))
def test_what_packets_have_found_is_void_before_its_group_belongs_to_another_route(
    seed: int,
) -> None:
    """A packet that comes while routes are written takes the group that an earlier one found, if
    void() has not been called since: ports of a route to its destination, before or after."""
    drawn, kernel, seen = random.Random(seed), Kernel(), 0
    groups = Groups(
        kernel.routes, kernel.groups, switch=0, room=range(8), void=lambda: kernel.void(0),
        settle=kernel.settle, now=lambda: kernel.now_s,
    )  # fmt: skip
    addresses = [10 << 24 | third << 8 | last for third in range(3) for last in (0, 1)]
    table: dict[Prefix, Ports] = {}
    wanted: dict[Prefix, Ports] = {}

    def look(group: int, ports: tuple[int, ...]) -> None:
        nonlocal seen
        for (_, address), found in kernel.cache.items():
            if found == group:
                n = kernel.groups[group,][0]
                routes = [*table.items(), *wanted.items()]
                assert set(ports[:n]) <= {
                    port for prefix, its in routes if prefix.holds(address) for port in its
                }
                seen += 1

    for _ in range(60):
        for address in addresses:
            kernel.ports(0, address)
        wanted = {
            prefix: tuple(drawn.sample(range(10 * at + 1, 10 * at + 5), drawn.randrange(4)))
            for at, prefix in enumerate(PREFIXES, 1)
            if drawn.random() < 0.7
        }
        kernel.groups.written = look
        groups.replace(wanted)
        kernel.groups.written = kernel.note_ports
        table = wanted
    assert seen > 5


def test_numbers_that_nobody_has_had_are_taken_first() -> None:
    kernel = Kernel()
    groups = kernel.new(0)
    for turn in range(ROOM):
        assert kernel.settled == 0
        groups.set({PREFIXES[0]: (turn + 1,)})
        groups.set({PREFIXES[0]: None})
    groups.set({PREFIXES[0]: (1,)})
    assert kernel.settled == 1


def test_who_finds_routes_waits_before_it_takes_a_number_that_may_just_have_been_given_back() -> (
    None
):
    kernel = Kernel()
    kernel.new(0).set({PREFIXES[0]: (1,), PREFIXES[1]: (2,)})
    kernel.new(0).set({PREFIXES[2]: (3,)})
    assert kernel.settled == 1
    # a switch without routes: nobody has given anything back
    kernel.new(1).set({PREFIXES[2]: (3,)})
    assert kernel.settled == 1


def test_who_finds_routes_does_not_rewrite_a_group_that_a_prefix_may_just_have_left() -> None:
    kernel = Kernel()
    first = kernel.new(0)
    first.set({PREFIXES[0]: (1, 2), PREFIXES[1]: (1, 2)})
    first.set({PREFIXES[0]: (3,)})
    before = dict(kernel.groups)
    kernel.new(0).set({PREFIXES[1]: (4,)})
    assert {group: kernel.groups[group] for group in before} == before


def test_a_group_that_a_prefix_left_is_one_write_again_after_a_while() -> None:
    kernel = Kernel()
    groups = kernel.new(0)
    groups.set(dict.fromkeys(PREFIXES, (7, 8)))
    groups.set({PREFIXES[0]: (9,)})
    kernel.now_s = 2.0
    before, routes = kernel.groups.writes, dict(kernel.routes)
    groups.set(dict.fromkeys(PREFIXES[1:], (7,)))
    assert kernel.groups.writes == before + 1
    assert kernel.routes == routes


def test_what_changes_alike_for_all_routes_that_share_a_group_is_one_write() -> None:
    kernel = Kernel()
    groups = kernel.new(3)
    groups.set(dict.fromkeys(PREFIXES, (7, 8, 9)))
    before = kernel.groups.writes
    remove_port(groups, 8)
    assert kernel.ports(3, 10 << 24 | 5) == (7, 9)
    assert kernel.groups.writes == before + 1
    remove_port(groups, 8)
    groups.set(dict.fromkeys(PREFIXES, (9,)))
    assert kernel.ports(3, 10 << 24 | 5) == (9,)
    assert kernel.groups.writes == before + 2


def test_a_route_to_nobody_hides_a_shorter_one_and_a_withdrawn_one_does_not() -> None:
    kernel = Kernel()
    groups = kernel.new(0)
    range_, host = PREFIXES[:2]
    groups.set({range_: (1, 2), host: ()})
    assert kernel.ports(0, host.network) == ()
    groups.set({host: None})
    assert kernel.ports(0, host.network) == (1, 2)


def test_too_many_ports_and_too_many_groups_are_refused() -> None:
    groups = Kernel().new(0)
    with pytest.raises(ValueError, match="at most 64 candidate ports, got 65"):
        groups.set({PREFIXES[0]: range(65)})
    groups.set({Prefix(10 << 24 | last, 32): (last + 1,) for last in range(ROOM)})
    with pytest.raises(OSError, match="no room"):
        groups.set({Prefix(11 << 24, 32): (77,)})
