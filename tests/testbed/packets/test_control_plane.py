"""Daemons beside simulated packets: routes, losses and times, from other code or a pencil."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import pytest

from weft.daemons.simulator.simulator import Simulator
from weft.daemons.simulator.wires import Wire
from weft.testbed.packets import control_plane
from weft.testbed.packets.network import LookUp, PacketLink, PacketNetwork, PortTable, TcpParameters
from weft.testbed.packets.simulation import Fault, SimulatedFlows, simulate
from weft.topologies import build
from weft.topologies.core.link import Gbps, LinkSpec
from weft.topologies.core.topology import Topology

LINK = LinkSpec(rate_bps=Gbps, queue_packets=100, delay_us=5)
FATPATHS = "fatpaths:trigger=cut,start=first,choice=random"
FRAME_S = 8 * (100 + 66) / Gbps  # of a packet of 100 bytes
HEALTHY = {
    "dcell:n=4,k=1": ("dr", "pr-gpe", "pr-gpi", "pr-gp0", "dfr"),
    "ficonn:n=4,k=2": ("dr", "tar"),
    "fattree:k=4": ("ecmp", "ecmp:seeds=same", "rps", "rr", "drill", "ttc", "letflow", "lbsp"),
}
FAILURES = {
    "dcell:n=4,k=1": ("h0-h4", ("dr", "bfs", "pr-gpi", "dfr")),
    "beta-dcell:n=4,k=1": ("h0-h7", ("pr-gpe",)),
    "complete:n=5,p=1": ("r0-r1", ("ecmp", "rps")),
}


def all_to_one_other(topology: Topology, size_bytes: int) -> list[tuple[int, int, int]]:
    hosts = topology.servers
    return [(host, (host + 7) % hosts, size_bytes) for host in range(hosts)]


def outcome_of(result: SimulatedFlows) -> tuple[Any, ...]:
    columns = result.columns(), result.ports
    return (*({name: each.tolist() for name, each in part.items()} for part in columns),)


@pytest.mark.parametrize("transport", ["tcp", "ndp"])
@pytest.mark.parametrize(
    ("spec", "scheme"), [(spec, scheme) for spec, names in HEALTHY.items() for scheme in names]
)
def test_packets_of_a_healthy_network_go_as_without_daemons(
    spec: str, scheme: str, transport: str
) -> None:
    """Let daemons' routes, looked up hop by hop, be those that the scheme's paths give."""
    topology = build(spec)
    rows = all_to_one_other(topology, 200_000)
    static, live = (
        simulate(topology, scheme, rows, link=LINK, transport=transport, daemons=daemons)
        for daemons in (False, True)
    )
    assert outcome_of(live) == outcome_of(static)
    assert live.unrouted == static.unrouted == 0


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize(
    ("spec", "link_name", "scheme"),
    [(spec, link, scheme) for spec, (link, schemes) in FAILURES.items() for scheme in schemes],
)
def test_packets_arrive_at_once_while_the_daemons_routes_lead_there(
    spec: str, link_name: str, scheme: str, silent: bool
) -> None:
    """Send a packet every 5 ms, and walk by the tables of other daemons at these times."""
    topology = build(spec)
    link, failed_s, restored_s = topology.link(link_name), 0.0512, 0.7012
    src, dst = pair_across(topology, scheme, link)
    times_s = [number / 200 for number in range(300)]
    rows = [(src, dst, 100, time_s) for time_s in times_s]
    fault = Fault([link], failed_s, restored_s=restored_s, silent=silent)
    result = simulate(topology, scheme, rows, link=LINK, faults=[fault], daemons=True)
    other = Simulator(topology, scheme, wire=Wire(delay_s=LINK.delay_us / 1e6))
    other.run_until_quiet()
    origin_s = other.now
    other.at(origin_s + failed_s, lambda: other.fail(link, silent=silent))
    other.at(origin_s + restored_s, lambda: other.restore(link))
    walked = []
    for time_s in times_s:
        other.run_until(origin_s + time_s)
        walked.append(not other.send(src, dst).lost and not other.send(dst, src).lost)
    arrived = (result.completion_s < 0.002).tolist()
    assert arrived == walked
    assert 0 < sum(walked) < len(walked) or not silent  # an announced one may cost none
    assert result.unfinished == 0


def pair_across(topology: Topology, scheme: str, link: int) -> tuple[int, int]:
    """Return a pair of hosts whose packets cross `link` between routers."""
    simulator = Simulator(topology, scheme)
    simulator.run_until_quiet()
    a, _, b, _ = topology.ends(link)
    for src in range(topology.servers):
        for dst in range(topology.servers):
            path = simulator.walk(src, dst).path
            if any({a, b} == set(hop) for hop in pairwise(path)):
                return src, dst
    raise ValueError(f"no path of {scheme} crosses link {link}")


def test_a_packet_on_its_way_follows_the_tables_of_each_node() -> None:
    """Let the last link fail when the packet is on its first, and the daemon before it know."""
    topology = build("dcell:n=4,k=1")
    slow = LinkSpec(rate_bps=Gbps, queue_packets=100, delay_us=10_000)
    path = (1, 0, 4)
    rows = [(1, 4, 100)]
    fault = Fault([topology.link("h0-h4")], 0.001)
    healthy, failed = (
        simulate(topology, "bfs", rows, link=slow, faults=faults, daemons=True, deadline_s=0.15)
        for faults in ((), (fault,))
    )
    links = 2 + 1  # of path: h1, crossbar, h0, h4
    assert healthy.completion_s == pytest.approx([links * (0.01 + FRAME_S)])
    around = nx.Graph((row[0], row[2]) for row in topology.links.tolist())
    around.remove_edge(*path[1:])
    links = 2 + nx.shortest_path_length(around, *path[1:])
    assert failed.completion_s == pytest.approx([links * (0.01 + FRAME_S)])
    assert failed.counters["retransmissions"].tolist() == [0]
    assert failed.ports["dropped"].sum() == failed.unrouted == 0


@pytest.mark.parametrize("daemons", [False, True])
def test_a_restored_link_is_used_again(daemons: bool) -> None:
    topology = build("dcell:n=4,k=1")
    known_s = {} if daemons else {"known_s": 0.012}
    fault = Fault([topology.link("h0-h4")], 0.01, restored_s=0.05, **known_s)
    rows = [(0, 4, 100, time_s) for time_s in (0.0, 0.03, 2.0)]
    result = simulate(topology, "bfs", rows, link=LINK, faults=[fault], daemons=daemons)
    hops = np.round(result.completion_s / (FRAME_S + 5e-6)).tolist()
    assert hops[0] == hops[2] == 1
    assert hops[1] > 3


def test_a_silent_failure_is_found_by_missing_hellos() -> None:
    """Let a flow of TCP stand still for as long as hellos may be missing, and not longer."""
    topology = build("dcell:n=4,k=1")
    rows = [(0, 4, 20_000_000)]
    times_s = {}
    for hello_ms in (20, 50):
        for silent in (False, True):
            fault = Fault([topology.link("h0-h4")], 0.05, silent=silent)
            scheme = f"bfs:hello_ms={hello_ms},dead=3"
            result = simulate(
                topology, scheme, rows, link=LINK, faults=[fault], daemons=True, rto_min_us=5_000
            )
            times_s[hello_ms, silent] = float(result.completion_s[0])
    for hello_ms in (20, 50):
        late_s = times_s[hello_ms, True] - times_s[hello_ms, False]
        assert 2 * hello_ms / 1000 < late_s < 8 * hello_ms / 1000


def test_it_is_the_same_twice_to_the_bit() -> None:
    topology = build("fattree:k=4")
    rows = all_to_one_other(topology, 1_000_000)
    fault = Fault([topology.link("e0.0-a0.0")], 0.002, restored_s=0.3, silent=True)
    results = [
        simulate(topology, "drill", rows, link=LINK, faults=[fault], daemons=True, seed=3)
        for _ in range(2)
    ]
    assert outcome_of(results[0]) == outcome_of(results[1])
    assert results[0].ports["dropped"].sum() > 0


def test_tables_grow_when_daemons_need_new_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with room for the sets of the healthy network: results are those with more room."""
    topology = build("fattree:k=4")
    rows = all_to_one_other(topology, 500_000)
    faults = [Fault([topology.link(name)], 0.001) for name in ("e0.0-a0.0", "a0.0-c0")]
    healthy = control_plane.ControlPlane(topology, "ecmp", [LINK] * len(topology.links))
    results = []
    for room in (control_plane.FIRST_ROOM, healthy._tables._used):
        monkeypatch.setattr(control_plane, "FIRST_ROOM", room)
        results.append(simulate(topology, "ecmp", rows, link=LINK, faults=faults, daemons=True))
    assert outcome_of(results[0]) == outcome_of(results[1])


