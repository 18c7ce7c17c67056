"""Flow labels of simulated TCP: PRR and PLB as in Linux 6.12, by hand and over switches."""

from __future__ import annotations

from ctypes import CDLL
from pathlib import Path

import pytest

from tests.testbed.packets.flow_by_hand import SYN, Flow
from tests.testbed.packets.test_tcp import (
    SPINES,
    dropped,
    frames_to_spines,
    layers_over_spines,
    network,
    total,
)
from weft import simulate
from weft.testbed.packets.network import (
    DCTCP,
    LABEL_STAYS,
    NO_LABEL,
    PLB,
    PRR,
    RACK,
    PacketNetwork,
)
from weft.testbed.packets.simulation import Fault
from weft.topologies import build

MS_NS, SECOND_NS = 10**6, 10**9
ROUNDS, IDLE_ROUNDS = 12, 3  # of Linux
IPV6_PAYLOAD_BYTES = 1514 - 86
DRAWS = {PRR: 1, PLB: 1, LABEL_STAYS: 0, NO_LABEL: 0}  # after a timeout


def labelled(library: CDLL, label: int, **parameters: int) -> Flow:
    """Return a flow of DCTCP whose ends have labels, and timeouts of 1 ms and more."""
    usual = {"recovery": RACK, "frame_bytes": 1514, "rto_min_ns": MS_NS, "plb_rounds": ROUNDS}
    return Flow(library, DCTCP, label=label, **{**usual, **parameters})


@pytest.fixture
def library(compiled: Path) -> CDLL:
    """Return the library of simulated packets."""
    return CDLL(str(compiled))


@pytest.mark.parametrize("label", DRAWS)
def test_a_timeout_draws_a_label_and_a_probe_does_not(library: CDLL, label: int) -> None:
    flow = labelled(library, label)
    first = flow.send()
    assert flow.expire() == [len(first)]  # a probe, which is a new packet
    assert flow.label() == 0
    for timeouts in (1, 2):
        assert flow.expire() == [0]
        assert flow.label() == flow.counters.timeout_rehashes == timeouts * DRAWS[label]
    assert flow.label(of_receiver=True) == 0


@pytest.mark.parametrize("label", DRAWS)
def test_both_ends_draw_labels_where_a_handshake_is_lost(library: CDLL, label: int) -> None:
    """The receiver of a SYN that comes again answers by another path (tcp_rtx_synack)."""
    flow = labelled(library, label, is_open=False)
    flow.send()
    flow.expire()
    assert flow.label() == flow.counters.timeout_rehashes == DRAWS[label]
    flow.receive(0, kind=SYN)
    assert flow.label(of_receiver=True) == 0
    flow.receive(0, kind=SYN, layer=flow.label())
    assert flow.label(of_receiver=True) == DRAWS[label]
    flow.receive(0, layer=flow.label())
    assert flow.counters.duplicate_rehashes == flow.counters.new_labels == 0


@pytest.mark.parametrize("label", DRAWS)
def test_a_receiver_draws_a_label_if_old_data_come_by_another(library: CDLL, label: int) -> None:
    flow = labelled(library, label)
    for arrived, by, draws in [
        ((0, 1, 2), 0, 0),
        ((1,), 0, 0),  # twice, by the same label: no timeout
        ((1,), 1, 1),
        ((1,), 1, 1),
        ((4, 4), 2, 1),  # twice, but not before all that it expects
        ((2,), 2, 1),
        ((3,), 3, 1),  # new
        ((2,), 4, 2),
    ]:
        for sequence in arrived:
            flow.receive(sequence, layer=by)
        assert flow.label(of_receiver=True) == draws * DRAWS[label]
    assert flow.counters.duplicate_rehashes == 2 * DRAWS[label]
    assert flow.label() == 0


