"""The compiled network of endpoints beside the one in Python: equal, event by event."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.daemons.transport import python_network, trimming_queue
from weft.daemons.core import registry
from weft.daemons.core.scheme import SelectionRule
from weft.daemons.fatpaths import layers
from weft.daemons.load_balancing.scheme import ChoiceRule
from weft.daemons.transport.endpoint import EndpointCounters, LayerChoice, Parameters, timeout_ns
from weft.testbed.packets import network as packets
from weft.testbed.packets.network import HASH, SPRAY, NextHops, PacketLink, PacketNetwork
from weft.testbed.packets.switching import Switching
from weft.testbed.traffic import ndp_library
from weft.topologies import build
from weft.topologies.core import failures
from weft.topologies.core.topology import Topology
from weft.topologies.core.user_graph import topology_of
from weft.topologies.low_diameter.random_graphs import SplitMix64

RATE_BPS = 10**10
NETWORKS = ("star:n=9", "fattree:k=4", "slimfly:q=3,p=2", "jellyfish:n=12,r=4,p=2,seed=1")
RULES = {
    "dmodk": SelectionRule(ChoiceRule.D_MOD_K),
    "rr": SelectionRule(ChoiceRule.ROUND_ROBIN),
    "micro": SelectionRule(ChoiceRule.DRILL, {"d": 2}),
    "drill": SelectionRule(ChoiceRule.DRILL, {"d": 3, "m": 1, "load": 1}),
    "ttc": SelectionRule(ChoiceRule.TTC, {"delta": 2}),
    "ttc, ties": SelectionRule(ChoiceRule.TTC, {"delta": 1514, "tie": 1, "load": 1}),
    "jsq": SelectionRule(ChoiceRule.SHORTEST),
    "letflow": SelectionRule(ChoiceRule.FLOWLET, {"gap_us": 3}),
}
DETOURS = {
    "valiant": SelectionRule(ChoiceRule.VALIANT, has_detours=True),
    "valiant, flowlets": SelectionRule(ChoiceRule.VALIANT, {"gap_us": 3}, has_detours=True),
    "ugal": SelectionRule(ChoiceRule.UGAL, {"d": 1}, has_detours=True),
    "ugal, four": SelectionRule(ChoiceRule.UGAL, {"d": 4, "delta": 2}, has_detours=True),
    "ugal, bytes": SelectionRule(
        ChoiceRule.UGAL, {"d": 2, "delta": 3000, "load": 1, "gap_us": 2}, has_detours=True
    ),
}
LOW_DIAMETER = (
    "slimfly:q=3,p=2",
    "dragonfly:p=2",
    "hyperx:l=2,s=4,p=2",
    "jellyfish:n=12,r=4,p=2,seed=1",
    "xpander:r=3,seed=1",
    "polarfly:q=3,p=1",
    "complete:n=4,p=3",
)
ROUTED = {  # schemes of networks whose servers forward
    "dr": "dcell:n=3,k=1",
    "pr-gpe": "beta-dcell:n=4,k=1",
    "tar": "ficonn:n=4,k=2",
    "dfr": "dcell:n=3,k=2",
}
Message = tuple[int, int, int, int]  # time, source, destination, size
PORT_COUNTERS = (
    *("frames", "bytes", "trimmed", "headers_lost", "most_data_bytes", "most_header_bytes"),
    *("waited_ns", "most_room_bytes"),
)
LOSSY = Switching()


class SplitMixFraction:
    """Random numbers in [0, 1) as the library draws them."""

    def __init__(self, seed: int) -> None:
        self._stream = SplitMix64(seed)

    def bits(self) -> int:
        return self._stream.bits()

    def random(self) -> float:
        return (self._stream.bits() >> 11) * 2.0**-53


class Routing(NamedTuple):
    """The same routing for both networks."""

    layers: int
    route: python_network.RouteFunction
    next_hops: NextHops | None


def routing(topology: Topology, kind: str, stream: SplitMixFraction, seed: int) -> Routing:
    if kind in ROUTED:
        return Routing(1, python_network.path_routing(topology, path_of(topology, kind)), None)
    if kind in DETOURS:
        detoured = python_network.DetourRoute(topology, DETOURS[kind], seed, stream.bits)
        return Routing(1, detoured, packets.shortest(topology, DETOURS[kind]))
    if kind in RULES:
        route = python_network.RuleRoute(topology, RULES[kind], seed, stream.bits)
        return Routing(1, route, packets.shortest(topology, RULES[kind]))
    if kind == "spray":
        return Routing(1, python_network.spray_routing(topology), packets.shortest(topology, SPRAY))
    if kind == "hash":
        return Routing(
            1, python_network.ecmp_routing(topology, seed), packets.shortest(topology, HASH)
        )
    graph = layers.RouterArrays.of(topology)
    generator = np.random.default_rng(1)
    tables = layers.tables(graph, [layers.everything(graph)] * 2, generator)
    switches = range(topology.servers, topology.nodes)
    ports = [
        {node: python_network.routes(topology, table, node) for node in switches}
        for table in tables
    ]
    return Routing(
        3, python_network.layer_routing(topology, ports), packets.layered(topology, tables)
    )


class Outcome(NamedTuple):
    """All that is seen of a network after its run."""

    delivered: list
    finished: list
    hosts: list[EndpointCounters]
    ports: list[tuple[int, ...]]


def run_both(
    spec: str,
    kind: str,
    messages: list[Message],
    seed: int,
    header_bytes: int,
    path: Path,
    *,
    first: bool = False,
    choice: LayerChoice = LayerChoice.FLOW,
    mark_packets: int = 0,
    passing: Switching = LOSSY,
    failed: int = 0,
    failed_ns: int = 0,
    known_ns: int = 0,
) -> tuple[Outcome, Outcome]:
    """Run both networks.

    Args:
        failed: links between switches that fail at `failed_ns`.
        known_ns: when switches route around them; 0: never.
    """
    topology = build(spec)
    stream = SplitMixFraction(seed)
    count, route, next_hops = routing(topology, kind, stream, seed)
    parameters = Parameters(
        rate_bps=RATE_BPS,
        timeout_ns=timeout_ns(RATE_BPS),
        layers=count,
        seed=seed & 0xFFFF,
        choice=choice,
    )
    link = trimming_queue.LinkModel(
        rate_bps=RATE_BPS,
        header_bytes=header_bytes,
        retransmissions_first=first,
        mark_packets=mark_packets,
        room_bytes=passing.room_bytes,
        resume_bytes=passing.resume_bytes,
        cut_through_bytes=passing.cut_through_bytes,
    )
    in_python = python_network.TransportNetwork(topology, link, parameters, route, stream)
    if isinstance(route, python_network.RuleRoute | python_network.DetourRoute):
        route.network = in_python
    compiled_link = PacketLink(
        rate_bps=RATE_BPS,
        delay_ns=link.delay_ns,
        trim_bytes=link.trim_bytes,
        header_bytes=header_bytes,
        share=link.share,
        retransmissions_first=first,
        mark_packets=mark_packets,
        **passing._asdict(),
    )
    in_c = PacketNetwork(topology, compiled_link, parameters, next_hops, seed, path=path)
    for flow, (time_ns, src, dst, size_bytes) in enumerate(messages):
        for network in (in_python, in_c):
            network.send(time_ns, src, dst, flow, size_bytes)
        if not next_hops:
            in_c.route(flow, path_of(topology, kind)(src, dst), path_of(topology, kind)(dst, src))
    links = np.flatnonzero(topology.level > 0)[:failed]
    damaged = failures.fail_links(topology, links)
    around = routing(damaged, kind, stream, seed) if known_ns else None
    if around and isinstance(route, python_network.DetourRoute):
        around.route.follow(route)
    for network in (in_python, in_c):
        network.run_until(failed_ns)
        network.fail(topology.links[links])
        if around:
            network.run_until(known_ns)
            network.reroute(around.route if network is in_python else around.next_hops)
    in_python.run_until(10**9)
    in_c.run_until(10**9)
    python_ports = [counters for _, counters in sorted(in_python.ports().items())]
    rooms = [room for _, room in sorted(in_python.rooms().items())]
    return (
        Outcome(
            in_python.delivered,
            in_python.finished,
            [host.counters for host in in_python.hosts],
            [
                (*vars(port).values(), room.waited_ns, room.most_bytes)
                for port, room in zip(python_ports, rooms, strict=True)
            ],
        ),
        Outcome(
            in_c.delivered,
            in_c.finished,
            in_c.host_counters(),
            [tuple(getattr(port, name) for name in PORT_COUNTERS) for port in in_c.port_counters()],
        ),
    )


@settings(max_examples=25, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("kind", ["spray", "hash", "layers"])
def test_both_languages_see_the_same_network(compiled: Path, kind: str, data) -> None:
    spec = data.draw(st.sampled_from(NETWORKS[1:] if kind == "layers" else NETWORKS))
    hosts = st.integers(0, build(spec).servers - 1)
    message = st.tuples(st.integers(0, 50_000), hosts, hosts, st.integers(1, 60_000))
    messages = data.draw(st.lists(message, min_size=1, max_size=25))
    messages = [(at, src, dst, size) for at, src, dst, size in messages if src != dst]
    header_bytes = data.draw(st.sampled_from([200, 2_000, 72_000]))
    seed = data.draw(st.integers(0, 1 << 63))
    first = data.draw(st.booleans())
    in_python, in_c = run_both(spec, kind, messages, seed, header_bytes, compiled, first=first)
    assert in_python == in_c
    assert len(in_c.delivered) == len(messages)


@settings(max_examples=10, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("kind", RULES)
def test_switches_choose_ports_by_the_rules_of_the_data_plane(
    compiled: Path, kind: str, data
) -> None:
    """Compare select.h in the compiled network with selection.py, packet by packet."""
    spec = data.draw(st.sampled_from(["fattree:k=4", "clos:n=3,r=4,m=3"]))
    hosts = st.integers(0, build(spec).servers - 1)
    message = st.tuples(st.integers(0, 20_000), hosts, hosts, st.integers(1, 90_000))
    messages = data.draw(st.lists(message, min_size=1, max_size=40))
    messages = [(at, src, dst, size) for at, src, dst, size in messages if src != dst]
    seed = data.draw(st.integers(0, 1 << 63))
    in_python, in_c = run_both(spec, kind, messages, seed, 72_000, compiled)
    assert in_python == in_c
    assert len(in_c.delivered) == len(messages)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("kind", DETOURS)
def test_switches_choose_detours_as_python_does(compiled: Path, kind: str, data) -> None:
    """Compare Valiant and UGAL of select.h with path_shares.py, packet by packet."""
    spec = data.draw(st.sampled_from(LOW_DIAMETER))
    hosts = st.integers(0, build(spec).servers - 1)
    message = st.tuples(st.integers(0, 20_000), hosts, hosts, st.integers(1, 90_000))
    messages = data.draw(st.lists(message, min_size=1, max_size=40))
    messages = [(at, src, dst, size) for at, src, dst, size in messages if src != dst]
    seed = data.draw(st.integers(0, 1 << 63))
    in_python, in_c = run_both(spec, kind, messages, seed, 72_000, compiled)
    assert in_python == in_c
    assert len(in_c.delivered) == len(messages)


@pytest.mark.parametrize("kind", DETOURS)
def test_detours_under_load_leave_failed_links(compiled: Path, kind: str) -> None:
    """Make sure that the comparison covers long queues, and switches that route around links."""
    messages = [(0, host, (host + 8) % 72, 60_000) for host in range(72)]
    case = ("dragonfly:p=2", kind, messages, 11, 72_000, compiled)
    for failed in (0, 4):
        in_python, in_c = run_both(*case, failed=failed, failed_ns=40_000, known_ns=60_000)
        assert in_python == in_c
        assert len(in_c.delivered) == len(messages)
    others = [run_both(*case[:1], other, *case[2:])[1] for other in DETOURS if other != kind]
    assert run_both(*case)[1] not in others


def path_of(topology: Topology, scheme: str) -> Callable[[int, int], tuple[int, ...]]:
    """Return the path of a scheme between two servers."""
    registered, options = registry.checked(topology, scheme)
    return lambda src, dst: registered.path(topology, options, src, dst)[0].nodes


@settings(max_examples=15, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("kind", ROUTED)
def test_servers_forward_along_the_routes_of_messages(compiled: Path, kind: str, data) -> None:
    hosts = st.integers(0, build(ROUTED[kind]).servers - 1)
    message = st.tuples(st.integers(0, 20_000), hosts, hosts, st.integers(1, 60_000))
    messages = data.draw(st.lists(message, min_size=1, max_size=25))
    messages = [(at, src, dst, size) for at, src, dst, size in messages if src != dst]
    seed = data.draw(st.integers(0, 1 << 63))
    marks = data.draw(st.sampled_from([0, 2]))
    in_python, in_c = run_both(
        ROUTED[kind], kind, messages, seed, 72_000, compiled, mark_packets=marks
    )
    assert in_python == in_c
    assert len(in_c.delivered) == len(messages)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("kind", ["spray", "drill", "dr", "tar"])
def test_links_with_flow_control_wait_alike(compiled: Path, kind: str, data) -> None:
    """Compare credits, pause and cut-through, where hosts send to few, and a link fails."""
    spec = ROUTED.get(kind) or data.draw(st.sampled_from(["fattree:k=4", "clos:n=3,r=4,m=3"]))
    hosts = st.integers(0, build(spec).servers - 1)
    message = st.tuples(st.integers(0, 20_000), hosts, st.integers(0, 3), st.integers(1, 60_000))
    messages = data.draw(st.lists(message, min_size=1, max_size=30))
    messages = [(at, src, dst, size) for at, src, dst, size in messages if src != dst]
    room = data.draw(st.sampled_from([1_514, 4_000, 20_000]))
    passing = Switching(
        room, data.draw(st.sampled_from([0, 1_514])), data.draw(st.sampled_from([0, 64]))
    )
    seed = data.draw(st.integers(0, 1 << 63))
    failed = data.draw(st.sampled_from([0, 1])) if kind == "spray" else 0
    times = {"failed": failed, "failed_ns": 15_000, "known_ns": 25_000} if failed else {}
    in_python, in_c = run_both(
        spec, kind, messages, seed, 72_000, compiled, passing=passing, **times
    )
    assert in_python == in_c
    if kind not in ROUTED:  # up and down a tree there is no deadlock
        assert len(in_c.delivered) == len(messages)


@pytest.mark.parametrize("resume_bytes", [0, 1_514])
def test_senders_wait_for_room(compiled: Path, resume_bytes: int) -> None:
    """Make sure that the comparison covers links that wait."""
    messages = [(0, host, 0, 60_000) for host in range(1, 16)]
    case = ("fattree:k=4", "spray", messages, 5, 72_000, compiled)
    in_python, in_c = run_both(*case, passing=Switching(4_000, resume_bytes))
    assert in_python == in_c
    waited_ns, most_room_bytes = zip(*(port[-2:] for port in in_c.ports), strict=True)
    assert sum(waited_ns) > 0
    assert all(port[2] == 0 for port in in_c.ports)  # nothing is trimmed
    assert (max(most_room_bytes) > 4_000) == (resume_bytes > 0)
    assert any(port[2] for port in run_both(*case)[1].ports)
    for failed_ns in range(10_050, 20_000, 1_000):  # between events
        times = {"failed": 1, "failed_ns": failed_ns, "known_ns": 25_000}
        in_python, in_c = run_both(*case, passing=Switching(4_000, resume_bytes), **times)
        assert in_python == in_c


@pytest.mark.parametrize("kind", RULES)
def test_rules_choose_differently_under_load(compiled: Path, kind: str) -> None:
    """Make sure that the comparison covers full queues of both kinds, and each rule's memory."""
    messages = [(0, host, (2 * host + 6) % 16, 150_000) for host in range(16) if host != 10]

    def both(rule: str) -> tuple[Outcome, Outcome]:
        return run_both("fattree:k=4", rule, messages, 11, 72_000, compiled, first=True)

    in_python, in_c = both(kind)
    assert in_python == in_c
    assert in_c not in [both(other)[1] for other in RULES if other != kind]


