"""Routes and groups against a plain table, through maps that are dicts and a cache that only void() empties."""

from __future__ import annotations

import random
from typing import Any

import pytest

from testbed.forwarding.groups import CANDIDATES, Groups, Ports, by_switch
from topologies.core.address import Prefix

ROOM = 32  # groups of each switch
PREFIXES = [Prefix(10 << 24 | third << 8 | last, length) for third in range(3) for last, length in ((0, 24), (1, 32))]


class Counting(dict[tuple[Any, ...], tuple[Any, ...]]):
    """A map that counts how often it is written."""

    writes = 0

    def __setitem__(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        self.writes += 1
        super().__setitem__(key, value)


class Kernel:
    """What select.bpf.c does: longest prefix, with answers kept until the switch's are void."""

    def __init__(self) -> None:
        self.routes: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.groups = Counting()
        self.cache: dict[tuple[int, int], int] = {}

    def new(self, switch: int) -> Groups:
        """What a process that begins to write a switch's routes makes."""
        room = range(switch * ROOM, (switch + 1) * ROOM)
        found = Groups(self.routes, self.groups, switch=switch, room=room, void=lambda: self.void(switch))
        found.learn(by_switch(self.routes).get(switch, ()))
        return found

    def void(self, switch: int) -> None:
        self.cache = {key: group for key, group in self.cache.items() if key[0] != switch}

    def ports(self, switch: int, address: int) -> Ports:
        """The ports among which the packet's is chosen."""
        if (switch, address) not in self.cache:
            found = [
                (key[0], group)
                for key, (group,) in self.routes.items()
                if key[1] == switch and Prefix(int.from_bytes(key[2], "big"), key[0] - 32).holds(address)
            ]
            if not found:
                return ()
            self.cache[switch, address] = max(found)[1]
        n, *ports = self.groups[self.cache[switch, address],]
        assert not n or ports == [ports[i % n] for i in range(CANDIDATES)]
        return tuple(ports[:n])


def longest(table: dict[Prefix, Ports], address: int) -> Ports:
    found = [prefix for prefix in table if prefix.holds(address)]
    return table[max(found, key=lambda prefix: prefix.length)] if found else ()


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
                changes = {prefix: some_ports(drawn) for prefix in drawn.sample(PREFIXES, drawn.randint(1, 4))}
                groups[switch].set(changes)
                table.update(changes)
            case 1:
                expected[switch] = {prefix: some_ports(drawn) for prefix in drawn.sample(PREFIXES, 4)}
                groups[switch].replace(expected[switch])
            case 2:
                port = drawn.randrange(1, 6)
                groups[switch].drop_port(port)
                for prefix, ports in table.items():
                    table[prefix] = tuple(one for one in ports if one != port)
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


def test_what_changes_alike_for_all_routes_that_share_a_group_is_one_write() -> None:
    kernel = Kernel()
    groups = kernel.new(3)
    groups.set(dict.fromkeys(PREFIXES, (7, 8, 9)))
    before = kernel.groups.writes
    assert groups.drop_port(8) == 1
    assert kernel.ports(3, 10 << 24 | 5) == (7, 9)
    assert groups.drop_port(8) == 0
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
