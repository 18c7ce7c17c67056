"""PR's daemons on wires in memory, against the search that the graph engine runs."""

import random
from itertools import pairwise

import pytest

from weft.daemons.core.actions import Note
from weft.daemons.core.contract import Measured
from weft.daemons.proxy import daemon
from weft.daemons.proxy import routing as proxy
from weft.daemons.proxy.daemon import BURST_S
from weft.daemons.routing.path_tables import tabulate
from weft.daemons.simulator.simulator import Simulator
from weft.daemons.simulator.wires import Wire
from weft.topologies import build
from weft.topologies.recursive.ccrdn import common_level

SCHEMES = {"pr-gpe": proxy.GP_E, "pr-gpi": proxy.GP_I, "pr-gp0": proxy.GP_0}
DCELL = build("dcell:n=4,k=1")
FICONN = build("ficonn:n=4,k=2")


def converge(topology, spec="pr-gpi", **options):
    simulator = Simulator(topology, spec, **options)
    simulator.run_until_converged()
    return simulator


def use(simulator, pairs, for_s=3.0, every_s=0.25):
    """Let every pair send now and then."""
    for _ in range(round(for_s / every_s)):
        for src, dst in pairs:
            simulator.send(src, dst)
        simulator.run_for(every_s)


def some_pairs(topology, count, seed=1):
    draw = random.Random(seed)
    return [tuple(draw.sample(range(topology.servers), 2)) for _ in range(count)]


def dead_channels(topology, links):
    network = topology.naming.network
    ports, dead = network.k + 2, bytearray(topology.servers * (network.k + 2))
    for link in links:
        a, _, b, _ = topology.links[link].tolist()
        if topology.is_crossbar(b):
            dead[a * ports] = dead[(a + 1) * ports - 1] = 1
        else:
            level = common_level(network.t, a, b)
            dead[a * ports + level] = dead[b * ports + level] = 1
    return dead


def expected_hops(topology, method, dead):
    """(src, dst) -> hops of the path that PR should find, -1 if there is none; every level may have
    proxies."""
    network = topology.naming.network
    tables = tabulate(network.rule, network.t, network.k, with_channels=True)
    room = [0] * proxy.most_routes(network.t)
    policy = proxy.Policy(method, 1, False)

    def hops(src, dst):
        pair_split = proxy.parting(network.t, src, dst)
        return proxy.search(tables, policy, proxy.shortest_first, pair_split, dead, 1, room)[0]

    return hops


def found_hops(simulator, src, dst):
    walk = simulator.walk(src, dst)
    return -1 if walk.lost else len(walk.path) - 1


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("spec", ["dcell:n=4,k=1", "beta-dcell:n=5,k=1", "ficonn:n=4,k=2"])
@pytest.mark.parametrize("failed", [0.0, 0.1])
@pytest.mark.slow
def test_every_path_is_as_long_as_the_search_says_and_none_is_lost(name, spec, failed):
    topology = build(spec)
    simulator = converge(topology, f"{name}:probes_per_s=100,urgent_per_s=100")
    links = random.Random(2).sample(range(len(topology.links)), round(failed * len(topology.links)))
    for link in links:
        simulator.fail(link)
    pairs = some_pairs(topology, 150)
    use(simulator, pairs)
    hops = expected_hops(topology, SCHEMES[name], dead_channels(topology, links))
    assert [found_hops(simulator, *pair) for pair in pairs] == [hops(*pair) for pair in pairs]


def load_ports(simulator, topology, seed):
    """Load each port of each server at random, at least twice as much as the next lower load, and
    return it by channel."""
    network, draw = topology.naming.network, random.Random(seed)
    ports, load = network.k + 2, [0] * (topology.servers * (network.k + 2))
    for server in range(topology.servers):
        loads = {}
        for level in [0, *network.levels(server)]:
            loads[network.port(level)] = load[server * ports + level] = 1000 << draw.randrange(8)
        simulator.tell(server, Measured(loads))
    return load


