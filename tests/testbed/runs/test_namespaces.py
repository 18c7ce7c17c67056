import pytest

import weft
from weft.testbed.runs import network_handle

pytestmark = pytest.mark.kernel


def test_every_node_of_a_run_has_an_iproute(network):
    up = network("star:n=3", None, "none")
    with weft.namespaces(up.run.id) as nodes:
        assert sorted(nodes) == ["h0", "h1", "h2", "r0"]
        for name, node in nodes.items():
            interfaces = {link.get("ifname") for link in node.ip.get_links()}
            own = {end.dev for end in up.plan.ends[up.plan.names.index(name)].values()}
            assert interfaces == {"lo", *own}
    assert up["h1"].ip.link_lookup(ifname="h1-eth0")
    up.close()


def test_a_run_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="no run 'pyroute2' is up"):
        network_handle.namespaces("pyroute2")


@pytest.mark.parametrize("arguments", [("star:n=2",), ()])
def test_a_node_of_mininet_has_one(arguments):
    with weft.Net(*arguments, routing=None if not arguments else "none") as net:
        if not arguments:
            net.addLink(net.addHost("h0"), net.addSwitch("s1"))
        ip = net["h0"].ip
        (index,) = ip.link_lookup(ifname="h0-eth0")
        ip.addr("add", index=index, address="192.0.2.1", prefixlen=24)
        assert "192.0.2.1/24" in net["h0"].cmd("ip -o address show dev h0-eth0")
        assert net["h0"].ip is ip
    with pytest.raises(OSError, match="Bad file descriptor"):
        ip.link("set", index=index, state="up")
