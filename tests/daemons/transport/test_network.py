"""The purified transport on networks whose switches trim."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.daemons.transport.packets import packets_of
from tests.daemons.transport.python_network import (
    TransportNetwork,
    Trouble,
    ecmp_routing,
    layer_routing,
    routes,
    spray_routing,
)
from tests.daemons.transport.trimming_queue import LinkModel
from weft.daemons.fatpaths import layers
from weft.daemons.transport.endpoint import HEADER_BYTES, Delivered, Parameters, timeout_ns
from weft.topologies import build

RATE = 10**10
SECOND = 10**9


def network(spec, *, seed=1, trouble=None, header_bytes=72_000, route=None, **changed):
    topology = build(spec)
    parameters = Parameters(**{"rate_bps": RATE, "timeout_ns": timeout_ns(RATE), **changed})
    link = LinkModel(rate_bps=RATE, header_bytes=header_bytes)
    route = route(topology) if route else spray_routing(topology)
    return TransportNetwork(topology, link, parameters, route, random.Random(seed), trouble=trouble)


def total(net, name):
    return sum(getattr(host.counters, name) for host in net.hosts)


def port_sum(net, name):
    return sum(getattr(port, name) for port in net.ports().values())


def ideal_ns(size_bytes, messages=1):
    """Return the time that the frames of so many messages take on one link."""
    return messages * (size_bytes + HEADER_BYTES * packets_of(size_bytes, 1450)) * 8 * SECOND / RATE


def incast(senders, size_bytes, **changed):
    net = network(f"star:n={senders + 1}", **changed)
    for src in range(1, senders + 1):
        net.send(0, src, 0, src, size_bytes)
    net.run_until(SECOND)
    assert len(net.delivered) == len(net.finished) == senders
    assert not [event for _, event in net.finished if event.failed]
    return net, max(event.at_ns for _, event in net.delivered) / ideal_ns(size_bytes, senders)


@pytest.mark.parametrize("senders", [1, 8, 32, 64])
def test_incast_takes_as_long_as_the_link_does(senders):
    net, ratio = incast(senders, 100_000)
    assert 1 < ratio < 1.05
    assert total(net, "timeouts") == port_sum(net, "headers_lost") == total(net, "duplicates") == 0
    assert port_sum(net, "trimmed") == total(net, "retransmissions") == total(net, "headers")


def test_incast_is_fair():
    net, _ = incast(16, 200_000)
    ends = sorted(event.at_ns for _, event in net.delivered)
    assert ends[0] > 0.9 * ends[-1]


@pytest.mark.parametrize("header_bytes", [12_112, 2_000])
def test_incast_survives_the_loss_of_headers(header_bytes):
    net, ratio = incast(64, 100_000, header_bytes=header_bytes)
    assert total(net, "timeouts") == port_sum(net, "headers_lost") > 100
    assert ratio < 1.05  # others are pulled meanwhile


def test_shuffle_on_a_fat_tree():
    net = network("fattree:k=4")
    for src in range(16):
        for dst in range(16):
            if src != dst:
                net.send(0, src, dst, dst, 30_000)
    net.run_until(SECOND)
    assert sorted((event.peer, host) for host, event in net.delivered) == sorted(
        (src, dst) for src in range(16) for dst in range(16) if src != dst
    )
    assert total(net, "timeouts") == 0
    # 15 messages leave and reach each host, and control packets with them
    assert max(event.at_ns for _, event in net.delivered) < 1.35 * ideal_ns(30_000, 15)


@pytest.mark.slow
def test_permutation_on_a_fat_tree_fills_it():
    net = network("fattree:k=4", window=23)  # eight would not last for a round trip over six links
    order = random.Random(3).sample(range(16), 16)
    for src, dst in zip(order, order[1:] + order[:1], strict=True):
        net.send(0, src, dst, src, 1_000_000)
    net.run_until(SECOND)
    assert total(net, "timeouts") == 0
    ends = sorted(event.at_ns for _, event in net.delivered)
    assert len(ends) == 16
    # every link carries an acknowledgement and a pull, of 64 bytes, for each packet that comes the
    # other way
    assert ideal_ns(1_000_000) < ends[-1] < 1.25 * ideal_ns(1_000_000)


def layers_of(topology, count=4):
    graph, rng = layers.RouterArrays.of(topology), np.random.default_rng(1)
    back = graph.back()
    kept = []
    for _ in range(count - 1):
        alive = rng.random(len(graph.peer)) < 0.7
        kept.append(alive & alive[back])
    tables = layers.tables(graph, kept, rng)
    switches = range(topology.servers, topology.nodes)
    return layer_routing(
        topology,
        [{node: routes(topology, table, node) for node in switches} for table in tables],
    )


def test_receivers_move_messages_from_a_layer_that_is_full():
    """All hosts of a router send to one other: the shortest path carries one of four, other layers
    the rest."""
    ports = {}
    for count in (1, 8):
        net = network(
            "slimfly:q=5,p=4", route=lambda topology: layers_of(topology, 8), layers=count
        )
        for host in range(4):
            net.send(0, 8 + host, 88 + host, host, 500_000)
        net.run_until(SECOND)
        assert len(net.delivered) == 4
        assert total(net, "timeouts") == 0
        ports[count] = max(event.at_ns for _, event in net.delivered)
    assert ports[8] < 0.7 * ports[1]


def test_the_seed_repeats_a_run():
    runs = [
        incast(8, 50_000, seed=seed, trouble=Trouble(loss_fraction=0.01))[0].delivered
        for seed in (1, 1, 2)
    ]
    assert runs[0] == runs[1] != runs[2]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 1 << 30),
    st.floats(0, 0.3),
    st.floats(0, 0.3),
    st.integers(0, 200_000),
    st.integers(1, 40),
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 40_000)),
        min_size=1,
        max_size=12,
    ),
)
def test_whatever_wires_do_every_byte_arrives_or_the_sender_says_why(
    seed, loss, twice, jitter, headers, messages
):
    trouble = Trouble(loss_fraction=loss, duplicate_fraction=twice, jitter_ns=jitter)
    net = network(
        "star:n=4", seed=seed, trouble=trouble, header_bytes=64 * headers, attempts=30, window=4
    )
    wanted = {
        (src, flow): (dst, size) for flow, (src, dst, size) in enumerate(messages) if src != dst
    }
    for (src, flow), (dst, size) in wanted.items():
        net.send(0, src, dst, flow, size)
    net.run_until(100 * SECOND)
    arrived = {(event.peer, event.flow): (host, event.size_bytes) for host, event in net.delivered}
    assert len(arrived) == len(net.delivered)  # none twice
    ends = {(host, event.flow): event for host, event in net.finished}
    assert ends.keys() == wanted.keys()
    assert len(ends) == len(net.finished)
    for key, event in ends.items():
        assert event.failed or arrived[key] == wanted[key]
    if loss < 0.2:
        assert not [event for event in ends.values() if event.failed]
    assert total(net, "strange") == 0


def test_a_host_that_hears_nothing_is_given_up():
    net = network("star:n=3", trouble=Trouble(loss_fraction=1.0), attempts=3)
    net.send(0, 1, 0, 1, 100_000)
    net.run_until(SECOND)
    ((host, event),) = net.finished
    assert host == 1
    assert "host 0 has not answered" in event.failed
    assert net.delivered == []


def test_a_wire_is_not_trusted_to_lead_to_the_right_host():
    net = network("star:n=3", route=lambda topology: lambda switch, frame, draw: 0)
    net.send(0, 1, 2, 1, 100)
    with pytest.raises(AssertionError, match="wrong host"):
        net.run_until(SECOND)
    assert not any(isinstance(event, Delivered) for _, event in net.delivered)


def test_a_hashed_flow_stays_on_one_of_the_shortest_paths():
    """The data of each message crosses one core switch, and that of all eight several."""
    net = network("fattree:k=4", route=lambda topology: ecmp_routing(topology, 1))
    for flow in range(8):
        net.send(flow * 10_000_000, 0, 15, flow, 30_000)
    cores: list[set[int]] = []
    before = dict.fromkeys(net.ports(), 0)
    for flow in range(8):
        net.run_until((flow + 1) * 10_000_000 - 1)
        now = {where: port.bytes_ for where, port in net.ports().items()}
        cores.append(
            {
                where[0]
                for where, sent in now.items()
                if where[0] >= 32 and sent - before[where] > 15_000
            }
        )
        before = now
    assert len(net.delivered) == 8
    assert all(len(used) == 1 for used in cores)
    assert len(set.union(*cores)) > 1