def test_a_rule_that_simulated_switches_lack_is_refused() -> None:
    topology = build("fattree:k=4")
    rule = SelectionRule(ChoiceRule.LBSP, reads_daemons=True)
    hops = packets.shortest(topology, rule)
    with pytest.raises(ValueError, match=r"^simulated switches have no states"):
        network_of(topology, hops)


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (SelectionRule(99), r"^network\.c has no case for this selection rule$"),
        (SelectionRule(ChoiceRule.TTC, {"small": 1}), r"packet_rule .* has no field 'small'$"),
    ],
)
def test_a_rule_or_parameter_unknown_to_the_library_is_refused(
    rule: SelectionRule, why: str
) -> None:
    topology = build("fattree:k=4")
    with pytest.raises(ValueError, match=why):
        run_all_to_one(topology, rule)


def test_simulated_switches_have_a_case_for_the_rule_of_each_scheme() -> None:
    topology = build("fattree:k=4")
    for name, scheme in registry.schemes().items():
        if scheme.selection and not (rule := registry.rule(name)).reads_daemons:
            assert run_all_to_one(topology, rule) == topology.servers - 1, name


def run_all_to_one(topology: Topology, rule: SelectionRule) -> int:
    """Return how many messages come to host 0."""
    network = network_of(topology, packets.shortest(topology, rule))
    for host in range(1, topology.servers):
        network.send(0, host, 0, host, 30_000)
    network.run_until(10**9)
    return len(network.delivered)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("choice", LayerChoice)