def test_old_data_that_their_time_stamp_betrays_draw_a_label_too(library: CDLL) -> None:
    """Such packets are dropped.  One that is new tells nothing of the label."""
    flow = labelled(library, PRR)
    for sequence in range(4):
        flow.receive(sequence, stamp_ms=9)
    flow.receive(2, stamp_ms=3, layer=1)
    assert flow.label(of_receiver=True) == 1
    flow.receive(8, stamp_ms=3, layer=2)
    flow.receive(2, stamp_ms=3, layer=1)
    assert flow.label(of_receiver=True) == 1


def test_labels_that_arrive_are_counted_once(library: CDLL) -> None:
    """Label 2 never arrives, 3 is overtaken by 4, and after 255 draws labels begin again."""
    flow = labelled(library, PRR)
    for sequence, label in enumerate((0, 1, 0, 1, 4, 3, 4, 100, 200, 255, 3, 255, 3)):
        flow.receive(sequence, layer=label)
    assert flow.counters.new_labels == 6


def run_rounds(flow: Flow, rounds: int, *, congested: bool = True) -> None:
    """Let rounds end, in each of which all packets were marked, or none; one is under way."""
    for _ in range(rounds):
        flow.answer(flow.counters.sent - 1, congested=congested)


@pytest.mark.parametrize("rounds", [1, IDLE_ROUNDS, ROUNDS])
def test_plb_draws_a_label_after_marked_rounds_in_a_row(library: CDLL, rounds: int) -> None:
    flow = labelled(library, PLB, plb_rounds=rounds, size_bytes=10**8)
    flow.send()
    run_rounds(flow, rounds - 1)
    assert flow.label() == 0
    run_rounds(flow, 1, congested=False)
    run_rounds(flow, rounds - 1)
    assert flow.label() == 0
    run_rounds(flow, 1)
    assert flow.label() == flow.counters.plb_rehashes == 1
    run_rounds(flow, rounds)
    assert flow.label() == flow.counters.plb_rehashes == 2


@pytest.mark.parametrize("label", [PRR, LABEL_STAYS, NO_LABEL])
def test_without_plb_marks_draw_no_label(library: CDLL, label: int) -> None:
    flow = labelled(library, label, plb_rounds=1, size_bytes=10**8)
    flow.send()
    run_rounds(flow, 3)
    assert flow.label() == flow.counters.plb_rehashes == 0


@pytest.mark.parametrize(("marked", "draws"), [(3, 0), (4, 1), (5, 1)])
def test_half_of_a_round_must_be_marked(library: CDLL, marked: int, draws: int) -> None:
    flow = labelled(library, PLB, plb_rounds=1, size_bytes=10**8)
    assert len(flow.send()) == 10
    flow.answer(2)  # the first answer ends a round
    flow.answer(2 + marked, congested=True)
    assert flow.label() == 0
    flow.answer(10)
    assert flow.label() == draws


def idle_rounds(flow: Flow, rounds: str) -> None:
    """Let up to four rounds end, marked (m) or not; after two and four nothing is under way."""
    for number, mark in enumerate(rounds):
        assert flow.label() == 0
        if number == 2:
            flow.write(4 * IPV6_PAYLOAD_BYTES)
        flow.send()
        flow.answer((2, 10, 12, 14)[number], congested=mark == "m")


@pytest.mark.parametrize(
    ("rounds", "draws"),
    [("mm", 0), ("mmm", 0), ("mmmm", 1), (".mmm", 1), ("m.mm", 0), ("mm.m", 0)],
)
def test_an_idle_flow_draws_a_label_after_fewer_rounds(
    library: CDLL, rounds: str, draws: int
) -> None:
    flow = labelled(library, PLB, size_bytes=10 * IPV6_PAYLOAD_BYTES)
    idle_rounds(flow, rounds)
    assert flow.label() == flow.counters.plb_rehashes == draws


def time_out(flow: Flow) -> int:
    """Let a flow time out after a probe; return when."""
    flow.send()
    flow.expire()
    flow.expire()
    assert flow.counters.timeouts == flow.label() == 1
    return flow.now


def answer_all(flow: Flow, packets: int) -> None:
    """Let all packets of a flow arrive, each of them marked."""
    for _ in range(packets):
        flow.answer(flow.counters.sent - flow.counters.retransmissions, congested=True)
    assert flow.counters.sent - flow.counters.retransmissions == packets


