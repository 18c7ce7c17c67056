import random

import pytest

from weft.daemons.core.actions import Hop, Note, Send
from weft.daemons.simulator.node import SimulatedFib
from weft.daemons.simulator.packet_walk import PacketWalk
from weft.daemons.simulator.simulator import Simulator
from weft.daemons.simulator.wires import Wire
from weft.topologies import build
from weft.topologies.core.address import Prefix

DCELL = build("dcell:n=4,k=1")
DEAD_S = 0.092


def converge(topology, spec="dr", **options):
    simulator = Simulator(topology, spec, **options)
    simulator.run_until_converged()
    return simulator


def lost_pairs(simulator, choices=1):
    servers = range(simulator.topology.servers)
    return {
        (src, dst)
        for src in servers
        for dst in servers
        if src != dst and any(simulator.walk(src, dst, choice).lost for choice in range(choices))
    }


def downs(simulator, after_s):
    """Whoever came to be down, (who noticed, what is written of it), and when."""
    found = []

    def note(now, node, action):
        if isinstance(action, Note) and " down: " in action.text and now > after_s:
            found.append((now, simulator.topology.naming.name(node), action.text))

    simulator.on_action = note
    return found


def test_the_longest_prefix_wins_and_a_route_without_hops_refuses():
    fib = SimulatedFib()
    fib.set(Prefix(10 << 24, 8), (Hop(0, 1),))
    fib.set(Prefix(10 << 24 | 5 << 16, 16), (Hop(1, 2),))
    fib.set(Prefix(10 << 24 | 6 << 16, 16), ())
    assert [fib.lookup(10 << 24 | x << 16 | 9) for x in (4, 5, 6)] == [
        (Hop(0, 1),),
        (Hop(1, 2),),
        (),
    ]
    assert fib.lookup(11 << 24) == ()
    fib.set(Prefix(10 << 24 | 6 << 16, 16), (Hop(2, 3),))
    assert fib.lookup(10 << 24 | 6 << 16 | 9) == (Hop(2, 3),)
    fib.remove(Prefix(10 << 24 | 6 << 16, 16))
    assert fib.lookup(10 << 24 | 6 << 16 | 9) == (Hop(0, 1),)


@pytest.mark.parametrize(
    ("spec", "scheme", "octets"),
    [
        ("dcell:n=3,k=1", "dfr", [None]),
        ("ficonn:n=4,k=1", "bfs", [None]),
        ("clos:n=2,r=3,m=3", "fatpaths", [None, 11]),
    ],
)
def test_what_earlier_walks_to_a_server_have_found_changes_no_later_one(spec, scheme, octets):
    """At any moment, while daemons have not noticed what is broken too, so that some packets arrive
    nowhere."""
    topology = build(spec)
    simulator = converge(topology, scheme)
    servers, lost = range(topology.servers), 0
    for link in range(0, len(topology.links), 5):
        before = simulator.version()
        simulator.fail(link, silent=True)
        assert simulator.version() != before
        for _ in range(3):
            simulator.run_for(0.03)
            for dst, octet, choice in (
                (dst, octet, choice) for dst in servers for octet in octets for choice in (0, 1)
            ):
                known = {}
                for src in servers:
                    walk = simulator.walk(src, dst, choice, first_octet=octet, known=known)
                    plain = simulator.walk(src, dst, choice, first_octet=octet)
                    assert walk == plain or ("loop" in walk.lost and "loop" in plain.lost)
                    lost += bool(plain.lost)
    assert lost


def test_a_network_converges_within_a_few_gaps_after_the_last_has_started():
    simulator = Simulator(DCELL, "dr", starts_s=dict.fromkeys(range(DCELL.servers), 0.0))
    assert simulator.run_until_converged() < 0.010
    assert lost_pairs(simulator) == set()
    assert simulator.walk(0, 19) == PacketWalk((0, 3, 16, 19), "")


def test_an_announced_failure_is_noticed_at_once():
    simulator = converge(DCELL)
    simulator.run_until(0.5)
    simulator.fail(DCELL.link("h0-h4"))
    assert simulator.now == simulator.changed_s == 0.5
    assert simulator.walk(0, 4) == PacketWalk((0,), "no route at h0")
    assert simulator.walk(1, 4).lost == "no route at h0"
    simulator.run_for(0.010)
    simulator.restore(DCELL.link("h0-h4"))
    simulator.run_for(0.004)
    assert lost_pairs(simulator) == set()


