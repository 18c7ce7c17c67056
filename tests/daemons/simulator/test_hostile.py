"""Packets of strangers on the wires of whole networks end no daemon, and their effect soon ends."""

from __future__ import annotations

import pytest

from weft.daemons.control.link_state import MOST_AHEAD
from weft.daemons.control.scoped_flooding import Notice
from weft.daemons.core import wire
from weft.daemons.core.actions import FiveTuple
from weft.daemons.core.contract import FlowInUse
from weft.daemons.core.registry import configure
from weft.daemons.core.registry import machine as make_machine
from weft.daemons.dar import daemon as dar
from weft.daemons.dar.daemon import Ear
from weft.daemons.lbsp import messages as lbsp
from weft.daemons.proxy.probe import MOST_REMEMBERED
from weft.daemons.simulator.simulator import Simulator
from weft.daemons.tar import messages as tar
from weft.daemons.tar.daemon import MOST_STATES
from weft.topologies import build

DCELL, FICONN, FATTREE = build("dcell:n=4,k=1"), build("ficonn:n=4,k=2"), build("fattree:k=4")
HOP_DIED = bytes.fromhex("77010500000001000000000000000100000002028000000000000000")
NEVER = 2**32 - 1


def start_machine(topology, spec, node=0):
    """The state machine of `node`, alone."""
    machine = make_machine(configure(topology, spec)[node], 1)
    machine.start(0.0)
    return machine


def converge(topology, spec):
    simulator = Simulator(topology, spec)
    simulator.run_until_converged()
    return simulator


def hear(simulator, node, payload, port=0):
    """`payload` reaches `node` at `port` now."""
    simulator.hear(node, payload, port)


def is_intact(simulator):
    """Return whether all servers reach each other and all daemons have converged."""
    topology = simulator.topology
    lost = [
        (src, dst)
        for src in range(topology.servers)
        for dst in range(topology.servers)
        if src != dst and simulator.walk(src, dst).lost
    ]
    return not lost and simulator._unconverged() is None


def test_a_hop_that_no_server_has_ends_no_daemon():
    with pytest.raises(wire.MalformedMessage):
        start_machine(DCELL, "pr-gpi").receive(HOP_DIED, 0, 0.1)


@pytest.mark.parametrize("stranger", [DCELL.servers, 2**31, NEVER])
@pytest.mark.parametrize("field", ["sender", "source", "destination", "visited"])
def test_a_question_that_names_a_stranger_is_garbage(field, stranger):
    probe = wire.Probe(1, 0, 1, 7, 1, 0, 0, wire.ASKING, 1, (1,))
    assert start_machine(DCELL, "pr-gpi").receive(wire.encode(probe), 0, 0.1) is not None
    for verdict in (wire.ASKING, wire.CONNECTED, wire.BROKEN):
        bad = probe._replace(
            verdict=verdict, **{field: (stranger, 1) if field == "visited" else stranger}
        )
        with pytest.raises(wire.MalformedMessage):
            start_machine(DCELL, "pr-gpi").receive(wire.encode(bad), 0, 0.1)


@pytest.mark.parametrize(
    "probe",
    [
        wire.Probe(5, 0, 5, 7, 1, 0, 0, wire.ASKING, 1, (5,)),  # no neighbour
        wire.Probe(4, 0, 4, 7, 1, 0, 0, wire.ASKING, 1, (4,)),  # at the other port
        wire.Probe(1, 0, 1, 7, 1, 9, 0, wire.ASKING, 1, (1,)),  # a way that there is not
        wire.Probe(1, 0, 1, 7, 1, 0, 0, wire.ASKING, 1, (2,) * 12),  # longer than any path
    ],
)  # fmt: skip
def test_only_a_neighbour_asks_of_paths_that_there_are(probe):
    with pytest.raises(wire.MalformedMessage):
        start_machine(DCELL, "pr-gpi").receive(wire.encode(probe), 0, 0.1)


@pytest.mark.parametrize("mark", [48, 2**31 - 1, -3])
def test_a_mark_that_names_a_stranger_is_garbage(mark):
    flow = FiveTuple(FICONN.naming.address(1), FICONN.naming.address(40), 17, 0)
    probe = tar.FlowProbe(1, 0, flow, 1, 0, 1000, wire.ASKING, (-1, -1, -1), (1,))
    assert start_machine(FICONN, "tar").receive(tar.encode(probe), 0, 0.1)
    for marks in ((mark, -1, -1), (-1, mark, -1), (-1, -1, mark)):
        with pytest.raises(wire.MalformedMessage):
            start_machine(FICONN, "tar").receive(tar.encode(probe._replace(marks=marks)), 0, 0.1)