def test_both_languages_spray_packets_over_layers_alike(
    compiled: Path, choice: LayerChoice, data
) -> None:
    spec = data.draw(st.sampled_from(NETWORKS[2:]))
    hosts = st.integers(0, build(spec).servers - 1)
    message = st.tuples(st.integers(0, 50_000), hosts, hosts, st.integers(1, 90_000))
    messages = data.draw(st.lists(message, min_size=1, max_size=25))
    messages = [(at, src, dst, size) for at, src, dst, size in messages if src != dst]
    in_python, in_c = run_both(
        spec,
        "layers",
        messages,
        data.draw(st.integers(0, 1 << 63)),
        72_000,
        compiled,
        choice=choice,
        mark_packets=data.draw(st.sampled_from([0, 2, 4])),
        failed=data.draw(st.integers(0, 3)),
    )
    assert in_python == in_c
    assert len(in_c.finished) == len(messages)


@pytest.mark.parametrize("choice", LayerChoice)
def test_packets_find_layers_around_failed_links(compiled: Path, choice: LayerChoice) -> None:
    """Make sure that the comparison covers marks, trimmed packets and silences."""
    messages = [(0, host, (host + 18) % 36, 200_000) for host in range(36)]
    in_python, in_c = run_both(
        "slimfly:q=3,p=2", "layers", messages, 3, 72_000, compiled,
        choice=choice, mark_packets=3, failed=8,
    )  # fmt: skip
    assert in_python == in_c
    assert sum(host.timeouts for host in in_c.hosts) > 0
    assert np.array(in_c.ports)[:, 2].sum() > 10
    assert len(in_c.finished) == len(messages)