@pytest.mark.parametrize("sender", [None, 0, 4])
def test_a_silent_failure_of_one_or_both_directions_is_noticed_at_both_ends(sender):
    simulator = converge(DCELL)
    simulator.run_until(0.5)
    seen = downs(simulator, 0.5)
    simulator.fail(DCELL.link("h0-h4"), silent=True, sender=sender)
    assert simulator.walk(0, 4).lost == ("" if sender == 4 else "link dead from h0 to h4")
    simulator.run_until(2.0)
    assert sorted(who for _, who, _ in seen) == ["h0", "h4"]
    assert max(now for now, _, _ in seen) <= 0.5 + DEAD_S + 0.004
    assert simulator.walk(0, 4).lost == simulator.walk(4, 0).lost[:-1] + "0" == "no route at h0"
    simulator.restore(DCELL.link("h0-h4"))
    simulator.run_until_converged(within_s=0.1)
    assert lost_pairs(simulator) == set()


def test_the_death_of_one_behind_a_crossbar_is_noticed_by_all_and_the_others_stay():
    simulator = converge(DCELL)
    simulator.run_until(0.5)
    seen = downs(simulator, 0.5)
    simulator.kill(1)
    assert simulator.walk(0, 1).lost == "h1 has no power"
    simulator.run_until(2.0)
    assert sorted(who for _, who, _ in seen) == ["h0", "h2", "h3", "h8"]
    assert all("neighbour h1 down: silent for 92 ms" in text for _, _, text in seen)
    assert max(now for now, _, _ in seen) <= 0.5 + DEAD_S + 0.001
    assert simulator.walk(0, 2).lost == simulator.walk(3, 0).lost == ""


def test_a_blackhole_between_crossbar_and_server_is_noticed_by_those_behind_it():
    simulator = converge(DCELL)
    simulator.run_until(0.5)
    seen = downs(simulator, 0.5)
    crossbar = DCELL.naming.node("w0")
    simulator.fail(DCELL.link("h1-w0"), silent=True, sender=crossbar)
    simulator.run_until(2.0)
    assert sorted(who for _, who, _ in seen) == ["h0", "h1", "h1", "h1", "h2", "h3"]
    assert max(now for now, _, _ in seen) <= 0.5 + DEAD_S + 0.004


def test_a_daemon_that_starts_again_is_noticed_and_its_routes_come_back():
    simulator = converge(DCELL)
    simulator.run_until(0.5)
    seen = downs(simulator, 0.5)
    simulator.restart(1)
    simulator.run_until(0.6)
    assert sorted(who for _, who, _ in seen) == ["h0", "h2", "h3", "h8"]
    assert all("does not hear us" in text for _, _, text in seen)
    assert lost_pairs(simulator) == set()
    simulator.run_until_converged(within_s=0.001)


def test_links_that_have_failed_before_are_down_from_the_beginning():
    from dataclasses import replace

    failed = DCELL.failed.copy()
    failed[DCELL.link("h0-h4")] = True
    simulator = Simulator(replace(DCELL, failed=failed), "dr")
    simulator.run_until_quiet()
    assert simulator.walk(0, 4).lost == "no route at h0"
    assert simulator.status(0)["neighbours"][-1]["state"] == "silent"
    with pytest.raises(TimeoutError, match=r"h0 has not converged within [0-9.]+ s: \w+ [^{}]*$"):
        simulator.run_until_converged(within_s=0.1)


def test_counters_count():
    simulator = converge(DCELL)
    simulator.run_until(1.0)
    before = dict(simulator.counters)
    simulator.run_until(4.0)
    per_s = {key: (value - before[key]) / 3 for key, value in simulator.counters.items()}
    assert per_s["messages"] == pytest.approx(20 * 2 / 0.030, rel=0.01)
    assert per_s["deliveries"] == pytest.approx(20 * (3 + 1) / 0.030, rel=0.01)
    hello_bytes = 31 + 12 * (3 + 1) / 2
    assert per_s["bytes"] == pytest.approx(per_s["messages"] * hello_bytes, rel=0.01)
    assert per_s["routes_set"] == 0