@pytest.mark.parametrize("choice", range(4))
@pytest.mark.parametrize("spec", ["dcell:n=4,k=1", "ficonn:n=4,k=2"])
@pytest.mark.slow
def test_under_load_each_choice_rule_takes_what_the_search_takes(spec, choice):
    """CCRDN 5.4.  A path is not left for one that is as loaded and shorter, so lengths count where
    they come first."""
    topology = build(spec)
    simulator = converge(
        topology,
        f"pr-gpe:probes_per_s=1000,urgent_per_s=100,wakes_per_s=1000,refresh_ms=300,choice={choice}",
    )
    network, load, pairs = (
        topology.naming.network,
        load_ports(simulator, topology, 1),
        some_pairs(topology, 60),
    )
    use(simulator, pairs)
    tables, room = (
        tabulate(network.rule, network.t, network.k, with_channels=True),
        [0] * proxy.most_routes(network.t),
    )
    policy, others = proxy.Policy(proxy.GP_E, 1, False, choice), 0
    for src, dst in pairs:
        pair_split = proxy.parting(network.t, src, dst)
        hops, proxy_number = proxy.search(
            tables, policy, proxy.cost_of(choice), pair_split, load, proxy.NEVER, room
        )
        route = list(simulator.walk(src, dst).path)
        assert bottleneck(network, load, route) == bottleneck(
            network, load, proxy.route(network.rule, network.t, src, dst, proxy_number)
        )
        if choice != proxy.LEAST_LOADED:
            assert len(route) - 1 == hops
        usual, _ = proxy.search(
            tables,
            policy._replace(choice=proxy.SHORTEST),
            proxy.shortest_first,
            pair_split,
            load,
            proxy.NEVER,
            room,
        )
        others += hops != usual
    assert choice != proxy.LEAST_LOADED or others > 0


def bottleneck(network, load, route):
    ports = network.k + 2
    return max(load[a * ports + common_level(network.t, a, b)] for a, b in pairwise(route))


def test_with_dr_first_near_pairs_leave_dr_only_while_it_is_dead():
    topology, simulator = (
        build("dcell:n=4,k=1"),
        converge(build("dcell:n=4,k=1"), "pr-gpe:choice=2,urgent_per_s=100"),
    )
    network = topology.naming.network
    src = 0
    dst = network.peer(src, 1)  # near: the link between their copies joins the two
    use(simulator, [(src, dst)])
    for server in range(topology.servers):
        simulator.tell(
            server, Measured({port: 10**6 * (server == src and port == 1) for port in range(2)})
        )
    use(simulator, [(src, dst)])
    assert simulator.walk(src, dst).path == (src, dst)
    link = topology.link_between(src, dst)
    simulator.fail(link)
    use(simulator, [(src, dst)])
    assert len(simulator.walk(src, dst).path) > 2
    simulator.restore(link)
    use(simulator, [(src, dst)], 10.0)
    assert simulator.walk(src, dst).path == (src, dst)


def test_the_first_packet_goes_by_dr_at_once():
    simulator = converge(FICONN)
    walk = simulator.send(3, 40)
    network = FICONN.naming.network
    assert list(walk.path) == proxy.route(network.rule, network.t, 3, 40, -1)


def a_proxied_pair(simulator, pairs):
    """A pair whose packets are steered, and its path."""
    for src, dst in pairs:
        path = simulator.walk(src, dst).path
        if simulator.status(src)["destinations"].get(f"h{dst}", {}).get("proxy", -1) >= 0:
            return src, dst, path
    raise AssertionError("no pair is steered")


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.slow
def test_a_dead_link_far_from_the_source_is_left_within_the_time_of_its_detection(silent):
    simulator = converge(FICONN)
    pairs = some_pairs(FICONN, 100)
    use(simulator, pairs)
    src, dst, path = a_proxied_pair(simulator, pairs)
    _, link = bridge(FICONN, path[::-1])
    failed_s = simulator.now
    simulator.fail(link, silent=silent)
    while simulator.walk(src, dst).lost and simulator.now < failed_s + 1:
        simulator.run_for(0.001)  # nothing is sent: the servers on the way tell the source
    assert simulator.now - failed_s < (0.100 if silent else 0.005)


