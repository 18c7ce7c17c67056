"""Who reaches whom in a network that is up in the kernel, by its forwarding tables and by pings."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from testbed.measured import Measured, all_pairs
from testbed.paths import Fib, fib_paths
from testbed.ping import PingTable, ping
from testbed.wait import wait_until
from topologies.graph import Topology

if TYPE_CHECKING:
    from experiments.routes import Pairs

NOTICE_S = 10.0  # by then daemons have noticed what they ever will: a hundred times what three hellos of 30 ms take
RETRIES = 2  # of a ping without an answer: a packet lost to load is no broken path


def without_route(net: Measured) -> Pairs:
    """The ordered pairs of servers between which a forwarding table on the way has no route."""
    lost = set()
    with Fib(net) as fib:
        for src, dst in all_pairs(net):
            try:
                fib_paths(fib, src, dst)
            except OSError:
                lost.add((src, dst))
    return lost


def wait_for_routes(net: Measured, expected: Pairs) -> bool:
    """Return when exactly the pairs `expected` are without a route; False if that does not come about."""
    with suppress(TimeoutError):
        return wait_until("routes", lambda: without_route(net) == expected, timeout_s=NOTICE_S)
    return False


def pinged(net: Measured) -> PingTable:
    """A ping of every ordered pair of servers."""
    return ping(net, all_pairs(net), retries=RETRIES)


def lost(table: PingTable) -> Pairs:
    """The pairs that had no answer."""
    return {(one.src, one.dst) for one in table.lost}


def wait_for_notice(net: Measured, hops: Sequence[tuple[int, int]]) -> float | None:
    """Seconds until no node of `hops` has a route to its neighbour there any more; None if that does not come about.

    Known to some 2 ms: so long it takes to ask all of them once.
    """
    began = time.monotonic()
    with suppress(TimeoutError):
        wait_until("notice", lambda: not any(has_route(net, hops)), timeout_s=NOTICE_S, every_s=0.0005)
        return time.monotonic() - began
    return None


def has_route(net: Measured, hops: Sequence[tuple[int, int]]) -> Iterator[bool]:
    """For each (node, neighbour) whether the node has a route to the neighbour now."""
    with Fib(net) as fib:
        for node, neighbour in hops:
            try:
                fib.next_hops(node, neighbour)
            except OSError:
                yield False
            else:
                yield True


def over(topology: Topology, link: int) -> list[tuple[int, int]]:
    """The hops, from node to neighbour, that cross `link`: both ways between its ends, or all through its crossbar."""
    a, _, b, _ = topology.links[link].tolist()
    far = [peer for _, peer, _, _ in topology.ports(b) if peer != a] if topology.is_crossbar(b) else [b]
    return [hop for other in far for hop in ((a, other), (other, a))]