def test_after_a_timeout_plb_rests_for_one_to_two_minutes(library: CDLL) -> None:
    """Marked rounds draw no label meanwhile; what is written afterwards does."""
    flow = labelled(library, PLB, size_bytes=200 * IPV6_PAYLOAD_BYTES)
    at_ns = time_out(flow)
    answer_all(flow, 200)
    for after_s, label in ((0, 1), (59, 1), (121, 2)):
        flow.now = max(flow.now, at_ns + after_s * SECOND_NS)
        assert flow.label() == 1
        flow.write(1)
        assert flow.label() == label
    assert flow.counters.plb_rehashes == 1


def test_rounds_before_a_timeout_count_no_more(library: CDLL) -> None:
    """Another path has other marks."""
    flow = labelled(library, PLB, size_bytes=10 * IPV6_PAYLOAD_BYTES)
    idle_rounds(flow, "mm")
    flow.write(4 * IPV6_PAYLOAD_BYTES)
    flow.now = time_out(flow) + 121 * SECOND_NS
    flow.answer(14, congested=True)
    assert (flow.label(), flow.counters.plb_rehashes) == (1, 0)


def test_a_timeout_in_a_window_that_marks_have_reduced_gives_plb_no_rest(library: CDLL) -> None:
    """Linux tells DCTCP of a loss once for each window (tcp_enter_loss)."""
    flow = labelled(library, PLB, size_bytes=200 * IPV6_PAYLOAD_BYTES)
    flow.send()
    flow.answer(1, congested=True)
    time_out(flow)
    answer_all(flow, 200)
    assert flow.counters.plb_rehashes > 1


def test_flows_rest_for_different_times(library: CDLL) -> None:
    """So they do not all draw labels again at once: about half of them within 90 s."""
    awake = []
    for number in range(40):
        flow = labelled(library, PLB, size_bytes=40 * IPV6_PAYLOAD_BYTES)
        flow.now = number * MS_NS
        at_ns = time_out(flow)
        answer_all(flow, 40)
        flow.now = at_ns + 90 * SECOND_NS
        flow.write(1)
        awake.append(flow.counters.plb_rehashes)
    assert 8 < sum(awake) < 32


@pytest.mark.parametrize(("label", "bytes_of_one"), [(NO_LABEL, 1448), (LABEL_STAYS, 1428)])
def test_a_label_takes_the_header_of_ipv6(library: CDLL, label: int, bytes_of_one: int) -> None:
    for more in (0, 1):
        assert len(labelled(library, label, size_bytes=bytes_of_one + more).send()) == 1 + more


def over_dead_spines(
    path: Path, label: int, leaf: int, dead: int, *, flows: int = 12, one_message: bool = True
) -> PacketNetwork:
    """Return a network of two leaves after flows from the first to the second.

    What `leaf` sends to `dead` of four spines is lost: data, or answers.
    """
    topology = build(SPINES)
    net = network(
        SPINES,
        path,
        label=label,
        one_message=one_message,
        rto_min_ns=10 * MS_NS,
    )
    links = topology.links[[topology.link(f"e{leaf}-c{spine}") for spine in range(dead)]]
    net.fail(links[:, :2])
    for flow in range(flows):
        net.send(flow * 50 * MS_NS, flow % 4, 4 + flow % 4, flow, 300_000)
    net.run_until(5_000 * SECOND_NS)
    assert dropped(net) > 0
    return net


@pytest.mark.parametrize("one_message", [False, True], ids=["handshake", "open"])
@pytest.mark.parametrize("leaf", [0, 1], ids=["data", "answers"])
def test_prr_leaves_dead_links_on_both_ways(leaf: int, one_message: bool, compiled: Path) -> None:
    stays, prr = (
        over_dead_spines(compiled, label, leaf, 2, one_message=one_message)
        for label in (LABEL_STAYS, PRR)
    )
    assert len(prr.delivered) == len(prr.finished) == 12 > len(stays.finished)
    assert total(stays, "timeout_rehashes") == total(stays, "duplicate_rehashes") == 0
    assert total(prr, "timeout_rehashes") == total(prr, "timeouts") > 0
    if one_message:  # else the receivers of SYNs that come again have drawn
        assert (total(prr, "duplicate_rehashes") > 0) == (leaf == 1)


