"""TCP on a simulated network: every byte arrives, losses are repaired, queues stay short."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.daemons.fatpaths.layer_choice import Choice, Start
from weft.daemons.fatpaths import layers
from weft.daemons.fatpaths.scheme import BY_CUT, Trigger
from weft.daemons.transport.endpoint import Delivered
from weft.testbed.packets import network as packets
from weft.testbed.packets.network import (
    CLASSIC_ECN,
    DCTCP,
    HASH,
    NO_ECN,
    NO_LABEL,
    RACK,
    RENO,
    PacketLink,
    PacketNetwork,
    TcpLayers,
    TcpParameters,
)
from weft.topologies import build

RATE_BPS, FRAME_BYTES, HEADER_BYTES = 10**10, 9_000, 66
JIFFY_NS, SECOND_NS = 1_000_000, 10**9
PAYLOAD_BYTES = FRAME_BYTES - HEADER_BYTES
RTO_MIN_NS = 200 * JIFFY_NS


def network(
    spec: str,
    path: Path,
    *,
    ecn: int = NO_ECN,
    queue_packets: int = 100,
    mark_packets: int = 0,
    delay_ns: int = 1_000,
    seed: int = 1,
    next_hops: packets.NextHops | None = None,
    tcp_layers: TcpLayers | None = None,
    one_message: bool = False,
    rto_min_ns: int = RTO_MIN_NS,
    recovery: int = RACK,
    cubic: bool = False,
    small_queues: bool = False,
    slow_link: int | None = None,
    label: int = NO_LABEL,
) -> PacketNetwork:
    topology = build(spec)
    kinds = [
        PacketLink(
            rate_bps=rate_bps,
            delay_ns=delay_ns,
            trim_bytes=0,
            header_bytes=0,
            queue_packets=queue_packets,
            mark_packets=mark_packets,
        )
        for rate_bps in (RATE_BPS, RATE_BPS // 10)
    ]
    links = packets.Links(kinds, (np.arange(len(topology.links)) == slow_link).astype(np.int64))
    tcp = TcpParameters(
        jiffy_ns=min(JIFFY_NS, rto_min_ns),
        rto_min_ns=rto_min_ns,
        frame_bytes=FRAME_BYTES,
        ecn=ecn,
        one_message=one_message,
        recovery=recovery,
        cubic=cubic,
        small_queues=small_queues,
        label=label,
        plb_rounds=3,
    )
    hops = next_hops or packets.shortest(topology, HASH)
    return PacketNetwork(topology, links, tcp, hops, seed, layers=tcp_layers, path=path)


def ideal_ns(size_bytes: int) -> float:
    """Return how long the frames of a message take on one link."""
    frames = -(-size_bytes // PAYLOAD_BYTES)
    return (size_bytes + frames * HEADER_BYTES) * 8 * SECOND_NS / RATE_BPS


def total(net: PacketNetwork, name: str) -> int:
    return sum(getattr(flow, name) for flow in net.flow_counters())


def dropped(net: PacketNetwork) -> int:
    return sum(port.dropped for port in net.port_counters())


@pytest.mark.parametrize("size_bytes", [1, 50_000, 1_000_000])
def test_one_flow_takes_a_handshake_and_its_frames(size_bytes: int, compiled: Path) -> None:
    net = network("star:n=3", compiled)
    net.send(0, 1, 0, 0, size_bytes)
    net.run_until(SECOND_NS)
    ((host, delivered),) = net.delivered
    assert host == 0
    # two links each way for the handshake, then the first frame is stored and forwarded once
    round_trip_ns = 4 * 1_000
    least_ns = ideal_ns(size_bytes) + 1.5 * round_trip_ns
    assert least_ns < delivered.at_ns < least_ns + 5 * ideal_ns(PAYLOAD_BYTES) + 2 * round_trip_ns
    assert total(net, "retransmissions") == total(net, "timeouts") == dropped(net) == 0


def test_a_full_queue_is_repaired_without_a_timeout(compiled: Path) -> None:
    """Two flows overrun a queue of 20 packets in slow start; later packets show the loss."""
    net = network("star:n=3", compiled, queue_packets=20)
    for src in (1, 2):
        net.send(0, src, 0, src, 3_000_000)
    net.run_until(SECOND_NS)
    assert len(net.delivered) == len(net.finished) == 2
    assert dropped(net) > 5
    assert total(net, "retransmissions") >= 5
    assert total(net, "timeouts") == 0
    waited_ns = 3 * JIFFY_NS  # for packets that may be late, at most
    assert max(event.at_ns for _, event in net.delivered) < 2 * ideal_ns(3_000_000) + waited_ns


@pytest.mark.parametrize("packets", [1 << 30, 1 << 32, (1 << 32) + 1])
def test_a_message_beyond_all_memory_is_an_error(packets: int, compiled: Path) -> None:
    net = network("star:n=3", compiled)
    net.send(0, 1, 0, 0, packets * PAYLOAD_BYTES + 1)
    with pytest.raises(OSError, match="simulated network: Cannot allocate memory"):
        net.run_until(SECOND_NS)


def test_counters_outlive_their_network(compiled: Path) -> None:
    net = network("star:n=3", compiled)
    net.send(0, 1, 0, 0, 1_000_000)
    net.run_until(SECOND_NS)
    counters = [*net.flow_counters(), *net.port_counters()]
    before = [bytes(counter) for counter in counters]
    del net
    others = [network("star:n=3", compiled, seed=seed) for seed in range(3)]
    assert others
    assert [bytes(counter) for counter in counters] == before


@pytest.mark.parametrize("ecn", [CLASSIC_ECN, DCTCP])
def test_marks_keep_a_queue_short(ecn: int, compiled: Path) -> None:
    net = network("star:n=5", compiled, ecn=ecn, mark_packets=20)
    for src in range(1, 5):
        net.send(0, src, 0, src, 10_000_000)
    net.run_until(SECOND_NS)
    ports = net.port_counters()
    packets = total(net, "sent")
    # windows shrink, so that the queue is below its mark for half of the time
    assert 10 < sum(port.marked for port in ports) < packets / 2
    assert dropped(net) == total(net, "retransmissions") == 0
    assert max(event.at_ns for _, event in net.delivered) < 1.05 * 4 * ideal_ns(10_000_000)


@pytest.mark.parametrize("mark_packets", [1, 3, 5])
def test_a_packet_is_marked_that_finds_as_many_waiting_as_the_mark(
    mark_packets: int, compiled: Path
) -> None:
    """Send seven packets at once to a link that carries the first when the last arrives.

    Packet i finds i - 1 waiting.
    """
    slow = build("star:n=3").link("h0-r0")
    options = {"ecn": CLASSIC_ECN, "mark_packets": mark_packets, "one_message": True}
    net = network("star:n=3", compiled, slow_link=slow, **options)
    net.send(0, 1, 0, 0, 7 * PAYLOAD_BYTES)
    net.run_until(SECOND_NS)
    assert sum(port.marked for port in net.port_counters()) == 6 - mark_packets


def random_layers(spec: str, number: int) -> packets.NextHops:
    """Return hops of shortest paths, and of `number` random parts of the links."""
    topology = build(spec)
    graph, generator = layers.RouterArrays.of(topology), np.random.default_rng(1)
    back = graph.back()
    parts = []
    for _ in range(number):
        alive = generator.random(len(graph.peer)) < 0.7
        parts.append(alive & alive[back])
    return packets.layered(topology, layers.tables(graph, parts, generator))


def test_a_cut_moves_a_flow_to_another_layer(compiled: Path) -> None:
    """Four flows leave one router for one other; on layer 0 they share a single link."""
    hops = random_layers("slimfly:q=5,p=4", 7)
    ends = {}
    for trigger in (Trigger.NONE, Trigger.CUT, Trigger.ECN):
        net = network(
            "slimfly:q=5,p=4",
            compiled,
            ecn=CLASSIC_ECN,
            mark_packets=33,
            next_hops=hops,
            tcp_layers=TcpLayers(trigger=trigger, ecn_percent=10, ecn_rounds=1),
        )
        for host in range(4):
            net.send(0, 8 + host, 88 + host, host, 5_000_000)
        net.run_until(SECOND_NS)
        assert len(net.delivered) == 4
        ends[trigger] = np.mean([event.at_ns for _, event in net.delivered])
    assert max(ends[Trigger.CUT], ends[Trigger.ECN]) < 0.8 * ends[Trigger.NONE]


SPINES = "clos:n=4,r=2,m=4"


def layers_over_spines() -> packets.NextHops:
    """Return layers of SPINES: layer i leads from one leaf to the other over spine i."""
    table = np.zeros((4, 6, 6), dtype=np.int32)  # leaves are the routers 0 and 1
    table[:, 2:, :2] = np.arange(2, 6)[:, None]
    table[:, :2, 2:] = np.arange(2)[:, None]
    for layer in range(4):
        table[layer, 0, 1] = table[layer, 1, 0] = 2 + layer
    return packets.layered(build(SPINES), table)


def over_spines(
    path: Path, tcp_layers: TcpLayers, slow_link: int | None = None, *, one_message: bool = True
) -> PacketNetwork:
    return network(
        SPINES,
        path,
        ecn=CLASSIC_ECN,
        mark_packets=0 if slow_link is None else 5,
        next_hops=layers_over_spines(),
        tcp_layers=tcp_layers,
        queue_packets=10**6,
        one_message=one_message,
        slow_link=slow_link,
    )


def frames_to_spines(net: PacketNetwork) -> list[int]:
    """Return how many frames the first leaf has sent to each spine."""
    return [port.frames for port in net.port_counters()[12:16]]


def test_a_flow_takes_layers_in_turn_after_each_cell(compiled: Path) -> None:
    """Seven packets of 8,986 bytes behind Ethernet are in a cell of 64 kB."""
    net = over_spines(compiled, TcpLayers(trigger=Trigger.BYTES, cell_kb=64, choice=Choice.TURN))
    net.send(0, 0, 4, 0, 59 * PAYLOAD_BYTES)
    net.run_until(SECOND_NS)
    assert frames_to_spines(net) == [17, 14, 14, 14]


def test_no_flow_stays_in_a_dead_layer(compiled: Path) -> None:
    """Marks move flows from layer 0, by which all acknowledgements go; two of the others are
    dead."""
    topology = build(SPINES)
    dead = [topology.link(name) for name in ("e0-c1", "e0-c2")]
    net = over_spines(compiled, TcpLayers(trigger=Trigger.CUT), slow_link=4)
    net.fail(topology.links[dead])
    for flow in range(12):
        net.send(0, flow % 4, 4, flow, 3_000_000)
    net.run_until(200 * SECOND_NS)
    assert len(net.delivered) == 12
    assert total(net, "timeouts") > 12


@pytest.mark.parametrize("one_message", [False, True], ids=["handshake", "open"])
def test_acknowledgements_leave_a_dead_layer(one_message: bool, compiled: Path) -> None:
    """Nothing that hosts of the first leaf send is lost.  What the others answer is, in layer 0,
    where they begin, and in another one."""
    topology = build(SPINES)
    for trigger in (BY_CUT, Trigger.CUT):
        net = over_spines(compiled, TcpLayers(trigger=trigger), one_message=one_message)
        links = topology.links[[topology.link(f"e1-c{spine}") for spine in range(2)]]
        net.fail(links[:, :2])
        for flow in range(12):
            net.send(0, flow % 4, 4, flow, 3_000_000)
        net.run_until(200 * SECOND_NS)
        assert len(net.delivered) == (12 if trigger == BY_CUT else 0)
        assert dropped(net) > 12


def test_flows_of_a_pair_begin_in_layers_in_turn(compiled: Path) -> None:
    net = over_spines(compiled, TcpLayers(start=Start.TURN))
    for flow, (src, dst) in enumerate([*[(0, 4)] * 6, (1, 4), (0, 5)]):
        net.send(flow * JIFFY_NS, src, dst, flow, 1)
    net.run_until(SECOND_NS)
    assert frames_to_spines(net) == [4, 2, 1, 1]


def test_the_least_marked_layer_is_not_the_one_over_a_slow_link(compiled: Path) -> None:
    """One flow at a time, which draws another layer after each cell; spine 0 is slow."""
    frames = {}
    for choice in (Choice.RANDOM, Choice.LEAST):
        moves = TcpLayers(trigger=Trigger.BYTES, cell_kb=64, choice=choice, start=Start.RANDOM)
        net = over_spines(compiled, moves, slow_link=12)
        for flow in range(20):
            net.send(flow * 10 * JIFFY_NS, 0, 4, flow, 2_000_000)
        net.run_until(SECOND_NS)
        assert len(net.delivered) == 20
        frames[choice] = np.array(frames_to_spines(net)) / sum(frames_to_spines(net))
    assert abs(frames[Choice.RANDOM] - 0.25).max() < 0.05
    assert frames[Choice.LEAST][0] < 0.6 * frames[Choice.RANDOM][0]


@pytest.mark.parametrize(
    "packets", [20_000, pytest.param(10**6, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_a_drained_flow_overtakes_itself_never(packets: int, compiled: Path) -> None:
    """Flowcut, beside cells, whose packets do: hosts send at random times to the other leaf's."""
    late, number = {}, packets // 50
    for trigger in (Trigger.BYTES, Trigger.DRAINED):
        net = over_spines(compiled, TcpLayers(trigger=trigger, cell_kb=30, start=Start.RANDOM))
        generator = np.random.default_rng(1)
        for flow in range(number):
            src, dst = generator.integers(4, size=2)
            at_ns = int(generator.integers(200_000 * number))
            net.send(at_ns, src, 4 + dst, flow, 50 * PAYLOAD_BYTES)
        net.run_until(100 * SECOND_NS)
        assert len(net.delivered) == number
        assert total(net, "sent") >= packets
        late[trigger] = total(net, "late")
    assert late[Trigger.BYTES] > 100
    assert late[Trigger.DRAINED] == total(net, "retransmissions") == 0