def bridge(topology, path):
    """The first link on `path` between servers, near end first, and its name."""
    near, far = next(hop for hop in pairwise(path) if common_level(topology.naming.network.t, *hop))
    return near, topology.link(f"{topology.naming.name(near)}-{topology.naming.name(far)}")


@pytest.mark.slow
def test_both_directions_leave_a_link_when_the_first_of_its_ends_misses_the_other():
    simulator, downs, apart = converge(FICONN), [], 0
    simulator.on_action = lambda now, node, action: (
        downs.append(now) if isinstance(action, Note) and "down: silent" in action.text else None
    )
    # by h5-h25, with other ways there and back
    for src, dst in ((1, 25), (32, 0), (4, 33), (5, 31), (3, 24)):
        both = [(src, dst), (dst, src)]
        use(simulator, both)
        assert simulator.walk(src, dst).path == simulator.walk(dst, src).path[::-1]
        _, link = bridge(FICONN, simulator.walk(src, dst).path)
        downs.clear()
        simulator.fail(link, silent=True)
        failed_s = simulator.now
        while simulator.now < failed_s + 0.2 and any(simulator.walk(*pair).lost for pair in both):
            simulator.run_for(0.001)
        left_s = simulator.now
        simulator.run_until(failed_s + 0.2)
        first_s, last_s = sorted(downs)
        assert left_s < first_s + 0.005
        apart += last_s > first_s + 0.010
        simulator.restore(link)
        use(simulator, both, for_s=2.0)
    assert apart >= 2  # so that it would have been seen


def test_a_source_leaves_its_own_dead_link_also_where_it_never_asked():
    simulator = converge(DCELL, "pr-gpi:refresh_ms=60000,idle_s=3600")
    use(simulator, [(0, 5)], 1.0)
    assert simulator.walk(0, 5).path == (0, 4, 5)
    simulator.protocol(0)._probes._passed.clear()  # as if no question had left yet
    simulator.fail(DCELL.link("h0-h4"))
    simulator.run_for(0.02)
    assert not simulator.walk(0, 5).lost


def test_a_refused_packet_makes_the_source_choose_anew():
    simulator = converge(DCELL, "pr-gpi:refresh_ms=60000,idle_s=3600")
    use(simulator, [(0, 19)], 1.0)
    near, link = bridge(DCELL, simulator.walk(0, 19).path)
    simulator.protocol(near)._probes._passed.clear()  # it does not know whose questions have passed
    simulator.fail(link)
    simulator.run_for(0.2)
    assert simulator.walk(0, 19).lost
    simulator.send(0, 19)
    simulator.run_for(0.01)
    assert not simulator.walk(0, 19).lost


def test_a_question_that_another_one_has_answered_may_be_lost():
    simulator = converge(DCELL, "pr-gpi:refresh_ms=60000")
    use(simulator, [(0, 19)], 1.0)
    source = simulator.protocol(0)
    paths = source._paths[19]
    source._probe_queue.want(paths, [paths.current], urgent=False)
    assert source._probe_queue.leaving(simulator.now)
    paths.connected(paths.current, 0)
    asked = simulator.status(0)["probes_sent"]
    use(simulator, [(0, 19)], 4.0)
    assert simulator.status(0)["timeouts"] == 1
    assert simulator.status(0)["probes_sent"] == asked, "nothing is left to ask"


def test_a_path_that_is_whole_again_is_taken_again():
    simulator = converge(DCELL)
    use(simulator, [(0, 19)], 1.0)
    before = simulator.walk(0, 19).path
    _, link = bridge(DCELL, before)
    simulator.fail(link)
    use(simulator, [(0, 19)], 1.0)
    assert len(simulator.walk(0, 19).path) > len(before)
    simulator.restore(link)
    use(simulator, [(0, 19)], 4.0)
    assert len(simulator.walk(0, 19).path) == len(before)