class Answers:
    """Network of one flow from h0, whose nodes answer by address; ports of the link h0-h3."""

    def __init__(self) -> None:
        topology = build("dcell:n=3,k=1")
        ports = PortTable.of(topology)
        row = topology.links[topology.link("h0-h3")].tolist()
        self.there, self.back = ports.place(*row[:2]), ports.place(*row[2:])
        self.crossbar = ports.place(0, 0)
        link = PacketLink(rate_bps=Gbps, delay_ns=1000, queue_packets=10)
        tcp = TcpParameters(jiffy_ns=10**6, rto_min_ns=10**10, frame_bytes=1514, one_message=1)
        self.network = PacketNetwork(topology, link, tcp, None, 1)

    def send(self, dst: int, answer: Callable[[int, int, Any], None]) -> list[int]:
        """Send a packet to `dst`; return the number of frames of each port."""
        self.network.send(0, 0, dst, 0, 100)

        def look_up(node: int, message: int, answers: int, address: int, hop: Any) -> int:
            if not answers:
                answer(node, address, hop[0])
            return not answers

        self.network.live(LookUp(look_up), 4)
        self.network.run_until(10**7)
        return [port.frames for port in self.network.port_counters()]


def test_a_loop_ends_packets() -> None:
    """Let two servers send a packet back and forth: it crosses 64 links."""

    def answer(node: int, address: int, hop: Any) -> None:
        hop.port, hop.address = (answers.back if node else answers.there), 1

    answers = Answers()
    assert sum(answers.send(8, answer)) == 64
    assert answers.network.unrouted == 1


