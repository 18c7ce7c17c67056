"""Networks that Mininet's Topo describes, with bridges for switches, whose nodes and links come and
go."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests import optional_parts
from weft.testbed.linux import cgroup, live_port, netns, tc
from weft.testbed.network import clean, outside
from weft.testbed.network.network import RunningNetwork
from weft.testbed.runs import hosts_file, run

pytest.importorskip("mininet", reason=optional_parts.PARTS["mininet"].get)

from mininet.link import TCLink
from mininet.log import setLogLevel
from mininet.node import CPULimitedHost, Node
from mininet.topo import LinearTopo, SingleSwitchTopo, Topo

from weft.testbed.linux.clock import wait_until
from weft.testbed.mininet.net import Net

pytestmark = pytest.mark.kernel


class RateTopo(Topo):
    """Two switches with two links between them, the first of which carries 20 Mbit/s."""

    def build(self):
        s1, s2 = self.addSwitch("s1"), self.addSwitch("s2", stp=True)
        self.addLink(s1, s2, bw=20, max_queue_size=50)
        self.addLink("h1", s1, loss=25, bw=10)
        self.addLink("h2", s2)

    def addLink(self, a, b, **params):
        for name in (a, b):
            if name[0] == "h":
                self.addHost(
                    name, **({"privateDirs": ["/var/tmp/weft-private"]} if name == "h1" else {})
                )
        return super().addLink(a, b, **params)


@pytest.fixture(autouse=True)
def quiet():
    setLogLevel("critical")
    yield
    setLogLevel("warning")


@pytest.fixture(scope="module")
def net():
    with Net(LinearTopo(k=2), autoSetMacs=True) as net:
        yield net


def test_hosts_have_mininets_names_and_addresses_and_reach_each_other(net):
    assert [node.name for node in net.values()] == ["h1", "h2", "s1", "s2", "c0"]
    assert (net["h1"].IP(), net["h2"].MAC()) == ("10.0.0.1", "00:00:00:00:00:02")
    assert [str(link) for link in net.links] == [
        "h1-eth0<->s1-eth1",
        "h2-eth0<->s2-eth1",
        "s2-eth2<->s1-eth2",
    ]
    assert not any(node.has_shell for node in net.values())
    assert net.pingAll() == 0
    assert "0% packet loss" in net["h1"].cmd("ping -c1 h2"), "by name"
    assert net["h1"].intf().updateAddr() == ("10.0.0.1", "00:00:00:00:00:01")


def test_nodes_and_links_come_and_go_while_it_is_up(net):
    host, switch = net.addHost("h9"), net.addSwitch("s9")
    net.addLink(switch, "s2")
    net.addLink(host, switch)
    assert net.ping([net["h1"], host]) == 0, "its address was set, and its switch forwards"
    assert "0% packet loss" in net["h1"].cmd("ping -c1 h9"), "a shell that runs knows the new name"
    net.delLinkBetween(switch, net["s2"])
    assert net.ping([net["h1"], host], timeout="0.2") == 100
    net.addLink(switch, "s2")
    assert net.ping([net["h1"], host]) == 0
    names = [host.namespace, switch.namespace]
    net.delNode(host)
    net.delNode(switch)
    assert not any(
        (netns.NAMES / name).exists() or (hosts_file.LINKS / name).is_symlink() for name in names
    )
    assert "h9" not in net
    assert [str(link) for link in net.links if "9" in str(link)] == []
    assert net["h1"].cmd("grep -c h9 /etc/hosts").strip() == "0"


def test_links_fail_and_are_restored(net):
    h1, h2 = net["h1"], net["h2"]
    for silent in (True, False):
        net.fail("s1-s2", silent=silent)
        assert net.ping([h1, h2], timeout="0.2") == 100
        assert net.status()["failed"] == ["s2-eth2<->s1-eth2"]
        net.restore("s1-s2")
        assert net.ping([h1, h2]) == 0
        assert net.status()["failed"] == []
    with pytest.raises(ValueError, match="no link s1-s7: write its two ends, as in h1-s1"):
        net.fail("s1-s7")


def test_iperf_is_iperf3_and_gives_what_mininets_gives(net, caplog):
    setLogLevel("output")
    try:
        received, sent = net.iperf(seconds=1, fmt="m")
    finally:
        setLogLevel("warning")
    assert received.endswith(" Mbits/sec")
    assert float(received.split()[0]) > 1
    asked, received, _ = net.iperf(seconds=1, l4Type="UDP", udpBw="1M", fmt="m")
    assert asked == "1M"
    assert 0.5 < float(received.split()[0]) < 1.1
    assert sent.endswith("/sec")
    assert "not measured, switches of this network are bridges" in caplog.text
    with pytest.raises(ValueError, match="l4Type is TCP or UDP"):
        net.iperf(l4Type="SCTP")


def test_other_commands_say_that_the_run_is_a_scripts(net):
    with pytest.raises(
        ValueError, match=rf"run {net.identity.id} is a Mininet script's, and ends with it"
    ):
        RunningNetwork.open(net.identity.id)


def kernel_settings(port):
    """Return the kernel's settings of a port: its shape, and the loss at the far end."""
    far = port.far()
    socket, other = port.lan.spaces[port.node.name].netlink, port.lan.spaces[far.node.name].netlink
    return tc.shapes(socket).get(port.end.ifindex), live_port.losses(other).get(far.end.ifindex, 0)