@pytest.mark.slow
def test_tables_at_proxies_save_messages_and_lose_no_pair():
    """Links within proxies' copies die; everybody asks his paths."""
    numbers = {}
    for table_ms in (0, 500):
        simulator = converge(FICONN, f"pr-gpe:probes_per_s=50,urgent_per_s=50,table_ms={table_ms}")
        pairs = some_pairs(FICONN, 200)
        for link in random.Random(3).sample(range(len(FICONN.links)), 10):
            simulator.fail(link)
        simulator.run_for(0.2)
        asked = sum(simulator.status(node)["probes_sent"] for node in range(FICONN.servers))
        before = simulator.counters["messages"]
        use(simulator, pairs, for_s=4.0)
        asked = sum(simulator.status(node)["probes_sent"] for node in range(FICONN.servers)) - asked
        numbers[table_ms] = (
            simulator.counters["messages"] - before,
            {p for p in pairs if simulator.walk(*p).lost},
            asked,
        )
    (messages, lost, _), (fewer, lost_with, _) = numbers[0], numbers[500]
    assert lost_with == lost
    assert fewer < messages


def test_what_is_not_used_is_forgotten_and_asked_no_more():
    simulator = converge(DCELL, "pr-gpi:idle_s=2")
    use(simulator, [(0, 19)], 1.0)
    assert "h19" in simulator.status(0)["destinations"]
    simulator.run_for(3)
    assert simulator.status(0)["destinations"] == {}
    sent = simulator.status(0)["probes_sent"]
    simulator.run_for(5)
    assert simulator.status(0)["probes_sent"] == sent


def test_only_so_many_destinations_have_paths_of_their_own(monkeypatch):
    monkeypatch.setattr(daemon, "MOST_DESTINATIONS", 3)
    simulator = converge(DCELL)
    use(simulator, [(0, dst) for dst in range(4, 20)], 0.5)
    assert len(simulator.status(0)["destinations"]) == 3