@pytest.mark.parametrize("spec", ["dr", "dfr", "pr-gpi", "bfs"])
@pytest.mark.parametrize("sequence", [NEVER, 2**31 - 1, 4000])
def test_an_adjacency_survives_one_forged_hello_or_returns_by_itself(spec, sequence):
    simulator = converge(DCELL, spec)
    simulator.run_for(0.2)
    heard = ((0, 1 << 32), *((other, 1 << 32) for other in (2, 3)))
    hear(simulator, 0, wire.encode(wire.Hello(1, 1 << 32, 30, 0, heard, sequence)))
    simulator.run_for(1.0)
    assert is_intact(simulator)
    assert simulator.protocol(0).adjacencies().lost == (1 if sequence == 4000 else 0)


@pytest.mark.parametrize("spec", ["dr", "bfs"])
def test_an_incarnation_that_was_forged_is_forgotten_with_the_next_silence(spec):
    simulator = converge(DCELL, spec)
    hear(simulator, 0, wire.encode(wire.Hello(1, 2**64 - 1, 30, 0, (), 1)))
    assert simulator.status(0)["garbage"] == 1
    hear(simulator, 0, wire.encode(wire.Hello(1, 2**63 - 1, 10_000, 0, ((0, 1 << 32),), NEVER)))
    simulator.run_for(31.0)  # as long as the longest interval allows
    assert is_intact(simulator)


def forge(origin, sequence, lifetime_ms, links=b"", sender=1):
    return wire.encode(
        wire.LinkStates(sender, (wire.Advertisement(origin, sequence, lifetime_ms, links),))
    )


@pytest.mark.parametrize(
    "sequence",
    [
        2**64 - 1,
        MOST_AHEAD,
        *(pytest.param(one, marks=pytest.mark.slow) for one in (2**63 - 1, (2 << 32) + MOST_AHEAD)),
    ],
)
@pytest.mark.parametrize(
    ("topology", "spec", "victim"), [(DCELL, "bfs", 0), (DCELL, "dfr", 2), (FATTREE, "bfs", 16)]
)
def test_a_forged_advertisement_makes_nothing_unreachable_for_longer_than_the_forging(
    topology, spec, victim, sequence
):
    simulator = converge(topology, spec)
    for node in (
        topology.servers - 1 if topology is DCELL else topology.nodes - 1,
        victim,
        3 if topology is DCELL else 20,
    ):
        hop = simulator.protocol(node)._neighbourhood.neighbours()[0].hop
        hear(simulator, node, forge(victim, sequence, 2**32 - 1, sender=hop.node), hop.port)
    simulator.run_for(3.0)
    assert is_intact(simulator)
    simulator.restart(victim)
    simulator.run_for(3.0)
    assert is_intact(simulator)


def test_an_advertisement_is_believed_for_as_long_as_our_own():
    simulator = converge(DCELL, "bfs:lifetime_s=2")
    database = simulator.protocol(0)._database
    simulator.kill(2)
    hear(simulator, 0, forge(2, 9 << 32, 2**32 - 1))
    simulator.run_for(2.1)
    assert 2 not in database.entries


@pytest.mark.parametrize("spec", ["bfs", "dfr"])
def test_origins_that_the_network_does_not_have_are_neither_kept_nor_passed_on(spec):
    simulator = converge(DCELL, spec)
    for first in range(DCELL.servers, 2000, 50):
        many = tuple(
            wire.Advertisement(origin, 5, 60_000, b"") for origin in range(first, first + 50)
        )
        hear(simulator, 0, wire.encode(wire.LinkStates(1, many)))
    simulator.run_for(0.5)
    for node in range(DCELL.servers):
        assert len(simulator.protocol(node)._database.entries) <= DCELL.servers
    assert simulator.status(0)["advertisements_refused"] == 2000
    assert simulator.status(1)["advertisements_refused"] == 0


@pytest.mark.parametrize("sequence", [2**64 - 1, 2**63, 9 << 32])
def test_a_notice_in_the_name_of_its_hearer_is_contradicted_and_no_number_runs_out(sequence):
    simulator = converge(FATTREE, "lbsp")
    edge, above = FATTREE.naming.node("e0.0"), FATTREE.naming.node("a0.0")
    port = next(port for port, other in FATTREE.neighbours(edge).items() if above in other)
    for body in (lbsp.Failures(()), lbsp.Crowding(1)):
        hear(simulator, edge, lbsp.encode(Notice(above, edge, edge, sequence, 3000, 1, body)), port)
    link = FATTREE.link_between(edge, above)
    simulator.fail(link)
    simulator.run_for(0.5)
    assert [
        len(simulator.status(FATTREE.naming.node(name))["failures"])
        for name in ("e0.0", "a0.1", "c0")
    ] == [
        1,
        1,
        1,
    ]
    simulator.restore(link)
    simulator.run_for(4.0)
    assert is_intact(simulator)


