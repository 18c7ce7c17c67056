"""The plan as data: what it would do, in order."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from weft.testbed.plan.network_plan import NetworkPlan
from weft.testbed.runs.run import RunRecord
from weft.topologies import build
from weft.topologies.core.link import LinkSpec, Mbps

LINK = LinkSpec(rate_bps=20 * Mbps, queue_packets=250, delay_us=1000)


def plan_of(spec: str, link: LinkSpec | None = LINK) -> NetworkPlan:
    return NetworkPlan(RunRecord("demo", 1, Path("/run/weft/demo")), build(spec), link, static=True)


def test_links_of_a_network_have_one_mtu():
    jumbo = replace(LINK, mtu_bytes=9000)
    lines = [line for line in plan_of("star:n=2", jumbo).text() if " type veth " in line]
    assert all(line.count(" mtu 9000") == 2 for line in lines)
    assert not [line for line in plan_of("star:n=2").text() if " mtu " in line]
    run, topology = RunRecord("demo", 1, Path("/run/weft/demo")), build("fattree:k=4")
    for others in ({"host_link": LINK}, {"own_links": {3: LINK}}):
        with pytest.raises(ValueError, match="links of one network have one MTU"):
            NetworkPlan(run, topology, jumbo, **others)


@pytest.mark.parametrize("spec", ["dcell:n=3,k=1", "fattree:k=4"])
@pytest.mark.parametrize("link", [LINK, None])
def test_a_port_is_shaped_before_it_is_set_up(spec, link):
    """On a port that is up every root queue costs a wait of the kernel for all processors."""
    commands = [line.split() for line in plan_of(spec, link).text()]
    up: set[str] = set()
    made = shaped = 0
    for words in commands:
        if words[0] == "ip" and words[3:5] == ["link", "add"]:
            made += words.count("peer") * 2
        if words[0] == "ip" and words[3:5] == ["link", "set"] and words[-1] == "up":
            up.add(words[5])
        if words[0] == "tc":
            shaped += 1
            assert words[words.index("dev") + 1] not in up
    assert made == len(up) - 1 == 2 * len(build(spec).links)  # and the loopback
    assert shaped >= made


@pytest.mark.parametrize("bridge_filter", [True, False])
def test_what_passes_a_crossbar_passes_no_packet_filter(bridge_filter):
    plan = NetworkPlan(
        RunRecord("demo", 1, Path("/run/weft/demo")),
        build("dcell:n=3,k=1"),
        None,
        bridge_filter=bridge_filter,
    )
    lines = [line for line in plan.text() if "bridge-nf" in line]
    named = [
        plan.namespace(node)
        for node in range(plan.topology.nodes)
        if plan.topology.is_crossbar(node)
    ]
    setting = "sysctl -w net.bridge.bridge-nf-call-iptables=0"
    assert lines == ([f"ip netns exec {name} {setting}" for name in named] if bridge_filter else [])


@pytest.mark.parametrize(
    "spec", ["dcell:n=3,k=1", "bcube:n=2,k=1", "gqstar:n=2,k=2", "fattree:k=4", "slimfly:q=3"]
)
def test_ipv6_has_the_addresses_neighbours_and_routes_of_ipv4(spec):
    """Each IPv6 command is one of IPv4 with longer addresses, and IPv4 is as without IPv6."""
    plan = plan_of(spec)
    both = replace(plan, ipv6=True)
    for node in range(plan.topology.nodes):
        lines = [message.command for message in [*both.addresses(node), *both.routes(node)]]
        others = [line for line in lines if "::" not in line]
        assert others == [
            message.command for message in [*plan.addresses(node), *plan.routes(node)]
        ]
        sixes = [line for line in lines if line not in others]
        assert sorted(map(in_ipv4, sixes)) == sorted(others)


def in_ipv4(command: str) -> str:
    """Return a command of `ip` without what only IPv6 has."""
    command = command.removesuffix(" nodad").replace("fd77:6566:7400::", "").replace("fe80::", "")
    return re.sub(r"/(\d+)", lambda length: f"/{int(length[1]) - 96}", command)


def test_ipv6_is_off_unless_asked_for_and_in_crossbars():
    off = "ipv6/conf/all/disable_ipv6"
    plan = replace(plan_of("dcell:n=3,k=1"), ipv6=True)
    for node in range(plan.topology.nodes):
        assert plan.sysctls(node)[off] == str(int(plan.topology.is_crossbar(node)))
        assert plan_of("dcell:n=3,k=1").sysctls(node)[off] == "1"


def test_switches_hash_flow_labels_and_forward():
    plan = replace(plan_of("fattree:k=4"), ipv6=True)
    for node in range(plan.topology.nodes):
        values = plan.sysctls(node)
        router = plan.is_router(node)
        assert values.get("ipv6/conf/all/forwarding") == ("1" if router else None)
        assert values.get("ipv6/fib_multipath_hash_policy") == ("0" if router else None)
