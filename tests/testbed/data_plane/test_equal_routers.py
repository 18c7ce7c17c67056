"""The data plane's schemes where all switches are alike: Slim Fly, HyperX, Dragonfly; and on a
user's own graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import networkx as nx
import pytest

from weft.daemons.core import registry
from weft.daemons.routing import updown
from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.measure.ping import ping
from weft.testbed.measure.traceroute import trace
from weft.testbed.network.network import RunningNetwork
from weft.testbed.runs.network_handle import all_pairs
from weft.topologies.core.link import LinkSpec, Mbps

pytestmark = pytest.mark.kernel
FAST = LinkSpec(rate_bps=50 * Mbps, queue_packets=250)


@pytest.fixture
def spec(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The network's; own: a ring with chords, in a file."""
    if request.param != "own":
        return str(request.param)
    nx.write_graphml(nx.circulant_graph(8, [1, 3]), tmp_path / "own.graphml")
    return f"file:{tmp_path / 'own.graphml'}"


@pytest.mark.parametrize(
    "spec", ["slimfly:q=5,p=1", "hyperx:l=2,s=3,p=1", "dragonfly:p=1", "own"], indirect=True
)
def test_every_scheme_carries_packets_along_shortest_paths(
    network: Callable[..., RunningNetwork], spec: str
) -> None:
    net = network(spec, FAST)
    topology, last = net.topology, net.topology.servers - 1
    at_hop = [set(nodes) for nodes in zip(*updown.paths(topology, 0, last), strict=True)]
    with DataPlane.load(net, "rps", seed=1) as plane:
        plane.attach()
        for scheme in set(registry.with_data_plane()) - {"lbsp"}:
            plane.set_scheme(scheme)
            assert ping(net, all_pairs(net), count=1, retries=2).lost == (), scheme
            (route,) = trace(net, [(0, last)])
            assert len(route.nodes) == len(at_hop), scheme
            assert all(node in nodes for node, nodes in zip(route.nodes, at_hop, strict=True)), (
                scheme
            )
