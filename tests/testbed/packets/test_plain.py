"""Hosts without a transport: packets, queues and order, from a slower network or a pencil."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from math import inf
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.testbed.packets.test_simulation import crossed
from weft.daemons.core import registry
from weft.testbed.packets.simulation import PacketFlows, SimulatedFlows, Simulation, simulate
from weft.testbed.packets.switching import Switching
from weft.testbed.packets.transport import ALL, transport
from weft.topologies import build
from weft.topologies.core.link import Gbps, LinkSpec
from weft.topologies.core.topology import Topology

FRAME, HEADER = 1514, 42
PAYLOAD = FRAME - HEADER
LINK = LinkSpec(rate_bps=Gbps, queue_packets=1000, delay_us=3)
DELAY_NS, NS_A_BYTE = 3000, 8
FULL_NS = FRAME * NS_A_BYTE
# host 0 to 1 over one leaf; to 2 and 3 over a spine
CLOS = "clos:n=2,r=2,m=2"


class SlowPacket(NamedTuple):
    """A packet of the slower network: its message, number and length, and the links left."""

    message: int
    number: int
    length: int
    links: tuple[tuple[int, int], ...]


def slow_network(
    topology: Topology, scheme: str, rows: list[tuple[int, int, int, float]]
) -> dict[int, list[tuple[int, int, int]]]:
    """Return (number, departure, arrival) in ns of each message's packets, in order of arrival.

    Queues have no limit, and each host sends its messages in order of their start.  At one instant
    packets come in the order in which their transmission began.
    """
    registered, options = registry.checked(topology, scheme)
    free: dict[tuple[int, int], int] = {}  # when a link can carry the next packet
    departed: dict[tuple[int, int], int] = {}
    arrived: dict[int, list[tuple[int, int, int]]] = {number: [] for number in range(len(rows))}
    order = count()
    # time, when its transmission began (hosts come last at one instant), order, packet
    events: list[tuple[int, float, int, SlowPacket]] = []
    waiting: dict[int, list[tuple[int, SlowPacket]]] = {}  # by host, with their earliest times
    for message in sorted(range(len(rows)), key=lambda number: rows[number][3]):
        src, dst, size, start_s = rows[message]
        (path,) = registered.path(topology, options, src, dst)
        links = tuple(crossed(topology, path.nodes))
        sizes = [PAYLOAD] * (size // PAYLOAD) + [size % PAYLOAD] * (size % PAYLOAD > 0)
        for number, payload in enumerate(sizes):
            packet = SlowPacket(message, number, HEADER + payload, links)
            waiting.setdefault(src, []).append((round(1e9 * start_s), packet))

    def emit(host: int, from_ns: int) -> None:
        if waiting[host]:
            at, packet = waiting[host].pop(0)
            heapq.heappush(events, (max(at, from_ns), inf, next(order), packet))

    for host in waiting:
        emit(host, 0)
    while events:
        now, began, _, packet = heapq.heappop(events)
        key = packet.message, packet.number
        if not packet.links:
            arrived[packet.message].append((packet.number, departed[key], now))
            continue
        link, *rest = packet.links
        begin = max(now, free.get(link, 0))
        free[link] = begin + packet.length * NS_A_BYTE
        if began == inf:  # a host makes its next packet when this one begins to leave
            departed[key] = begin
            emit(rows[packet.message][0], max(begin, now + packet.length * NS_A_BYTE))
        onward = packet._replace(links=tuple(rest))
        heapq.heappush(events, (free[link] + DELAY_NS, begin, next(order), onward))
    return arrived


def check_counters(result: SimulatedFlows, arrived: dict[int, list[tuple[int, int, int]]]) -> None:
    """Compare with counters of each message, recounted from its packets in order of arrival."""
    for message, packets in arrived.items():
        highest, in_order, jumps, jumped, late, extent = -1, 0, 0, 0, 0, 0
        for number, _, _ in packets:
            ahead = number - highest
            in_order += ahead == 1
            jumps += ahead > 1
            jumped += ahead if ahead > 1 else 0
            late += ahead < 1
            extent += -ahead if ahead < 1 else 0
            highest = max(highest, number)
        expected = {
            "packets": len(packets),
            "latency_ns": sum(arrival - departure for _, departure, arrival in packets),
            "worst_ns": max(arrival - departure for _, departure, arrival in packets),
            **{"in_order": in_order, "jumps": jumps, "jumped": jumped},
            **{"late": late, "extent": extent},
        }
        assert {key: int(result.counters[key][message]) for key in expected} == expected
        assert result.delivered_s[message] == packets[-1][2] / 1e9


MESSAGE = st.tuples(
    st.integers(0, 11), st.integers(1, 11), st.integers(1, 12_000), st.integers(0, 200)
)


@settings(max_examples=150, deadline=None)
@given(st.lists(MESSAGE, min_size=1, max_size=8))
def test_packets_go_as_in_a_slower_network(
    messages: list[tuple[int, int, int, int]],
) -> None:
    """Send messages along single paths; no two begin at the same nanosecond."""
    topology = build("dcell:n=3,k=1")
    rows = [
        (src, (src + step) % 12, size, (1000 * start_us + 7 * number) / 1e9)
        for number, (src, step, size, start_us) in enumerate(messages)
    ]
    result = simulate(topology, "dr", rows, link=LINK, transport="plain")
    check_counters(result, slow_network(topology, "dr", rows))


def test_a_host_sends_one_message_after_the_other_at_its_rate() -> None:
    rows = [(0, 1, 10 * PAYLOAD), (0, 2, 10 * PAYLOAD), (0, 3, 10 * PAYLOAD)]
    half = simulate(CLOS, "dmodk", rows, link=LINK, transport="plain:rate_mbps=500")
    hops_ns = np.array([2, 4, 4]) * (FULL_NS + DELAY_NS)
    # the last packet of message i is packet 10 i + 9, every two packet times
    expected_ns = 2 * FULL_NS * np.array([9, 19, 29]) + hops_ns
    assert half.delivered_s.tolist() == (expected_ns / 1e9).tolist()
    assert half.counters["in_order"].tolist() == [10, 10, 10]


def test_spraying_over_unequal_spines_puts_packets_out_of_order() -> None:
    """Let packets alternate between two spines, one of which takes 8 packet times longer.

    They meet again without waiting for each other.
    """
    topology = build(CLOS)
    whole = LinkSpec(rate_bps=FRAME * 1_000_000, queue_packets=1000, delay_us=3)
    packet_ns = 8_000
    slow = {topology.link("e0-c1"): replace(whole, delay_us=3 + 64)}
    rows = [(0, 2, 40 * PAYLOAD)]
    result = simulate(topology, "rr", rows, link=whole, own_links=slow, transport="plain")
    hops_ns = 4 * (packet_ns + DELAY_NS)
    arrivals = {}
    for first in (0, 1):  # the packets that take the slow spine
        late_ns = [64_000 * (number % 2 == first) for number in range(40)]
        packets = [
            (number, number * packet_ns, number * packet_ns + hops_ns + late_ns[number])
            for number in range(40)
        ]
        arrivals[first] = sorted(packets, key=lambda packet: packet[2])
    takes_slow_first = result.delivered_s[0] == arrivals[1][-1][2] / 1e9
    expected = arrivals[int(takes_slow_first)]
    assert [number for number, _, _ in expected] != sorted(range(40))
    check_counters(result, {0: expected})


def slow_go_back(
    packets: int, spine_ns: Callable[[int], int], packet_ns: int, last_ns: int, go_back_ns: int
) -> tuple[int, int]:
    """Return when one host's message is whole, and how many packets are dropped.

    spine_ns: time from a departure up to the last switch, by the number of packets sent before;
        there a packet waits for the link to the receiver, which has a delay.
    """
    turn, number, due_ns, wanted, dropped, sent, free_ns, ended_ns = 0, 0, 0, 0, 0, 0, 0, -1
    back: tuple[int, int] | None = None
    order = count()
    # time, kind (arrival, at the last switch, host), order at one instant, packet and turn
    events: list[tuple[int, int, int, tuple[int, int]]] = [(0, 2, next(order), (0, 0))]
    while events:
        now, kind, _, (packet, of_turn) = heapq.heappop(events)
        if kind == 0 and packet == wanted:
            wanted += 1
            if wanted == packets:
                ended_ns, number, back = now, packets, None
        elif kind == 0:
            dropped += 1
            if packet > wanted and of_turn == turn and not back:
                back = now + go_back_ns, wanted
                heapq.heappush(events, (back[0], 2, next(order), (0, 0)))
        elif kind == 1:
            free_ns = max(now, free_ns) + packet_ns
            heapq.heappush(events, (free_ns + last_ns, 0, next(order), (packet, of_turn)))
        elif now >= due_ns:
            if back and now >= back[0]:
                turn, number, back = turn + 1, back[1], None
            if number < packets:
                heapq.heappush(events, (now + spine_ns(sent), 1, next(order), (number, turn)))
                number, sent, due_ns = number + 1, sent + 1, now + packet_ns
                heapq.heappush(events, (due_ns, 2, next(order), (0, 0)))
    return ended_ns, dropped


@pytest.mark.parametrize("go_back_ns", [1, 500, 5_100, 20_300, 1_000_001])
@pytest.mark.parametrize("slower_us", [3, 13, 68])
def test_go_back_n_sends_again_as_a_slower_host_does(go_back_ns: int, slower_us: int) -> None:
    """Let packets alternate between two spines, one of which takes longer."""
    topology = build(CLOS)
    whole = LinkSpec(rate_bps=FRAME * 1_000_000, queue_packets=1000, delay_us=3)
    slow = {topology.link("e0-c1"): replace(whole, delay_us=3 + slower_us)}
    hosts = f"plain:go_back_ns={go_back_ns}"
    rows = [(0, 2, 40 * PAYLOAD)]
    result = simulate(topology, "rr", rows, link=whole, own_links=slow, transport=hosts)
    quick_ns = 3 * (8_000 + DELAY_NS)

    def expected(first: int) -> tuple[int, int]:
        """Let every other packet from this one on take the slow spine."""

        def spine_ns(sent: int) -> int:
            return quick_ns + 1000 * slower_us * (sent % 2 == first)

        return slow_go_back(40, spine_ns, 8_000, DELAY_NS, go_back_ns)

    outcome = round(1e9 * result.delivered_s[0]), int(result.counters["refused"][0])
    assert outcome in (expected(0), expected(1))
    assert result.counters["in_order"][0] == 40
    assert result.counters["packets"][0] == 40
    if slower_us == 3:  # less than a packet's time
        assert outcome[1] == 0
    else:
        assert outcome[1] > 0
        assert outcome[0] > quick_ns + 40 * 8_000


def test_go_back_n_holds_the_next_message_back() -> None:
    rows = [(0, 2, 10 * PAYLOAD), (0, 3, 10 * PAYLOAD)]
    result = simulate(CLOS, "dmodk", rows, link=LINK, transport="plain:go_back_ns=1")
    alone_ns = 10 * FULL_NS + 3 * FULL_NS + 4 * DELAY_NS
    assert result.delivered_s.tolist() == [alone_ns / 1e9, 2 * alone_ns / 1e9]


def test_receivers_count_from_a_time_on() -> None:
    rows = [(0, 1, 100 * PAYLOAD)]
    from_begin, later = (
        simulate(CLOS, "dmodk", rows, link=LINK, transport=f"plain:skip_us={skip}")
        for skip in (0, 600)
    )
    first_ns = 2 * (FULL_NS + DELAY_NS)
    skipped = sum(first_ns + number * FULL_NS < 600_000 for number in range(100))
    assert from_begin.counters["packets"][0] == 100
    assert later.counters["packets"][0] == 100 - skipped
    assert later.delivered_s[0] == from_begin.delivered_s[0]


def test_without_flow_control_a_full_queue_drops_and_nobody_sends_again() -> None:
    short = LinkSpec(rate_bps=Gbps, queue_packets=5)
    rows = [(1, 0, 50 * PAYLOAD), (2, 0, 50 * PAYLOAD), (3, 0, 50 * PAYLOAD)]
    lossy = simulate(CLOS, "dmodk", rows, link=short, transport="plain")
    lossless = simulate(
        CLOS, "dmodk", rows, link=short, transport="plain", flow_control="credits:room_kb=8"
    )
    dropped = int(lossy.ports["dropped"].sum())
    assert dropped > 0
    assert lossy.counters["packets"].sum() == 150 - dropped
    assert lossy.unfinished
    assert lossless.counters["packets"].sum() == 150
    # the last link is never idle from the first packet on
    assert round(1e9 * lossless.delivered_s.max()) in range(151 * FULL_NS, 154 * FULL_NS)


def test_an_output_buffer_frees_the_room_behind_the_link() -> None:
    """Let two hosts send to one: as many packets more wait at its port as the buffer has places."""
    rows = [(0, 1, 100 * PAYLOAD), (2, 1, 100 * PAYLOAD)]
    waited = {}
    for output_kb in (0, 3, 4, 40):
        control = f"credits:room_kb=8,output_kb={output_kb}"
        result = simulate(CLOS, "dmodk", rows, link=LINK, transport="plain", flow_control=control)
        last = (result.ports["node"] == 4) & (result.ports["port"] == 1)
        waited[1000 * output_kb // FRAME] = int(result.ports["most_data_bytes"][last][0]) // FRAME
        assert result.unfinished == 0
        assert result.ports["dropped"].sum() == 0
    assert waited == {places: waited[0] + places for places in (0, 1, 2, 26)}


def test_nodes_take_time_to_forward() -> None:
    topology = build(CLOS)
    links = [LINK] * len(topology.links)
    times = []
    for node_ns in (0, 700):
        flows = PacketFlows.of([(0, 2, PAYLOAD)])
        hosts = transport("plain", ALL)
        passing = Switching(node_ns=node_ns)
        simulation = Simulation(topology, "dmodk", flows, hosts, links, passing, 1, daemons=False)
        times.append(simulation.run((), 1.0, ()).delivered_s[0])
    assert round(1e9 * (times[1] - times[0])) == 4 * 700


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"transport": "plain:rate_mbps=0"}, "rate_mbps"),
        ({"transport": "plain:window=8"}, "window"),
        ({"transport": "plain:go_back_ns=-1"}, "go_back_ns"),
        ({"transport": "ndp", "flow_control": "credits:output_kb=8"}, "no output buffer"),
        ({"transport": "plain", "flow_control": "pause:output_kb=8"}, "output_kb"),
        ({"transport": "plain", "flow_control": "credits:output_kb=1"}, "needs room"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        simulate(CLOS, "dmodk", [(0, 1, 1000)], link=LINK, **arguments)
    with pytest.raises(ValueError, match="choose no layers"):
        simulate("slimfly:q=5", "fatpaths", [(0, 9, 1000)], link=LINK, transport="plain")
