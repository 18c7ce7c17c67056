"""LBSP on simulated switches: each packet of a flow takes its turn in the flow's path groups."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from weft.daemons.core import registry
from weft.testbed.packets.simulation import PacketFlows, Simulation, simulate
from weft.testbed.packets.switching import Switching
from weft.testbed.packets.transport import ALL, transport
from weft.topologies import build
from weft.topologies.core.failures import fail_links
from weft.topologies.core.link import Gbps, LinkSpec

PACKETS, BYTES = 64, 1472  # payload of a packet without a transport
EIGHT = build("fattree:k=8")
DAMAGED = EIGHT.link("e2.3-a2.3")
PAIRS = [(44, 17), (47, 30), (0, 127), (3, 2), (17, 21), (18, 45)]


def carried(topology, spec, src, dst, **more):
    """Return the packets over each arc between switches, of a flow of PACKETS packets."""
    simulation = Simulation(
        topology,
        spec,
        PacketFlows.of([(src, dst, PACKETS * BYTES)]),
        transport("plain", ALL),
        [LinkSpec(rate_bps=Gbps, queue_packets=100)] * len(topology.links),
        Switching(),
        1,
        daemons=False,
        **more,
    )
    ports = simulation.run((), 1.0, ()).ports
    peers = {
        (node, port): peer
        for node in range(topology.servers, topology.nodes)
        for port, peer, *_ in topology.ports(node)
    }
    return Counter(
        {
            (int(node), peers[node, port]): int(frames)
            for node, port, frames in zip(
                ports["node"].tolist(), ports["port"].tolist(), ports["frames"], strict=True
            )
            if frames and peers.get((node, port), 0) >= topology.servers
        }
    )


def expected(topology, spec, src, dst):
    """Return the same from the scheme's paths and their shares."""
    scheme, options = registry.checked(topology, spec)
    arcs = Counter()
    for path in scheme.path(topology, options, src, dst):
        inner = path.nodes[1:-1]
        for arc in pairwise(inner):
            arcs[arc] += PACKETS * path.share
    return Counter({arc: round(count) for arc, count in arcs.items()})


@pytest.mark.parametrize("spec", ["lbsp", "lbsp:groups=4"])
@pytest.mark.parametrize("failed", [[], ["e2.3-a2.3"], ["a2.3-c15", "e1.0-a1.1"]])
@pytest.mark.parametrize(("src", "dst"), PAIRS)
def test_a_flow_is_dealt_evenly_over_its_path_group(spec, failed, src, dst):
    topology = fail_links(EIGHT, [EIGHT.link(name) for name in failed])
    assert carried(topology, spec, src, dst) == expected(topology, spec, src, dst)


def test_a_degraded_link_is_left_by_those_that_know_of_it():
    lower, _, upper, _ = EIGHT.ends(DAMAGED)
    src = 44  # behind the edge switch of that link
    dst = next(dst for dst in range(16, 32) if carried(EIGHT, "lbsp", src, dst)[lower, upper])
    known = carried(EIGHT, "lbsp", src, dst, degraded=[DAMAGED])
    failed = carried(fail_links(EIGHT, [DAMAGED]), "lbsp", src, dst)
    assert known == failed
    assert known != carried(EIGHT, "lbsp", src, dst)
    spread = carried(EIGHT, "rr", src, dst, degraded=[DAMAGED])
    assert spread == carried(EIGHT, "rr", src, dst)


def test_a_hash_chooses_the_groups_of_a_flow():
    """Flows between two hosts that differ in their ports alone do not all share their groups."""
    rows = [(0, 127, PACKETS * BYTES)] * 16
    used = simulate(EIGHT, "lbsp:hash=1", rows, transport="plain").ports
    up = (used["node"] == EIGHT.servers) & (used["port"] >= 4)
    assert np.count_nonzero(used["frames"][up]) == 4
    alone = simulate(EIGHT, "lbsp", rows, transport="plain").ports
    assert np.count_nonzero(alone["frames"][up]) == 2
