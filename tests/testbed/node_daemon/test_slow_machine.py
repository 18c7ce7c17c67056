"""PR with a quarter of the machine: every pair that a dead link cuts off is connected again."""

import pytest

pytestmark = pytest.mark.kernel
SCRIPT = """
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.ping import ping
from weft.testbed.network.network import RunningNetwork
from weft.topologies import build

network = RunningNetwork.create(build("ficonn:n=4,k=1"), None, scheme="pr-gpi")
try:
    links, servers = network.topology.links.tolist(), network.topology.servers
    link = next(link for link, (_, _, far, _) in enumerate(links) if far < servers)
    near, _, far, _ = links[link]
    pairs = [(src, dst) for src in range(servers) for dst in (near, far) if src not in (near, far)]
    pairs += [(near, far), (far, near)]
    network.fail(network.topology.link_name(link), silent=True)
    lost = list(pairs)

    def recovered():
        lost[:] = [(pair.src, pair.dst) for pair in ping(network, lost).lost]
        return not lost

    wait_until("every pair pings", recovered, timeout_s=300.0)
finally:
    network.down()
"""


def test_every_pair_around_a_link_that_died_in_silence_is_connected_again(slow_python):
    slow_python(0.25, SCRIPT)