def test_a_node_routes_a_packet_by_the_address_that_it_carries() -> None:
    """Let a packet come back to its source with another address, and go on by a crossbar."""

    def answer(node: int, address: int, hop: Any) -> None:
        if address == 7:
            hop.port, hop.crossing = answers.crossbar, 2
        else:
            hop.port, hop.address = (answers.back, 7) if node else (answers.there, 5)

    answers = Answers()
    assert sum(answers.send(2, answer)) == 4
    assert [host for host, _ in answers.network.delivered] == [2]


def test_an_error_of_a_look_up_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(*arguments: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(Simulator, "forward", forward)
    with pytest.raises(RuntimeError, match="planted"):
        simulate("dcell:n=3,k=1", "dr", [(0, 3, 100)], daemons=True)


@pytest.mark.parametrize(
    ("network", "scheme", "fault", "reason"),
    [
        ("dcell:n=3,k=1", "static", None, "scheme static has no daemons"),
        (
            "slimfly:q=5,p=1",
            "fatpaths:trigger=cut,start=first,choice=random",
            None,
            "do not set the layers of",
        ),
        ("fattree:k=4", "lbsp:states=1", None, "take states=0"),
        ("dcell:n=3,k=1", "dr", Fault([0], 0.1, 0.2), "^with daemons no time is given"),
        ("dcell:n=3,k=1", "dr", Fault([99], 0.1), "^links are 0 to 17: "),
        ("dcell:n=3,k=1", "dr", Fault([0], 0.1, restored_s=0.1), "before it is restored$"),
        ("dcell:n=3,k=1", "dr", Fault([0], float("nan")), "before it is restored$"),
        ("dcell:n=3,k=1", "dr", Fault([0], -1), "^a link fails at 0 s or later"),
    ],
)
def test_what_daemons_cannot_do_is_refused_in_one_line(
    network: str, scheme: str, fault: Fault | None, reason: str
) -> None:
    faults = [fault] if fault else []
    with pytest.raises(ValueError, match=reason) as refusal:
        simulate(network, scheme, [(0, 1, 100)], faults=faults, daemons=True)
    assert "\n" not in str(refusal.value)
