import subprocess
from contextlib import closing

import pytest

from weft.daemons.core.actions import SetRoute
from weft.testbed.linux import fib, netlink, netns
from weft.testbed.linux.interface import NodeInterfaces
from weft.topologies.core.address import Prefix

pytestmark = pytest.mark.kernel
THERE, NEW = Prefix(10 << 24 | 1 << 16, 16), Prefix(10 << 24 | 2 << 16, 16)


def test_what_is_set_only_where_nothing_is_leaves_what_is(spare_netns):
    command = f"ip -n {spare_netns.name} route add {THERE} dev lo proto {fib.RTPROT_WEFT}"
    subprocess.run(f"ip -n {spare_netns.name} link set lo up".split(), check=True)
    subprocess.run(command.split(), check=True)
    with netns.inside(spare_netns.fd):
        socket = netlink.Socket()
    with closing(socket):
        own = fib.KernelFib(
            socket,
            NodeInterfaces(name="h0", node=0, namespace=spare_netns.name, address=1, ports={}),
        )
        own.set([SetRoute(THERE, (), unless_set=True), SetRoute(NEW, (), unless_set=True)])
        shown = subprocess.run(
            f"ip -n {spare_netns.name} route".split(), capture_output=True, text=True, check=True
        ).stdout
        assert f"{THERE} dev lo" in shown
        assert f"unreachable {NEW}" in shown
        own.set([SetRoute(THERE, ())])
        assert fib.routes(socket) == {THERE: (), NEW: ()}
