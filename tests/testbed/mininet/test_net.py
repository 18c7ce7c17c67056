import os
import re
import subprocess

import pytest

from tests import optional_parts
from weft.testbed.linux import netns, tc
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.fidelity import Fidelity, FidelityReport, at_most
from weft.testbed.network import clean, impair
from weft.testbed.runs import hosts_file, run
from weft.topologies.core.link import LinkSpec, Mbps

pytest.importorskip("mininet", reason=optional_parts.PARTS["mininet"].get)

from mininet.cli import CLI
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import Topo

from weft.testbed.mininet.net import Net
from weft.testbed.mininet.scripts import CommandLine

pytestmark = pytest.mark.kernel
LINK = LinkSpec(rate_bps=20 * Mbps, queue_packets=250)


@pytest.fixture(scope="module")
def net():
    setLogLevel("warning")
    with Net("dcell:n=3,k=1", link=LINK, routing="static") as net:
        yield net


def test_it_is_a_mininet_whose_nodes_have_no_shell_until_somebody_asks(net):
    assert isinstance(net, Mininet)
    assert {node.name for node in net.values()} == {f"h{i}" for i in range(12)} | {
        f"w{i}" for i in range(4)
    }
    assert "shell" not in vars(net.get("h7"))
    assert net.get("h7").cmd("echo $((6 * 7))").strip() == "42"
    assert "shell" in vars(net.get("h7"))
    assert "shell" not in vars(net.get("h8"))


def test_a_notebook_shows_the_network_with_its_failed_links(net):
    import weft.experiments  # networks can be drawn

    assert weft.experiments
    assert "stroke-dasharray" not in net._repr_svg_()
    net.up.fail("h0-h3")
    assert "stroke-dasharray" in net._repr_svg_()
    net.up.restore("h0-h3")


def test_a_command_runs_in_the_nodes_namespace(net):
    host = net.get("h11")
    assert host.IP() == "10.0.3.2"
    assert " 10.0.3.2/32 " in host.cmd(f"ip address show dev {host.intf('h11-eth0').name}")
    assert host.cmd("hostname").strip() == "h11"
    assert host.MAC() in host.cmd(f"ip link show dev {host.defaultIntf().name}")
    line = "cat /proc/self/net/dev; hostname"
    with host.popen(["sh", "-c", line], stdout=subprocess.PIPE, text=True) as process:
        output = process.communicate()[0]
    assert "h11-eth1" in output
    assert output.split()[-1] == "h11"
    assert ", 0% packet loss" in net.get("h0").cmd(f"ping -c1 -W2 {host.IP()}")


def test_nodes_know_each_other_by_name_and_label(net):
    assert ", 0% packet loss" in net.get("h0").cmd("ping -c1 -W2 h11")
    command = ["ip", "netns", "exec", net.get("h5").namespace, "getent", "hosts", "s3.2"]
    assert (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]
        == "10.0.3.2"
    )


def test_pingall_reaches_everybody(net):
    assert net.pingAll() == 0


def test_links_go_down_and_up_as_in_mininet(net, tmp_path, caplog):
    setLogLevel("output")
    try:
        script = tmp_path / "script"
        script.write_text(
            "link h0 h3 down\nlinks\nh0 ping -c1 -W1 h3\nlink h0 h3 up\nh0 ping -c1 -W1 h3\n"
        )
        with open(os.devnull) as nothing:
            CLI(net, stdin=nothing, script=str(script))
    finally:
        setLogLevel("warning")
    said = "".join(record.getMessage() for record in caplog.records)  # as Mininet prints it
    assert "Network is unreachable" in said or ", 100% packet loss" in said
    assert said.count(", 0% packet loss") == 1
    assert net.get("h0").connectionsTo(net.get("h3"))[0][0].isUp()


MISTAKES = """
dpctl dump-flows
switch w0 stop
switch nobody start
source /nonexistent
fail h0-h99
degrade h0-h3 fast
impair h0-h3
impair h0-h3 loss 101
impair h0-h3 los 1
impair h0-h99 loss 1
scheme drill:d=2,m=1
routes h99
py 1 / 0
"""


IMPAIR = "impair h0-h3 loss 100 queue 30\nh0 ping -c1 -W1 h3\nimpair h0-h3 clear\n"
LOOK = "status\nroutes h0\nh0 ping -c1 -W2 h3\n"


def test_the_command_line_outlives_every_mistake_and_has_our_commands(net, tmp_path, caplog):
    script = tmp_path / "script"
    script.write_text(f"{MISTAKES}degrade h0-h3 5mbit\ndegrade h0-h3 20mbit\n{IMPAIR}{LOOK}")
    setLogLevel("output")
    try:
        with open(os.devnull) as nothing:
            CommandLine(net, stdin=nothing, script=str(script))
    finally:
        setLogLevel("warning")
    said = "".join(record.getMessage() for record in caplog.records)
    for words in (
        "w0 is a bridge, without OpenFlow",
        "w0 is no OpenFlow switch and cannot be stopped",
        "invalid switch: start",
        "source: /nonexistent: No such file",
        "no server h99",
        "'fast' is not a rate",
        "no node h99",
        "division by zero",
        f"{net.identity.id}: dcell:n=3,k=1, static, failed links: none",
        "10.0.3.0/24 via",
        "loss: per cent of packets, 0 to 100, got '101'",
        "usage: impair LINK clear, or impair LINK loss 0.5",
        ", 100% packet loss",
        ", 0% packet loss",
    ):
        assert words in said, words


