import os
import subprocess

import pytest

from weft.testbed.linux import netns
from weft.testbed.network import clean
from weft.testbed.plan import run
from weft.testbed.processes import hosts_file
from weft.topologies.core.link import LinkSpec, Mbps

pytest.importorskip("mininet", reason="Debian's mininet is not installed")

from mininet.cli import CLI
from mininet.log import setLogLevel
from mininet.net import Mininet

from weft.testbed.interop.net import Net

pytestmark = pytest.mark.kernel
LINK = LinkSpec(rate_bps=20 * Mbps, queue_packets=250)


@pytest.fixture(scope="module")
def net():
    setLogLevel("warning")
    with Net("dcell:n=3,k=1", link=LINK, routing="static") as net:
        yield net


def test_it_is_a_mininet_whose_nodes_have_no_shell_until_somebody_asks(net):
    assert isinstance(net, Mininet)
    assert {node.name for node in net.values()} == {f"h{i}" for i in range(12)} | {f"w{i}" for i in range(4)}
    assert "shell" not in vars(net.get("h7"))
    assert net.get("h7").cmd("echo $((6 * 7))").strip() == "42"
    assert "shell" in vars(net.get("h7"))
    assert "shell" not in vars(net.get("h8"))


def test_a_command_runs_in_the_nodes_namespace(net):
    host = net.get("h11")
    assert host.IP() == "10.0.3.2"
    assert " 10.0.3.2/32 " in host.cmd("ip address show dev lo")
    assert host.MAC() in host.cmd(f"ip link show dev {host.defaultIntf().name}")
    with host.popen(["cat", "/proc/self/net/dev"], stdout=subprocess.PIPE, text=True) as process:
        assert "h11-eth1" in process.communicate()[0]
    assert ", 0% packet loss" in net.get("h0").cmd(f"ping -c1 -W2 {host.IP()}")


def test_nodes_know_each_other_by_name_and_label(net):
    assert ", 0% packet loss" in net.get("h0").cmd("ping -c1 -W2 h11")
    command = ["ip", "netns", "exec", net.get("h5").namespace, "getent", "hosts", "s3.2"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0] == "10.0.3.2"


def test_pingall_reaches_everybody(net):
    assert net.pingAll() == 0


def test_links_go_down_and_up_as_in_mininet(net, tmp_path, caplog):
    setLogLevel("output")
    try:
        script = tmp_path / "script"
        script.write_text("link h0 h3 down\nlinks\nh0 ping -c1 -W1 h3\nlink h0 h3 up\nh0 ping -c1 -W1 h3\n")
        with open(os.devnull) as nothing:
            CLI(net, stdin=nothing, script=str(script))
    finally:
        setLogLevel("warning")
    said = "".join(record.getMessage() for record in caplog.records)  # as Mininet prints it
    assert "Network is unreachable" in said or ", 100% packet loss" in said
    assert said.count(", 0% packet loss") == 1
    assert net.get("h0").connectionsTo(net.get("h3"))[0][0].isUp()


def test_stop_leaves_nothing_not_even_shells():
    with Net("star:n=2", routing="static", name="test-stop") as net:
        shell = net.get("h0").pid
        names = net.identity.journal["namespaces"]
        assert clean.processes(net.identity.id, names) == [shell]
        with pytest.raises(ValueError, match="a run called test-stop is up"):
            Net("star:n=2", name="test-stop").start()
    assert not any((netns.NAMES / name).exists() or (hosts_file.LINKS / name).is_symlink() for name in names)
    assert shell not in clean.processes("test-stop", [])
    assert "test-stop" not in [one.id for one in run.runs()]