def test_links_carry_what_the_topo_says_until_it_is_changed():
    with Net(RateTopo(), link=TCLink) as net:
        between, first, second = (
            net.linksBetween(net[a], net[b])[0]
            for a, b in (("s1", "s2"), ("h1", "s1"), ("h2", "s2"))
        )
        shape, lost = kernel_settings(between.intf1)
        assert (shape.rate_bps, shape.queue_packets, lost) == (20_000_000, 50, 0)
        shape, lost = kernel_settings(first.intf2)
        assert (shape.rate_bps, lost) == (10_000_000, 250_000_000)
        assert kernel_settings(second.intf1) == (None, 0)
        second.intf1.config(bw=5, loss=100)
        second.intf1.config(bw=4)
        shape, lost = kernel_settings(second.intf1)
        assert (shape.rate_bps, shape.queue_packets, lost) == (4_000_000, 1000, 1_000_000_000)
        second.intf1.config(loss=0)
        assert kernel_settings(second.intf1)[1] == 0
        with pytest.raises(ValueError, match="enable_red is unavailable"):
            second.intf1.config(enable_red=True)
        with pytest.raises(ValueError, match="0 to 100 %, got 101 %"):
            second.intf1.config(loss=101)
        net["h1"].cmd("touch /var/tmp/weft-private/mine")
        assert net["h2"].cmd("ls /var/tmp/weft-private 2>/dev/null").strip() == ""
    os.rmdir("/var/tmp/weft-private")


class Router(Node):
    """As Mininet's example of a router has it."""

    def config(self, **params):
        super().config(**params)
        self.cmd("sysctl net.ipv4.ip_forward=1")


class RouterTopo(Topo):
    def build(self):
        router = self.addNode("r0", cls=Router, ip="192.168.1.1/24")
        for number in (1, 2):
            switch = self.addSwitch(f"s{number}")
            self.addLink(
                switch,
                router,
                intfName2=f"r0-eth{number}",
                params2={"ip": f"192.168.{number}.1/24"},
            )
            gateway = {"ip": f"192.168.{number}.100/24", "defaultRoute": f"via 192.168.{number}.1"}
            self.addLink(self.addHost(f"h{number}", **gateway), switch)


def test_a_class_of_the_scripts_own_works():
    with Net(topo=RouterTopo()) as net:
        assert net.pingAll() == 0
        assert net["r0"].cmd("cat /proc/sys/net/ipv4/ip_forward").strip() == "1"


def test_a_link_is_impaired_both_ways(net):
    net.impair("h1-s1", loss="100%", rate="3mbit", queue="40")
    try:
        assert net.ping([net["h1"], net["h2"]], timeout="1") == 100
        (link,) = net.linksBetween(net["h1"], net["s1"])
        for port in (link.intf1, link.intf2):
            shape = tc.shapes(net.lan.spaces[port.node.name].netlink)[port.end.ifindex]
            assert (shape.rate_bps, shape.queue_packets) == (3_000_000, 40)
    finally:
        net.impair("h1-s1", loss="0")
    assert net.ping([net["h1"], net["h2"]], timeout="2") == 0
    for words, said in (
        ({}, "some of loss"),
        ({"queue": "x"}, "queue: a number"),
        ({"loss": "200"}, "0 to 100"),
    ):
        with pytest.raises(ValueError, match=said):
            net.impair("h1-s1", **words)
    with pytest.raises(ValueError, match="original shape of h1-s1, a link"):
        net.unimpair("h1-s1")
    with pytest.raises(ValueError, match="no link 0 between h1 and h2"):
        net.delLinkBetween(net["h1"], net["h2"])


