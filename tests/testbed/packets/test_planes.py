"""Hosts with links to several planes, beside the slower network in Python and by a pencil."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.daemons.transport import python_network, trimming_queue
from tests.testbed.packets.test_network import PORT_COUNTERS, RATE_BPS, Outcome, SplitMixFraction
from weft import simulate
from weft.daemons.transport.endpoint import Backoff, LayerChoice, Parameters, timeout_ns
from weft.testbed.packets import network as packets
from weft.testbed.packets.network import HASH, SPRAY, PacketLink, PacketNetwork
from weft.testbed.packets.simulation import Fault
from weft.topologies import build
from weft.topologies.core import failures
from weft.topologies.core.link import Gbps, LinkSpec
from weft.topologies.core.topology import Topology

NETWORKS = ("planes:k=2,of=star:n=5", "planes:k=4,of=clos:n=2,r=3,m=2", "planes:k=2,of=fattree:k=4")
RULES = {"spray": SPRAY, "hash": HASH}
Message = tuple[int, int, int, int]  # time, source, destination, size
EIGHT = "planes:k=8,of=clos:n=4,r=4,m=4"
LINK = LinkSpec(rate_bps=10 * Gbps, queue_packets=100, delay_us=1)


def links_of_plane(topology: Topology, plane: int) -> np.ndarray:
    """Return all links of a plane."""
    names = [topology.naming.name(node) for node in topology.links[:, 2].tolist()]
    return np.flatnonzero([name[1:].split(".")[0] == str(plane) for name in names])


def routing(topology: Topology, kind: str, seed: int) -> python_network.RouteFunction:
    if kind == "hash":
        route = python_network.ecmp_routing(topology, seed)
    else:
        route = python_network.spray_routing(topology)
    return python_network.plane_routing(topology, route)


def run_both(
    spec: str,
    kind: str,
    messages: list[Message],
    seed: int,
    path: Path,
    choice: LayerChoice,
    entropies: int,
    *,
    failed_ns: int = 0,
    known_ns: int = 0,
    mark_packets: int = 0,
    header_bytes: int = 72_000,
) -> tuple[Outcome, Outcome]:
    """Run both networks; a plane fails at `failed_ns`, which all know at `known_ns`, 0: never."""
    topology, stream = build(spec), SplitMixFraction(seed)
    rate_bps = topology.planes * RATE_BPS
    parameters = Parameters(
        rate_bps=rate_bps,
        timeout_ns=timeout_ns(rate_bps),
        layers=entropies,
        seed=seed & 0xFFFF,
        choice=choice,
        window=12,
    )
    link = trimming_queue.LinkModel(
        rate_bps=RATE_BPS, mark_packets=mark_packets, header_bytes=header_bytes
    )
    compiled_link = PacketLink(
        rate_bps=RATE_BPS,
        delay_ns=link.delay_ns,
        trim_bytes=link.trim_bytes,
        header_bytes=link.header_bytes,
        share=link.share,
        mark_packets=mark_packets,
    )
    route = routing(topology, kind, seed)
    in_python = python_network.TransportNetwork(topology, link, parameters, route, stream)
    next_hops = packets.shortest(topology, RULES[kind])
    in_c = PacketNetwork(topology, compiled_link, parameters, next_hops, seed, path=path)
    links = links_of_plane(topology, 1)
    damaged = failures.fail_links(topology, links)
    for network in (in_python, in_c):
        for flow, message in enumerate(messages):
            network.send(*message[:3], flow, message[3])
        if failed_ns:
            network.run_until(failed_ns)
            network.fail(topology.links[links])
        if known_ns:
            network.run_until(known_ns)
    if known_ns:
        in_python.reroute(routing(damaged, kind, seed))
        in_c.reroute(packets.shortest(damaged, RULES[kind]))
    for network in (in_python, in_c):
        network.run_until(10**9)
    ports = [(*vars(counters).values(), 0, 0) for _, counters in sorted(in_python.ports().items())]
    hosts = [host.counters for host in in_python.hosts]
    return (
        Outcome(in_python.delivered, in_python.finished, hosts, ports),
        Outcome(
            in_c.delivered,
            in_c.finished,
            in_c.host_counters(),
            [tuple(getattr(port, name) for name in PORT_COUNTERS) for port in in_c.port_counters()],
        ),
    )


@settings(max_examples=8, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize("choice", LayerChoice)
def test_both_languages_see_the_same_planes(
    compiled: Path, choice: LayerChoice, kind: str, data
) -> None:
    spec = data.draw(st.sampled_from(NETWORKS))
    hosts = st.integers(0, build(spec).servers - 1)
    message = st.tuples(st.integers(0, 50_000), hosts, hosts, st.integers(1, 90_000))
    messages = data.draw(st.lists(message, min_size=1, max_size=15))
    messages = [row for row in messages if row[1] != row[2]]
    failed_ns = data.draw(st.sampled_from([0, 20_000]))
    in_python, in_c = run_both(
        spec,
        kind,
        messages,
        data.draw(st.integers(0, 1 << 63)),
        compiled,
        choice,
        data.draw(st.sampled_from([4, 12, 64])),
        failed_ns=failed_ns,
        known_ns=failed_ns and data.draw(st.sampled_from([0, 40_000])),
        mark_packets=data.draw(st.sampled_from([0, 3])),
    )
    assert in_python == in_c
    assert len(in_c.finished) == len(messages)


def test_the_comparison_covers_lost_values_and_probes(compiled: Path) -> None:
    messages = [(0, host, (host + 2) % 6, 400_000) for host in range(6)]
    for entropies in (8, 256):
        in_python, in_c = run_both(
            NETWORKS[1], "hash", messages, 3, compiled, LayerChoice.MRC, entropies,
            failed_ns=20_000, mark_packets=3,
        )  # fmt: skip
        assert in_python == in_c
        assert sum(host.timeouts for host in in_c.hosts) > 0
        assert len(in_c.delivered) == len(messages)


@pytest.mark.parametrize("entropies", [2, 4, 8])
def test_values_that_many_senders_lose_again_and_again(compiled: Path, entropies: int) -> None:
    """Make sure that the comparison covers values that come back, and those that must stay."""
    messages = [(7 * host, host, 0, 150_000) for host in range(1, 16)]
    in_python, in_c = run_both(
        NETWORKS[2], "hash", messages, 5, compiled, LayerChoice.MRC, entropies, header_bytes=300
    )
    assert in_python == in_c
    assert np.array(in_c.ports)[:, 3].sum() > 10  # lost headers


@pytest.mark.parametrize("choice", ["mrc", "reps", "blind"])
@pytest.mark.parametrize("k", [2, 3, 8])
def test_a_flow_alone_has_the_rate_of_its_host(k: int, choice: str) -> None:
    size_bytes = 20_000_000
    result = simulate(
        f"planes:k={k},of=star:n=3",
        "ecmp",
        [(0, 2, size_bytes)],
        transport=f"ndp:choice={choice},window=60,entropies=120",
        link=LINK,
    )
    frames = -(-size_bytes // 1450)
    least_s = 8 * (size_bytes + 64 * frames) / (k * LINK.rate_bps)
    assert least_s < result.completion_s[0] < (1.002 if choice == "mrc" else 1.2) * least_s


@pytest.mark.parametrize("scheme", ["ecmp", "drill", "rps"])
def test_what_leaves_hosts_arrives_at_hosts_in_each_plane(scheme: str) -> None:
    topology = build(EIGHT)
    flows = [(host, (host + 5) % 16, 500_000 + host) for host in range(16)]
    result = simulate(topology, scheme, flows, transport="ndp:choice=mrc,window=30", link=LINK)
    ports = packets.PortTable.of(topology)
    assert result.unfinished == 0
    assert result.ports["trimmed"].sum() == result.ports["dropped"].sum() == 0
    names = [topology.naming.name(node) for node in range(topology.nodes)]
    sent, came = Counter(), Counter()
    for node, peer, number, frames, count in zip(
        ports.node, ports.peer, ports.number, result.ports["frames"], result.ports["bytes"],
        strict=True,
    ):  # fmt: skip
        if node < topology.servers:
            sent[int(number)] += np.array([frames, count])
        if peer < topology.servers:
            came[int(names[node][1])] += np.array([frames, count])
    assert {plane: row.tolist() for plane, row in sent.items()} == {
        plane: row.tolist() for plane, row in came.items()
    }
    data_bytes = sum(size + 64 * -(-size // 1450) for *_, size in flows)
    packets_of_flows = sum(-(-size // 1450) for *_, size in flows)
    headers = int(sum(result.ports["frames"][: 16 * 8]) - packets_of_flows)
    assert sum(row[1] for row in sent.values()) == data_bytes + 64 * headers
    most, least = max(row[0] for row in sent.values()), min(row[0] for row in sent.values())
    assert most - least < 0.02 * most  # evenly over planes


def goodput_bps(network: PacketNetwork, begin_ns: int, end_ns: int) -> float:
    """Return the payload that arrives at all hosts, from now until `end_ns`, of full packets."""
    arrived = []
    for time_ns in (begin_ns, end_ns):
        network.run_until(time_ns)
        hosts = network.host_counters()
        arrived.append(sum(host.data - host.duplicates for host in hosts))
    return (arrived[1] - arrived[0]) * 8 * 1450 * 1e9 / (end_ns - begin_ns)


def permuted(choice: LayerChoice, scheme: packets.SelectionRule = HASH) -> PacketNetwork:
    """Return a network of eight planes on which each host sends without end."""
    topology = build(EIGHT)
    link = PacketLink(rate_bps=RATE_BPS, delay_ns=1_000, trim_bytes=8 * 1_514, header_bytes=72_000)
    parameters = Parameters(
        rate_bps=8 * RATE_BPS,
        timeout_ns=10**6,
        layers=128,
        window=128,
        choice=choice,
        backoff=Backoff.WINDOW,
    )
    network = PacketNetwork(topology, link, parameters, packets.shortest(topology, scheme), 1)
    for host in range(16):
        network.send(0, host, (host + 4) % 16, host, 10**9)
    return network


def test_a_plane_that_dies_of_eight_costs_an_eighth_and_comes_back() -> None:
    topology, network = build(EIGHT), permuted(LayerChoice.MRC, SPRAY)
    links = topology.links[links_of_plane(topology, 5)]
    whole = goodput_bps(network, 500_000, 2_000_000)
    network.fail(links)
    # a timeout after the failure, all entropy values of the plane are retired
    after = goodput_bps(network, 3_200_000, 5_200_000)
    assert after / whole == pytest.approx(7 / 8, abs=0.02 * 7 / 8)
    dropped = sum(port.dropped for port in network.port_counters()[5 : 8 * 16 : 8])
    network.run_until(8_200_000)
    probes = sum(port.dropped for port in network.port_counters()[5 : 8 * 16 : 8]) - dropped
    assert probes == 3 * 16 * 16  # timeouts, hosts, values of a plane
    network.fail(links, failed=False)
    assert goodput_bps(network, 9_400_000, 10_400_000) / whole == pytest.approx(1, abs=0.02)


def test_planes_that_die_in_turn_cost_no_more_than_one() -> None:
    """Values that carry packets again are not counted as retired, so that others may be."""
    topology, network = build(EIGHT), permuted(LayerChoice.MRC, SPRAY)
    whole, now_ns = goodput_bps(network, 500_000, 1_500_000), 1_500_000
    for plane in range(8):
        links = topology.links[links_of_plane(topology, plane)]
        network.fail(links)
        after = goodput_bps(network, now_ns + 1_500_000, now_ns + 2_500_000)
        assert after / whole == pytest.approx(7 / 8, abs=0.03)
        network.fail(links, failed=False)
        now_ns += 4_000_000
        network.run_until(now_ns)


def test_a_spray_without_states_stands_still_as_long_as_a_plane_is_dead() -> None:
    topology, network = build(EIGHT), permuted(LayerChoice.BLIND, SPRAY)
    whole = goodput_bps(network, 500_000, 2_000_000)
    network.fail(topology.links[links_of_plane(topology, 5)])
    assert goodput_bps(network, 3_200_000, 8_200_000) < 0.3 * whole


def test_hosts_leave_a_plane_of_whose_failure_they_know() -> None:
    topology, network = build(EIGHT), permuted(LayerChoice.BLIND, SPRAY)
    links = links_of_plane(topology, 5)
    whole = goodput_bps(network, 500_000, 2_000_000)
    network.fail(topology.links[links])
    network.reroute(packets.shortest(failures.fail_links(topology, links), SPRAY))
    network.run_until(2_100_000)  # a timeout after the last loss, credits are back
    after = goodput_bps(network, 3_200_000, 5_200_000)
    assert after / whole == pytest.approx(7 / 8, abs=0.05)


def test_packets_to_a_host_that_a_plane_has_lost_are_sent_again_by_others() -> None:
    topology = build(EIGHT)
    cut = [topology.link(f"e3.2-c3.{spine}") for spine in range(4)]
    for choice, least_s, most_s in (("mrc", 0.001, 0.0025), ("blind", 0.005, 0.1)):
        transport = f"ndp:choice={choice},window=128"
        for links in ([topology.link("h9-e3.2")], cut):
            faults = [Fault(links, 10e-6, known_s=20e-6)]
            result = simulate(
                topology, "ecmp", [(0, 9, 10**7)], transport=transport, link=LINK, faults=faults
            )
            assert least_s < result.completion_s[0] < most_s
            # the sender does not know, and the switches of the plane have no way
            assert result.ports["dropped"].sum() + result.unrouted > 0
            assert (result.unrouted > 0) == (links is cut)


def test_a_host_without_a_link_to_a_plane_takes_its_others() -> None:
    topology = build("planes:k=4,of=star:n=3")
    damaged = failures.fail_links(topology, [topology.link(f"h1-r{k}.0") for k in (0, 2)])
    rows = packets.departures(damaged).tolist()
    assert rows == [[4, 0, 1, 2, 3], [2, 5, 7, 5, 7], [4, 8, 9, 10, 11]]
    alone = failures.fail_links(topology, np.flatnonzero(topology.links[:, 0] == 1))
    with pytest.raises(ValueError, match="a host needs one healthy link"):
        PacketNetwork(
            alone,
            PacketLink(rate_bps=RATE_BPS, delay_ns=0, trim_bytes=0, header_bytes=0),
            Parameters(rate_bps=RATE_BPS, timeout_ns=1),
            packets.shortest(alone, SPRAY),
            1,
        )


def test_each_flow_of_tcp_keeps_to_a_plane_and_all_use_all() -> None:
    topology = build(EIGHT)
    one = simulate(topology, "ecmp", [(0, 9, 1_000_000)], link=LINK)
    used = one.ports["frames"][:8] > 0
    assert used.sum() == 1
    assert one.ports["bytes"][:8].max() > 1_000_000
    many = simulate(topology, "ecmp", [(0, 9, 100_000)] * 64, link=LINK)
    assert many.unfinished == 0
    assert (many.ports["frames"][:8] > 0).all()


@pytest.mark.parametrize(
    ("scheme", "transport", "reason"),
    [
        ("ecmp", "plain", r"hosts without a transport: a host has one link, and those of planes"),
        ("bfs", "ndp", r"scheme bfs has one path; on several planes take ecmp, rps or drill"),
        ("lbsp", "ndp", r"scheme lbsp does not route several planes, planes:k=8"),
        ("ecmp", "ndp:entropies=100", r"ndp: entropies=100 do not spread evenly over 8 planes"),
        ("ecmp", "ndp:entropies=257", r"ndp: entropies must be at most 256, got 257"),
        ("ecmp", "ndp:choice=scout", r"transport: layers must be 1 to 64, got 128"),
    ],
)
def test_what_planes_do_not_carry_is_refused(scheme: str, transport: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}"):
        simulate(EIGHT, scheme, [(0, 1, 1)], transport=transport)


def test_daemons_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^the simulator of daemons: a host has one link"):
        simulate(EIGHT, "ecmp", [(0, 1, 1)], daemons=True)


def test_entropy_values_of_a_fabric_spread_a_flow_over_paths() -> None:
    """Make sure that one link of a host is enough for entropy values, and layers have none."""
    topology = build("clos:n=1,r=2,m=4")
    ports = packets.PortTable.of(topology)
    up = (ports.node == 2) & (ports.peer >= 4)
    for text, paths in (("ndp", 1), ("ndp:choice=mrc,entropies=64", 4)):
        result = simulate(topology, "ecmp", [(0, 1, 1_000_000)], transport=text, link=LINK)
        assert (result.ports["frames"][up] > 0).sum() == paths
    with pytest.raises(ValueError, match=r"^ndp: entropies are for switches without layers"):
        simulate("slimfly:q=3,p=2", "fatpaths", [(0, 1, 1)], transport="ndp:entropies=8")
