"""The failures that DR does not survive, survived by other schemes: the second half of
experiments/demo/first_light.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from weft.daemons.core import registry
from weft.experiments.engines.predicted_paths import Pair, both_ways, lengths
from weft.experiments.engines.routes import lost_pairs
from weft.experiments.runner.console import duration, step
from weft.experiments.runner.definition import Value
from weft.testbed.linux import clock
from weft.topologies.core.failures import fail_links
from weft.topologies.core.link import LinkSpec, Mbps
from weft.topologies.core.topology import Topology

if TYPE_CHECKING:
    from weft.testbed.measure.fidelity import FidelityReport
    from weft.testbed.network.network import RunningNetwork
    from weft.testbed.traffic.stream import Stream

SURVIVORS = ("pr-gpi", "dfr")
WATCHED_S = 1.0  # of TCP after a failure
RECENT_S = 0.3


def survivors() -> list[str]:
    """The schemes that are put to the same test as DR."""
    return [name for name in SURVIVORS if name in registry.schemes()]


def prefix(routing: str, how: str) -> str:
    """How the columns of one death under one scheme begin."""
    return f"{routing.replace('-', '_')}_{how}"


def run_failover(
    topology: Topology, link: LinkSpec, routing: str, deaths: dict[int, bool]
) -> tuple[dict[str, Value], bool, FidelityReport]:
    """Let links die under `routing`, one after the other, with a TCP flow over each; `deaths` says
    of each whether it dies in silence.

    Returns figures, whether all went as it must, and whether the machine kept up.
    """
    from weft.testbed.measure.fidelity import Fidelity
    from weft.testbed.network.network import RunningNetwork

    figures: dict[str, Value] = {}
    passed = True
    with step(f"the same network with {routing} comes up"):
        net = RunningNetwork.create(topology, link, scheme=routing)
    try:
        with Fidelity(net) as fidelity:
            for dead, silent in deaths.items():
                found, well = survive(net, routing, dead, silent)
                which = prefix(routing, "silent" if silent else "announced")
                figures |= {f"{which}_{key}": value for key, value in found.items()}
                passed = passed and well
    finally:
        net.down()
    return figures, passed, fidelity.report


def survive(
    net: RunningNetwork, routing: str, link: int, silent: bool
) -> tuple[dict[str, Value], bool]:
    """Let one link die and come back: of the pairs that DR loses by that, who still pings, and what
    TCP makes of it."""
    from weft.experiments.engines import reachability
    from weft.testbed.measure.traceroute import trace
    from weft.testbed.traffic.stream import Stream

    topology, name = net.topology, net.topology.link_name(link)
    broken = fail_links(topology, [link])
    ended = sorted(lost_pairs("dr", broken))
    saved = both_ways(lengths(broken, routing, ended) or {})
    if not saved:
        raise ValueError(
            f"{routing} saves none of the pairs that DR loses when {name} dies in {topology.spec}"
        )
    reachability.wait_for_paths(net, ended, lengths(topology, routing, ended))
    src, dst = through(
        topology, link, {(one.src, one.dst): one.nodes for one in trace(net, sorted(saved))}
    )
    ends = f"{topology.naming.name(src)} to {topology.naming.name(dst)}"
    with step(f"{name} dies, {'silent' if silent else 'announced'}, with TCP from {ends}") as told:
        with Stream(net, src, dst) as stream:
            clock.sleep(WATCHED_S)  # in which TCP finds its rate
            failed_s = clock.monotonic()
            net.fail(name, silent=silent)
            pinged = reachability.wait_for_pings(net, ended, saved)
            goes_on, stall_s, after_bps = watch(stream, failed_s)
        same = (
            "exactly those that the graph predicts"
            if pinged == saved
            else f"the graph predicts {len(saved)}"
        )
        tcp = (
            f"stalls {duration(stall_s)}, then {after_bps / Mbps:.1f} Mbit/s"
            if goes_on
            else "does not go on"
        )
        well = pinged == saved and goes_on
        told.says(
            f"{len(pinged)} of the {len(ended)} pairs that DR loses still ping, {same}; TCP {tcp}",
            well,
        )
    net.restore(name)
    net.wait_until_converged()
    return {
        "saved_pairs": len(pinged),
        "saved_predicted_pairs": len(saved),
        "tcp_stall_ms": 1000 * stall_s,
        "tcp_after_bps": after_bps,
    }, well


def through(topology: Topology, link: int, paths: Mapping[Pair, Sequence[int]]) -> Pair:
    """The pair with the longest of the `paths`, servers from source to destination, over `link`; of
    all if none is."""
    over = {
        pair: path
        for pair, path in paths.items()
        if any(link in links(topology, *hop) for hop in pairwise(path))
    }
    chosen = over or paths
    return max(chosen, key=lambda pair: len(chosen[pair]))


def links(topology: Topology, here: int, there: int) -> set[int]:
    """The links of a hop from server to server: one, or both of those to the crossbar between
    them."""
    ends = {peer: link for _, peer, _, link in topology.ports(here)}
    if there in ends:
        return {ends[there]}
    beyond = {peer: link for _, peer, _, link in topology.ports(there)}
    return {link for peer in ends.keys() & beyond.keys() for link in (ends[peer], beyond[peer])}


def watch(stream: Stream, failed_s: float) -> tuple[bool, float, float]:
    """Whether a flow goes on after a failure, how long it stalled in s, and its goodput in bit/s
    when last seen."""
    from contextlib import suppress

    from weft.experiments.engines.reachability import NOTICE_S
    from weft.testbed.linux.clock import wait_until

    def flows() -> bool:
        now = clock.monotonic()
        recent = stream.arrivals.stall_s(now - RECENT_S, now) < RECENT_S
        return recent and now > failed_s + WATCHED_S

    with suppress(TimeoutError):
        wait_until("TCP goes on", flows, timeout_s=NOTICE_S)
    now, arrivals = clock.monotonic(), stream.arrivals
    after_bps = arrivals.goodput_bps(now - RECENT_S, now)
    return after_bps > 0, arrivals.stall_s(failed_s, now), after_bps
