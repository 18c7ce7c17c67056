"""A network of a user's own graph on the kernel, under the user's names."""

from __future__ import annotations

import json
import subprocess
import sys

import networkx as nx
import pytest

from tests import optional_parts

pytest.importorskip("mininet", reason=optional_parts.PARTS["mininet"].get)
from weft.testbed.linux import tc
from weft.testbed.linux.clock import wait_until
from weft.testbed.mininet.net import Net
from weft.topologies.core.link import LinkSpec, Mbps

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("routing", ["ecmp", "bfs"])
def test_a_graph_comes_up_under_its_own_names(routing: str) -> None:
    graph = nx.cycle_graph(["zur", "gen", "mil", "rom"])
    nx.set_node_attributes(graph, {"zur": 2, "mil": 1}, "hosts")
    with Net(graph, link=LinkSpec(rate_bps=50 * Mbps, queue_packets=100), routing=routing) as net:
        assert net.pingAll() == 0.0
        assert "2 received" in net.get("zur.0").cmd(f"ping -c2 -i0.2 -W1 {net.get('mil.0').IP()}")
        weft = [
            sys.executable,
            "-m",
            "weft.experiments.cli.cli",
            "status",
            "--run",
            net.identity.id,
            "--json",
        ]
        told = subprocess.run(weft, capture_output=True, text=True, check=False)
        assert told.returncode == 0, told.stderr
        assert json.loads(told.stdout)
        net.fail("zur-gen")
        wait_until("every pair pings again", lambda: net.pingAll(timeout=1) == 0.0)


def test_a_graph_has_layers_and_the_rates_of_its_own_links() -> None:
    """Between two of five cities some layer does not take the link that joins them."""
    graph = nx.complete_graph(["zur", "gen", "mil", "rom", "par"])
    nx.set_node_attributes(graph, {"zur": 1, "mil": 1}, "hosts")
    graph.edges["zur", "mil"]["rate"] = "7mbit"
    link = LinkSpec(rate_bps=50 * Mbps, queue_packets=100)
    with Net(graph, link=link, routing="fatpaths:layers=6,rho=0.5,forwarding=kernel") as net:
        assert net.pingAll() == 0.0
        zur, address = net.get("zur"), net.get("mil.0").IP()
        ways = {
            layer: zur.cmd(f"ip route get {64 + layer}.{address.partition('.')[2]}").split()[2]
            for layer in range(6)
        }
        assert ways[0] == net.get("mil").IP()
        assert len(set(ways.values())) > 1
        with net.network.at(net.topology.naming.node("zur")) as requests:
            rates = sorted(shape.rate_bps for shape in tc.shapes(requests).values())
        assert rates == [7 * Mbps] + 4 * [50 * Mbps]