def test_loss_reordering_and_duplicates_raise_no_false_alarm_and_hide_no_death():
    wire = Wire(jitter_s=0.004, loss_fraction=0.01, duplicate_fraction=0.2)
    simulator = converge(DCELL, wire=wire, random=random.Random(4))
    seen = downs(simulator, simulator.now)
    simulator.run_until(5.0)
    assert len(seen) <= 2, "three losses of a hundred in a row, in 13 000 hellos"
    simulator.kill(7)
    simulator.run_until(5.0 + DEAD_S + 0.012)
    assert {who for now, who, text in seen if "neighbour h7 " in text} >= {"h4", "h5", "h6"}


def test_wires_that_draw_need_something_to_draw_from():
    with pytest.raises(ValueError, match="need a random generator"):
        Simulator(DCELL, "dr", wire=Wire(loss_fraction=0.1))
    with pytest.raises(ValueError, match="a failure of one direction is silent"):
        Simulator(DCELL, "dr").fail(0, sender=0)


def test_daemons_that_do_not_run_for_a_while_blame_nobody():
    simulator = converge(DCELL)
    draw = random.Random(2)
    seen = downs(simulator, 0.1)
    for _ in range(20):
        length = draw.uniform(0.05, 0.3)  # a machine that stands still, and wakes one by one
        for node in range(20):
            simulator.stall(node, length + draw.uniform(0, 0.025))
        simulator.run_for(length + draw.uniform(0.03, 0.2))
    assert seen == []
    simulator.run_for(0.2)
    assert lost_pairs(simulator) == set()


def test_one_daemon_that_does_not_run_blames_nobody_and_is_blamed():
    simulator = converge(DCELL)
    simulator.run_until(0.5)
    seen = downs(simulator, 0.5)
    simulator.stall(0, 0.3)
    simulator.run_until(0.799)
    assert {who for _, who, _ in seen} == {"h1", "h2", "h3", "h4"}
    simulator.run_until(1.0)
    assert all("does not hear us" in text for _, who, text in seen if who == "h0"), "which is true"
    assert lost_pairs(simulator) == set()


def test_one_daemon_that_does_not_run_twice_over_learns_how_the_carrier_is_in_the_end():
    simulator = converge(DCELL)
    link = DCELL.link("h3-h16")
    simulator.stall(3, 0.010)
    simulator.fail(link)
    simulator.run_for(0.005)
    simulator.stall(3, 0.030)
    simulator.restore(link)
    simulator.run_until_converged(1.0)
    assert not lost_pairs(simulator)


def test_the_same_seed_gives_the_same_run():
    def run():
        simulator = Simulator(
            DCELL, "bfs", wire=Wire(jitter_s=0.01, loss_fraction=0.1), random=random.Random(9)
        )
        simulator.run_until(1.0)
        return (
            simulator.counters,
            simulator.changed_s,
            [simulator.routes(node) for node in range(20)],
        )

    assert run() == run()


@pytest.mark.parametrize(
    ("spec", "scheme"),
    [
        ("dcell:n=4,k=1", "dr"),
        ("dcell:n=4,k=1", "dfr"),
        ("dcell:n=4,k=1", "pr-gpi"),
        ("ficonn:n=4,k=1", "tar"),
        ("fattree:k=4", "ecmp"),
        ("fattree:k=4", "lbsp"),
    ],
)
def test_what_is_no_message_is_dropped_and_counted_by_whoever_hears_it(spec, scheme):
    """For every state machine: its carrier does it."""
    simulator = converge(build(spec), scheme)
    simulator.run_for(0.5)
    changed_s, speaker = simulator.changed_s, simulator.node(next(iter(simulator._nodes)))
    port, hears = speaker.config.ports[0]
    for payload in (b"", b"\x77\x02\x01", b"\x77\x01\x01" + 30 * b"\0"):
        simulator._act(speaker.config.node, speaker, [Send(port, payload)])
    simulator.run_for(0.5)
    assert {node: simulator.status(node)["garbage"] for node in hears} == dict.fromkeys(hears, 3)
    assert simulator.status(speaker.config.node)["garbage"] == 0
    assert simulator.changed_s == changed_s
