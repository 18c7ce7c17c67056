"""Threads that simulate parts of one network, beside one thread: equal, event by event."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft import simulate
from weft.testbed.packets.parts import parts_of
from weft.testbed.packets.simulation import (
    LINK,
    Fault,
    PacketFlows,
    Simulation,
    link_specs,
    simulated_transport,
)
from weft.testbed.packets.switching import Switching
from weft.topologies import build
from weft.topologies.core.link import Gbps, LinkSpec
from weft.topologies.core.topology import Topology

# Networks, schemes and transports; the first of each list has no random draws.
WITHOUT_DRAWS = (
    ("fattree:k=4", "ecmp", "tcp"),
    ("fattree:k=4", "lbsp", "tcp:control=cubic"),
    ("fattree:k=4", "dmodk", "tcp:small_queues=1"),
    ("dcell:n=4,k=1", "pr-gpi", "tcp:control=dctcp,small_queues=1"),
    ("bcube:n=4,k=1", "dr", "plain"),
    ("ficonn:n=4,k=2", "tar", "tcp:recovery=reno"),
    ("fattree:k=4", "ecmp:ecn=2", "tcp:control=dctcp,label=plb,plb_rounds=1"),
)
WITH_DRAWS = (
    ("fattree:k=4", "drill", "ndp"),
    ("fattree:k=4", "rr", "tcp"),
    ("fattree:k=4", "rps", "plain"),
    ("fattree:k=4", "letflow", "tcp:control=dctcp"),
    ("clos:n=3,r=4,m=3", "ttc", "tcp"),
    ("slimfly:q=3,p=2", "ugal", "tcp"),
    ("slimfly:q=3,p=2", "fatpaths", "tcp:small_queues=1"),
    ("slimfly:q=3,p=2", "fatpaths", "ndp"),
    ("planes:k=2,of=fattree:k=4", "ecmp", "ndp:choice=reps"),
)
# Over such links packets arrive in the span of time in which they leave.
SHORT = LinkSpec(rate_bps=10 * Gbps, queue_packets=100)


def outcome(
    case: tuple[str, str, str],
    flows: PacketFlows,
    owner: np.ndarray | None,
    *,
    fault: Fault | None = None,
    link: LinkSpec = LINK,
    host_link: LinkSpec | None = None,
) -> list[Any]:
    """Return all that is seen of a simulation whose nodes have these parts; None: one thread."""
    spec, scheme, transport = case
    topology = build(spec)
    links = link_specs(topology, link, host_link, None)
    hosts = simulated_transport(transport)
    simulation = Simulation(
        topology, scheme, flows, hosts, links, Switching(), 7, 10_000, daemons=False
    )
    if owner is not None:
        simulation.network.split(owner)
    result = simulation.run([fault] if fault else [], 2.0, ())
    return [
        simulation.network.delivered,
        simulation.network.finished,
        {name: values.tolist() for name, values in result.counters.items()},
        {name: values.tolist() for name, values in result.ports.items()},
        result.unrouted,
        result.ended_s,
    ]


def drawn_flows(data: st.DataObject, topology: Topology) -> PacketFlows:
    """Draw flows, many of which begin at once."""
    hosts = st.integers(0, topology.servers - 1)
    start = st.sampled_from([0.0, 1e-5, 1.5e-5])
    size = st.one_of(st.integers(1, 3_000), st.sampled_from([50_000, 100_000]))
    rows = data.draw(st.lists(st.tuples(hosts, hosts, size, start), min_size=1, max_size=30))
    rows = [row for row in rows if row[0] != row[1]] or [(0, 1, 1_000, 0.0)]
    return PacketFlows.of(rows)


def drawn_owner(data: st.DataObject, topology: Topology, parts: int) -> np.ndarray:
    """Draw the part of each node: any, or as simulate() has them."""
    if data.draw(st.booleans()):
        return parts_of(topology, parts)
    seed = data.draw(st.integers(0, 1_000))
    owner = np.random.default_rng(seed).integers(0, parts, topology.nodes).astype(np.uint8)
    owner[-1] = parts - 1
    return owner


def drawn_fault(data: st.DataObject, topology: Topology) -> Fault | None:
    """Draw a link that fails while packets are under way, which nodes may learn."""
    if topology.planes > 1 or not data.draw(st.booleans()):
        return None
    link = int(np.flatnonzero(topology.level == topology.level.max())[0])
    return Fault([link], 4e-5, data.draw(st.sampled_from([9e-5, float("inf")])), 1e-3)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("case", WITHOUT_DRAWS, ids=" ".join)
def test_without_random_draws_threads_run_what_one_thread_runs(case, data) -> None:
    topology = build(case[0])
    flows, fault = drawn_flows(data, topology), drawn_fault(data, topology)
    owner = drawn_owner(data, topology, data.draw(st.sampled_from([2, 3, 4])))
    near = data.draw(st.sampled_from([None, SHORT]))
    serial = outcome(case, flows, None, fault=fault, host_link=near)
    assert outcome(case, flows, owner, fault=fault, host_link=near) == serial


@settings(max_examples=12, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("case", WITH_DRAWS, ids=" ".join)
def test_any_parts_give_the_same_results(case, data) -> None:
    topology = build(case[0])
    flows, fault = drawn_flows(data, topology), drawn_fault(data, topology)
    owner = drawn_owner(data, topology, data.draw(st.sampled_from([2, 3, 4])))
    near = data.draw(st.sampled_from([None, SHORT]))
    single = outcome(
        case, flows, np.zeros(topology.nodes, dtype=np.uint8), fault=fault, host_link=near
    )
    assert outcome(case, flows, owner, fault=fault, host_link=near) == single


def test_parts_run_for_a_time_that_the_shortest_packet_takes() -> None:
    """Make sure that a packet of one byte over links without delay comes in time."""
    link = LinkSpec(rate_bps=Gbps, queue_packets=100)
    flows = PacketFlows.of((src, (src + 5) % 16, 1 + src) for src in range(16))
    for case in (("fattree:k=4", "rps", "plain"), ("fattree:k=4", "rps", "ndp")):
        owners = [parts_of(build(case[0]), parts) for parts in (1, 2, 8)]
        single, *others = (outcome(case, flows, owner, link=link) for owner in owners)
        assert len(single[0]) == 16
        assert others == [single, single]


def test_what_ends_at_one_instant_is_told_in_the_order_of_one_thread() -> None:
    flows = PacketFlows.of((src, (5 * src + 8) % 16, 500) for src in range(16) if src % 4 != 2)
    for case in (("fattree:k=4", "dmodk", "tcp"), ("dcell:n=4,k=1", "dr", "plain")):
        topology = build(case[0])
        serial = outcome(case, flows, None, host_link=SHORT)
        assert len({event.at_ns for _, event in serial[0]}) < len(serial[0])
        for seed in range(4):
            parts = np.random.default_rng(seed).integers(0, 4, topology.nodes).astype(np.uint8)
            assert outcome(case, flows, parts, host_link=SHORT) == serial


def test_nodes_draw_independently() -> None:
    """Spray packets over a Clos: all spines get their share, within five standard deviations."""
    flows = [(src, (src + 4) % 16, 1_000_000) for src in range(16)]
    result = simulate("clos:n=4,r=4,m=4", "rps", flows, transport="plain", threads=2)
    topology = build("clos:n=4,r=4,m=4")
    frames = result.ports["frames"]
    uplinks = frames[(result.ports["node"] >= 16) & (topology.level[result.ports["link"]] > 0)]
    up = uplinks[: 4 * 4].reshape(4, 4)
    packets = up.sum(axis=1)
    deviation = np.sqrt(packets * 0.25 * 0.75)
    assert (np.abs(up - packets[:, None] / 4) < 5 * deviation[:, None]).all()
    assert len({tuple(row) for row in up.tolist()}) == 4


@pytest.mark.parametrize("is_split_first", [True, False])
def test_threads_run_no_connection_of_several_messages(is_split_first: bool) -> None:
    topology = build("star:n=4")
    flows, links = PacketFlows.of([(0, 1, 1_000)]), link_specs(topology, LINK, None, None)
    hosts = simulated_transport("tcp")
    net = Simulation(
        topology, "ecmp", flows, hosts, links, Switching(), 7, 10_000, daemons=False
    ).network
    first = net.send(0, 2, 3, 0, 1_000)
    if is_split_first:
        net.split(parts_of(topology, 2))
        assert net.send(0, 2, 3, 0, 1_000) == first + 1
        with pytest.raises(OSError, match="Invalid argument"):
            net.send(0, 2, 3, 0, 1_000, first)
    else:
        net.send(0, 2, 3, 0, 1_000, first)
        with pytest.raises(OSError, match="Invalid argument"):
            net.split(parts_of(topology, 2))


def test_parts_have_as_many_hosts_and_keep_switches_with_their_hosts() -> None:
    for spec in ("fattree:k=8", "dcell:n=4,k=2", "slimfly:q=5,p=4", "planes:k=2,of=star:n=8"):
        topology = build(spec)
        for parts in (1, 2, 3, 8):
            owner = parts_of(topology, parts)
            counts = np.bincount(owner[: topology.servers], minlength=parts)
            assert owner.max() == parts - 1
            assert counts.max() - counts.min() <= 1
    topology = build("fattree:k=8")
    first, *_, cores = (parts_of(topology, 2)[begin:end] for begin, end in ((0, 64), (192, 208)))
    assert not first.any()
    assert np.bincount(cores).tolist() == [8, 8]
    near = topology.links[topology.level < topology.level.max()]
    owner = parts_of(topology, 2)
    assert (owner[near[:, 0]] == owner[near[:, 2]]).all()


@pytest.mark.parametrize(
    ("scheme", "arguments", "cause"),
    [
        ("ecmp", {"daemons": True}, "daemons"),
        ("ecmp", {"flow_control": "credits"}, "flow control"),
        ("ecmp", {"transport": "plain:go_back_ns=500"}, "go-back-N"),
        (
            "ecmp",
            {"link": LinkSpec(rate_bps=1000 * Gbps, queue_packets=100)},
            "links that take no time",
        ),
        ("fatpaths:start=turn", {}, "hosts that choose a layer by their other flows"),
        ("fatpaths:choice=least", {}, "hosts that choose a layer by their other flows"),
    ],
)
def test_what_threads_do_not_simulate_is_refused_in_one_line(scheme, arguments, cause) -> None:
    with pytest.raises(ValueError, match=f"^leave threads out: they do not simulate {cause}$"):
        simulate("slimfly:q=3,p=2", scheme, [(0, 1, 1)], threads=2, **arguments)


@pytest.mark.parametrize("threads", [-1, 0, 9])
def test_more_threads_than_parts_are_refused(threads) -> None:
    with pytest.raises(ValueError, match=f"threads must be 1 to 8, got {threads}"):
        simulate("fattree:k=4", "ecmp", [(0, 1, 1)], threads=threads)


def test_ndp_chooses_layers_without_the_memory_that_tcp_has() -> None:
    flows = [(0, 5, 20_000), (0, 5, 20_000), (3, 7, 20_000)]
    one, two = (
        simulate("slimfly:q=3,p=1", "fatpaths:start=turn", flows, transport="ndp", threads=threads)
        for threads in (1, 2)
    )
    assert one.completion_s.tolist() == two.completion_s.tolist()
    assert not one.unfinished