def ends_of_two(path: Path, pause_ns: int, *, connection: int) -> list[int]:
    """Return when two messages arrive, the second sent `pause_ns` after the first arrived."""
    net = network("star:n=3", path, delay_ns=100_000)
    net.send(0, 1, 0, 0, 900_000)

    def follow(delivered: Delivered) -> None:
        if delivered.flow == 0:
            net.send(delivered.at_ns + pause_ns, 1, 0, 1, 900_000, connection)

    net.run_until(10 * SECOND_NS, follow)
    assert [event.flow for _, event in net.delivered] == [0, 1]
    assert [event.flow for _, event in net.finished] == [0, 1]
    return [event.at_ns for _, event in net.delivered]


def test_a_connection_is_opened_once_and_keeps_its_window(compiled: Path) -> None:
    first_ns, second_ns = ends_of_two(compiled, 0, connection=0)
    _, apart_ns = ends_of_two(compiled, 0, connection=-1)
    assert second_ns - first_ns < ideal_ns(900_000) + 400_000 < first_ns
    assert apart_ns == 2 * first_ns  # a handshake and a slow start again


def test_a_connection_that_rests_for_a_timeout_starts_slowly(compiled: Path) -> None:
    """As in Linux, tcp_slow_start_after_idle."""
    pause_ns = 8 * RTO_MIN_NS  # a timeout halves the window
    first_ns, second_ns = ends_of_two(compiled, pause_ns, connection=0)
    slow_ns = second_ns - first_ns - pause_ns
    _, soon_ns = ends_of_two(compiled, RTO_MIN_NS // 2, connection=0)
    assert soon_ns - first_ns - RTO_MIN_NS // 2 + 400_000 < slow_ns < first_ns


def test_no_connection_of_one_message_waits_for_a_lost_handshake(compiled: Path) -> None:
    """A full queue drops handshakes, which are repeated after a second."""
    slowest_ns = {}
    for one_message in (False, True):
        net = network(
            "star:n=30",
            compiled,
            queue_packets=20,
            one_message=one_message,
            rto_min_ns=JIFFY_NS,
        )
        for src in range(1, 30):
            net.send(src * 20_000, src, 0, src, 1_000_000)
        net.run_until(10 * SECOND_NS)
        assert len(net.delivered) == 29
        slowest_ns[one_message] = net.delivered[-1][1].at_ns
    assert slowest_ns[True] < SECOND_NS < slowest_ns[False]


def test_the_last_packet_of_a_connection_is_acknowledged_at_once(compiled: Path) -> None:
    for one_message in (False, True):
        net = network("star:n=3", compiled, one_message=one_message)
        net.send(0, 1, 0, 0, 100 * PAYLOAD_BYTES)
        net.run_until(SECOND_NS)
        ((_, delivered),), ((_, finished),) = net.delivered, net.finished
        assert (finished.at_ns - delivered.at_ns < JIFFY_NS) is one_message


def test_reno_waits_for_its_timer_where_rack_does_not(compiled: Path) -> None:
    """A queue of 20 packets loses many of a window at the end of slow start."""
    timeouts = {}
    for recovery in (RACK, RENO):
        net = network("star:n=3", compiled, queue_packets=20, recovery=recovery)
        for src in (1, 2):
            net.send(0, src, 0, src, 3_000_000)
        net.run_until(10 * SECOND_NS)
        assert len(net.delivered) == 2
        assert dropped(net) > 3
        timeouts[recovery] = total(net, "timeouts")
    assert timeouts[RACK] == 0 < timeouts[RENO]


@pytest.mark.parametrize("recovery", [RACK, RENO])
@pytest.mark.parametrize("seed", [3, 5])
def test_no_flow_stands_still_after_losses_that_were_none(
    compiled: Path, seed: int, recovery: int
) -> None:
    """Flows that change layers overtake themselves, take back that packets were lost, and probe
    with packets that have arrived.
    """
    spec = "slimfly:q=3,p=3"
    net = network(
        spec,
        compiled,
        ecn=CLASSIC_ECN,
        mark_packets=33,
        next_hops=random_layers(spec, 3),
        tcp_layers=TcpLayers(trigger=Trigger.CUT),
        one_message=True,
        rto_min_ns=200_000,
        recovery=recovery,
    )
    generator = np.random.default_rng(seed)
    for flow in range(1500):
        src = int(generator.integers(54))
        net.send(int(generator.integers(10**7)), src, (src + 27) % 54, flow, 400_000)
    net.run_until(SECOND_NS)
    assert total(net, "spurious") > 100
    assert len(net.delivered) == 1500


def alone_on_a_slow_link(
    path: Path, src: int, dst: int, size_bytes: int, delay_ms: int, **options: bool
) -> PacketNetwork:
    """Return a network after its only flow, over the slow link of host 0."""
    net = network(
        "star:n=3", path, delay_ns=delay_ms * JIFFY_NS, slow_link=0, queue_packets=200, **options
    )
    net.send(0, src, dst, 0, size_bytes)
    net.run_until(10 * SECOND_NS)
    assert len(net.delivered) == 1
    return net


def test_a_host_with_small_queues_loses_none_of_its_own_packets(compiled: Path) -> None:
    """Slow start ends at twice what is in flight, and Linux reckons with twice the window."""
    of_a_ms = RATE_BPS / 10 / 8 / 1024 / (PAYLOAD_BYTES + 832)
    for small_queues in (False, True):
        net = alone_on_a_slow_link(compiled, 0, 1, 100_000_000, 3, small_queues=small_queues)
        waiting = net.port_counters()[0].most_data_bytes / FRAME_BYTES
        if small_queues:
            assert total(net, "reductions") == 0
            assert 3 * of_a_ms < waiting < 4.5 * of_a_ms
        else:
            assert total(net, "reductions") > 0
            assert waiting == 200


def test_cubic_leaves_slow_start_before_a_long_queue_is_full(compiled: Path) -> None:
    lost = {
        cubic: dropped(alone_on_a_slow_link(compiled, 1, 0, 20_000_000, 3, cubic=cubic))
        for cubic in (False, True)
    }
    assert lost[True] == 0 < lost[False]


def test_a_flow_with_two_packets_waiting_sends_no_third(compiled: Path) -> None:
    """A millisecond carries less than two packets.  The next is sent when one has left."""
    delay_ns = 100 * JIFFY_NS
    net = network("star:n=3", compiled, slow_link=0, delay_ns=delay_ns, small_queues=True)
    net.send(0, 0, 1, 0, 7 * PAYLOAD_BYTES)  # the first window that the receiver grants
    net.run_until(SECOND_NS)
    assert net.port_counters()[0].most_data_bytes == 2 * FRAME_BYTES
    ((_, delivered),) = net.delivered
    assert delivered.at_ns < 6 * delay_ns + 10 * 10 * ideal_ns(PAYLOAD_BYTES)  # no answer between


def test_a_link_that_fails_with_packets_waiting_stops_no_flow(compiled: Path) -> None:
    net = network("star:n=3", compiled, slow_link=0, small_queues=True)
    net.send(0, 0, 1, 0, 3_000_000)
    for at_ns, is_failed in ((10 * JIFFY_NS, True), (50 * JIFFY_NS, False)):
        net.run_until(at_ns)
        net.fail(np.array([[0, 0]]), failed=is_failed)
    net.run_until(10 * SECOND_NS)
    assert len(net.delivered) == 1


def test_late_packets_are_counted(compiled: Path) -> None:
    """A packet that is sent again comes behind later ones, unless those were lost, too."""
    net = network("star:n=3", compiled, queue_packets=20)
    for src in (1, 2):
        net.send(0, src, 0, src, 3_000_000)
    net.run_until(SECOND_NS)
    in_need = total(net, "retransmissions") - total(net, "spurious")
    assert 0 < total(net, "late") <= in_need


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_messages_of_a_connection_arrive_in_order(compiled: Path, data) -> None:
    times = st.integers(0, 10**6)
    messages = data.draw(st.lists(st.tuples(times, st.integers(1, 100_000)), min_size=1))
    net = network("star:n=3", compiled, queue_packets=data.draw(st.integers(2, 40)))
    for flow, (at_ns, size_bytes) in enumerate(messages):
        net.send(at_ns, 1, 0, flow, size_bytes, 0 if flow else -1)
    net.send(0, 2, 0, len(messages), 200_000)
    net.run_until(3_000 * SECOND_NS)
    order = sorted(range(len(messages)), key=lambda flow: (messages[flow][0], flow))
    assert [event.flow for _, event in net.delivered if event.peer == 1] == order
    assert [event.flow for _, event in net.finished if event.flow < len(messages)] == order
    arrived = {event.flow: event.size_bytes for _, event in net.delivered}
    assert all(arrived[flow] == size for flow, (_, size) in enumerate(messages))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_byte_arrives_whatever_queues_drop_and_mark(compiled: Path, data) -> None:
    spec = data.draw(st.sampled_from(["star:n=6", "fattree:k=4"]))
    hosts = st.integers(0, 5)
    message = st.tuples(st.integers(0, 10**6), hosts, hosts, st.integers(1, 400_000))
    messages = data.draw(st.lists(message, min_size=1, max_size=15))
    messages = [(at, src, dst, size) for at, src, dst, size in messages if src != dst]
    net = network(
        spec,
        compiled,
        ecn=data.draw(st.sampled_from([NO_ECN, CLASSIC_ECN, DCTCP])),
        queue_packets=data.draw(st.integers(2, 40)),
        mark_packets=data.draw(st.integers(0, 10)),
        seed=data.draw(st.integers(0, 1 << 32)),
        recovery=data.draw(st.sampled_from([RACK, RENO])),
        cubic=data.draw(st.booleans()),
        small_queues=data.draw(st.booleans()),
    )
    for flow, (at_ns, src, dst, size_bytes) in enumerate(messages):
        net.send(at_ns, src, dst, flow, size_bytes)
    net.run_until(3_000 * SECOND_NS)
    arrived = {event.flow: (event.peer, host, event.size_bytes) for host, event in net.delivered}
    assert arrived == {flow: (src, dst, size) for flow, (_, src, dst, size) in enumerate(messages)}
    assert len(net.delivered) == len(net.finished) == len(messages)
    packets = sum(-(-size // PAYLOAD_BYTES) for *_, size in messages)
    assert total(net, "sent") == packets + total(net, "retransmissions")


def test_equal_seeds_give_equal_runs(compiled: Path) -> None:
    runs = []
    for seed in (1, 1):
        net = network("fattree:k=4", compiled, queue_packets=10, seed=seed)
        for src in range(8):
            net.send(0, src, 15 - src, src, 500_000)
        net.run_until(SECOND_NS)
        runs.append(net.delivered)
    assert runs[0] == runs[1]


@pytest.mark.parametrize("one_message", [False, True])
def test_first_timers_follow_the_round_trip_of_the_handshake(
    compiled: Path, *, one_message: bool
) -> None:
    """Without an answer a probe follows after two round trips (RFC 8985, 7.2), and a timeout after
    three more: the round trip and four times its half (RFC 6298, 2.2).  A connection that is open
    from the beginning knows the same round trip, of idle links."""
    delay_ns = 50 * JIFFY_NS
    round_trip_ns = 4 * delay_ns
    net = network("star:n=3", compiled, delay_ns=delay_ns, one_message=one_message)
    net.send(0, 1, 0, 0, 5 * PAYLOAD_BYTES)
    open_ns = 0 if one_message else round_trip_ns
    net.run_until(open_ns + JIFFY_NS)
    net.fail(build("star:n=3").links[:1])
    # the kernel's ticks of long timers are coarse: a third of this round trip
    for trips, probes, timeouts in ((1.9, 0, 0), (2.1, 1, 0), (4.9, 1, 0), (5.4, 1, 1)):
        net.run_until(open_ns + round(trips * round_trip_ns))
        assert (total(net, "probes"), total(net, "timeouts")) == (probes, timeouts)
