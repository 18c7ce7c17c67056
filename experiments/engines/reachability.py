"""Who reaches whom in a network that is up in the kernel, by its forwarding tables and by pings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.ping import PingTable, ping
from weft.testbed.measure.traceroute import ForwardingTables, fib_paths, trace
from weft.testbed.node_daemon.counters import FILE, DaemonCounters
from weft.testbed.runs.network_handle import NetworkHandle, all_pairs
from weft.topologies.core.topology import Topology

if TYPE_CHECKING:
    from weft.experiments.engines.routes import PairSet
    from weft.testbed.network.network import RunningNetwork

# Longest wait for daemons to react; twice the longest hold-down of a path, for slow machines.
NOTICE_S = 60.0
RETRIES = 2  # of a ping without an answer: a packet lost to load is no broken path
TIMEOUT_S = 0.4


def without_route(net: NetworkHandle) -> PairSet:
    """The ordered pairs of servers between which a forwarding table on the way has no route, or
    routes that loop.
    """
    lost = set()
    with ForwardingTables(net) as fib:
        for src, dst in all_pairs(net):
            try:
                fib_paths(fib, src, dst)
            except (OSError, ValueError):  # no route; a loop, as routes are while they change
                lost.add((src, dst))
    return lost


def wait_for_routes(net: NetworkHandle, expected: PairSet) -> bool:
    """Return when exactly the pairs `expected` are without a route.

    False if that does not come about.
    """
    with suppress(TimeoutError):
        return wait_until("routes", lambda: without_route(net) == expected, timeout_s=NOTICE_S)
    return False


def wait_for_paths(
    net: NetworkHandle, pairs: Sequence[tuple[int, int]], hops: Mapping[tuple[int, int], int] | None
) -> bool:
    """Let every one of `pairs` send, and return when their packets take as many `hops` as they are
    to take.

    False if that does not come about; at once, when each has pinged, if it is not known.
    """

    def settled() -> bool:
        ping(net, pairs, timeout_s=TIMEOUT_S, retries=RETRIES)
        return hops is None or all(
            len(one.nodes) - 1 == hops[one.src, one.dst] for one in trace(net, pairs)
        )

    with suppress(TimeoutError):
        return wait_until("paths", settled, timeout_s=NOTICE_S)
    return False


def wait_for_pings(
    net: NetworkHandle,
    pairs: Sequence[tuple[int, int]],
    expected: PairSet,
    *,
    timeout_s: float = NOTICE_S,
) -> PairSet:
    """Ping `pairs` again and again until exactly the `expected` ones answer, or the time is over:
    who answered last.
    """
    seen: list[PairSet] = []

    def as_expected() -> bool:
        table = ping(net, pairs, timeout_s=TIMEOUT_S, retries=1)
        seen.append({(one.src, one.dst) for one in table.pings if one.received})
        return seen[-1] == expected

    with suppress(TimeoutError):
        wait_until("the expected pairs ping", as_expected, timeout_s=timeout_s)
    return seen[-1]


def pinged(net: NetworkHandle) -> PingTable:
    """A ping of every ordered pair of servers."""
    return ping(net, all_pairs(net), timeout_s=TIMEOUT_S, retries=RETRIES)


def lost(table: PingTable) -> PairSet:
    """The pairs that had no answer."""
    return {(one.src, one.dst) for one in table.lost}


def wait_for_notice(net: RunningNetwork, nodes: Sequence[int], since_ns: int) -> float | None:
    """Seconds from `since_ns`, of the monotonic clock, to when the daemons of all `nodes` had lost
    a neighbour.

    None if they do not.  The daemons note the time themselves.
    """

    def last_ns() -> int:
        lost = [counters.row(node).lost_ns for node in nodes]
        # Under a virtual clock at the very moment; and a daemon's time, a float, may be cut off by
        # a nanosecond.
        return max(*lost, since_ns) if min(lost) >= since_ns - 1 else 0

    with closing(DaemonCounters(net.run.directory / FILE)) as counters, suppress(TimeoutError):
        return (wait_until("neighbours lost", last_ns, timeout_s=NOTICE_S) - since_ns) / 1e9
    return None


def around(topology: Topology, link: int) -> list[int]:
    """The servers that lose a neighbour when `link` dies: its two ends, or all on its crossbar."""
    a, _, b, _ = topology.links[link].tolist()
    return [peer for _, peer, _, _ in topology.ports(b)] if topology.is_crossbar(b) else [a, b]
