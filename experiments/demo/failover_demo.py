"""The second half of first_light: other schemes survive the failures that DR does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise

from weft.daemons.core import registry
from weft.experiments.engines import reachability
from weft.experiments.engines.reachability import NOTICE_S
from weft.experiments.engines.routes import Pair, both_ways, lengths, lost_pairs
from weft.experiments.runner.console import duration, step
from weft.experiments.runner.definition import Row
from weft.testbed.linux import clock
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.fidelity import Fidelity, FidelityReport
from weft.testbed.measure.traceroute import trace
from weft.testbed.network.network import RunningNetwork
from weft.testbed.traffic.tcp import Stream
from weft.topologies.core.failures import fail_links
from weft.topologies.core.link import LinkSpec, Mbps
from weft.topologies.core.topology import Topology

SURVIVORS = ("pr-gpi", "dfr")
WATCHED_S = 1.0  # of TCP after a failure
RECENT_S = 0.3  # interval over which the flow's latest goodput is measured


def survivors() -> list[str]:
    """Return the schemes that face the same failures as DR."""
    return [name for name in SURVIVORS if name in registry.schemes()]


def prefix(routing: str, how: str) -> str:
    """Return the prefix of the columns of one failure under one scheme."""
    return f"{routing.replace('-', '_')}_{how}"


def run_failover(
    topology: Topology, link: LinkSpec, routing: str, failures: dict[int, bool]
) -> tuple[Row, bool, FidelityReport]:
    """Let links die under `routing`, one after the other, with a TCP flow over each.

    `failures` has each link that dies, and whether it dies silently.

    Returns:
        Figures, whether every step passed, and the fidelity of the emulation.
    """
    figures: Row = {}
    passed = True
    with step(f"the same network with {routing} comes up"):
        net = RunningNetwork.create(topology, link, scheme=routing)
    try:
        with Fidelity(net) as fidelity:
            for failed_link, silent in failures.items():
                row, well = survive(net, routing, failed_link, silent)
                columns = prefix(routing, "silent" if silent else "announced")
                figures |= {f"{columns}_{key}": value for key, value in row.items()}
                passed = passed and well
    finally:
        net.down()
    return figures, passed, fidelity.report


def survive(net: RunningNetwork, routing: str, link: int, silent: bool) -> tuple[Row, bool]:
    """Let one link die and come back; measure the pairs that DR loses, and TCP over the link.

    Returns:
        Figures, and whether all went as predicted.
    """
    topology = net.topology
    name = topology.link_name(link)
    broken = fail_links(topology, [link])
    lost_by_dr = sorted(lost_pairs("dr", broken))
    saved = both_ways(lengths(broken, routing, lost_by_dr) or {})
    if not saved:
        raise ValueError(
            f"{routing} saves none of the pairs that DR loses when {name} dies in {topology.spec}"
        )
    reachability.wait_for_paths(net, lost_by_dr, lengths(topology, routing, lost_by_dr))
    figures, passed = fail_with_tcp(net, link, silent, lost_by_dr, saved)
    net.restore(name)
    net.wait_until_converged()
    return figures, passed


def fail_with_tcp(
    net: RunningNetwork, link: int, silent: bool, lost_by_dr: Sequence[Pair], saved: set[Pair]
) -> tuple[Row, bool]:
    """Fail `link` under a TCP flow, and ping the pairs that DR loses; `saved` ones must answer."""
    name = net.topology.link_name(link)
    paths = {(path.src, path.dst): path.nodes for path in trace(net, sorted(saved))}
    src, dst = through(net.topology, link, paths)
    ends = " to ".join(map(net.topology.naming.name, (src, dst)))
    how = "silent" if silent else "announced"
    with step(f"{name} dies, {how}, with TCP from {ends}") as outcome:
        with Stream(net, src, dst) as stream:
            clock.sleep(WATCHED_S)  # TCP finds its rate
            failed_s = clock.monotonic()
            net.fail(name, silent=silent)
            pinged = reachability.wait_for_pings(net, lost_by_dr, saved)
            goes_on, stall_s, after_bps = watch(stream, failed_s)
        tcp = "does not go on"
        if goes_on:
            tcp = f"stalls {duration(stall_s)}, then {after_bps / Mbps:.1f} Mbit/s"
        passed = pinged == saved and goes_on
        pairs = f"{len(pinged)} of the {len(lost_by_dr)} pairs that DR loses"
        outcome.says(f"{pairs} still ping, {agreement(pinged, saved)}; TCP {tcp}", passed)
    return {
        "saved_pairs": len(pinged),
        "saved_predicted_pairs": len(saved),
        "tcp_stall_ms": 1000 * stall_s,
        "tcp_after_bps": after_bps,
    }, passed


def agreement(pinged: set[Pair], saved: set[Pair]) -> str:
    """Return in words how the pairs that ping compare with the predicted ones."""
    if pinged == saved:
        return "exactly those that the graph predicts"
    return f"the graph predicts {len(saved)}"


def through(topology: Topology, link: int, paths: Mapping[Pair, Sequence[int]]) -> Pair:
    """Return the pair with the longest of the `paths` over `link`; of all paths if none is."""
    crossing = {
        pair: path
        for pair, path in paths.items()
        if any(link in links(topology, *hop) for hop in pairwise(path))
    }
    candidates = crossing or paths
    return max(candidates, key=lambda pair: len(candidates[pair]))


def links(topology: Topology, server: int, peer: int) -> set[int]:
    """Return the links of a hop between servers: one, or the two to the crossbar between them."""
    ends = {node: link for _, node, _, link in topology.ports(server)}
    if peer in ends:
        return {ends[peer]}
    far_ends = {node: link for _, node, _, link in topology.ports(peer)}
    return {link for node in ends.keys() & far_ends.keys() for link in (ends[node], far_ends[node])}


def watch(stream: Stream, failed_s: float) -> tuple[bool, float, float]:
    """Return whether a flow goes on after a failure, its stall (s) and latest goodput (bit/s)."""

    def latest_bps() -> float:
        now_s = clock.monotonic()
        recent_bps = stream.arrivals.goodput_bps(now_s - RECENT_S, now_s)
        return recent_bps if now_s > failed_s + WATCHED_S else 0.0

    after_bps = 0.0
    with suppress(TimeoutError):
        after_bps = wait_until("TCP goes on", latest_bps, timeout_s=NOTICE_S)
    return after_bps > 0, stream.arrivals.stall_s(failed_s, clock.monotonic()), after_bps