def test_each_draw_takes_a_random_path(compiled: Path) -> None:
    """One of four paths is alive, so that a flow times out three times on average."""
    net = over_dead_spines(compiled, PRR, 0, 3, flows=300)
    assert len(net.finished) > 290
    assert total(net, "timeouts") / 300 == pytest.approx(3, abs=0.7)
    assert frames_to_spines(net)[:3] == [0, 0, 0]


def test_plb_spreads_a_flow_whose_packets_are_marked(compiled: Path) -> None:
    """The label that stays keeps one spine, and so does PLB without marks.  Answers have a label of
    their own, which stays."""
    spines = {}
    for label, mark_packets in ((LABEL_STAYS, 1), (PLB, 0), (PLB, 1)):
        net = network(
            SPINES,
            compiled,
            ecn=DCTCP,
            label=label,
            mark_packets=mark_packets,
            slow_link=4,  # to the only receiver
            queue_packets=1_000,
        )
        net.send(0, 0, 4, 0, 30_000_000)
        net.run_until(10 * SECOND_NS)
        assert len(net.finished) == 1
        assert total(net, "duplicate_rehashes") == 0
        assert sum(port.frames > 0 for port in net.port_counters()[20:24]) == 1
        spines[label, mark_packets] = sum(frames > 100 for frames in frames_to_spines(net))
        assert (total(net, "plb_rehashes") > 3) == (spines[label, mark_packets] == 4)
    assert list(spines.values()) == [1, 1, 4]


def test_flows_of_a_simulation_leave_a_link_that_dies() -> None:
    topology = build("clos:n=4,r=4,m=4")
    rows = [(host, (host + 5) % 16, 2_000_000) for host in range(16)]
    faults = [Fault([topology.link("e0-c0")], 0.0005)]
    outcomes = {
        label: simulate(
            topology,
            "ecmp",
            rows,
            transport=f"tcp:control=dctcp,label={label}",
            faults=faults,
            deadline_s=20.0,
            rto_min_us=10_000,
        )
        for label in ("none", "stays", "prr", "plb")
    }
    ended = {label: outcome.unfinished == 0 for label, outcome in outcomes.items()}
    assert ended == {"none": False, "stays": False, "prr": True, "plb": True}
    drawn = {label: outcome.counters["new_labels"].sum() for label, outcome in outcomes.items()}
    assert drawn["none"] == drawn["stays"] == 0 < drawn["prr"]


@pytest.mark.parametrize(
    ("spec", "scheme", "transport", "reason"),
    [
        ("slimfly:q=3,p=2", "fatpaths", "tcp:label=prr", "label=prr is for switches without lay"),
        ("fattree:k=4", "ecmp", "tcp:label=plb", "label=plb counts rounds of DCTCP"),
        ("fattree:k=4", "ecmp", "tcp:label=plb,control=dctcp,recovery=reno", "recovery=rack"),
        ("fattree:k=4", "ecmp", "tcp:label=one", "label must be none or stays or prr or plb"),
        ("fattree:k=4", "ecmp", "tcp:plb_rounds=0", "plb_rounds must be at least 1"),
        ("fattree:k=4", "ecmp", "ndp:label=prr", "no parameter of ndp 'label'"),
    ],
)
def test_labels_that_cannot_be_are_refused(
    spec: str, scheme: str, transport: str, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        simulate(spec, scheme, [(0, 1, 1)], transport=transport)


def test_labels_are_no_layers(compiled: Path) -> None:
    with pytest.raises(ValueError, match="labels are for switches without layers"):
        network(SPINES, compiled, label=PRR, next_hops=layers_over_spines())
