"""Reachability in a network in the kernel, by its forwarding tables and by pings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from weft.experiments.engines.routes import PairSet
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.ping import PingTable, ping
from weft.testbed.measure.traceroute import ForwardingTables, fib_paths, trace
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon.counters import FILE, DaemonCounters
from weft.testbed.runs.network_handle import NetworkHandle, all_pairs
from weft.topologies.core.topology import Topology

# Longest wait for daemons to react; twice the longest hold-down of a path, for slow machines.
NOTICE_S = 60.0
RETRIES = 2  # of a ping without an answer: a packet lost to load is no broken path
TIMEOUT_S = 0.4


def without_route(net: NetworkHandle) -> PairSet:
    """Return the ordered pairs of servers whose forwarding tables lack a route or loop."""
    lost = set()
    with ForwardingTables(net) as fib:
        for src, dst in all_pairs(net):
            try:
                fib_paths(fib, src, dst)
            except (OSError, ValueError):  # no route; a loop, as routes are while they change
                lost.add((src, dst))
    return lost


def wait_for_routes(net: NetworkHandle, expected: PairSet) -> bool:
    """Wait until exactly the pairs `expected` are without a route; return whether they are."""
    with suppress(TimeoutError):
        return wait_until("routes", lambda: without_route(net) == expected, timeout_s=NOTICE_S)
    return False


def wait_for_paths(
    net: NetworkHandle, pairs: Sequence[tuple[int, int]], hops: Mapping[tuple[int, int], int] | None
) -> bool:
    """Let all `pairs` send, and wait until their paths have `hops`; return whether they do.

    Without `hops` one ping of each pair is enough.
    """

    def settled() -> bool:
        ping(net, pairs, timeout_s=TIMEOUT_S, retries=RETRIES)
        return hops is None or all(
            len(path.nodes) - 1 == hops[path.src, path.dst] for path in trace(net, pairs)
        )

    with suppress(TimeoutError):
        return wait_until("paths", settled, timeout_s=NOTICE_S)
    return False


def traced(
    net: NetworkHandle, pairs: Sequence[tuple[int, int]], **options: Any
) -> dict[tuple[int, int], Sequence[int]]:
    """Return the paths, servers from source to destination, of those of `pairs` that answer."""
    traces = trace(net, pairs, **options)
    return {(path.src, path.dst): path.nodes for path in traces if not path.reason}


def wait_for_pings(
    net: NetworkHandle,
    pairs: Sequence[tuple[int, int]],
    expected: PairSet,
    *,
    timeout_s: float = NOTICE_S,
) -> PairSet:
    """Ping `pairs` until exactly the `expected` ones answer, or the time is over.

    Return the pairs that answered last.
    """
    answered: list[PairSet] = []

    def as_expected() -> bool:
        table = ping(net, pairs, timeout_s=TIMEOUT_S, retries=1)
        answered.append({(ping.src, ping.dst) for ping in table.pings if ping.received})
        return answered[-1] == expected

    with suppress(TimeoutError):
        wait_until("the expected pairs ping", as_expected, timeout_s=timeout_s)
    return answered[-1]


def pinged(net: NetworkHandle) -> PingTable:
    """Ping every ordered pair of servers."""
    return ping(net, all_pairs(net), timeout_s=TIMEOUT_S, retries=RETRIES)


def lost(table: PingTable) -> PairSet:
    """Return the pairs that had no answer."""
    return {(ping.src, ping.dst) for ping in table.lost}


def wait_for_notice(net: RunningNetwork, nodes: Sequence[int], since_ns: int) -> float | None:
    """Return the time (s) from `since_ns` until the daemons of all `nodes` lost a neighbour.

    None if they do not.  The daemons note the time themselves.
    """

    def last_ns() -> int:
        lost = [counters.row(node).lost_ns for node in nodes]
        # under a virtual clock they may notice at once; a daemon's time, a float, may be a
        # nanosecond early
        return max(*lost, since_ns) if min(lost) >= since_ns - 1 else 0

    with closing(DaemonCounters(net.run.directory / FILE)) as counters, suppress(TimeoutError):
        return (wait_until("neighbours lost", last_ns, timeout_s=NOTICE_S) - since_ns) / 1e9
    return None


def around(topology: Topology, link: int) -> list[int]:
    """Return the servers that lose a neighbour when `link` dies: its ends, or its crossbar's."""
    a, _, b, _ = topology.links[link].tolist()
    return [peer for _, peer, _, _ in topology.ports(b)] if topology.is_crossbar(b) else [a, b]
