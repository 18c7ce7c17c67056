"""Path groups and what becomes of them under failures, against every path of whole fat-trees walked
link by link."""

import random
from itertools import product

import pytest

from weft.daemons.lbsp import routing as lbsp
from weft.daemons.lbsp.routing import AGGREGATION, CORE, EDGE, LbspShape, SwitchPosition, Uplink
from weft.topologies import build
from weft.topologies.core.address import EVERYTHING, Prefix

FOUR, EIGHT = LbspShape(4, 2, 2), LbspShape(8, 4, 4)
SIXTEEN, SIXTEEN_OF_FOUR = LbspShape(16, 8, 8), LbspShape(16, 8, 8, 4)
SHAPES = [FOUR, EIGHT, SIXTEEN, SIXTEEN_OF_FOUR, LbspShape(4, 2, 8), LbspShape(2, 4, 4)]


def switches(shape):
    return [
        shape.position(node)
        for node in range(shape.servers, shape.servers + 2 * shape.pods * shape.d + shape.d**2)
    ]


class Tables:
    """The tables of all switches that know the same, made when they are asked for."""

    def __init__(self, shape, dead=(), degraded=()):
        self.shape, self.dead, self.degraded, self.made = (
            shape,
            frozenset(dead),
            frozenset(degraded),
            {},
        )

    def __getitem__(self, at):
        if at not in self.made:
            self.made[at] = lbsp.table(self.shape, at, self.dead, self.degraded)
        return self.made[at]

    def ports(self, position, dst):
        """Where `at` sends what is for host `dst`."""
        address = self.shape.layout.address(self.shape.layout.label_of(dst))
        prefix = max((p for p in self[position] if p.holds(address)), key=lambda p: p.length)
        columns = self[position][prefix].columns
        return columns[self.shape.link_group(position.tier, dst) % len(columns)]

    def paths(self, src, dst):
        """All paths that packets take between two hosts, as links; a packet that has nowhere to go
        raises."""
        return list(self.onward(self.edge(src), dst, (), ()))

    def edge(self, host):
        return SwitchPosition(EDGE, *self.shape.layout.label_of(host)[:2])

    def onward(self, position, dst, links, visited):
        assert position not in visited, f"loop at {position}"
        if position == self.edge(dst):
            yield links
            return
        ports = self.ports(position, dst)
        assert ports, f"nowhere to go from {position} to {dst}"
        assert len(set(ports)) == len(ports)
        first = self.shape.down_ports(position.tier)
        for port in ports:
            if position.tier != CORE and port >= first:
                link = Uplink(position, port - first)
                yield from self.onward(link.upper, dst, (*links, link), (*visited, position))
            else:
                below = (
                    SwitchPosition(AGGREGATION, port, position.number)
                    if position.tier == CORE
                    else SwitchPosition(EDGE, position.pod, port)
                )
                link = Uplink(below, position.pod if position.tier == CORE else position.number)
                yield from self.onward(below, dst, (*links, link), (*visited, position))


def all_paths(shape, src, dst):
    """Every up-down path between two hosts of different edge switches, from the wiring alone."""
    (pod, edge, _), (to, below, _) = shape.layout.label_of(src), shape.layout.label_of(dst)
    for j in range(shape.d):
        up, down = (
            Uplink(SwitchPosition(EDGE, pod, edge), j),
            Uplink(SwitchPosition(EDGE, to, below), j),
        )
        if pod == to:
            yield (up, down)
            continue
        for u in range(shape.d):
            yield (
                up,
                Uplink(SwitchPosition(AGGREGATION, pod, j), u),
                Uplink(SwitchPosition(AGGREGATION, to, j), u),
                down,
            )


def hosts_apart(shape, draw, count):
    """Pairs of hosts behind different edge switches."""
    rows = []
    while len(rows) < count:
        src, dst = draw.randrange(shape.servers), draw.randrange(shape.servers)
        if src // shape.hosts != dst // shape.hosts:
            rows.append((src, dst))
    return rows


def every_pair(shape):
    """Hosts behind different edge switches; of each two edge switches one source and every
    destination."""
    hosts = range(shape.servers)
    return [
        (src, dst)
        for src in hosts[:: shape.hosts]
        for dst in hosts
        if src // shape.hosts != dst // shape.hosts
    ]