@pytest.mark.parametrize("kind", ["spray", "hash", "layers"])
def test_links_fail_in_mid_run_and_switches_route_around_them(compiled: Path, kind: str) -> None:
    messages = [(100 * host, host, (host + 18) % 36, 200_000) for host in range(36)]
    case = ("slimfly:q=3,p=2", kind, messages, 3, 72_000, compiled)
    silent, known, healthy = (
        run_both(*case, failed=failed, failed_ns=100_000, known_ns=known_ns)
        for failed, known_ns in ((4, 0), (4, 150_000), (0, 0))
    )
    for in_python, in_c in (silent, known, healthy):
        assert in_python == in_c
    lost = [sum(host.timeouts for host in in_c.hosts) for _, in_c in (silent, known, healthy)]
    assert lost[0] > lost[1] > lost[2] == 0
    assert len(known[1].delivered) == len(messages)


@pytest.mark.parametrize("first", [False, True])
def test_headers_are_lost_and_data_is_trimmed_alike(compiled: Path, first: bool) -> None:
    """Make sure that the comparison covers what few random messages reach."""
    messages = [(0, src, 0, 20_000) for src in range(1, 41)]
    in_python, in_c = run_both("star:n=41", "spray", messages, 7, 3_000, compiled, first=first)
    assert in_python == in_c
    trimmed, headers_lost = np.array(in_c.ports)[:, 2:4].sum(axis=0)
    assert trimmed > 100
    assert headers_lost > 10
    assert sum(host.timeouts for host in in_c.hosts) > 0


