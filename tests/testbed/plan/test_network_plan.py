"""The plan as data: what it would do, in order."""

import json
import re
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from itertools import product
from pathlib import Path

import pytest

from weft.testbed.plan.network_plan import (
    SEED_SYSCTL,
    NetworkPlan,
    ifb_of,
    links_document,
    links_from,
)
from weft.testbed.runs.run import RunRecord
from weft.topologies import build
from weft.topologies.core.address import dotted
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
    servers = range(build(spec).servers)
    of_servers = sum(len(plan_of(spec).ends[server]) for server in servers)
    assert sum("ethtool" in words for words in commands) == (of_servers if link else 0)


@pytest.mark.parametrize("spec", ["dcell:n=3,k=1", "bcube:n=2,k=1", "fattree:k=4"])
def test_devices_have_numbers_of_their_own_in_the_range_of_their_run(spec):
    plan = replace(plan_of(spec), run=RunRecord("demo", 3, Path("/run/weft/demo")))
    ends = [end for ports in plan.ends for end in ports.values()]
    numbers = [device.ifindex for end in ends for device in (end, ifb_of(end))]
    numbers += [plan.bridge_index(node) for node in crossbars(plan)]
    assert len(set(numbers)) == len(numbers)
    assert {number >> 16 for number in numbers} == {3}


def test_the_most_links_of_a_run_have_numbers_in_its_range_and_one_more_is_refused():
    plan = NetworkPlan(RunRecord("demo", 3, Path("/run/weft/demo")), build("star:n=14328"), LINK)
    ends = [end for ports in plan.ends for end in ports.values()]
    numbers = {device.ifindex for end in ends for device in (end, ifb_of(end))}
    assert len(numbers) == 2 * len(ends)
    assert {number >> 16 for number in numbers} == {3}
    with pytest.raises(ValueError, match="interface indexes for 14,328 links"):
        plan_of("star:n=14329")


def routes_of(plan: NetworkPlan, node: int, down: tuple[int, ...]) -> dict[IPv4Network, list[int]]:
    """Return the nodes that each route of `node` leads to, as its commands say."""
    others = set(range(plan.topology.nodes)) - set(crossbars(plan))
    owners = {dotted(plan.address(other)): other for other in others}
    table = {}
    for message in plan.routes(node, down=down):
        prefix = re.search(r"(default|[0-9.]+/\d+)", message.command)[0]
        gateways = re.findall(r"via (?:inet )?([0-9.]+) ", message.command)
        network = IPv4Network(prefix.replace("default", "0.0.0.0/0"))
        table[network] = [owners[gateway] for gateway in gateways]
    return table


@pytest.mark.parametrize("spec", ["fattree:k=4", "slimfly:q=3", "bcube:n=3,k=1", "ficonn:n=4,k=1"])
def test_the_routes_of_a_static_plan_lead_every_packet_home(spec):
    """By the longest prefix, whichever of equal hops is taken; a healthy way back is no loop."""
    plan = plan_of(spec)
    tables = [routes_of(plan, node, ()) for node in range(plan.topology.nodes)]
    servers = range(plan.topology.servers)
    for src, dst, turn in product(servers, servers[:: len(servers) // 4], (0, -1)):
        home, place, hops = IPv4Address(dotted(plan.address(dst))), src, 0
        while place != dst:
            longest = max((p for p in tables[place] if home in p), key=lambda p: p.prefixlen)
            place = tables[place][longest][turn]
            hops += 1
            assert hops <= 2 * len(tables)


def test_no_route_leads_through_a_port_that_is_down():
    plan = plan_of("fattree:k=4")
    for node in plan.routers:
        healthy = routes_of(plan, node, ())
        for port, end in plan.ends[node].items():
            left = routes_of(plan, node, (port,))
            expected = {
                prefix: [peer for peer in peers if peer != end.peer]
                for prefix, peers in healthy.items()
            }
            assert left == {
                prefix: peers for prefix, peers in expected.items() if peers or not healthy[prefix]
            }


def test_only_hosts_have_routes_where_daemons_make_those_of_routers():
    plan = NetworkPlan(RunRecord("demo", 1, Path("/run/weft/demo")), build("fattree:k=4"), LINK)
    assert [len(plan.routes(node)) for node in range(36)] == [1] * 16 + [0] * 20


def test_links_of_hosts_have_the_hosts_rate_and_a_link_may_have_its_own():
    topology, own = build("fattree:k=4"), replace(LINK, rate_bps=5 * Mbps)
    of_hosts = replace(LINK, rate_bps=7 * Mbps)
    run = RunRecord("demo", 1, Path("/run/weft/demo"))
    plan = NetworkPlan(run, topology, LINK, host_link=of_hosts, own_links={0: own, 40: own})
    for link, (a, _, b, _) in enumerate(topology.links.tolist()):
        expected = own if link in (0, 40) else of_hosts if min(a, b) < 16 else LINK
        assert plan.link_spec(link) == expected


@pytest.mark.parametrize("link", [LINK, None])
@pytest.mark.parametrize("host_link", [replace(LINK, delay_us=0), None])
def test_links_are_what_they_were_before_they_were_written(link, host_link):
    own = {3: replace(LINK, queue_packets=9)}
    text = json.dumps({"other": 1, **links_document(link, host_link, own)})
    assert links_from(json.loads(text)) == {"link": link, "host_link": host_link, "own_links": own}


def crossbars(plan: NetworkPlan) -> list[int]:
    return [node for node in range(plan.topology.nodes) if plan.topology.is_crossbar(node)]


def test_a_crossbars_links_are_made_in_its_namespace():
    plan = plan_of("dcell:n=3,k=1")
    near_nodes = [
        plan.orientation(link)[0] for link in plan.links if plan.topology.level[link] == 0
    ]
    assert sorted(near_nodes) == sorted(3 * crossbars(plan))


def test_servers_or_switches_are_routers():
    assert plan_of("dcell:n=3,k=1").routers == list(range(12))
    assert plan_of("fattree:k=4").routers == list(range(16, 36))


def test_switches_with_seeds_hash_by_seeds_of_their_own():
    plan = plan_of("fattree:k=4")
    for seeded in (False, True):
        of_run = replace(plan, seeded=seeded)
        seeds = [of_run.sysctls(node).get(SEED_SYSCTL) for node in of_run.routers]
        assert len(set(seeds)) == (20 if seeded else 1)
        assert (None in seeds) is not seeded


@pytest.mark.parametrize("bridge_filter", [True, False])
def test_what_passes_a_crossbar_passes_no_packet_filter(bridge_filter):
    plan = NetworkPlan(
        RunRecord("demo", 1, Path("/run/weft/demo")),
        build("dcell:n=3,k=1"),
        None,
        bridge_filter=bridge_filter,
    )
    lines = [line for line in plan.text() if "bridge-nf" in line]
    named = [plan.namespace(node) for node in crossbars(plan)]
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
        for static, policy in ((False, "1"), (True, "3")):
            values = replace(plan, static=static).sysctls(node)
            assert values.get("ipv4/fib_multipath_hash_policy") == (policy if router else None)
