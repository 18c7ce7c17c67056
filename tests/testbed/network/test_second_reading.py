"""pyroute2, which shares no code with us, reads what was planned."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace

import pytest

from weft.experiments.cli import cli
from weft.testbed.network import read_back
from weft.topologies.core.link import LinkSpec, Mbps

LINK = LinkSpec(rate_bps=20 * Mbps, queue_packets=250)
NETWORKS = {
    "crossbars": ("dcell:n=3,k=1", LINK, {}),
    "static routes": ("fattree:k=4", replace(LINK, mtu_bytes=4000), {"scheme": "static"}),
    "IPv6": ("fattree:k=4", LINK, {"scheme": "static:ipv6=1"}),
    "IPv6 over crossbars": ("dcell:n=3,k=1", LINK, {"scheme": "static:ipv6=1"}),
    "trimming": ("fattree:k=4", replace(LINK, trim_packets=8), {"scheme": "vlb"}),
    "a slower link": ("star:n=3", LINK, {"own_links": {1: replace(LINK, rate_bps=5 * Mbps)}}),
    "slower hosts": ("fattree:k=4", LINK, {"host_link": replace(LINK, loss_ppb=10**6)}),
    "no rate": ("star:n=3", None, {}),
}


@pytest.mark.kernel
@pytest.mark.parametrize("name", NETWORKS)
def test_pyroute2_reads_what_was_planned(network, name):
    spec, link, options = NETWORKS[name]
    up = network(spec, link, **options)
    objects = [planned for node in read_back.expected_objects(up).values() for planned in node]
    assert len(objects) > 10 * len(up.topology.links)
    assert list(read_back.differences(up)) == []


@pytest.mark.kernel
@pytest.mark.real_clock("tc cannot set the links of that clock")
@pytest.mark.parametrize(
    ("spec", "change", "lines"),
    [
        ("star:n=3", "ip link set h0-eth0 mtu 1400", ["IFLA_MTU is 1400, planned 1500"]),
        (
            "star:n=3",
            "ip link set h0-eth0 address 02:00:00:00:00:09",
            ["IFLA_ADDRESS is 02:00:00:00:00:09, planned 02:00:00:00:00:00"],
        ),
        (
            "star:n=3",
            "ip link set h0-eth0 gso_max_segs 2",
            ["IFLA_GSO_MAX_SEGS is 2, planned 1"],
        ),
        (
            "star:n=3",
            "ip link set h0-eth0 down",
            ["flags are .* planned 0x1", "ip route replace 0.0.0.0/0 .*: the kernel has none"],
        ),
        (
            "star:n=3",
            "ip address del 10.0.0.0/32 dev h0-eth0",
            ["ip address add 10.0.0.0/32 dev h0-eth0: the kernel has none"],
        ),
        (
            "star:n=3",
            "ip neighbour replace 172.17.0.0 dev h0-eth0 lladdr 02:00:00:00:00:07 nud permanent",
            ["NDA_LLADDR is 02:00:00:00:00:07, planned 02:00:00:03:00:00"],
        ),
        (
            "star:n=3",
            "tc qdisc change dev h0-eth0 parent 1:10 pfifo limit 249",
            ["TCA_OPTIONS limit is 249, planned 250"],
        ),
        (
            "star:n=3",
            "tc class change dev h0-eth0 parent 1: classid 1:10 htb rate 10mbit quantum 1600",
            ["TCA_OPTIONS TCA_HTB_PARMS rate is 1250000, planned 2500000"],
        ),
        (
            "star:n=3",
            "tc qdisc del dev h0-eth0 clsact",
            ["tc qdisc replace dev h0-eth0 clsact: the kernel has none"],
        ),
        (
            "dcell:n=3,k=1",
            "tc filter del dev h0-eth0 parent 1:",
            ["tc filter add dev h0-eth0 parent 1: .*: the kernel has none"],
        ),
    ],
)
def test_what_differs_is_told_with_its_command(network, capsys, spec, change, lines):
    up = network(spec, LINK)
    subprocess.run(["ip", "netns", "exec", up.plan.namespace(0), *change.split()], check=True)
    found = list(read_back.differences(up))
    assert found
    for line in lines:
        assert any(re.search(line, difference) for difference in found), found
    assert cli.main(["doctor", "--run", up.run.id]) == 1
    output = capsys.readouterr().out.splitlines()
    assert output[:-1] == found
    assert output[-1].endswith("objects in the kernel are as planned")