def test_a_link_that_comes_back_carries_new_data_at_once(compiled: Path) -> None:
    """Let a link fail while packets wait that were sent again, and carry another message later."""
    topology = build("star:n=41")
    link = PacketLink(
        rate_bps=RATE_BPS,
        delay_ns=1_000,
        trim_bytes=12_000,
        header_bytes=72_000,
        retransmissions_first=1,
    )
    parameters = Parameters(rate_bps=RATE_BPS, timeout_ns=10**9)
    hops = packets.shortest(topology, SPRAY)
    network = PacketNetwork(topology, link, parameters, hops, 1, path=compiled)
    for src in range(1, 40):
        network.send(0, src, 0, src, 20_000)
    network.run_until(30_000)
    network.fail(topology.links[:1])
    network.run_until(10**6)
    network.fail(topology.links[:1], failed=False)
    network.send(10**6, 40, 0, 40, 1_000)
    network.run_until(2 * 10**6)
    assert 40 in [event.flow for _, event in network.delivered]


def network_of(topology: Topology, next_hops: NextHops) -> PacketNetwork:
    return PacketNetwork(
        topology,
        PacketLink(rate_bps=RATE_BPS, delay_ns=1000, trim_bytes=72_000, header_bytes=72_000),
        Parameters(rate_bps=RATE_BPS, timeout_ns=timeout_ns(RATE_BPS)),
        next_hops,
        1,
    )