@pytest.mark.slow
def test_questions_fill_no_memory():
    machine = start_machine(build("dcell:n=4,k=2"), "pr-gpi")
    servers = build("dcell:n=4,k=2").servers
    for port, neighbours in ((0, (1, 2, 3)), (1, (4,)), (2, (20,))):
        for node in neighbours:
            hello = wire.hello_body(node, 1, 30, 0, [(0, 1)]) + wire.SEQUENCE.pack(1)
            machine.receive(hello, port, 0.0)
    for token in range(8000):
        visited = (2 + token % (servers - 2), *(3,) * (token % 9), 1)
        probe = wire.Probe(
            1, 0, visited[0], servers - 1, token, token % 3, 0, wire.ASKING, 1, visited
        )
        machine.receive(wire.encode(probe), 0, token * 1e-4)
    remembered = machine._probes._passed
    assert 0 < max(map(len, remembered.values())) <= MOST_REMEMBERED


def test_answers_fill_neither_memory_nor_the_table_that_all_servers_share():
    machine = start_machine(FICONN, "tar")
    for port in (0, 1):
        for neighbour in [hop for hop in machine._hops.values() if hop.port == port]:
            here = wire.hello_body(neighbour.node, 1, 30, 0, [(0, 1)]) + wire.SEQUENCE.pack(1)
            machine.receive(here, port, 0.01)
    set_flows = 0
    for token in range(3 * MOST_STATES):
        flow = FiveTuple(FICONN.naming.address(2), FICONN.naming.address(1), 17, token)
        answer = tar.FlowProbe(1, 0, flow, 1 + token, 0, 2**32 - 1, wire.CONNECTED, (), (2, 0, 1))
        set_flows += len(machine.receive(tar.encode(answer), 0, 0.02)) > 1
    assert machine.status()["states"] == MOST_STATES == set_flows
    for token in range(3 * MOST_STATES):
        flow = FiveTuple(FICONN.naming.address(2), FICONN.naming.address(1), 17, 1)
        answer = tar.FlowProbe(
            1, 0, flow, 10**6 + token, 0, 2**32 - 1, wire.CONNECTED, (), (2, 0, 1)
        )
        machine.receive(tar.encode(answer), 0, 0.02)
    assert len(machine._states._expiring) < 6 * MOST_STATES
    machine.tick(machine._own.most_lifetime_s + 1)
    assert machine.status()["states"] == 0


def test_a_flow_ends_only_by_the_neighbour_that_its_path_goes_on_to():
    machine = start_machine(FICONN, "tar")
    for neighbour in (1, 2):
        here = wire.hello_body(neighbour, 1, 30, 0, [(0, 1)]) + wire.SEQUENCE.pack(1)
        machine.receive(here, 0, 0.01)
    flow = FiveTuple(FICONN.naming.address(2), FICONN.naming.address(1), 17, 7)
    machine.receive(
        tar.encode(tar.FlowProbe(1, 0, flow, 5, 0, 1000, wire.CONNECTED, (), (2, 0, 1))), 0, 0.02
    )
    for sender, left in ((2, 1), (1, 0)):
        (payload,) = tar.breaks(sender, 0, [(flow, 5)])
        machine.receive(payload, 0, 0.03)
        assert machine.status()["states"] == left
    assert machine.event(FlowInUse(flow), 0.04) == ()


def test_an_answer_along_a_path_from_a_stranger_leaves_nothing_that_a_dead_hop_would_raise_over():
    machine = start_machine(FICONN, "tar")
    here = wire.hello_body(1, 1, 30, 0, [(0, 1)]) + wire.SEQUENCE.pack(1)
    machine.receive(here, 0, 0.01)
    flow = FiveTuple(FICONN.naming.address(10), FICONN.naming.address(1), 17, 7)
    with pytest.raises(wire.MalformedMessage, match="10 is no neighbour"):
        machine.receive(
            tar.encode(tar.FlowProbe(1, 0, flow, 5, 0, 1000, wire.CONNECTED, (), (10, 0, 1))),
            0,
            0.02,
        )
    assert machine.status()["states"] == 0
    machine.link_changed(0, False, 0.03)


@pytest.mark.parametrize("field", [{"sender": 11}, {"origin": 15}, {"origin": 2**32 - 1}])
def test_a_request_comes_from_a_neighbour_in_the_name_of_a_switch_that_there_is(field):
    clos = build("clos:n=3,m=3,r=3")
    flow = FiveTuple(clos.naming.address(0), clos.naming.address(8), 17, 0)
    ear = Ear(sender=12, target=9, origin=11, leaf=9, sequence=5, flow=flow, spine=12, count=2)
    start_machine(clos, "dar", 9).receive(dar.encode(ear), 3, 0.1)
    with pytest.raises(wire.MalformedMessage):
        start_machine(clos, "dar", 9).receive(dar.encode(ear._replace(**field)), 3, 0.1)
