"""PR on Linux: each kind of failure on the path of a pair is left for another path, and what heals
is used."""

from itertools import pairwise

import pytest

from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.ping import ping
from weft.testbed.measure.traceroute import trace
from weft.testbed.node_daemon import control

pytestmark = pytest.mark.kernel
SRC, DST = 0, 19


def path(net):
    (route,) = trace(net, [(SRC, DST)])
    return list(route.nodes), route.reason


def reachable(net):
    return not ping(net, [(SRC, DST)], timeout_s=0.3).lost


def fail(net, kind, near, far):
    """Fail a link or node, and return what restores it."""
    name = net.topology.naming.name
    links = [f"{name(near)}-{name(far)}"]
    if kind == "daemon":
        control.kill(net.identity.directory, name(far))
        return lambda: control.start(net.identity.directory, name(far))
    if kind in ("node", "rack"):
        hit = [far] if kind == "node" else range(far - far % 4, far - far % 4 + 4)
        links = sorted(
            {net.topology.link_name(link) for node in hit for *_, link in net.topology.ports(node)}
        )
    for link in links:
        net.fail(link, silent=kind != "link", only_to=name(far) if kind == "one way" else None)
    return lambda: [net.restore(link) for link in links]


@pytest.mark.parametrize("kind", ["link", "silent link", "one way", "node", "rack", "daemon"])
def test_packets_go_around_what_failed_and_return_when_it_is_mended(network, kind):
    net = network("dcell:n=4,k=1", scheme="pr-gpi:hold_ms=100")
    net.fail("h3-h16")  # DR's way from 0 to 19: what follows hits a proxy's
    wait_until("a proxy's path", lambda: reachable(net) and path(net)[1] is None)
    before, _ = path(net)
    near, far = next(hop for hop in pairwise(before) if hop[0] // 4 != hop[1] // 4)
    mend = fail(net, kind, near, far)
    wait_until("another path", lambda: reachable(net) and far not in path(net)[0])
    mend()
    net.restore("h3-h16")
    wait_until("the shortest path", lambda: reachable(net) and len(path(net)[0]) < len(before))