def test_a_message_whose_flow_has_another_number_is_refused_a_route(compiled: Path) -> None:
    """Packets name their flow, so they would take the route of the message with that number."""
    topology = build("dcell:n=3,k=1")
    link = PacketLink(rate_bps=RATE_BPS, delay_ns=1_000, trim_bytes=0, header_bytes=0)
    parameters = Parameters(rate_bps=RATE_BPS, timeout_ns=timeout_ns(RATE_BPS))
    network = PacketNetwork(topology, link, parameters, None, 1, path=compiled)
    path = path_of(topology, "dr")
    for flow in (1, 0, 2):
        network.send(0, 0, 5, flow, 1)
    network.route(2, path(0, 5), path(5, 0))
    for number in (0, 1):
        with pytest.raises(OSError, match="Invalid argument"):
            network.route(number, path(0, 5), path(5, 0))


def test_a_host_without_a_link_is_refused() -> None:
    topology = failures.fail_links(build("star:n=4"), [0])
    with pytest.raises(ValueError, match="a host needs one healthy link"):
        network_of(topology, packets.shortest(topology, SPRAY))


@pytest.mark.parametrize("failed", [["s1-s2"], ["s1-s2:2"], ["s1-s2", "s1-s2:2"]])
def test_parallel_links_fail_one_by_one(failed: list[str]) -> None:
    topology = topology_of(nx.MultiGraph([("s1", "s2"), ("s1", "s2")]))
    links = topology.links[[topology.link(name) for name in failed]]
    network = network_of(topology, packets.shortest(topology, SPRAY))
    network.fail(links)
    network.send(0, 0, 1, 0, 50_000)
    network.run_until(10**9)
    ports = packets.PortTable.of(topology)
    dropped = {
        (int(node), int(number))
        for node, number, counters in zip(
            ports.node, ports.number, network.port_counters(), strict=True
        )
        if counters.dropped
    }
    sender = topology.naming.node("s1")
    assert {end for end in dropped if end[0] == sender} == {(sender, int(row[1])) for row in links}
    assert bool(network.delivered) == (len(failed) < 2)


def test_a_library_of_another_version_is_refused_with_the_remedy() -> None:
    with pytest.raises(OSError, match=r"^libndp.so lacks ndp_old, .* `make bpf` compiles it$"):
        ndp_library.declare(ctypes.CDLL(None), [("ndp_old", None, [])])


def test_the_compiler_drops_no_fetch_of_memory() -> None:
    """GCC drops calls of a function that only fetches, with a third of the speed at 8,192 hosts."""
    source = Path(packets.__file__).with_name("network.c").read_text()
    command = ["objdump", "--disassemble", str(ndp_library.PATH)]
    code = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    by_function = re.split(r"^[0-9a-f]+ <", code, flags=re.MULTILINE)
    fetches = "".join(part for part in by_function if not part.startswith("tcp_fetch>"))
    written = source.count("__builtin_prefetch(")
    assert len(re.findall(r"\t(?:prefetch|prfm)", fetches)) >= written > 0
