"""Routes and groups against a plain table, through maps that are dicts and a cache that only void() empties."""

from __future__ import annotations

import random
from typing import Any

import pytest

from testbed.groups import CANDIDATES, Groups, Ports
from topologies.address import Prefix

ROOM = 64
PREFIXES = [Prefix(10 << 24 | third << 8 | last, length) for third in range(3) for last, length in ((0, 24), (1, 32))]


class Kernel:
    """What select.bpf.c does: longest prefix, with answers kept until the switch's are void."""

    def __init__(self) -> None:
        self.routes: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.groups: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.cache: dict[tuple[int, int], int] = {}
        self.written = 0
        self.made = self.new()

    def new(self) -> Groups:
        return Groups(self.routes, self.groups, void=self.void, room=ROOM)

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
    groups = kernel.made
    expected: dict[int, dict[Prefix, Ports]] = {0: {}, 1: {}}
    for _ in range(60):
        switch = drawn.randrange(2)
        table = expected[switch]
        match drawn.randrange(4):
            case 0:
                prefix, ports = drawn.choice(PREFIXES), some_ports(drawn)
                groups.set_route(switch, prefix, ports)
                table[prefix] = ports
            case 1:
                new = {prefix: some_ports(drawn) for prefix in drawn.sample(PREFIXES, 4)}
                groups.set_table(switch, new)
                table = expected[switch] = new
            case 2:
                port = drawn.randrange(1, 6)
                groups.drop_port(switch, port)
                for prefix, ports in table.items():
                    table[prefix] = tuple(one for one in ports if one != port)
            case _:
                groups = kernel.new()  # another process finds what the maps hold
        kept = {prefix: ports for prefix, ports in table.items() if ports}
        assert {prefix: ports for prefix, ports in groups.table(switch).items() if ports} == kept
        for address in (10 << 24 | third << 8 | last for third in range(4) for last in (0, 1, 2)):
            found = kernel.ports(switch, address)
            withdrawn = {p: () for p, ports in groups.table(switch).items() if not ports}
            assert found == longest({**withdrawn, **kept}, address)


def test_a_dead_port_is_one_write_for_all_routes_that_share_it() -> None:
    kernel = Kernel()
    for prefix in PREFIXES:
        kernel.made.set_route(3, prefix, (7, 8, 9))
    assert kernel.made.drop_port(3, 8) == 1
    assert kernel.ports(3, 10 << 24 | 5) == (7, 9)
    assert kernel.made.drop_port(3, 8) == 0


def test_too_many_ports_and_too_many_groups_are_refused() -> None:
    kernel = Kernel()
    with pytest.raises(ValueError, match="at most 64 candidate ports, got 65"):
        kernel.made.set_route(0, PREFIXES[0], range(65))
    for last in range(ROOM):
        kernel.made.set_route(0, Prefix(10 << 24 | last, 32), (last + 1,))
    with pytest.raises(OSError, match="no room for another group"):
        kernel.made.set_route(0, Prefix(10 << 24 | ROOM, 32), (ROOM + 1,))