@pytest.mark.real_clock("computing takes no time there, and nobody has a share of none")
def test_a_host_has_a_share_of_the_processor_in_a_group_that_goes_with_the_run():
    net = Net(SingleSwitchTopo(k=2), host=CPULimitedHost)
    try:
        host = net["h1"]
        host.setCPUFrac(0.25)
        pid = host.cmd("echo $$").strip()
        folder = host.group.folders[0]
        assert pid in (folder / "cgroup.procs").read_text().split()
        with host.popen(["cat", "/proc/self/cgroup"], stdout=subprocess.PIPE, text=True) as process:
            assert host.namespace in process.communicate()[0]
        before = host.group.used_ns()
        host.cmd("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
        assert host.group.used_ns() > before
    finally:
        net.stop()
    assert not any((cgroup.ROOT / root / host.namespace).exists() for root in ("", *cgroup.V1))


@pytest.mark.virtual_clock
def test_where_computing_takes_no_time_no_host_gets_a_share_of_it():
    with pytest.raises(
        ValueError, match="h1: no host has a share of the processor under the virtual clock"
    ):
        Net(SingleSwitchTopo(k=2), host=CPULimitedHost)


def test_a_test_that_fails_leaves_nothing(run_name):
    net = Net(SingleSwitchTopo(k=2), name=run_name)

    def raises():
        raise KeyError("in the test")

    with pytest.raises(KeyError):
        net.run(raises)
    assert run_name not in [record.id for record in run.runs()]


SCRIPT = """
import sys
from weft.testbed.mininet.net import Net
from mininet.topo import SingleSwitchTopo
net = Net(SingleSwitchTopo(k=2), name=sys.argv[2])
net.addNAT().configDefault()
net.start()
print(net["h1"].cmd("ping -c1 -W2 " + sys.argv[1]))
print("up", flush=True)
sys.stdin.readline()
"""


def test_hosts_reach_the_machine_by_a_nat_and_clean_removes_it_after_sigkill(
    spare_netns, tmp_path, run_name
):
    """The machine is a namespace of the test's, which forwards, and beyond which nobody is."""
    inside = ["ip", "netns", "exec", spare_netns.name]
    subprocess.run([*inside, "sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True)
    subprocess.run(
        ["ip", "-n", spare_netns.name, "address", "add", "192.0.2.1/32", "dev", "lo"], check=True
    )
    (tmp_path / "script.py").write_text(SCRIPT)
    argv = [*inside, sys.executable, "-c", SCRIPT, "192.0.2.1", run_name]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        said = ""
        while "up\n" not in said:
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            said += line
        journal = next(record for record in run.runs() if record.id == run_name).journal
        process.send_signal(signal.SIGKILL)
    assert ", 0% packet loss" in said
    assert journal[outside.KEY] == [f"weft-{run_name}"]
    tables = [*inside, "nft", "-j", "list", "tables"]
    assert (
        f"weft-{run_name}"
        in subprocess.run(tables, capture_output=True, text=True, check=True).stdout
    )
    code = f"from weft.testbed.network import clean; clean.clean('{run_name}')"
    subprocess.run([*inside, sys.executable, "-c", code], check=True)
    assert "weft" not in subprocess.run(tables, capture_output=True, text=True, check=True).stdout
    told = subprocess.run(
        ["ip", "-n", spare_netns.name, "-j", "link"], capture_output=True, text=True, check=True
    ).stdout
    assert [
        link["ifname"] for link in json.loads(told) if link["ifname"] not in ("lo", "ifb0", "ifb1")
    ] == []
    assert clean.processes(run_name, journal["namespaces"]) == []


@pytest.mark.slow
def test_a_spanning_tree_blocks_one_port_of_a_circle():
    with Net() as net:
        switches = [net.addSwitch(f"s{i}", stp=True, prio=100 + i) for i in range(3)]
        assert switches[0].connected()  # it has no port yet
        for i in range(3):
            net.addLink(switches[i], switches[i - 1])
        assert not all(switch.connected() for switch in switches)
        wait_until("the tree is there", lambda: all(switch.connected() for switch in switches))
        seen = []
        for i, switch in enumerate(switches):
            bridge = ip_json(switch, "link", "show", switch.name)[0]["linkinfo"]["info_data"]
            keys = ("stp_state", "forward_delay", "hello_time", "priority")
            assert [bridge[key] for key in keys] == [1, 200, 100, 100 + i]
            ports = ip_json(switch, "link", "show", "master", switch.name)
            seen += [port["linkinfo"]["info_slave_data"]["state"] for port in ports]
        assert sorted(seen) == ["blocking", *5 * ["forwarding"]]


def ip_json(switch, *words):
    """Return what `ip` shows in the namespace of a switch."""
    command = ["ip", "-n", switch.namespace, "-j", "-d", *words]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
