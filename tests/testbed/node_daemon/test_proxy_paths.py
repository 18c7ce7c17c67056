"""Packets take the paths that PR's algorithm computes, and no pair that it connects is lost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest

from weft.daemons.proxy import routing as proxy
from weft.experiments.engines.routes import both_ways, lengths
from weft.testbed.measure.ping import ping
from weft.testbed.measure.traceroute import Trace, trace
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon import control
from weft.topologies.core.failures import fail_links, random_links
from weft.topologies.core.link import LinkSpec, Mbps
from weft.topologies.core.topology import Topology

pytestmark = pytest.mark.kernel
LINK = LinkSpec(rate_bps=20 * Mbps, queue_packets=250)
SCHEMES = ("pr-gpe", "pr-gpi", "pr-gp0")
LARGE = ("dcell:n=4,k=1", "beta-dcell:n=5,k=1", "ficonn:n=4,k=2")
CASES = [
    *(("dcell:n=3,k=1", name, 100) for name in SCHEMES),
    ("ficonn:n=4,k=1", "pr-gpi", 100),
    *(pytest.param(spec, name, 6, marks=pytest.mark.slow) for spec in LARGE for name in SCHEMES),
]
FAILED_FRACTION = 0.1
MOST_PAIRS = 2300

Pair = tuple[int, int]


class PathCounts(NamedTuple):
    """Pairs that the algorithm connects; those that ping; lines of those on other paths."""

    connected: int
    answered: int
    wrong: list[str]

    @property
    def complete(self) -> bool:
        return self.connected == self.answered and not self.wrong


def broken(network: RunningNetwork, fraction: float) -> Topology:
    """Fail that fraction of the links; return the topology without them."""
    topology = network.topology
    links = random_links(topology, fraction=fraction, generator=np.random.default_rng(1))
    for link in links.tolist():
        network.fail(topology.link_name(link))
    return fail_links(topology, links)


def counts(
    network: RunningNetwork, live: Topology, scheme: str, pairs: Sequence[Pair]
) -> PathCounts:
    """Return the state of `pairs` now; `live` is the topology without failed links."""
    hops = lengths(live, scheme, pairs)
    assert hops is not None
    connected = sorted(both_ways(hops) & set(pairs))
    lost = ping(network, connected, timeout_s=0.5, retries=2).lost
    proxies = chosen_proxies(network, {src for src, _ in connected})
    ccrdn = network.topology.naming.network  # type: ignore[attr-defined]
    wrong = []
    for row in trace(network, connected):
        proxy_number = proxies.get((row.src, row.dst), -1)
        route = proxy.route(ccrdn.rule, ccrdn.t, row.src, row.dst, proxy_number)
        is_mute = cannot_answer(live, scheme, row, route)
        path = route[: len(row.nodes)] if is_mute else route
        lacks_answer = bool(row.reason) and not is_mute
        if list(row.nodes) != path or lacks_answer or len(route) - 1 != hops[row.src, row.dst]:
            wrong.append(f"{row.nodes} ({row.reason}), computed {route}")
    return PathCounts(len(connected), len(connected) - len(lost), wrong)


def cannot_answer(live: Topology, scheme: str, row: Trace, route: Sequence[int]) -> bool:
    """Return True if the server at which a trace ended has no path back to the source."""
    if len(row.nodes) >= len(route) or not (row.reason or "").startswith("no answer"):
        return False
    back = (route[len(row.nodes)], row.src)
    return back not in (lengths(live, scheme, [back]) or {})


def chosen_proxies(network: RunningNetwork, sources: set[int]) -> dict[Pair, int]:
    """Return the proxy that each of `sources` has chosen for its destinations, -1 for DR."""
    naming = network.topology.naming
    proxies: dict[Pair, int] = {}
    for src in sources:
        status = control.status(network.run.directory, naming.name(src))
        rows = status["protocol"]["destinations"]
        proxies |= {(src, naming.node(name)): row["proxy"] for name, row in rows.items()}
    return proxies


def random_pairs(servers: int, most: int) -> list[Pair]:
    """Return `most` random ordered pairs, each with its reverse; all where there are fewer."""
    pairs = [(src, dst) for src in range(servers) for dst in range(src)]
    order = np.random.default_rng(0).permutation(len(pairs))[: most // 2]
    pairs = [pairs[index] for index in order.tolist()]
    return [*pairs, *((dst, src) for src, dst in pairs)]


@pytest.mark.parametrize(("spec", "name", "per_s"), CASES)
def test_every_pair_takes_the_computed_path_whole_and_broken(network, spec, name, per_s):
    """Sources ask more often than by default, since all destinations are in use at once."""
    scheme = f"{name}:probes_per_s={per_s},urgent_per_s={per_s},idle_s=60"
    net = network(spec, link=LINK, scheme=scheme)
    pairs = random_pairs(net.topology.servers, MOST_PAIRS)
    for fraction in (0.0, FAILED_FRACTION):
        live = broken(net, fraction)
        end_s = time.monotonic() + 200
        while not (state := counts(net, live, scheme, pairs)).complete and time.monotonic() < end_s:
            time.sleep(0.5)
        assert state.complete, state
        assert state.connected > 0.6 * len(pairs)