@pytest.mark.real_clock("nothing is judged under the virtual clock")
def test_a_rate_stands_beside_the_fidelity_of_its_measurement(net, caplog):
    setLogLevel("output")
    try:
        net.iperf(seconds=1)
    finally:
        setLogLevel("warning")
    said = [record.getMessage() for record in caplog.records]
    assert re.search(r"\*\*\* fidelity: (PASS|WARN|FAIL), \S", said[-1])


@pytest.mark.real_clock("nothing is judged under the virtual clock")
@pytest.mark.parametrize(("limit_percent", "lines"), [(1e9, 0), (-1.0, 1)])
def test_a_command_of_a_node_ends_with_the_fidelity_unless_it_is_pass(
    net, tmp_path, caplog, monkeypatch, limit_percent, lines
):
    def judge(fidelity):
        pressure = at_most("processor pressure", 0.0, "%", limit_percent, None)
        return FidelityReport(1.0, (pressure,), {}, decisive=True)

    monkeypatch.setattr(Fidelity, "_judge", judge)
    script = tmp_path / "script"
    script.write_text("h0 ping -c1 h3\nstatus\n")
    setLogLevel("output")
    try:
        with open(os.devnull) as nothing:
            CommandLine(net, stdin=nothing, script=str(script))
    finally:
        setLogLevel("warning")
    said = "".join(record.getMessage() for record in caplog.records)
    assert said.count("*** fidelity: WARN, processor pressure 0 %\n") == lines
    assert said.count("fidelity") == lines


def test_an_interface_carries_what_config_says_in_its_direction_only(net):
    port = net.get("h1").connectionsTo(net.get("h6"))[0][0]
    link = net.topology.link_between(1, 6)
    port.config(bw=5, max_queue_size=30, loss=100)
    try:
        assert impair.kernel_link(net.network, link) == LinkSpec(
            rate_bps=5 * Mbps, queue_packets=30, loss_ppb=10**9
        )
        assert ", 100% packet loss" in net.get("h1").cmd("ping -c1 -W0.2 h6")
        far = net.get("h6").connectionsTo(net.get("h1"))[0][0]
        with net.network.at(6) as socket:
            assert tc.shapes(socket)[net.ifindex(6, far.port)].rate_bps == 20 * Mbps, (
                "the other way is as it was"
            )
        with pytest.raises(
            ValueError, match="use_hfsc is unavailable in a routed network; bw, delay"
        ):
            port.config(use_hfsc=True)
    finally:
        impair.undo(net.network, "h1-h6")
    assert ", 0% packet loss" in net.get("h1").cmd("ping -c1 -W2 h6")


class Parallel(Topo):
    """Two switches with two links between them, of which the first is slower."""

    def build(self):
        for number in (1, 2):
            self.addSwitch(f"s{number}")
            self.addHost(
                f"h{number}", **({"privateDirs": ["/var/tmp/weft-own"]} if number == 1 else {})
            )
            self.addLink(f"h{number}", f"s{number}")
        self.addLink("s1", "s2", bw=5, max_queue_size=40)
        self.addLink("s1", "s2", bw=10)


def test_a_topo_is_routed_with_its_names_parallel_links_and_rates():
    with Net(Parallel(), routing="ecmp") as net:
        assert [node.name for node in net.values()] == ["h1", "h2", "s1", "s2"]
        assert net.pingAll() == 0
        first, second = net.linksBetween(net["s1"], net["s2"])
        held = {
            name: impair.kernel_link(net.network, net.topology.link(name))
            for name in ("s1-s2", "s1-s2:2", "h1-s1")
        }
        assert held == {
            "s1-s2": LinkSpec(rate_bps=5 * Mbps, queue_packets=40),
            "s1-s2:2": LinkSpec(rate_bps=10 * Mbps, queue_packets=250),
            "h1-s1": None,
        }
        net.delLink(second)
        assert net["h1"].cmd("touch /var/tmp/weft-own/mine; ls /var/tmp/weft-own").strip() == "mine"
        assert net["h2"].cmd("ls /var/tmp/weft-own").strip() == ""
        wait_until(
            "traffic on the link that is left",
            lambda: net.ping([net["h1"], net["h2"]], timeout="1") == 0,
        )
        assert net.links[-1] is first
        with pytest.raises(ValueError, match="a routed network is built as a whole"):
            net.addHost("h3")
    os.rmdir("/var/tmp/weft-own")


def test_stop_leaves_nothing_not_even_shells(run_name):
    with Net("star:n=2", routing="static", name=run_name) as net:
        shell = net.get("h0").pid
        names = net.identity.journal["namespaces"]
        assert clean.processes(net.identity.id, names) == [shell]
        with pytest.raises(ValueError, match=f"a run called {run_name} is up"):
            Net("star:n=2", name=run_name).start()
    assert not any(
        (netns.NAMES / name).exists() or (hosts_file.LINKS / name).is_symlink() for name in names
    )
    assert shell not in clean.processes(run_name, [])
    assert run_name not in [record.id for record in run.runs()]
