"""Arguments of Mininet's constructor are honoured, or refused in one line, without root."""

from functools import partial

import pytest

from tests import optional_parts

pytest.importorskip("mininet", reason=optional_parts.PARTS["mininet"].get)

from mininet.link import TCLink
from mininet.net import Mininet
from mininet.node import Controller, CPULimitedHost, Host, OVSSwitch, RemoteController, UserSwitch
from mininet.nodelib import LinuxBridge
from mininet.topo import LinearTopo, SingleSwitchTopo, Topo
from mininet.topolib import TorusTopo, TreeTopo

from weft.testbed.mininet.mininet_arguments import Arguments
from weft.testbed.mininet.mininet_topology import graph_of, has_cycle, is_topo
from weft.testbed.mininet.net import Net
from weft.topologies.core.link import LinkSpec, Mbps


def test_arguments_come_in_mininets_order():
    given = Arguments.of(None, [OVSSwitch, Host, Controller], {"topo": 7, "waitConnected": True})
    assert given.topology == 7
    assert given.mininet == {
        "switch": OVSSwitch,
        "host": Host,
        "controller": Controller,
        "waitConnected": True,
    }
    with pytest.raises(TypeError, match="switch is given twice"):
        Arguments.of(None, [OVSSwitch], {"switch": OVSSwitch})
    with pytest.raises(TypeError, match="no argument 'waitConected', did you mean waitConnected"):
        Arguments.of(None, [], {"waitConected": True})


class Own(OVSSwitch):
    pass


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"host_link": LinkSpec(rate_bps=Mbps, queue_packets=1)}, "host_link needs routing="),
        ({"packed": 2}, "packed needs routing="),
        ({"outwards": True}, "outwards needs routing="),
        ({"own_links": {0: LinkSpec(rate_bps=Mbps, queue_packets=1)}}, "own_links needs routing="),
        ({"autoPinCpus": True}, "autoPinCpus needs host=CPULimitedHost"),
        ({"routing": "ecmp", "switch": Own}, "switch: switches are routers"),
        ({"routing": "ecmp", "host": CPULimitedHost}, "host: hosts are plain ones"),
        ({"routing": "ecmp", "ipBase": "192.168.0.0/16"}, "ipBase: addresses follow"),
        ({"routing": "ecmp", "autoSetMacs": True}, "autoSetMacs: addresses follow"),
        ({"routing": "ecmp", "controller": RemoteController}, "controller: daemons"),
        ({"routing": "ecmp", "link": 5}, "link: a LinkSpec or a class"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(wrong, words):
    with pytest.raises(ValueError, match=words) as error:
        Net(SingleSwitchTopo(k=2), **wrong)
    assert "\n" not in str(error.value)


def test_routing_needs_the_whole_network():
    with pytest.raises(ValueError, match="give Net a Topo, a graph or a name"):
        Net(routing="ecmp")


def test_switches_in_a_circle_become_routers_unless_they_keep_a_spanning_tree(monkeypatch):
    monkeypatch.setattr(Mininet, "inited", True)  # otherwise it asks for root
    assert not has_cycle(LinearTopo(k=4))
    assert not has_cycle(TreeTopo(depth=2))
    assert has_cycle(TorusTopo(3, 3))
    usual = Arguments.of(None, [UserSwitch], {})
    assert not usual.bridges(TorusTopo(3, 3))
    assert Arguments.of(None, [partial(LinuxBridge, stp=True)], {}).bridges(TorusTopo(3, 3))
    routed = Net(TorusTopo(3, 3), OVSSwitch, Host, Controller, link=TCLink)
    assert (routed.bridged, routed.routing) == (False, "ecmp")
    assert routed.topology.naming.node("s2x3") >= routed.topology.servers


class Told(Topo):
    def build(self, **of_the_host):
        self.addSwitch("s1")
        self.addHost("h1", **of_the_host)
        self.addLink("h1", "s1", bw=1.5, max_queue_size=20)


def test_a_graph_keeps_names_and_rates_and_refuses_what_it_cannot_keep():
    assert is_topo(Told())
    assert list(graph_of(Told()).edges(data=True)) == [
        ("h1", "s1", {"rate": 1_500_000, "queue": 20})
    ]
    with pytest.raises(ValueError, match=r"h1: ip follows from its place.*routing='bridge'"):
        graph_of(Told(ip="10.0.0.7/8"))