def test_questions_are_limited():
    """Whatever happens: here a source's own links flap, and all of its destinations are in use."""
    simulator = converge(FICONN, "pr-gpe:probes_per_s=3,urgent_per_s=2,hold_ms=1")
    began = simulator.now
    for turn in range(20):
        use(simulator, [(0, dst) for dst in range(12, 48)], 0.5)
        (simulator.restore if turn % 2 else simulator.fail)(FICONN.ports(0)[turn // 2 % 2][3])
    asked = simulator.status(0)["probes_sent"]
    assert asked <= (3 + 2) * (simulator.now - began + BURST_S)
    assert asked > 3 * 10  # it does ask


def strike(simulator, kind, near, far):
    """Let a failure of `kind` happen to server `far`, or to what joins `near` to it; the links that
    are dead then."""
    topology, rack = simulator.topology, range(far - far % 4, far - far % 4 + 4)
    (link,) = [link for _, other, _, link in topology.ports(near) if other == far]
    if kind in ("link", "silent link", "one way there", "one way back"):
        simulator.fail(
            link,
            silent=kind != "link",
            sender={"one way there": near, "one way back": far}.get(kind),
        )
        return [link]
    victims = [far] if kind != "rack" else list(rack)
    for node in victims:
        if kind == "daemon":
            simulator.stall(node, 10.0)
        elif kind == "restarted daemon":
            simulator.restart(node)
        else:
            simulator.kill(node)
    if kind == "restarted daemon":
        return []
    return [link for node in victims for _, _, _, link in topology.ports(node)]


KINDS = [
    "link",
    "silent link",
    "one way there",
    "one way back",
    "node",
    "rack",
    "daemon",
    "restarted daemon",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_what_the_search_still_connects_has_a_way_again(kind):
    """After each kind of failure, within 150 ms where one question or none is enough, a second
    where more are."""
    simulator = converge(FICONN)
    pairs = some_pairs(FICONN, 60)
    use(simulator, pairs)
    _, _, path = a_proxied_pair(simulator, pairs)
    near, _ = bridge(FICONN, path)
    far = path[path.index(near) + 1]
    links = strike(simulator, kind, near, far)
    hops = expected_hops(FICONN, proxy.GP_I, dead_channels(FICONN, links))
    hit = set(range(far - far % 4, far - far % 4 + 4)) if kind == "rack" else {far}
    left = [pair for pair in pairs if hops(*pair) >= 0 and not hit & set(pair)]
    soon = lost_after(simulator, left, 0.15)
    assert len(soon) <= 0.1 * len(left)
    assert not lost_after(simulator, left, 1.0)


def lost_after(simulator, pairs, seconds):
    """Which of `pairs` have no way when they have sent every 10 ms for so long."""
    for _ in range(round(seconds / 0.01)):
        simulator.run_for(0.01)
        lost = [pair for pair in pairs if simulator.send(*pair).lost]
    return lost


@pytest.mark.parametrize(("most_hold_ms", "most_changes"), [(30_000, 12), (500, 60)])
def test_a_link_that_flaps_is_left_alone(most_hold_ms, most_changes):
    """It dies for 100 ms in every 400 ms, for 15 s; the source returns to it ever more seldom, as
    far as it may."""
    simulator = converge(DCELL, f"pr-gpi:probes_per_s=20,most_hold_ms={most_hold_ms}")
    use(simulator, [(0, 19)], 1.0)
    _, link = bridge(DCELL, simulator.walk(0, 19).path)
    for _ in range(38):
        simulator.fail(link)
        use(simulator, [(0, 19)], 0.1, 0.05)
        simulator.restore(link)
        use(simulator, [(0, 19)], 0.3, 0.05)
    changes = simulator.status(0)["destinations"]["h19"]["changes"]
    assert most_changes / 3 <= changes <= most_changes


@pytest.mark.slow
def test_false_alarms_do_not_feed_on_themselves():
    """Daemons are kept from running again and again, so that neighbours take them for dead: that
    makes sources ask no more than their budgets allow, and when it is over everything is as
    before."""
    draw = random.Random(5)
    simulator = converge(FICONN)
    pairs = some_pairs(FICONN, 300)
    use(simulator, pairs, 1.0)
    for _ in range(100):
        for node in draw.sample(range(FICONN.servers), 4):
            simulator.stall(node, 0.12)
        use(simulator, pairs, 0.02, 0.02)
    seconds = simulator.now
    status = [simulator.status(node) for node in range(FICONN.servers)]
    assert sum(row["downs"] for row in status) > 100
    assert max(row["probes_sent"] for row in status) <= (2 + 2) * (seconds + BURST_S)
    assert not lost_after(simulator, pairs, 1.0)


@pytest.mark.parametrize("topology", [FICONN, DCELL], ids=["ficonn", "dcell"])
@pytest.mark.slow
def test_no_packet_ever_runs_in_circles(topology):
    """Links, servers and daemons die, in silence or not, and come back, while questions and hellos
    are lost: at no instant do the tables lead a packet to where it has been."""
    draw = random.Random(7)
    simulator = converge(
        topology, wire=Wire(loss_fraction=0.02, jitter_s=1e-4), random=random.Random(3)
    )
    pairs = some_pairs(topology, 60)
    use(simulator, pairs, 1.0)
    broken = []
    for turn in range(250):
        if turn % 8 == 0:
            if len(broken) > 6:
                broken.pop(0)()
            broken.append(break_something(simulator, draw))
        walks = [simulator.send(*pair) for pair in pairs]
        assert not [walk for walk in walks if walk.lost.startswith("loop")]
        simulator.run_for(0.01)


def break_something(simulator, draw):
    """A link, a server or a daemon fails; what mends it."""
    node, link = (
        draw.randrange(simulator.topology.servers),
        draw.randrange(len(simulator.topology.links)),
    )
    kind = draw.choice(["link", "silent link", "one way", "node", "daemon"])
    if kind == "node":
        simulator.kill(node)
        return lambda: simulator.restart(node)
    if kind == "daemon":
        simulator.stall(node, 0.3)
        return lambda: None
    sender = int(simulator.topology.links[link][0]) if kind == "one way" else None
    simulator.fail(link, silent=kind != "link", sender=sender)
    return lambda: simulator.restore(link)