@pytest.mark.parametrize("shape", SHAPES)
def test_switches_and_links_are_those_of_the_topology(shape):
    topology = build(
        f"fattree:k={2 * shape.d},pods={shape.pods},oversubscription={shape.hosts // shape.d}"
    )
    assert topology.servers == shape.servers
    ports = set()
    for a, port, b, far in topology.links[topology.level > 0].tolist():
        link = shape.link(a, b)
        assert shape.link(b, a) == link
        assert (shape.node(link.lower), shape.node(link.upper)) == (a, b)
        assert port == shape.down_ports(link.lower.tier) + link.up
        assert far == (link.lower.number if link.lower.tier == EDGE else link.lower.pod)
        ports.add(link)
    assert sorted(ports) == shape.links()
    with pytest.raises(ValueError, match="no link joins"):
        shape.link(shape.servers, shape.servers + 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_path_groups_are_disjoint_and_equal_in_size_and_together_all_paths(shape):
    """Section 3.2 and Table 1: groups^2 of them, told by the least bits of the destination."""
    tables = Tables(shape)
    src, to = 0, shape.servers // 2
    by_group = {}
    for dst in range(to, to + shape.d * shape.hosts):
        group = shape.link_group(EDGE, dst), shape.link_group(AGGREGATION, dst)
        by_group.setdefault(group, set()).add(
            frozenset(path[:3] for path in tables.paths(src, dst))
        )
    assert sorted(by_group) == list(product(range(shape.groups), repeat=2))
    seen = []
    for (paths,) in by_group.values():
        assert len(paths) == (shape.d // shape.groups) ** 2
        seen += paths
    assert len(seen) == len(set(seen)) == shape.d**2


def test_the_papers_example_takes_the_papers_ports():
    """Section 3.3.2 and figure 5, host 15 to 115 in an 8-ary fat-tree: A1 and A3 leave ports 1, 3
    for 0, 2."""
    assert Tables(EIGHT).ports(SwitchPosition(EDGE, 0, 3), 115) == (4 + 1, 4 + 3)
    failed = Uplink(SwitchPosition(AGGREGATION, 7, 3), 3)
    assert EIGHT.kind(failed) == 3
    assert str(EIGHT.affected(failed, failed.upper)) == "10.7.0.0/16"
    assert EIGHT.affected(failed, failed.lower) == EVERYTHING
    tables = Tables(EIGHT, [failed])
    assert tables.ports(SwitchPosition(EDGE, 0, 3), 115) == (4 + 1, 4 + 3)
    for number, ports in enumerate(
        [(4 + 1, 4 + 3), (4 + 0, 4 + 2), (4 + 1, 4 + 3), (4 + 0, 4 + 2)]
    ):
        assert tables.ports(SwitchPosition(AGGREGATION, 0, number), 115) == ports


def test_a_failure_below_affects_one_range_and_its_type():
    """Section 3.3.1: A31 - T31 is down, type 1, hosts 124 to 127."""
    failed = Uplink(SwitchPosition(EDGE, 7, 3), 3)
    assert EIGHT.kind(failed) == 1
    assert EIGHT.affected(failed, failed.upper) == EIGHT.layout.prefix((7, 3))
    changed = {
        at: {
            prefix
            for prefix in Tables(EIGHT, [failed])[at]
            if Tables(EIGHT)[at].get(prefix) is None
        }
        for at in switches(EIGHT)
    }
    for at, prefixes in changed.items():
        assert prefixes == (
            {EIGHT.layout.prefix((7, 3))} if at.tier == EDGE and at != failed.lower else set()
        )
    assert [route.columns for route in outer_routes(EIGHT, failed.lower, [failed])] == [
        ((4, 6), (4, 6))
    ]


def test_a_failed_link_of_an_edge_switch_reroutes_three_per_cent_of_all_pairs():
    """Section 3.4 says about 6 % at k = 8, which is everything from and to the four hosts: half of
    that has the other link group as its own and stays where it is."""
    sound, broken = Tables(EIGHT), Tables(EIGHT, [Uplink(SwitchPosition(EDGE, 7, 3), 3)])
    moved, touched = 0, 0
    for src in range(EIGHT.servers):
        edge = sound.edge(src)
        for dst in range(EIGHT.servers):
            if edge != sound.edge(dst):
                moved += sound.ports(edge, dst) != broken.ports(edge, dst)
                touched += (7, 3) in (edge[1:], sound.edge(dst)[1:])
    assert touched / EIGHT.servers**2 == pytest.approx(0.0605, abs=1e-4)
    assert moved / EIGHT.servers**2 == pytest.approx(0.0303, abs=1e-4)


@pytest.mark.parametrize(
    ("shape", "pairs"), [(FOUR, None), (EIGHT, 4), (SIXTEEN, 1), (SIXTEEN_OF_FOUR, 1)]
)
@pytest.mark.slow
def test_after_any_single_failure_every_pair_has_a_whole_path_group(shape, pairs):
    draw = random.Random(1)
    for link in shape.links() if shape.d < 8 else draw.sample(shape.links(), 40):
        tables = Tables(shape, [link])
        for src, dst in every_pair(shape) if pairs is None else hosts_apart(shape, draw, pairs):
            check_symmetric(tables, src, dst)


def test_after_the_failure_of_any_switch_every_pair_has_a_whole_path_group():
    for at in switches(FOUR):
        tables = Tables(FOUR, dead_switch(FOUR, at))
        for src, dst in every_pair(FOUR):
            if at not in (tables.edge(src), tables.edge(dst)):
                check_symmetric(tables, src, dst)


def outer_routes(shape, position, dead, degraded=()):
    """The routes of a switch to what lies beyond its own range."""
    table = lbsp.table(shape, position, dead, degraded)
    assert table.pop(shape.own_range(position)) == lbsp.NOWHERE
    return list(table.values())


def dead_switch(shape, position):
    return [link for link in shape.links() if position in (link.lower, link.upper)]


def check_symmetric(tables, src, dst):
    """The paths make up a product of link groups, none of which has a dead or degraded link."""
    shape, paths = tables.shape, tables.paths(src, dst)
    size = shape.d // shape.groups
    assert len(paths) == size ** (len(paths[0]) // 2)
    for path in paths:
        assert tables.dead.isdisjoint(path)
        assert tables.degraded.isdisjoint(path)
        assert path in list(all_paths(shape, src, dst))
    for hop in range(len(paths[0]) // 2):
        assert len({path[hop].up % shape.groups for path in paths}) == 1


@pytest.mark.parametrize(
    ("shape", "rounds", "pairs"), [(FOUR, 200, 8), (EIGHT, 50, 8), (SIXTEEN, 5, 4)]
)
def test_whoever_is_still_connected_is_reached_and_nothing_goes_round(shape, rounds, pairs):
    draw = random.Random(2)
    links = shape.links()
    for _ in range(rounds):
        dead = set(draw.sample(links, draw.randrange(1, len(links) * 3 // 4)))
        if draw.random() < 0.3:
            dead |= set(dead_switch(shape, draw.choice(switches(shape))))
        tables = Tables(shape, dead, draw.sample(links, draw.randrange(len(links) // 2)))
        for src, dst in hosts_apart(shape, draw, pairs):
            sound = [path for path in all_paths(shape, src, dst) if dead.isdisjoint(path)]
            if sound:
                assert set(tables.paths(src, dst)) <= set(sound)


def test_a_route_without_an_intact_group_says_so():
    """With a link of each group of an edge switch gone, its packets take what works."""
    position = SwitchPosition(EDGE, 0, 0)
    routes = outer_routes(EIGHT, position, [Uplink(position, 0), Uplink(position, 1)])
    assert {route.symmetric for route in routes} == {False}
    assert {route.columns for route in routes} == {((6, 7), (6, 7))}
    assert all(
        route.symmetric
        for route in outer_routes(EIGHT, position, [Uplink(position, 0), Uplink(position, 2)])
    )
    assert {
        route.ports
        for route in outer_routes(EIGHT, position, [Uplink(position, u) for u in range(4)])
    } == {()}


def test_a_degraded_link_is_left_as_a_failed_one_is_but_only_while_there_is_an_alternative():
    slow = Uplink(SwitchPosition(EDGE, 5, 2), 1)
    for src, dst in [(0, EIGHT.servers // 8 * 5 + 9), (EIGHT.servers // 8 * 5 + 9, 1)]:
        check_symmetric(Tables(EIGHT, degraded=[slow]), src, dst)
    position = SwitchPosition(EDGE, 0, 0)
    both = outer_routes(EIGHT, position, [Uplink(position, 1)], [Uplink(position, 2)])
    assert {route.columns for route in both} == {((4, 6), (4, 6))}
    assert all(route.symmetric for route in both)


def test_a_table_grows_only_by_what_failed():
    assert [
        len(lbsp.table(EIGHT, SwitchPosition(tier, 0, 0), [])) for tier in (EDGE, AGGREGATION, CORE)
    ] == [
        2,
        2 + 4,
        8,
    ]
    above = Uplink(SwitchPosition(AGGREGATION, 6, 1), 0)
    assert set(lbsp.table(EIGHT, SwitchPosition(AGGREGATION, 0, 1), [above])) - set(
        lbsp.table(EIGHT, SwitchPosition(AGGREGATION, 0, 1), [])
    ) == {EIGHT.layout.prefix((6,))}


def test_columns_lie_row_by_row():
    assert lbsp.LbspRoute(((4, 6), (5, 7))).ports == (4, 5, 6, 7)
    assert lbsp.LbspRoute(((4,), (5,))).ports == (4, 5)
    assert lbsp.LbspRoute(((2,),)).ports == (2,)
    assert lbsp.LbspRoute(((),)).ports == lbsp.LbspRoute(((), ())).ports == ()
    assert lbsp.LbspRoute(((4, 6, 7), (4, 6, 7))).ports == (4, 4, 6, 6, 7, 7)


@pytest.mark.parametrize(("count", "groups"), [(40, 2), (63, 2), (64, 2), (64, 4), (33, 2)])
def test_no_port_is_idle_where_there_are_too_many_for_each_group(count, groups):
    """At k = 128 an edge switch has 64 uplinks, which is all that a route holds."""
    ports = lbsp.LbspRoute((tuple(range(count)),) * groups).ports
    assert len(ports) <= 64
    assert len(ports) % groups == 0
    assert set(ports) == set(range(count))


def test_link_groups_that_no_route_can_hold_are_refused():
    with pytest.raises(ValueError, match="at most 64"):
        lbsp.LbspRoute((tuple(range(64)), tuple(range(64, 128)))).ports  # noqa: B018
    with pytest.raises(ValueError, match="at most 64 uplinks here, got k = 256"):
        lbsp.shape_of(build("fattree:k=256,pods=2"))


@pytest.mark.parametrize(
    ("spec", "groups"), [("fattree:k=8", 8), ("fattree:k=4", 4), ("fattree:k=8", 3)]
)
def test_more_link_groups_than_uplinks_are_refused(spec, groups):
    with pytest.raises(ValueError, match="groups must be a power of two from 2 to k/2"):
        lbsp.shape_of(build(spec), groups)


@pytest.mark.parametrize(
    ("state", "crowd", "then"),
    [
        (0, (5, 0), 0),
        (0, (6, 4), 0),
        (0, (6, 3), 1),
        (0, (0, 6), 2),
        (0, (9, 6), 0),
        (0, (10, 6), 1),
        (1, (6, 4), 1),
        (1, (3, 1), 1),
        (1, (3, 2), 0),
        (1, (0, 0), 0),
        (1, (2, 9), 2),
        (2, (4, 6), 2),
        (2, (4, 5), 0),
        (2, (9, 2), 1),
    ],
)
def test_states_follow_the_queues(state, crowd, then):
    """Figure 8, with the thresholds of edge switches in section 5.2: over 5 packets, over 1.5 times
    as long."""
    assert lbsp.next_state(state, crowd, 5, 150) == then


def table_3(state, own, input_port):
    """Table 3, column by column."""
    parity = input_port % 2
    if state == 1:
        return (0 if parity == 0 else 1) if own == 0 else 1
    if state == 2:
        return (0 if parity == 0 else 1) if own == 1 else 0
    return 0 if own == 0 else 1


def test_the_link_group_in_each_state_is_that_of_table_3():
    for state, own, port in product(range(3), range(2), range(4)):
        assert lbsp.group_in_state(state, own, port) == table_3(state, own, port)


def test_a_pair_agrees_on_what_one_wants_and_none_opposes():
    assert [lbsp.agreed(pair) for pair in ((0, 0), (0, 1), (2, 0), (2, 2), (1, 2))] == [
        0,
        1,
        2,
        2,
        0,
    ]


@pytest.mark.parametrize(("d", "groups"), [(1, 2), (3, 2), (6, 2), (4, 1), (4, 3), (4, 8)])
def test_what_lbsp_cannot_part_is_refused(d, groups):
    with pytest.raises(ValueError, match="power of two"):
        LbspShape(2 * d, d, d, groups)


def test_one_pod_has_nothing_to_choose():
    with pytest.raises(ValueError, match="two pods or more"):
        LbspShape(1, 2, 2)


def test_hosts_are_no_switches():
    for node in (0, EIGHT.servers - 1, EIGHT.servers + 80):
        with pytest.raises(ValueError, match="is no switch"):
            EIGHT.position(node)
    assert Prefix(10 << 24, 8) == EIGHT.layout.prefix(())
