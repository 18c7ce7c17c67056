"""Packets take the paths that PR's algorithm computes, and no pair that it connects is lost."""

import pytest

from bench.proxy_paths import SCHEMES, break_links, scheme_for, settle, some_pairs
from weft.topologies.core.link import LinkSpec, Mbps

pytestmark = pytest.mark.kernel
LINK = LinkSpec(rate_bps=20 * Mbps, queue_packets=250)


@pytest.mark.parametrize(
    ("spec", "name"), [("dcell:n=3,k=1", name) for name in SCHEMES] + [("ficonn:n=4,k=1", "pr-gpi")]
)
def test_every_pair_takes_the_computed_path_whole_and_broken(network, spec, name):
    scheme = scheme_for(name, 20, 2000)
    net = network(spec, link=LINK, scheme=scheme)
    pairs = some_pairs(net.topology.servers, None)
    for fraction in (0.0, 0.1):
        live = break_links(net, fraction)
        found = settle(net, live, scheme, pairs, within_s=30)
        assert found.whole, found
        assert found.connected > 0.8 * len(pairs)
